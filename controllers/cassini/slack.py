"""Which of several rotations with the best score: the one that jitter harms least.

The slack of a job is how many slots it may move, alone and in either direction, before the score leaves the best.
Taken is the rotation with the largest least slack of its jobs, then the largest sum, then the smallest rotations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from controllers.cassini.profile import Floats
from controllers.cassini.search import Integers, canonical, excess_by_rotation, stacked

_ROUNDS = 8


def widest(excess: Floats, lengths: Sequence[int], limit: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return rotations and slack of each job, in slots, out of the excess of *all* rotations of up to three jobs.

    excess: as `search.exhaust` returns it; every entry up to `limit` (and rounding) is good.
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


def centred(
    demands: Sequence[Floats], rotations: Sequence[int], limit: float
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return good rotations reached from `rotations` by moving one job at a time to the middle of where it is good.

    For any number of jobs: a local choice, and a move is made only where it adds slack by the rule above.
    """
    lengths = [len(demand) for demand in demands]
    now = list(rotations)
    free = _free(demands, now, limit)
    for _ in range(_ROUNDS):
        before = list(now)
        for index in range(len(now)):
            good = _good(demands, now, index, limit)
            room = _room(good, (1,), len(good) // 2)
            there = [*now[:index], int(np.argmax(np.where(good, room, -1))), *now[index + 1 :]]
            gained = _free(demands, there, limit)
            if (min(gained), sum(gained)) > (min(free), sum(free)):
                now, free = there, gained
        if now == before:
            break
    return tuple(int(rotation) for rotation in canonical(now, lengths)), tuple(free)


def _good(demands: Sequence[Floats], rotations: Sequence[int], index: int, limit: float) -> NDArray[np.bool_]:
    """Return for each rotation of one job, the others where they are, whether it is good."""
    others = [at for at in range(len(demands)) if at != index]
    rest = stacked([demands[at] for at in others], [rotations[at] for at in others]) if others else np.zeros(1)
    good = excess_by_rotation(rest, demands[index]) <= limit + 1e-12
    return np.tile(good, len(demands[index]) // len(good))


def _free(demands: Sequence[Floats], rotations: Sequence[int], limit: float) -> list[int]:
    found = []
    for index, demand in enumerate(demands):
        room = _room(_good(demands, rotations, index, limit), (1,), len(demand) // 2)
        found.append(int(room[rotations[index] % len(demand)]))
    return found
