"""CE marks per iteration: how many of a job's packets arrived marked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.report import style
from testbed.report.load import Arm, Floats, Setting


def ce_marks(arms: Mapping[str, Arm], setting: Setting) -> Figure:
    """Draw CE packets per iteration over the iterations (mean of trials, their span shaded), and each arm's mean."""
    names = [name for name in arms if name != "alone"]
    seen = {name: _by_iteration(arms[name]) for name in names}
    means = {name: float(np.nanmean(seen[name])) for name in names}
    said = ", ".join(f"{_count(means[name])} {name}" for name in names)
    made = style.figure(
        8.6,
        3.1,
        f"CE-marked packets per iteration and job: {said}",
        f"received by the workers, mean of the {len(setting.jobs)} jobs; shaded: span of the trials",
    )
    left, right = made.subplots(1, 2, width_ratios=(3.2, 1), sharey=True)
    for name in names:
        _curve(left, name, seen[name])
    left.set_xlabel("iteration")
    left.set_ylabel("CE packets")
    left.set_xlim(0, max(values.shape[1] for values in seen.values()) - 1)
    left.set_ylim(0, 1.08 * max(1.0, *(float(np.nanmax(values)) for values in seen.values())))
    for place, name in enumerate(names):
        colour, trials = style.ARM_COLOURS[name], np.nanmean(seen[name], axis=1)
        right.bar(place, means[name], width=0.62, color=colour, alpha=0.35, linewidth=0)
        right.plot(
            np.full(len(trials), place), trials, "o", color=colour, markersize=4, markeredgecolor="white", clip_on=False
        )
        right.annotate(
            _count(means[name]),
            (place, max(means[name], float(trials.max()))),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            color=colour,
            fontweight="bold",
        )
    crowded = {"rotation": 30, "ha": "right"} if len(names) > 3 else {}
    right.set_xticks(range(len(names)), names, **crowded)
    right.set_xlim(-0.6, len(names) - 0.4)
    right.set_title("mean, and each trial", color=style.FAINT)
    right.tick_params(axis="x", length=0)
    left.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=len(names), borderaxespad=0.2)
    return made


def _by_iteration(arm: Arm) -> Floats:
    """Return the mean of the jobs' CE packets, shape (trials, iterations), NaN after a trial's shortest job."""
    rows = []
    for trial in arm.trials:
        runs = trial.jobs.values()
        shortest = min(len(run.ce_packets) for run in runs)
        rows.append(np.mean([run.ce_packets[:shortest] for run in runs], axis=0))
    longest = max(len(row) for row in rows)
    return np.array([np.pad(row, (0, longest - len(row)), constant_values=np.nan) for row in rows])


def _curve(axes: Axes, name: str, values: Floats) -> None:
    colour, iterations = style.ARM_COLOURS[name], np.arange(values.shape[1])
    if len(values) > 1:
        axes.fill_between(
            iterations, np.nanmin(values, axis=0), np.nanmax(values, axis=0), color=colour, alpha=0.14, linewidth=0
        )
    axes.plot(
        iterations,
        np.nanmean(values, axis=0),
        color=colour,
        linestyle=style.ARM_DASHES[name],
        linewidth=1.8,
        label=name,
        clip_on=False,
    )


def _count(packets: float) -> str:
    return f"{packets:,.0f}" if packets >= 10 or packets == 0 else f"{packets:.2g}"
