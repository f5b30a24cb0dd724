"""validation.json of a run on a wide-area network: what had been predicted, beside what the packets did.

rounds    per system and prediction (published metric, chunks on shared links): a round without computing
nodes     per system and site: transmission, blocking and aggregation, chunk by chunk (simulation) and of a root's
          whole share (metric)
roots     per system and root: its share of the bytes, and when it was done
bounds    per system: the least that any schedule takes, and how many times that it took
choices   per system: the best other root of its group, and the best of all that was replayed in packets
ranks     over all systems: how well each prediction orders them (Spearman, Kendall's tau-b)
believed  per system that is aware: the throughputs it believed in beside what the links could carry
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy import stats

from testbed.geo.beliefs import believed
from testbed.geo.bounds import Bounds
from testbed.geo.experiment import System, WideExperiment
from testbed.geo.measured import Pushes
from testbed.report.wide import METRIC, SIMULATION
from testbed.telemetry.tables import Records
from workloads.paramsync.records import CHUNKS, ROUNDS
from workloads.paramsync.tensors import size_bytes

TOLERANCE = 0.1
"""How far the chunk-level simulation may be from the packets."""


def validate(experiment: WideExperiment, summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return what validation.json holds. summary: of the same run; folder: with an arm's files for each system."""
    pushes = {system.name: Pushes(CHUNKS.read(folder / system.name / CHUNKS.file)) for system in experiment.systems}
    rounds = list(_rounds(experiment, summary))
    found = (believed(experiment, folder / system.name) for system in experiment.systems)
    return {
        "rounds": rounds,
        "nodes": [row for system in experiment.systems for row in _nodes(system, pushes[system.name])],
        "roots": [row for system in experiment.systems for row in _roots(system, pushes[system.name], folder)],
        "bounds": _bounds(experiment, folder),
        "choices": list(_choices(summary)),
        "ranks": _ranks(rounds),
        "believed": {
            system.name: one for system, one in zip(experiment.systems, found, strict=True) if one is not None
        },
    }


def _rounds(experiment: WideExperiment, summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for system, found in zip(experiment.systems, summary["systems"], strict=True):
        measured_s = found["mean_sync_s"]
        for what, predicted_s in (
            (METRIC, system.prediction.metric_s),
            (SIMULATION, system.prediction.simulated_s),
        ):
            error = predicted_s / measured_s - 1
            yield {
                "system": system.name, "prediction": what, "predicted_s": predicted_s, "measured_s": measured_s,
                "relative_error": error, "within": abs(error) <= TOLERANCE,
            }  # fmt: skip


def _nodes(system: System, pushes: Pushes) -> Iterator[dict[str, Any]]:
    simulated = system.prediction.first.measured
    for site, found in pushes.by_chunk().items():
        yield {
            "system": system.name, "site": site, "of": "chunks", "predicted": asdict(simulated[site]),
            "measured": asdict(found),
        }  # fmt: skip
    for root, sites in pushes.by_root().items():
        for site, whole in sites.items():
            predicted = system.prediction.nodes.get(root, {}).get(site)
            yield {
                "system": system.name, "root": root, "site": site, "of": "share",
                "predicted": None if predicted is None else {
                    "transmission_s": predicted.transmission_s, "blocking_s": predicted.blocking_s,
                },
                "measured": {"transmission_s": whole.transmission_s, "blocking_s": whole.blocking_s},
            }  # fmt: skip


def _roots(system: System, pushes: Pushes, folder: Path) -> Iterator[dict[str, Any]]:
    rounds = ROUNDS.read(folder / system.name / ROUNDS.file)
    begins = _begins(rounds)
    ended = pushes.ended_s()
    planned = system.plan.shares()
    for root, share in pushes.shares().items():
        took_s = [ended[n][root] - begins[n] for n in ended if root in ended[n]]
        yield {
            "system": system.name, "root": root, "planned_share": planned.get(root), "share": share,
            "predicted_s": system.prediction.first.root_s.get(root), "measured_s": fmean(took_s),
        }  # fmt: skip


def _begins(rounds: Records) -> dict[int, float]:
    found: dict[int, float] = {}
    for number, begin_s in zip(rounds.counts("round"), rounds.numbers("begin_s"), strict=True):
        found[number or 0] = min(found.get(number or 0, begin_s), begin_s)
    return found


def _bounds(experiment: WideExperiment, folder: Path) -> dict[str, Any]:
    """Every round's own bound, on the links as they were; multiples are of the sums over all rounds, whose time counts
    from when the first site has computed: nothing can be on its way before."""
    of = Bounds(experiment.scenario, experiment.wan, experiment.changes)
    systems: dict[str, Any] = {}
    for system in experiment.systems:
        rounds, compute_s = ROUNDS.read(folder / system.name / ROUNDS.file), min(system.sync.compute_s)
        starts = sorted(_begins(rounds).values())
        edges = [at - starts[0] for at in (*starts, max(rounds.numbers("end_s")))]
        spans = [(begin + compute_s, end) for begin, end in pairwise(edges) if end > begin + compute_s]
        size = size_bytes(system.sync.chunks)
        if system.plan.active or system.plan.push_share:  # bounds are for all sites, and for all of the bytes
            systems[system.name] = dict.fromkeys(("flow_s", "of_flow", "cut_s", "of_cut"))
            continue
        bounds = [of.between(*span, size) for span in spans]
        took_s = sum(end - begin for begin, end in spans)
        flow_s, cuts = sum(one.flow_s for one in bounds), [one.cut_s for one in bounds if one.cut_s is not None]
        systems[system.name] = {
            "flow_s": flow_s / len(spans), "of_flow": took_s / flow_s,
            "cut_s": sum(cuts) / len(cuts) if cuts else None, "of_cut": took_s / sum(cuts) if cuts else None,
        }  # fmt: skip
    return {"systems": systems}


def _choices(summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """For each system: would another root, or another system altogether, have been faster?"""
    systems: Sequence[Mapping[str, Any]] = summary["systems"]
    best = min(systems, key=lambda one: one["mean_round_s"])
    for one in systems:
        own = [other for other in systems if other["group"] == one["group"]]
        root = min(own, key=lambda other: other["mean_round_s"])
        yield {
            "system": one["system"], "measured_s": one["mean_round_s"], "roots_tried": len(own),
            "best_root": root["system"], "over_best_root": one["mean_round_s"] / root["mean_round_s"],
            "best": best["system"], "over_best": one["mean_round_s"] / best["mean_round_s"],
        }  # fmt: skip


def _ranks(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, what in (("metric", METRIC), ("simulation", SIMULATION)):
        own = [row for row in rounds if row["prediction"] == what]
        pairs = [row["predicted_s"] for row in own], [row["measured_s"] for row in own]
        enough = len(own) > 2 and all(len(set(values)) > 1 for values in pairs)
        found[f"{name}.spearman"] = float(stats.spearmanr(*pairs).statistic) if enough else None
        found[f"{name}.kendall"] = float(stats.kendalltau(*pairs).statistic) if enough else None
    return found
