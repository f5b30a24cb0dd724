"""Excess, compatibility score, and the rotation that makes it highest (paper, section 3).

    Excess(demand) = max(0, demand - C)
    score          = 1 - sum over all angles of Excess(demand of the angle) / (|A| C)

A score of 1 says that the link carries everything as it comes; it has no lower bound, since enough jobs can demand
any multiple of the capacity. The search is over all rotations on the slots of the unified circle:

- up to three jobs: every rotation is looked at, so the best one is known to be the best;
- more: likewise where there are no more rotations than with four jobs of 72 slots; elsewhere `search.minimise`, which
  either proves that its result is within `gap` of the best score, or says that it could not and how far off the best
  might be.

Real jobs jitter, so of all rotations with the best score the one with the most *slack* is taken: that which leaves
the job that may move least the most room to move, then the most room in all, then the smallest delays in the order
of the jobs' names. Two jobs end up in the middle of the widest interval of best rotations. The first job by name is
never delayed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controllers.cassini import search, slack
from controllers.cassini.circle import UnifiedCircle
from controllers.cassini.profile import Floats
from controllers.cassini.system import System

EXHAUSTIVE_JOBS = 3
FEW_CELLS = 2**25  # with more than three jobs every rotation is looked at only if that is no more than this
EXHAUSTIVE_CELLS = 2**28  # beyond this even three jobs are left to branch and bound, without a limit on its work


@dataclass(frozen=True)
class Rotation:
    """The rotation chosen for each job of a circle, in the circle's order.

    `rotations` in slots, each delay shorter than the job's iteration; `slack` how many slots each job alone may move
    either way without the score leaving the best (or the tie that was allowed); `score` of these rotations; `best` the
    highest score found, `bound` the highest there can be, `proved` whether they are as close as was asked for.
    """

    rotations: tuple[int, ...]
    slack: tuple[int, ...]
    score: float
    best: float
    bound: float
    proved: bool


def excess_bps(demand_bps: Floats, capacity_bps: float) -> Floats:
    """Return by how much each demand is above the capacity, zero where it is not."""
    return np.maximum(0.0, demand_bps - capacity_bps)


def score(circle: UnifiedCircle, rotations: Sequence[int], capacity_bps: float) -> float:
    """Return the compatibility score of a circle with each job delayed by its rotation in slots."""
    demand = circle.rotated(rotations).sum(axis=0)
    return 1 - float(excess_bps(demand, capacity_bps).mean()) / capacity_bps


def time_shift_s(rotation_rad: float, perimeter_s: float, iteration_s: float) -> float:
    """Return the delay of a job whose circle is rotated: t = (rotation / 2 pi * p) mod iter (paper, section 4)."""
    return (rotation_rad / (2 * math.pi) * perimeter_s) % iteration_s


def best_rotation(
    circle: UnifiedCircle,
    capacity_bps: float,
    *,
    tie: float = 1e-9,
    gap: float = 0.01,
    budget: int | None = search.BUDGET,
) -> Rotation:
    """Return the best rotation of every job, the same whatever the order of the jobs in the circle.

    tie: rotations whose score is less than this below the best count as equally good, but never one that is worse
    than no shift. gap, budget: with more than three jobs, how close to the best score is close enough, and how much
    work to spend on it (see `search.minimise`). Raises ValueError for a capacity that is not positive.
    """
    if not capacity_bps > 0:
        raise ValueError(f"a capacity of {capacity_bps} bit/s cannot be shared")
    order = sorted(range(len(circle.jobs)), key=lambda index: circle.jobs[index])
    system = System.of_link([circle.demands[index] / capacity_bps for index in order])
    found = least(system, gap=gap, budget=budget)
    chosen, free = settle(system, found, tie=tie)
    back = [order.index(index) for index in range(len(order))]
    rotations = tuple(chosen[at] for at in back)
    return Rotation(
        rotations=rotations,
        slack=tuple(free[at] for at in back),
        score=score(circle, rotations, capacity_bps),
        best=1 - found.excess,
        bound=1 - found.lower,
        proved=found.excess - found.lower <= (0.0 if _exact(system) else gap) + search.ROUNDING,
    )


def least(
    system: System, *, gap: float, budget: int | None, starts: int = search.STARTS, floor: float = 0.0
) -> search.Outcome:
    """Return rotations with the least excess, the mean over the system's links; see `search.minimise`."""
    if _exhaustible(system):
        found = system.exhaust()
        at = np.unravel_index(int(np.argmin(found)), found.shape)
        return search.Outcome((0, *(int(index) for index in at)), float(found.min()), float(found.min()))
    exact = _exact(system)
    return search.minimise(
        system, gap=0.0 if exact else gap, budget=None if exact else budget, starts=starts, floor=floor
    )


def settle(system: System, found: search.Outcome, *, tie: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return rotations as good as those found, up to the tie, that have the most slack; and each job's slack."""
    unshifted = system.excess(dict.fromkeys(range(len(system.lengths)), 0))
    limit = max(found.excess, min(found.excess + tie, unshifted))
    if _exhaustible(system):
        return slack.widest(system.exhaust(), system.lengths, limit)
    return slack.centred(system, found.rotations, limit)


def _exact(system: System) -> bool:
    return len(system.lengths) <= EXHAUSTIVE_JOBS and system.common


def _exhaustible(system: System) -> bool:
    most = EXHAUSTIVE_CELLS if _exact(system) else FEW_CELLS
    return system.common and math.prod(system.lengths) <= most
