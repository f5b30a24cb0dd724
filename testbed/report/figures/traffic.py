"""What the workers of a job that has the network to itself send over time, by the counters of their ports."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from testbed.report import style
from testbed.report.load import Arm, Floats, JobRun, Setting, Trial
from testbed.units import show_rate

ITERATIONS = 2
"""As many whole iterations are shown."""


def sent_bps(arm: Arm, link: str, begin_s: float, end_s: float) -> tuple[Floats, Floats]:
    """Return (edges of the bins, bit/s in each): a bin from reading to reading of the port's counter."""
    seen = arm.queues[link]
    apart_s = float(np.quantile(np.diff(seen.t_s), 0.25))
    edges = np.linspace(begin_s, end_s, max(2, round((end_s - begin_s) / apart_s) + 1))
    # Readings that repeat the one before are left out: the counter stands still until one reading before the next.
    late = np.flatnonzero(np.diff(seen.t_s) > 1.5 * apart_s) + 1
    times, sent = (
        np.insert(seen.t_s, late, seen.t_s[late] - apart_s),
        np.insert(seen.tx_bytes, late, seen.tx_bytes[late - 1]),
    )
    return edges, 8 * np.diff(np.interp(edges, times, sent)) / np.diff(edges)


def traffic(arm: Arm, setting: Setting, job: str) -> Figure:
    """Draw what the egress port of every host of a job carried over some iterations, in unscaled bit/s."""
    run = trial_of(arm, job).jobs[job]
    begin_s, end_s = shown_s(run)
    links = ports(setting, job)
    rates = {link: sent_bps(arm, link, begin_s, end_s) for link in links}
    mean_bps = max(float(rate.mean()) for _, rate in rates.values()) * setting.scale
    made = style.figure(
        8.6,
        1.25 + 1.0 * len(links),
        f"{job} alone: {1e3 * float(run.iteration_s[1:].mean()):.0f} ms per iteration",
        f"egress of each worker, unscaled; the busiest sends {show_rate(round(mean_bps, -7))} in the mean; "
        "dashed: iterations begin",
    )
    colours = style.job_colours(list(setting.jobs))
    for axes, link in zip(style.stack(made, len(links)), links, strict=True):
        edges, rate = rates[link]
        axes.stairs(rate * setting.scale / 1e9, 1e3 * (edges - begin_s), fill=True, color=colours[job], linewidth=0)
        for at in run.begin_s[(run.begin_s >= begin_s - 1e-9) & (run.begin_s <= end_s)]:
            axes.axvline(1e3 * (at - begin_s), color=style.INK, linewidth=0.8, linestyle=(0, (4, 2)))
        axes.set_title(link)
        axes.set_ylim(0, 1.12 * setting.rate_bps * setting.scale / 1e9)
    made.supylabel("bandwidth (Gbit/s)", fontsize=8.5)
    axes.set_xlabel("time (ms)")
    axes.set_xlim(0, 1e3 * (end_s - begin_s))
    return made


def ports(setting: Setting, job: str) -> list[str]:
    """Return the watched links that leave hosts of a job."""
    hosts = set(setting.jobs[job])
    return [link for link in setting.shared_links if link.partition("->")[0] in hosts]


def trial_of(arm: Arm, job: str) -> Trial:
    """Return the first trial that a job is in."""
    return next(trial for trial in arm.trials if job in trial.jobs)


def shown_s(run: JobRun) -> tuple[float, float]:
    """Return the stretch of time of the second and third iteration, or of what there is."""
    first = min(1, len(run.begin_s) - 1)
    last = min(first + ITERATIONS, len(run.begin_s)) - 1
    return float(run.begin_s[first]), float(run.end_s[last])
