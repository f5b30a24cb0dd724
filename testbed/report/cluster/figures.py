"""Plots of a run with a cluster: iteration times by arm, jobs on servers over time, marks per model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.report import style
from testbed.report.cluster import summary
from testbed.report.cluster.load import IDEAL, ClusterTrial
from testbed.report.load import Floats
from testbed.report.summary import P99_FROM

Arms = Mapping[str, list[ClusterTrial]]
MOST_ROWS = 128  # servers that can still be told apart in a picture
ARM_COLOURS = {
    "themis": "#cc3311",
    "themis+cassini": "#009988",
    "pollux": "#ee7733",
    "pollux+cassini": "#0077bb",
    "random": "#8a5fbf",
    "random+cassini": "#aa4499",
    IDEAL: "#404040",
}
ARM_DASHES: dict[str, Any] = dict.fromkeys(ARM_COLOURS, "-") | {"random": (0, (5, 1.2)), IDEAL: (0, (1.2, 1.6))}
OWN = ("#885522", "#44aa66", "#ddaa33", "#7788cc")


def colour_of(arm: str) -> str:
    """Return the colour of an arm, for a scheduler of the user's one by its name."""
    return ARM_COLOURS.get(arm) or OWN[crc32(arm.encode()) % len(OWN)]


def draw_cluster(run_dir: Path, setting: Mapping[str, Any]) -> list[Path]:
    """Draw every plot into RUN/plots, as PNG and SVG; return the paths. Raises InputError for missing files.

    setting: keys as in `testbed.report.cluster.summary.cluster_arms`, and servers (accelerators by name).
    """
    arms = summary.cluster_arms(run_dir, setting)
    wanted: dict[str, Callable[[], Figure]] = {
        "iteration-times": lambda: cdf(arms),
        "marks-by-model": lambda: marks(arms),
    }
    if any(name != IDEAL for name in arms) and len(setting["servers"]) <= MOST_ROWS:
        wanted["servers"] = lambda: gantt(arms, setting["servers"])
    folder = run_dir / "plots"
    folder.mkdir(exist_ok=True)
    with style.styled():
        return [path for name, draw in wanted.items() for path in style.save(draw(), folder / name)]


def cdf(arms: Arms) -> Figure:
    """Draw the share of iterations that took at most so long, a line per arm: all jobs, and relative to alone."""
    means = {name: 1e3 * float(summary.iteration_s(trials).mean()) for name, trials in arms.items()}
    said = ", ".join(f"{name} {means[name]:.0f} ms" for name in arms if name != IDEAL)
    made = style.figure(
        9.2, 4.0, f"Mean iteration time: {said}", "share of iterations of all jobs that took at most so long"
    )
    left, right = made.subplots(1, 2, sharey=True)
    for name, trials in arms.items():
        times_ms = np.sort(1e3 * summary.iteration_s(trials))
        label = f"{name}: mean {means[name]:.1f} ms"
        label += f", p99 {np.quantile(times_ms, 0.99):.1f} ms" if len(times_ms) >= P99_FROM else ""
        _steps(left, name, times_ms, label)
        ratios = [life.iteration_s / life.asked.ideal_s for life in summary.lives(trials)]
        _steps(right, name, np.sort(np.concatenate(ratios)), "")
    left.set_xlabel("iteration time (ms)")
    right.set_xlabel("iteration time over that of the job alone")
    left.set_ylim(0, 1.02)
    left.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    made.legend(handles=left.get_lines(), loc="outside lower center", ncols=3)
    return made


def _steps(axes: Axes, name: str, values: Floats, label: str) -> None:
    shares = np.arange(1, len(values) + 1) / len(values)
    axes.plot(
        values, shares, drawstyle="steps-post", color=colour_of(name), linestyle=ARM_DASHES.get(name, "--"),
        label=label, linewidth=1.4 if name == IDEAL else 2.0,
    )  # fmt: skip


def gantt(arms: Arms, servers: Mapping[str, int]) -> Figure:
    """Draw which job had which accelerator when, a panel per arm, for the first trial of each."""
    names = [name for name in arms if name != IDEAL]
    jobs = sorted({job for name in names for job in arms[name][0].jobs})
    colours = style.job_colours(jobs)
    rows = [(server, at) for server, count in servers.items() for at in range(count)]
    ends = ", ".join(f"{name} {arms[name][0].makespan_s:.1f} s" for name in names)
    made = style.figure(
        9.2, 1.0 + (0.35 + 0.075 * len(rows)) * len(names), f"The last job is done: {ends}",
        "jobs on accelerators over time, first trial of each arm",
    )  # fmt: skip
    for axes, name in zip(style.stack(made, len(names)), names, strict=True):
        _stays(axes, arms[name][0], rows, colours)
        axes.set_title(name, color=colour_of(name), fontweight="bold")
    axes.set_xlabel("time (s)")
    axes.set_xlim(left=0)
    return made


def _stays(axes: Axes, trial: ClusterTrial, rows: Sequence[tuple[str, int]], colours: Mapping[str, str]) -> None:
    index = {row: at for at, row in enumerate(rows)}
    busy_until = dict.fromkeys(rows, -np.inf)
    stays = [(stay, job) for job, life in trial.jobs.items() for stay in life.stays]
    for stay, job in sorted(stays, key=lambda one: (one[0].begin_s, one[1])):
        taken = []
        for server in stay.placement:
            free = [row for row in rows if row[0] == server and busy_until[row] <= stay.begin_s and row not in taken]
            taken += free[:1]
        for row in taken:
            busy_until[row] = stay.end_s
            axes.barh(
                index[row], stay.end_s - stay.begin_s, left=stay.begin_s, height=1.0, color=colours[job], linewidth=0
            )
        if taken:
            middle = index[sorted(taken, key=lambda row: index[row])[len(taken) // 2]]
            axes.text(
                stay.begin_s + 0.01 * trial.makespan_s,
                middle,
                job,
                fontsize=5.5,
                va="center",
                color="white",
                clip_on=True,
            )
    axes.set_ylim(len(rows) - 0.5, -0.5)
    steps = [at for at, (_, accelerator) in enumerate(rows) if accelerator == 0][:: max(1, len(rows) // 5)]
    axes.set_yticks(steps, [rows[at][0] for at in steps])
    axes.grid(visible=False)


def marks(arms: Arms) -> Figure:
    """Draw CE packets per iteration, a group of bars for each model and a bar for each arm."""
    names = list(arms)
    models = summary.models_of(next(iter(arms.values())))
    means = {name: summary.ce_packets(trials) for name, trials in arms.items()}
    said = ", ".join(f"{name} {_count(means[name])}" for name in names if name != IDEAL)
    made = style.figure(
        1.6 + 1.5 * len(models) + 0.2 * len(models) * len(names), 3.6, f"CE packets per iteration: {said}",
        "received by the hosts of a job, per iteration, by model",
    )  # fmt: skip
    axes = made.subplots(1, 1)
    width = 0.84 / len(names)
    for at, name in enumerate(names):
        values = [summary.ce_packets(arms[name], model) for model in models]
        places = np.arange(len(models)) + (at - (len(names) - 1) / 2) * width
        axes.bar(places, values, width=0.94 * width, color=colour_of(name), linewidth=0, label=name)
        for place, value in zip(places, values, strict=True):
            axes.annotate(
                _count(value),
                (float(place), value),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=6.5,
            )
    axes.set_xticks(range(len(models)), models)
    axes.set_ylabel("CE packets per iteration")
    made.legend(loc="outside lower center", ncols=min(4, len(names)))
    return made


def _count(packets: float) -> str:
    return f"{packets:,.0f}" if packets >= 10 or packets == 0 else f"{packets:.2g}"
