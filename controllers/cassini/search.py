"""How the rotations with the least excess are found.

Three facts make the search small:

- Turning everything changes nothing, so the first job stays; and a second job's rotation matters only modulo the
  greatest common divisor of the two iterations, a third one's modulo that of its own and their common multiple.
- Excess is convex in demand. Convex functions have increasing differences: adding two jobs to a link costs at least
  the sum of what adding each alone would cost. So the excess of partly filled links, plus the least increment of
  each missing job, bounds everything that can still follow.
- What the jobs of a link send in all, less the capacity, is excess wherever it is put.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from controllers.cassini.profile import Floats
from controllers.cassini.system import Load, System, canonical, excess_by_rotation

BUDGET = 60_000_000
ROUNDING = 1e-9
STARTS = 16


@dataclass(frozen=True)
class Outcome:
    """Rotations in slots with their mean excess, and a lower bound on the mean excess of any rotations."""

    rotations: tuple[int, ...]
    excess: float
    lower: float


def minimise(system: System, *, gap: float, budget: int | None, starts: int = STARTS, floor: float = 0.0) -> Outcome:
    """Return rotations whose excess is within `gap` of the least, or the best found when the budget runs out.

    First `starts` descents (one job after another to its best rotation) from different fillings of the links, from the
    best of them on pairs of jobs at once, then branch and bound: the job that is hardest to add is placed next, its
    rotations in order of their excess, and a branch is left as soon as its bound is within `gap` of the best found.
    budget: additions to spend, None for no limit; it is work that is counted, not time, so the result is the same on
    every machine. The first descent comes to its end whatever the budget. floor: a bound known before.
    The lower bound returned is that of the root alone unless branch and bound came to its end.
    """
    state = _Search(system, gap, budget)
    state.offer(dict.fromkeys(range(len(system.lengths)), 0))
    root = max(floor, system.mean([_link_bound(load) for load in system.loads]))
    rng = np.random.default_rng(1)
    for start in range(starts):
        if state.best - root <= ROUNDING or (start and state.spent()):
            break
        preference = list(system.volumes) if start == 0 else rng.permutation(len(system.lengths)).tolist()
        state.descend(_growing(system, preference))
    if state.best - root > ROUNDING:
        state.improve(_growing(system, system.volumes))
    if state.best - root <= max(gap, ROUNDING):
        return state.outcome(root)
    state.branch({_growing(system, system.volumes)[0]: 0})
    return state.outcome(root if state.spent() else max(root, state.best - gap))


def _link_bound(load: Load) -> float:
    """Return a lower bound on the excess of a link alone, by the second and third fact above."""
    surplus = sum(float(demand.mean()) for demand in load.demands) - 1
    base, *others = sorted(load.demands, key=lambda demand: -float(demand.mean()))
    alone = float(np.maximum(0.0, base - 1).mean())
    added = sum(float(excess_by_rotation(base, demand).min()) - alone for demand in others)
    return max(0.0, surplus, alone + added)


def _growing(system: System, preference: Sequence[float]) -> list[int]:
    """Return the jobs so that each shares a link with one before it, of several the most preferred first."""
    heap, seen, order = [(-preference[job], job) for job in range(len(preference))], set[int](), list[int]()
    heapq.heapify(heap)
    near: list[tuple[float, int]] = []
    while heap:
        _, job = heapq.heappop(near or heap)
        if job in seen:
            continue
        seen.add(job)
        order.append(job)
        for other in system.neighbours[job] - seen:
            heapq.heappush(near, (-preference[other], other))
    return order


@dataclass
class _Search:
    system: System
    gap: float
    budget: int | None
    work: int = 0
    best: float = math.inf
    rotations: list[int] = field(default_factory=list)

    def spent(self) -> bool:
        return self.budget is not None and self.work > self.budget

    def outcome(self, lower: float) -> Outcome:
        turned = self.rotations
        if self.system.common:
            turned = [int(rotation) for rotation in canonical(self.rotations, self.system.lengths)]
        return Outcome(tuple(turned), self.best, min(lower, self.best))

    def offer(self, placed: Mapping[int, int]) -> None:
        excess = self.system.excess(placed)
        if excess < self.best - 1e-15:
            self.best, self.rotations = excess, [placed[job] for job in range(len(placed))]

    def costs(self, placed: Mapping[int, int], job: int) -> Floats:
        self.work += self.system.cells(placed, job)
        return self.system.costs(placed, job)

    def descend(self, order: list[int]) -> None:
        """Fill the links in the given order, then move single jobs for as long as it gains."""
        placed: dict[int, int] = {}
        for job in order:
            placed[job] = self._place(placed, job)
        self._singles(placed, order)
        self.offer(placed)

    def improve(self, order: list[int]) -> None:
        """Move pairs of jobs, and the single jobs around them, from the best rotations for as long as it gains."""
        placed = dict(enumerate(self.rotations))
        while not self.spent() and (moved := self._pair(placed, order)):
            self._singles(placed, [job for job in order if self.system.neighbours[job] & moved or job in moved])
        self.offer(placed)

    def _place(self, placed: dict[int, int], job: int) -> int:
        """Return the rotation with the least excess, of several the one that leaves the fewest edges: no odd gaps."""
        costs = self.costs(placed, job)
        self.work += self.system.cells(placed, job)
        equal = np.flatnonzero(costs <= costs.min() + ROUNDING)
        return int(equal[np.argmin(np.round(self.system.edges(placed, job)[equal], 9))])

    def _singles(self, placed: dict[int, int], jobs: list[int]) -> None:
        """Move one job at a time to where it costs least, and look again at those that share a link with it."""
        waiting = dict.fromkeys(jobs)
        while waiting:
            job = next(iter(waiting))
            del waiting[job]
            costs = self.costs(placed, job)
            to = int(np.argmin(costs))
            if costs[to] < costs[placed[job]] - ROUNDING:
                placed[job] = to
                waiting |= dict.fromkeys(sorted(self.system.neighbours[job]))

    def _pair(self, placed: dict[int, int], order: list[int]) -> set[int]:
        """Move two jobs that share a link, if that gains; return which."""
        at = {job: position for position, job in enumerate(order)}
        for one in order:
            for other in sorted(self.system.neighbours[one], key=at.__getitem__):
                if at[other] < at[one]:
                    continue
                rest = {job: to for job, to in placed.items() if job not in (one, other)}
                first = self.costs(rest, one)
                now = first[placed[one]] + self.costs(rest | {one: placed[one]}, other)[placed[other]]
                for rotation in range(self.system.choices(rest, one)):
                    if self.spent():
                        return set()
                    second = self.costs(rest | {one: rotation}, other)
                    if first[rotation] + second.min() < now - ROUNDING:
                        placed[one], placed[other] = rotation, int(np.argmin(second))
                        return {one, other}
        return set()

    def branch(self, placed: dict[int, int]) -> None:
        """Place the missing jobs in every way that could still beat the best by more than the gap."""
        if self.spent() or self.best <= self.gap:
            return
        missing = [job for job in range(len(self.system.lengths)) if job not in placed]
        now = self.system.excess(placed)
        costs = {job: self.costs(placed, job) for job in missing}
        least = {job: float(cost.min()) for job, cost in costs.items()}
        near = [job for job in missing if self.system.neighbours[job] & placed.keys()]
        following = max(near, key=lambda job: (least[job], self.system.volumes[job], -job))
        others = sum(least.values()) - least[following]
        cost = costs[following][: self.system.choices(placed, following)]
        for rotation in np.argsort(cost, kind="stable"):
            if now + float(cost[rotation]) + others >= self.best - max(self.gap, ROUNDING):
                return
            to = placed | {following: int(rotation)}
            if len(missing) == 1:
                self.offer(to)
                return
            self.branch(to)
