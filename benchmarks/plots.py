"""The plots of what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from benchmarks.decisions import Precise
from testbed.report import style


def precision(given: Mapping[str, list[Precise]], base: Path) -> list[Path]:
    """Draw accuracy and time over precision, as the paper has it, into BASE.png and BASE.svg; return the paths.

    Accuracy is the part of the best score that any precision reached.
    """
    points = sorted((runs[0].precision_deg, runs) for runs in given.values())
    best = max(runs[0].score for _, runs in points)
    degrees = [degree for degree, _ in points]
    with style.styled():
        made = style.figure(
            6.4, 3.6, "A precision of 5° loses nothing and costs milliseconds", "three jobs on a link, mean over links"
        )
        accuracy, wall = made.subplots(1, 2)
        accuracy.plot(degrees, [100 * runs[0].score / best for _, runs in points], "o-", color=style.JOBS[0])
        accuracy.set_ylabel("score, % of the best")
        wall.plot(
            degrees, [1e3 * statistics.median(run.wall_s for run in runs) for _, runs in points],
            "o-", color=style.JOBS[1],
        )  # fmt: skip
        wall.set_ylabel("time of a decision, ms")
        wall.set_yscale("log")
        for axes in (accuracy, wall):
            axes.set_xscale("log", base=2)
            axes.set_xticks(degrees, [f"{degree:g}" for degree in degrees])
            axes.set_xlabel("precision, degrees of an iteration")
            axes.axvline(5, color=style.FAINT, linewidth=0.8, linestyle=":")
        return style.save(made, base)
