"""Every shared link in every trial: what the circle predicted for the offsets the jobs began with, and what happened.

A row per arm, trial and link, in validation.json's "links":

    {"arm", "trial", "link", "jobs",
     "score",                    of the link for the starts of the trial, on the circle of the measured profiles
     "excess_bytes",             demanded beyond the capacity, per iteration of a job
     "marked_packets",           by the link's queue, per iteration of a job
     "marked_share",             of all packets that the link sent: the same at any scale
     "peak_queue_bytes", "mean_queue_bytes",
     "slowdown",                 mean over the jobs of iteration time over that alone
     "iteration_s": {job: {"alone", "measured"}}}

In the arm `random` each trial has other starts, hence another score: that gives links of many scores. Where iteration
times have little in common the score is that of a moment: jobs drift past each other, and only the mean is predicted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from controllers.cassini.affinity import SharedLink, merge
from controllers.cassini.circle import UnifiedCircle, unify
from controllers.cassini.compatibility import excess_bps, score
from controllers.cassini.module import rotations
from controllers.cassini.profile import Profile
from testbed.report.load import Arm, Trial


def rows(run_dir: Path, rate_bps: float, arms: Mapping[str, Arm]) -> list[dict[str, Any]]:
    """Return the rows of a run; none where there are no profiles."""
    path = run_dir / "profiles.json"
    if not path.is_file():
        return []
    raw = json.loads(path.read_text(encoding="utf-8"))
    links = [SharedLink(link, rate_bps, tuple(map(Profile.from_dict, own))) for link, own in raw.items()]
    circles = {vertex.name: (unify(vertex.profiles), vertex.profiles) for vertex in merge(links)}
    return [row for name, arm in arms.items() if name != "alone" for row in _of_arm(arm, circles, rate_bps)]


def _of_arm(
    arm: Arm, circles: Mapping[str, tuple[UnifiedCircle, Sequence[Profile]]], rate_bps: float
) -> Iterator[dict[str, Any]]:
    starts = json.loads((arm.folder / "plan.json").read_text(encoding="utf-8"))["trials"]
    for trial in arm.trials:
        began = starts[int(trial.name)]
        for link, (circle, profiles) in circles.items():
            if link in arm.queues and all(job in trial.jobs for job in circle.jobs):
                yield {"arm": arm.name, "trial": trial.name, "link": link, "jobs": list(circle.jobs)} | _row(
                    arm, trial, link, circle, profiles, began, rate_bps
                )


def _row(
    arm: Arm,
    trial: Trial,
    link: str,
    circle: UnifiedCircle,
    profiles: Sequence[Profile],
    began: Mapping[str, float],
    rate_bps: float,
) -> dict[str, Any]:
    turned = rotations(circle, {job: began[job] for job in circle.jobs})
    excess = float(excess_bps(circle.rotated(turned).sum(axis=0), rate_bps).sum()) * circle.slot_s / 8
    queue, span = arm.queues[link], trial.window_s
    runs = {job: trial.jobs[job].iteration_s for job in circle.jobs}
    alone = {profile.job: profile.period_s for profile in profiles}
    iterations = sum(len(times) for times in runs.values())
    marked, sent = (queue.between(column, *trial.whole_s) for column in ("marked_packets", "tx_packets"))
    inside = (queue.t_s >= span[0]) & (queue.t_s <= span[1])
    return {
        "score": score(circle, turned, rate_bps),
        "excess_bytes": excess / sum(circle.turns),
        "marked_packets": marked / iterations,
        "marked_share": marked / sent if sent else 0.0,
        "peak_queue_bytes": queue.peak_bytes(*trial.whole_s),
        "mean_queue_bytes": float(queue.backlog_bytes[inside].mean()) if inside.any() else 0.0,
        "slowdown": float(np.mean([times.mean() / alone[job] for job, times in runs.items()])),
        "iteration_s": {job: {"alone": alone[job], "measured": float(times.mean())} for job, times in runs.items()},
    }
