"""How long iterations take: their distribution by arm, and the phases they are made of over time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from testbed.report import series, style
from testbed.report.load import Arm, Floats, Setting
from testbed.report.summary import P99_FROM

MOST_PANELS = 3


def cdf(arms: Mapping[str, Arm], setting: Setting) -> Figure:
    """Draw the share of iterations that took at most so long: a panel per job and a line per arm.

    Beyond three jobs there is one panel for all. The median is a dot, the 99th percentile a tick where there are 200
    iterations or more.
    """
    jobs = list(setting.jobs)
    shown = [[job] for job in jobs] if len(jobs) <= MOST_PANELS else [jobs]
    medians = {name: 1e3 * float(np.median(_times(arm, jobs))) for name, arm in arms.items()}
    said = ", ".join(f"{name} {medians[name]:.0f} ms" for name in arms if name != "alone")
    made = style.figure(
        1.6 + 3.0 * len(shown), 3.5, f"Median iteration time: {said}", "share of iterations that took at most so long"
    )
    for axes, names in zip(made.subplots(1, len(shown), sharey=True, squeeze=False)[0], shown, strict=True):
        axes.set_title(names[0] if len(names) == 1 else "all jobs", fontweight="bold")
        axes.set_xlabel("iteration time (ms)")
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        lines = [_line(axes, name, 1e3 * _times(arm, names)) for name, arm in arms.items()]
        left, right = axes.get_xlim()
        axes.set_xlim(left - 0.02 * (right - left), right + 0.04 * (right - left))
        axes.legend(handles=lines, loc="upper left", bbox_to_anchor=(-0.02, -0.26), labelspacing=0.3, borderaxespad=0.2)
    return made


def _times(arm: Arm, jobs: list[str]) -> Floats:
    found = [trial.jobs[job].iteration_s for trial in arm.trials for job in jobs if job in trial.jobs]
    return np.sort(np.concatenate(found)) if found else np.zeros(0)


def _line(axes: Axes, name: str, times_ms: Floats) -> object:
    colour, count = style.ARM_COLOURS[name], len(times_ms)
    median = float(np.median(times_ms))
    label = f"{name}: median {median:.1f} ms"
    if count >= P99_FROM:
        p99 = float(np.quantile(times_ms, 0.99))
        label += f", p99 {p99:.1f} ms"
        axes.plot([p99], [0.99], marker="|", markersize=9, markeredgewidth=2, color=colour)
    axes.plot([median], [0.5], marker="o", markersize=5, color=colour, markeredgecolor="white", zorder=4)
    steps = np.concatenate([[times_ms[0]], times_ms])
    width = 1.4 if name == "alone" else 2.2
    [line] = axes.plot(
        steps,
        np.arange(count + 1) / count,
        drawstyle="steps-post",
        color=colour,
        linestyle=style.ARM_DASHES[name],
        linewidth=width,
        label=label,
        zorder=3 if name == "alone" else 2,
    )
    return line


def gantt(arms: Mapping[str, Arm], setting: Setting) -> Figure:
    """Draw the Down and Up phases of every job over some iterations, a panel per arm, with their overlap behind."""
    names = [name for name in arms if name != "alone"]
    jobs, colours = list(setting.jobs), style.job_colours(list(setting.jobs))
    length_s = series.shown_s(arms, iterations=7)
    shares = {name: _overlap_share(arms[name]) for name in names}
    said = ", ".join(f"{100 * shares[name]:.0f} % {name}" for name in names)
    made = style.figure(
        8.6,
        1.15 + (0.62 + 0.25 * len(jobs)) * len(names),
        f"Time with more than one job in its Up phase: {said}",
        "first trial of each arm, around its middle; rank 0 of each job",
    )
    for axes, name in zip(style.stack(made, len(names)), names, strict=True):
        _phases(axes, arms[name], jobs, colours, length_s)
        axes.set_title(style.ARM_TITLES[name], color=style.ARM_COLOURS[name], fontweight="bold")
    axes.set_xlabel("time (ms)")
    axes.set_xlim(0, 1e3 * length_s)
    handles = [
        Patch(color=style.tint(style.FAINT, 0.3), linewidth=0, label="Down phase (compute)"),
        Patch(color=style.FAINT, linewidth=0, label="Up phase (traffic)"),
        Patch(color=style.tint(style.CONTENTION, 0.3), linewidth=0, label="Up phases overlap"),
    ]
    made.legend(handles=handles, loc="outside lower center", ncols=3)
    return made


def _overlap_share(arm: Arm) -> float:
    both = whole = 0.0
    for trial in arm.trials:
        begin_s, end_s = trial.window_s
        both += sum(end - begin for begin, end in series.overlap(list(trial.jobs.values()), begin_s, end_s))
        whole += end_s - begin_s
    return both / whole


def _phases(axes: Axes, arm: Arm, jobs: list[str], colours: dict[str, str], length_s: float) -> None:
    trial = arm.trials[0]
    begin_s, end_s = series.window_s(trial, length_s)
    for since, until in series.overlap(list(trial.jobs.values()), begin_s, end_s):
        axes.axvspan(
            1e3 * (since - begin_s), 1e3 * (until - begin_s), color=style.tint(style.CONTENTION, 0.3), linewidth=0
        )
    for row, job in enumerate(jobs):
        run = trial.jobs[job]
        seen = (run.end_s > begin_s) & (run.begin_s < end_s)
        starts, ups, ends = (1e3 * (at[seen] - begin_s) for at in (run.begin_s, run.up_begin_s, run.end_s))
        axes.barh(row, ups - starts, left=starts, height=0.62, color=style.tint(colours[job], 0.24), linewidth=0)
        axes.barh(row, ends - ups, left=ups, height=0.62, color=colours[job], linewidth=0)
    axes.set_yticks(range(len(jobs)), jobs)
    axes.set_ylim(len(jobs) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
