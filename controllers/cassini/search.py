"""How the rotation with the least excess is found. Demands are in units of the capacity, excess is a mean per slot.

Three facts make the search small:

- Turning the whole circle changes nothing, so the first job stays; and a second job's rotation matters only modulo
  the greatest common divisor of the two iterations, a third one's modulo that of its own and their common multiple.
- Excess is convex in demand. Convex functions have increasing differences: adding two jobs to a link costs at least
  the sum of what adding each alone would cost. So the excess of a partly filled link, plus the least increment of
  each missing job, bounds everything that can still follow.
- What the jobs send in all, less the capacity, is excess wherever it is put.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controllers.cassini.profile import Floats

Integers = NDArray[np.int64]
BUDGET = 60_000_000
ROUNDING = 1e-9
_CHUNK_CELLS = 2**19
_CALL_CELLS = 8192  # what one call of the kernel costs beside its cells


@dataclass(frozen=True)
class Outcome:
    """Rotations in slots with their mean excess, and a lower bound on the mean excess of any rotations."""

    rotations: tuple[int, ...]
    excess: float
    lower: float


def canonical(rotations: Sequence[Integers] | Sequence[int], lengths: Sequence[int]) -> list[Integers]:
    """Turn the whole circle so that the first job has no rotation, the next the smallest it can have, and so on.

    Each rotation may be an array (all of one shape): one entry per case. The result describes the same circle.
    """
    turned = [
        np.asarray(rotation, dtype=np.int64) % length for rotation, length in zip(rotations, lengths, strict=True)
    ]
    step = 1  # turning by multiples of this leaves the jobs done so far where they are
    for index, length in enumerate(lengths):
        common = math.gcd(step, length)
        inverse = pow(step // common, -1, length // common) if length > common else 0
        times = (turned[index] % common - turned[index]) // common * inverse % (length // common)
        turned = [(rotation + step * times) % other for rotation, other in zip(turned, lengths, strict=True)]
        step = math.lcm(step, length)
    return turned


def stacked(demands: Sequence[Floats], rotations: Sequence[int]) -> Floats:
    """Return the summed demand over the common multiple of the lengths."""
    slots = math.lcm(*(len(demand) for demand in demands))
    total = np.zeros(slots)
    for demand, rotation in zip(demands, rotations, strict=True):
        total += np.tile(np.roll(demand, rotation % len(demand)), slots // len(demand))
    return total


def mean_excess(demands: Sequence[Floats], rotations: Sequence[int]) -> float:
    """Return the mean over all slots of what is demanded above the capacity, in units of the capacity."""
    return float(np.maximum(0.0, stacked(demands, rotations) - 1).mean())


def excess_by_rotation(partial: Floats, demand: Floats) -> Floats:
    """Return the mean excess of a partly filled link with one more job, for each rotation of that job that matters.

    partial: shape (m,), demand: shape (n,); result: shape (gcd(m, n),), for rotations modulo that.
    """
    length = len(demand)
    count, slots = math.gcd(len(partial), length), math.lcm(len(partial), length)
    room = (np.tile(partial, slots // len(partial)) - 1).reshape(-1, 1, length)
    twice, slot = np.concatenate([demand, demand]), np.arange(length)
    result = np.empty(count)
    chunk = max(1, _CHUNK_CELLS // slots)
    for first in range(0, count, chunk):
        delays = np.arange(first, min(first + chunk, count))
        over = room + twice[length + slot - delays[:, None]]  # (repeats, delays, slots of one iteration)
        np.maximum(over, 0.0, out=over)
        result[first : first + chunk] = over.sum(axis=(0, 2))
    return result / slots


def exhaust(demands: Sequence[Floats]) -> Floats:
    """Return the mean excess of every rotation of up to three jobs, one axis for each job but the first.

    Each axis has the rotations that matter (see above): shape () for one job, (g2,) for two, (g2, g3) for three.
    """
    if len(demands) == 1:
        return np.array(mean_excess(demands, [0]))
    if len(demands) == 2:
        return excess_by_rotation(demands[0], demands[1])
    first, second, third = demands
    pairs = range(math.gcd(len(first), len(second)))
    return np.array([excess_by_rotation(stacked((first, second), (0, rotation)), third) for rotation in pairs])


def minimise(demands: Sequence[Floats], *, gap: float, budget: int | None, starts: int = 6) -> Outcome:
    """Return rotations whose excess is within `gap` of the least, or the best found when the budget runs out.

    First `starts` descents (one job after another to its best rotation, then pairs of jobs at once) from different
    fillings of the link, then branch and bound: the job that is hardest to add is placed next, its rotations in order
    of their excess, and a branch is left as soon as its bound is within `gap` of the best found. budget: additions
    to spend, None for no limit; it is work that is counted, not time, so the result is the same on every machine.
    The lower bound returned is that of the root alone unless branch and bound came to its end.
    """
    state = _Search(list(demands), gap, budget)
    state.offer([0] * len(demands))
    root = state.root_bound()
    rng = np.random.default_rng(1)
    for start in range(starts):
        if state.best - root <= ROUNDING or state.spent():
            break
        order = state.by_volume() if start == 0 else [int(index) for index in rng.permutation(len(demands))]
        state.descend(order)
    if state.best - root <= max(gap, ROUNDING):
        return state.outcome(max(root, 0.0))
    base = state.by_volume()[0]
    state.branch({base: 0}, demands[base])
    return state.outcome(root if state.spent() else max(root, state.best - gap))


@dataclass
class _Search:
    demands: list[Floats]
    gap: float
    budget: int | None
    work: int = 0
    best: float = math.inf
    rotations: list[int] = field(default_factory=list)

    def spent(self) -> bool:
        return self.budget is not None and self.work > self.budget

    def by_volume(self) -> list[int]:
        return sorted(range(len(self.demands)), key=lambda index: (-float(self.demands[index].mean()), index))

    def outcome(self, lower: float) -> Outcome:
        lengths = [len(demand) for demand in self.demands]
        turned = tuple(int(rotation) for rotation in canonical(self.rotations, lengths))
        return Outcome(turned, self.best, min(lower, self.best))

    def offer(self, rotations: Sequence[int]) -> None:
        excess = mean_excess(self.demands, rotations)
        if excess < self.best - 1e-15:
            self.best, self.rotations = excess, list(rotations)

    def costs(self, partial: Floats, index: int) -> Floats:
        self.work += len(partial) * len(self.demands[index]) + _CALL_CELLS
        return excess_by_rotation(partial, self.demands[index])

    def root_bound(self) -> float:
        """Return a lower bound on the excess of any rotations, by the second and third fact above."""
        surplus = sum(float(demand.mean()) for demand in self.demands) - 1
        base = self.by_volume()[0]
        alone = mean_excess([self.demands[base]], [0])
        others = (index for index in range(len(self.demands)) if index != base)
        added = sum(float(self.costs(self.demands[base], index).min()) - alone for index in others)
        return max(0.0, surplus, alone + added)

    def descend(self, order: list[int]) -> None:
        """Fill the link in the given order, then move single jobs and pairs for as long as it gains."""
        placed: dict[int, int] = {}
        for index in order:
            placed[index] = self._place(placed, index)
        while not self.spent() and (self._singles(placed, order) or self._pairs(placed, order)):
            continue
        self.offer([placed[index] for index in range(len(self.demands))])

    def _stack(self, placed: dict[int, int]) -> Floats:
        if not placed:
            return np.zeros(1)
        return stacked([self.demands[index] for index in placed], list(placed.values()))

    def _place(self, placed: dict[int, int], index: int) -> int:
        """Return the rotation with the least excess, of several the one that leaves the fewest edges: no odd gaps."""
        partial = self._stack(placed)
        costs = self.costs(partial, index)
        equal = np.flatnonzero(costs <= costs.min() + ROUNDING)
        edges = [np.abs(np.diff(total, append=total[0])).sum() for total in self._totals(partial, index, equal)]
        return int(equal[np.argmin(np.round(edges, 9))])

    def _totals(self, partial: Floats, index: int, rotations: Integers) -> Iterator[Floats]:
        self.work += len(partial) * len(rotations)
        return (self._add(partial, index, int(rotation)) for rotation in rotations)

    def _singles(self, placed: dict[int, int], order: list[int]) -> bool:
        gained = False
        for index in order:
            rest = {other: at for other, at in placed.items() if other != index}
            costs = self.costs(self._stack(rest), index)
            to = int(np.argmin(costs))
            if costs[to] < costs[placed[index] % len(costs)] - ROUNDING:
                placed[index], gained = to, True
        return gained

    def _pairs(self, placed: dict[int, int], order: list[int]) -> bool:
        now = mean_excess(self.demands, [placed[index] for index in range(len(self.demands))])
        for at, one in enumerate(order):
            for other in order[at + 1 :]:
                rest = {index: to for index, to in placed.items() if index not in (one, other)}
                base = self._stack(rest)
                for rotation in range(math.gcd(len(base), len(self.demands[one]))):
                    if self.spent():
                        return False
                    both = self._add(base, one, rotation)
                    costs = self.costs(both, other)
                    if costs.min() < now - ROUNDING:
                        placed[one], placed[other] = rotation, int(np.argmin(costs))
                        return True
        return False

    def _add(self, partial: Floats, index: int, rotation: int) -> Floats:
        return stacked([partial, self.demands[index]], [0, rotation])

    def branch(self, placed: dict[int, int], partial: Floats) -> None:
        """Place the missing jobs in every way that could still beat the best by more than the gap."""
        if self.spent() or self.best <= self.gap:
            return
        missing = [index for index in range(len(self.demands)) if index not in placed]
        now = float(np.maximum(0.0, partial - 1).mean())
        costs = {index: self.costs(partial, index) - now for index in missing}
        least = {index: float(cost.min()) for index, cost in costs.items()}
        following = max(missing, key=lambda index: (least[index], float(self.demands[index].mean()), -index))
        others = sum(least.values()) - least[following]
        for rotation in np.argsort(costs[following], kind="stable"):
            if now + float(costs[following][rotation]) + others >= self.best - max(self.gap, ROUNDING):
                return
            to = placed | {following: int(rotation)}
            if len(missing) == 1:
                self.offer([to[index] for index in range(len(self.demands))])
                return
            self.branch(to, self._add(partial, following, int(rotation)))
