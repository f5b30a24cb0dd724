"""Which of several rotations with the best score: the one that jitter harms least.

The slack of a job is how many slots it may move, alone and in either direction, before the score leaves the best.
Taken is the rotation with the largest least slack of its jobs, then the largest sum, then the smallest rotations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from controllers.cassini.profile import Floats
from controllers.cassini.system import Integers, System, canonical

_ROUNDS = 8


def widest(excess: Floats, lengths: Sequence[int], limit: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return rotations and slack of each job, in slots, out of the excess of *all* rotations.

    excess: as `System.exhaust` returns it; every entry up to `limit` (and rounding) is good.
    """
    if len(lengths) == 1:
        return (0,), (lengths[0] // 2,)
    axes = np.meshgrid(*(np.arange(length) for length in lengths[1:]), indexing="ij")
    reduced = canonical([np.zeros_like(axes[0]), *axes], lengths)
    good = (excess <= limit + 1e-12)[tuple(reduced[1:])]
    moves = [tuple([-1] * len(axes)), *(tuple(int(at == axis) for at in range(len(axes))) for axis in range(len(axes)))]
    free = np.array([_room(good, move, length // 2) for move, length in zip(moves, lengths, strict=True)])
    least, total = free.min(axis=0), free.sum(axis=0)
    rank = np.where(good, least * (total.max() + 1) + total, -1)
    at = np.unravel_index(int(np.argmax(rank)), rank.shape)
    return (0, *(int(index) for index in at)), tuple(int(room[at]) for room in free)


def _room(good: NDArray[np.bool_], move: tuple[int, ...], most: int) -> Integers:
    """Return how often one may move either way from each entry with every step on a good one, at most `most`."""
    axes = tuple(range(good.ndim))
    open_, room = good, np.zeros(good.shape, dtype=np.int64)
    for steps in range(1, most + 1):
        there = tuple(steps * by for by in move)
        back = tuple(-by for by in there)
        open_ = open_ & np.roll(good, there, axes) & np.roll(good, back, axes)
        if not open_.any():
            break
        room += open_
    return room


def centred(system: System, rotations: Sequence[int], limit: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return good rotations reached from `rotations` by moving one job at a time to the middle of where it is good.

    For any number of jobs: a local choice. A job moves only where it gains slack itself, and only if the jobs that it
    shares links with and itself gain by the rule above.
    """
    now = dict(enumerate(rotations))
    total = system.excess(now)
    around = {job: _around(system, now, job, limit, total) for job in now}
    waiting = set(now)
    for _ in range(_ROUNDS):
        moved = set()
        for job in sorted(waiting):
            room, costs = around[job]
            to = int(np.argmax(room))
            if room[to] <= room[now[job]]:
                continue
            there = now | {job: to}
            reached = total + float(costs[to] - costs[now[job]])
            near = [job, *sorted(system.neighbours[job])]
            gained = {other: _around(system, there, other, limit, reached) for other in near}
            before = [around[other][0][now[other]] for other in near]
            after = [gained[other][0][there[other]] for other in near]
            if (min(after), sum(after)) > (min(before), sum(before)):
                now, total = there, reached
                around |= gained
                moved |= {*near}
        waiting = moved
    turned = canonical(list(now.values()), system.lengths) if system.common else list(now.values())
    return tuple(int(at) for at in turned), tuple(max(0, int(around[job][0][at])) for job, at in now.items())


def _around(system: System, placed: Mapping[int, int], job: int, limit: float, total: float) -> tuple[Integers, Floats]:
    """Return for each rotation of one job, the others where they are, how far it may move, and what it costs.

    Where it is not good at all it may move -1.
    """
    costs = system.costs(placed, job)
    count = len(costs)
    bad = np.flatnonzero(total - costs[placed[job]] + costs > limit + 1e-12)
    if not len(bad):
        return np.full(count, count // 2), costs
    ends = np.concatenate([[bad[-1] - count], bad, [bad[0] + count]])
    after = np.searchsorted(ends, np.arange(count))
    distance = np.minimum(ends[after] - np.arange(count), np.arange(count) - ends[after - 1])
    distance[bad] = 0
    return np.minimum(distance - 1, count // 2), costs
