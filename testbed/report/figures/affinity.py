"""The affinity graph: jobs, the links they meet on, and how much later each begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from controllers.cassini.decision import Decision
from testbed.report import style

JOB_X, LINK_X = 0.0, 1.0


def affinity(decisions: Sequence[Decision]) -> Figure:
    """Draw jobs on the left, what they share on the right: each decision's link with its score before and after.

    An edge carries the time-shift of a job there, which is the same on all links of the job.
    """
    jobs = sorted({job.job for decision in decisions for job in decision.jobs})
    rows = max(len(jobs), len(decisions))
    late = sum(any(job.time_shift_s for job in one.jobs) for one in decisions)
    made = style.figure(
        8.6, 1.2 + 0.62 * rows, f"{_counted(len(jobs), 'job')} on {_counted(len(decisions), 'set')} of shared links, "
        f"{late} with time-shifts", "one link of each set, the tightest; on the edges how much later a job begins",
    )  # fmt: skip
    axes = made.subplots(1, 1)
    axes.set_axis_off()
    places = {job: (JOB_X, y) for job, y in zip(jobs, _heights(len(jobs), rows), strict=True)}
    colours = style.job_colours(jobs)
    for decision, y in zip(decisions, _heights(len(decisions), rows), strict=True):
        for job in decision.jobs:
            _edge(axes, places[job.job], (LINK_X, y), colours[job.job], job.time_shift_s)
        _link(axes, decision, y)
    _jobs(axes, places, colours)
    axes.set_xlim(-0.34, 1.62)
    axes.set_ylim(rows - 0.4, -0.6)
    return made


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _heights(count: int, rows: int) -> list[float]:
    """Return evenly spread places of `count` things over `rows` rows."""
    return [float(y) for y in (np.arange(count) + 0.5) * rows / count - 0.5] if count else []


def _edge(axes: Axes, job: tuple[float, float], link: tuple[float, float], colour: str, shift_s: float) -> None:
    (x, y), (far_x, far_y) = job, link
    axes.plot([x, far_x], [y, far_y], color=colour, linewidth=2.0, zorder=1)
    at = 0.38  # nearer to the job, where edges are apart
    axes.text(
        x + at * (far_x - x), y + at * (far_y - y), f"+{1e3 * shift_s:.1f} ms" if shift_s else "0", fontsize=8,
        ha="center", va="center", color=colour, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.6}, zorder=2,
    )  # fmt: skip


def _link(axes: Axes, decision: Decision, y: float) -> None:
    axes.scatter([LINK_X], [y], s=90, color=style.INK, edgecolor="white", linewidth=1.5, zorder=3)
    axes.text(LINK_X + 0.05, y, decision.link, va="bottom", fontsize=9, fontweight="bold")
    scores = f"score {decision.score_unshifted:.2f}, shifted {decision.score:.2f}"
    axes.text(LINK_X + 0.05, y + 0.06, scores, va="top", fontsize=8, color=style.FAINT)


def _jobs(axes: Axes, places: Mapping[str, tuple[float, float]], colours: Mapping[str, str]) -> None:
    for job, (x, y) in places.items():
        axes.scatter([x], [y], s=150, color=colours[job], marker="s", edgecolor="white", linewidth=1.5, zorder=3)
        axes.text(x - 0.04, y, job, ha="right", va="center", fontsize=9, fontweight="bold")
