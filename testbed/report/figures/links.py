"""What a shared link carried and how its queue stood, over time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from testbed.report import series, style
from testbed.report.load import Arm, Floats, Setting
from testbed.units import show_rate

BINS = 300


def utilisation(arms: Mapping[str, Arm], setting: Setting, link: str) -> Figure:
    """Draw the bandwidth of every job on a link over some iterations, stacked, against the link's rate; by arm."""
    names = [name for name in arms if name != "alone"]
    colours = style.job_colours(list(setting.jobs))
    length_s = series.shown_s(arms)
    unit, divisor = _rate_unit(setting.rate_bps)
    used = {name: _used(arms[name], setting, link) for name in names}
    said = ", ".join(f"{100 * used[name]:.0f} % {name}" for name in names)
    made = style.figure(
        8.6,
        1.25 + 1.25 * len(names),
        f"Link {link} in use: {said}",
        f"of {show_rate(setting.rate_bps)}; first trial of each arm; "
        "jobs told apart by their Up phases, and where those overlap by their mean pace",
    )
    for axes, name in zip(style.stack(made, len(names)), names, strict=True):
        trial = arms[name].trials[0]
        begin_s, end_s = series.window_s(trial, length_s)
        edges = _edges(arms[name], link, begin_s, end_s)
        rates = series.job_rates(arms[name], trial, link, edges)
        low = np.zeros(len(edges) - 1)
        for job in [*setting.jobs, series.OTHER]:
            high = low + rates.get(job, np.zeros_like(low)) / divisor
            colour = colours.get(job, "#b5b5b5")
            axes.stairs(high, 1e3 * (edges - begin_s), baseline=low, fill=True, color=colour, linewidth=0)
            low = high
        axes.axhline(setting.rate_bps / divisor, color=style.INK, linewidth=1, linestyle=(0, (4, 2)))
        axes.set_title(style.ARM_TITLES[name], color=style.ARM_COLOURS[name], fontweight="bold")
        axes.set_ylim(0, 1.12 * setting.rate_bps / divisor)
    made.supylabel(f"bandwidth ({unit})", fontsize=8.5)
    axes.set_xlabel("time (ms)")
    axes.set_xlim(0, 1e3 * length_s)
    handles: list[object] = [Patch(color=colour, linewidth=0, label=job) for job, colour in colours.items()]
    handles.append(axes.plot([], [], color=style.INK, linewidth=1, linestyle=(0, (4, 2)), label="link rate")[0])
    made.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return made


def queue(arms: Mapping[str, Arm], setting: Setting, link: str) -> Figure:
    """Draw the backlog of a link's queue over some iterations against the thresholds at which it marks; by arm."""
    names = [name for name in arms if name != "alone"]
    length_s = series.shown_s(arms)
    peaks = {name: _peak(arms[name], link) for name in names}
    said = ", ".join(f"{peaks[name] / 1e3:.0f} kB {name}" for name in names)
    made = style.figure(
        8.6,
        1.05 + 1.25 * len(names),
        f"Highest queue at {link}: {said}",
        "backlog over time, first trial of each arm around its middle; the peaks above are over all trials",
    )
    top = 1.12e-3 * max([*peaks.values(), 1.15 * (setting.red_max_bytes or 0), 1.0])
    for axes, name in zip(style.stack(made, len(names)), names, strict=True):
        begin_s, end_s = series.window_s(arms[name].trials[0], length_s)
        seen = arms[name].queues[link]
        inside = (seen.t_s >= begin_s) & (seen.t_s <= end_s)
        times, backlog = 1e3 * (seen.t_s[inside] - begin_s), seen.backlog_bytes[inside] / 1e3
        colour = style.ARM_COLOURS[name]
        axes.fill_between(times, backlog, color=colour, alpha=0.25, linewidth=0)
        axes.plot(times, backlog, color=colour, linewidth=1.1)
        _thresholds(axes, setting)
        axes.set_title(style.ARM_TITLES[name], color=colour, fontweight="bold")
        axes.set_ylim(0, top)
    made.supylabel("backlog (kB)", fontsize=8.5)
    axes.set_xlabel("time (ms)")
    axes.set_xlim(0, 1e3 * length_s)
    return made


def _thresholds(axes: Axes, setting: Setting) -> None:
    if setting.red_min_bytes is None or setting.red_max_bytes is None:
        return
    axes.axhspan(
        setting.red_min_bytes / 1e3, setting.red_max_bytes / 1e3, color="#f2e2a8", alpha=0.45, linewidth=0, zorder=0
    )
    # One below its line and one above: where a queue is much longer, the lines lie closer than the words are high.
    marks = ((setting.red_min_bytes, "marking starts", "top"), (setting.red_max_bytes, "all marked", "bottom"))
    for at, label, side in marks:
        axes.axhline(at / 1e3, color="#9c7a12", linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
        axes.annotate(
            f"{label}, {at / 1e3:g} kB",
            (1.0, at / 1e3),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va=side,
            fontsize=7.5,
            color="#7d610c",
        )


def _edges(arm: Arm, link: str, begin_s: float, end_s: float) -> Floats:
    """Return edges of bins no shorter than the readings are apart, and no more bins than can be seen."""
    gaps = np.diff(arm.queues[link].t_s)
    apart_s = float(np.quantile(gaps, 0.25)) if len(gaps) else end_s - begin_s
    count = max(1, min(BINS, int((end_s - begin_s) / apart_s)))
    return np.linspace(begin_s, end_s, count + 1)


def _used(arm: Arm, setting: Setting, link: str) -> float:
    spans = [trial.window_s for trial in arm.trials]
    sent = sum(arm.queues[link].between("tx_bytes", *span) for span in spans)
    return 8 * sent / (setting.rate_bps * sum(end - begin for begin, end in spans))


def _peak(arm: Arm, link: str) -> float:
    return max(arm.queues[link].peak_bytes(*trial.whole_s) for trial in arm.trials)


def _rate_unit(rate_bps: float) -> tuple[str, float]:
    for unit, divisor in (("Gbit/s", 1e9), ("Mbit/s", 1e6)):
        if rate_bps >= divisor:
            return unit, divisor
    return "kbit/s", 1e3
