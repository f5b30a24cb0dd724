"""What the systems did: round times, speed-ups, and the accounts of the links."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from testbed.geo import consistency
from testbed.geo.experiment import System, WideExperiment
from testbed.geo.records import TUNNELS, WAN_LINKS
from testbed.report.wide import KIND
from testbed.telemetry.tables import Records
from workloads.paramsync.records import CHUNKS, ROUNDS, TRAINING


def round_times_s(rounds: Records) -> list[float]:
    """How long each round took: from the last site's end of the one before (the first: from its begin) to its own."""
    numbers, begins, ends = rounds.counts("round"), rounds.numbers("begin_s"), rounds.numbers("end_s")
    last_s: dict[int | None, float] = {}
    for number, end_s in zip(numbers, ends, strict=True):
        last_s[number] = max(last_s.get(number, 0.0), end_s)
    edges = [min(begins), *sorted(last_s.values())]
    return [after - before for before, after in pairwise(edges)]


def _trained(training: Records, target: float) -> dict[str, Any]:
    """How near the sums were to direct ones; accuracy at the end, and when it was `target` first (None if never)."""
    found: dict[str, Any] = {"sums_error": max(training.numbers("error"))}
    if training.text("accuracy")[0]:
        curve = list(zip(training.numbers("t_s"), training.numbers("accuracy"), strict=True))
        found |= {"accuracy": curve[-1][1], "to_accuracy_s": next((t for t, share in curve if share >= target), None)}
    return found


def system_summary(folder: Path, system: System, target: float = 1.0) -> dict[str, Any]:
    """The figures of one system from its arm's files."""
    rounds = ROUNDS.read(folder / ROUNDS.file)
    times_s = round_times_s(rounds)
    compute_s = max(system.sync.compute_s)
    training = folder / TRAINING.file
    trained = _trained(TRAINING.read(training), target) if training.is_file() else {}
    digests = Counter(zip(rounds.counts("round"), rounds.text("digest"), strict=True))
    chunks = CHUNKS.read(folder / CHUNKS.file)
    counters = WAN_LINKS.read(folder / WAN_LINKS.file)
    begin, end = counters.where(label="begin"), counters.where(label="end")
    return (
        {
            "system": system.name,
            "group": system.group,
            "roots": [system.sync.sites[way.push.root] for way in system.sync.policy.ways],
            "rounds": len(times_s),
            "round_s": times_s,
            "mean_round_s": fmean(times_s),
            "mean_sync_s": fmean(times_s) - compute_s,
            "digests_agree": len(digests) == len(times_s) and set(digests.values()) == {len(system.sync.sites)},
            "chunk_events": dict(sorted(Counter(chunks.text("event")).items())),
            "wan_bytes": _total(end, "tx_bytes") - _total(begin, "tx_bytes"),
            "wan_drops": _total(end, "dropped_packets") - _total(begin, "dropped_packets"),
            "wan_marks": _total(end, "marked_packets") - _total(begin, "marked_packets"),
        }
        | trained
        | ({"protocol": consistency.counts(folder)} if system.sync.protocol else {})
    )


def _total(records: Records, column: str) -> int:
    return sum(value or 0 for value in records.counts(column))


def summarise(experiment: WideExperiment, folder: Path) -> dict[str, Any]:
    """All systems, and how much faster than the baseline each is, in mean round time."""
    systems = [
        system_summary(folder / system.name, system, experiment.scenario.sync.target) for system in experiment.systems
    ]
    baseline = experiment.scenario.measure.baseline or experiment.systems[0].group
    of_baseline = [one["mean_round_s"] for one in systems if one["group"] == baseline]
    for one in systems:
        one["speed_up"] = fmean(of_baseline) / one["mean_round_s"]
    default_of_baseline = _default_s(experiment, systems, baseline)
    groups = {}
    for group in dict.fromkeys(system.group for system in experiment.systems):
        means_s = [one["mean_round_s"] for one in systems if one["group"] == group]
        default_s = _default_s(experiment, systems, group)
        groups[group] = {
            "runs": len(means_s), "mean_s": fmean(means_s), "best_s": min(means_s), "worst_s": max(means_s),
            "speed_up": fmean(of_baseline) / fmean(means_s),
            "best_against_best": min(of_baseline) / min(means_s),
            "default_s": default_s, "default_against_default": default_of_baseline / default_s,
        }  # fmt: skip
    return {
        "kind": KIND,
        "scenario": experiment.scenario.name,
        "baseline": baseline,
        "groups": groups,
        "systems": systems,
    }


def _default_s(experiment: WideExperiment, systems: list[dict[str, Any]], group: str) -> float:
    """The mean round at the root that the strategy takes by itself."""
    names = {system.name for system in experiment.systems if system.default}
    return float(next(one["mean_round_s"] for one in systems if one["group"] == group and one["system"] in names))


def check_accounts(folder: Path) -> list[dict[str, Any]]:
    """The verdict on one arm: the switches' counters and the queues' must agree on every link, and so must both ends;
    tunnels must have been measured. The programs have checked the sums themselves."""
    counters = WAN_LINKS.read(folder / WAN_LINKS.file)
    faults, moved = [], 0
    begin, end = counters.where(label="begin"), counters.where(label="end")
    accounts = ("tx_packets", "queue_packets", "rx_packets")
    for link in begin.text("link"):
        before, after = begin.where(link=link), end.where(link=link)
        sent, queued, received = (_total(after, name) - _total(before, name) for name in accounts)
        moved += sent
        if not sent == queued == received:
            faults.append(f"{link}: port {sent}, queue {queued}, other end {received} packets")
    tunnels = TUNNELS.read(folder / TUNNELS.file)
    detail = "; ".join(faults[:3]) or f"{moved} packets"
    return [
        {"what": "every account of every link agrees", "ok": not faults, "detail": detail},
        {"what": "the links were used", "ok": moved > 0, "detail": f"{moved} packets"},
        {"what": "every tunnel was measured", "ok": len(tunnels) > 0, "detail": f"{len(tunnels)} directions"},
    ]  # fmt: skip
