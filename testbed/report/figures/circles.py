"""The unified circle of a link before and after the rotations."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.projections.polar import PolarAxes

from controllers.cassini.decision import Decision
from testbed.report import style
from testbed.report.load import Floats
from testbed.units import show_rate

HOLE, GAP = 0.32, 0.28  # the hole as a share of what is round it, and radii in units of the link's capacity
FINE = 720


def circles(decision: Decision) -> Figure:
    """Draw both circles: a ring per job, innermost the first, and outside their sum, red where it exceeds the link.

    Time runs clockwise from the top, once round is the perimeter; heights are bandwidths, a line on a ring is where
    an iteration of its job begins.
    """
    made = style.figure(
        8.6,
        5.1,
        f"Rotation takes the compatibility score from {decision.score_unshifted:.2f} to {decision.score:.2f}",
        f"link {decision.link}, {show_rate(round(decision.capacity_bps))}; once round is "
        f"{1e3 * decision.perimeter_s:.0f} ms, clockwise; height is bandwidth, outermost ring the sum",
    )
    colours = style.job_colours([job.job for job in decision.jobs])
    pair = made.subplots(1, 2, subplot_kw={"projection": "polar"})
    for axes, shifted in zip(pair, (False, True), strict=True):
        _circle(axes, decision, colours, shifted=shifted)
    handles = [Patch(color=colours[job.job], linewidth=0, label=job.job) for job in decision.jobs]
    handles += [
        Patch(color="#b9bec4", linewidth=0, label="sum, up to the link's capacity"),
        Patch(color=style.CONTENTION, linewidth=0, label="excess"),
    ]
    made.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return made


def _circle(axes: PolarAxes, decision: Decision, colours: dict[str, str], *, shifted: bool) -> None:
    demand = decision.demand_bps(shifted=shifted) / decision.capacity_bps
    score = decision.score if shifted else decision.score_unshifted
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.grid(visible=False)
    axes.spines["polar"].set_visible(False)
    axes.set_yticks([])
    highest = max(1.35, float(decision.demand_bps(shifted=False).sum(axis=0).max() / decision.capacity_bps))
    base = HOLE * ((1 + GAP) * len(decision.jobs) + highest)
    for job, own in zip(decision.jobs, demand, strict=True):
        _ring(axes, base, own, colours[job.job])
        start = (
            2
            * np.pi
            * ((job.rotation_slots if shifted else 0) + len(job.demand_bps) * np.arange(job.turns))
            / decision.slots
        )
        axes.vlines(start, base - 0.06, base + 1.0, color=style.INK, linewidth=1.1)
        base += 1 + GAP
    total = demand.sum(axis=0)
    _ring(axes, base, np.minimum(total, 1.0), "#b9bec4")
    if (total > 1).any():
        _ring(axes, base + 1, np.maximum(total - 1, 0.0), style.CONTENTION, line=False)
    turn = np.linspace(0, 2 * np.pi, FINE)
    axes.plot(turn, np.full(FINE, base + 1.0), color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.set_ylim(0, 1.02 * (base + highest))
    quarters = np.arange(4) * np.pi / 2
    labels = [f"{1e3 * decision.perimeter_s * quarter / 4:.0f} ms" for quarter in range(4)]
    axes.set_xticks(quarters, labels, fontsize=8, color=style.FAINT)
    axes.tick_params(axis="x", pad=5)
    axes.text(0, 0, f"score\n{score:.2f}", ha="center", va="center", fontsize=12, fontweight="bold", linespacing=1.25)
    axes.set_title(_title(decision, shifted=shifted), loc="center", pad=10, fontweight="bold")


def _title(decision: Decision, *, shifted: bool) -> str:
    if not shifted:
        return "no time-shift"
    late = [f"{job.job} {1e3 * job.time_shift_s:.1f} ms later" for job in decision.jobs if job.rotation_slots]
    return ", ".join(late) if late else "no time-shift is best"


def _ring(axes: PolarAxes, base: float, height: Floats, colour: str, *, line: bool = True) -> None:
    """Fill a ring above `base`, in steps, fine enough to look round."""
    fine = max(1, -(-FINE // len(height)))
    edges = np.linspace(0, 2 * np.pi, len(height) * fine + 1)
    turn = np.repeat(edges, 2)[1:-1]
    tall = base + np.repeat(np.repeat(height, fine), 2)
    axes.fill_between(turn, base, tall, color=colour, linewidth=0)
    if line:
        axes.plot(edges, np.full(len(edges), base), color=colour, linewidth=0.8)
