"""The throughputs that awareness believed in, beside what the links could carry at that moment."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from testbed.geo.experiment import WideExperiment
from testbed.geo.prediction import payload_overlay
from testbed.geo.records import BELIEFS
from testbed.net.wan import dynamics
from workloads.paramsync.records import ROUNDS

CLOSE = 0.1


def believed(experiment: WideExperiment, folder: Path) -> dict[str, Any] | None:
    """Return how far beliefs were from the truth when they were formed, and by tunnel at the end; None without any.

    The truth is what the scenario set: the payload's part of the rate of the slowest link under the tunnel.
    """
    path = folder / BELIEFS.file
    if not path.is_file():
        return None
    records, start_s = BELIEFS.read(path), min(ROUNDS.read(folder / ROUNDS.file).numbers("begin_s"))
    rows = sorted(
        zip(
            records.numbers("t_s"), records.text("from"), records.text("to"), records.numbers("believed_bps"),
            strict=True,
        )
    )  # fmt: skip
    if not rows:
        return None
    wan, waiting = experiment.wan, list(experiment.changes)
    overlay, errors, last = payload_overlay(experiment.scenario, wan), [], {}
    for t_s, a, b, rate_bps in rows:
        changed = False
        while waiting and waiting[0].t_s <= t_s - start_s:
            wan, changed = dynamics.apply(wan, waiting.pop(0)), True
        if changed:
            overlay = payload_overlay(experiment.scenario, wan)
        error = rate_bps / overlay.by_pair[a, b].throughput_bps - 1
        errors.append(abs(error))
        last[f"{a}->{b}"] = {"believed_bps": rate_bps, "true_bps": overlay.by_pair[a, b].throughput_bps, "t_s": t_s}
    return {
        "beliefs": len(errors), "median_error": median(errors),
        "close": sum(error <= CLOSE for error in errors) / len(errors),
        "tunnels_seen": len(last), "tunnels": len(overlay.by_pair), "last": last,
    }  # fmt: skip
