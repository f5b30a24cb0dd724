"""From one placement to others of the same merit that differ in workers: what CASSINI chooses among.

Merit depends on what a job's row of counts has in common with others, its *signature*: for Themis the number of workers
and their span. A random walk exchanges accelerators between jobs, or between a job and what is free, and only takes
steps that leave every signature as it was; so whatever it reaches has the merit it began with.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from controllers.placement.layout import Counts, Layout

Matrix = NDArray[np.int64]  # shape (jobs + 1, servers): the last row is what is free
Signature = Callable[[str, Counts], Hashable]
TRIES = 40  # steps tried for each variant wanted, and job


def variants(
    layout: Layout,
    placed: Mapping[str, Counts],
    free: Counts,
    signature: Signature,
    *,
    count: int,
    seed: int,
    allowed: Callable[[Matrix], bool] = lambda _matrix: True,
) -> list[dict[str, Counts]]:
    """Return up to `count` placements that differ in workers, the given one first.

    placed: the counts of the jobs that may move. free: what nobody has, shape (servers,). signature: of a job and its
    counts; it stays what it is. allowed: whether the counts of all these jobs, one row each, may be so.
    """
    jobs = list(placed)
    matrix: Matrix = np.array([*(placed[job] for job in jobs), free], dtype=np.int64)
    signatures = [signature(job, placed[job]) for job in jobs]
    found = {matrix[:-1].tobytes(): matrix}
    random = np.random.default_rng(seed)
    steps = 1 + len(jobs)
    for tried in range(TRIES * count * steps if jobs else 0):
        if len(found) >= count:
            break
        step = _MOVES[int(random.integers(len(_MOVES)))](matrix, layout, random)
        changed = np.flatnonzero((step[:-1] != matrix[:-1]).any(axis=1))
        if all(signature(jobs[row], step[row]) == signatures[row] for row in changed) and allowed(step[:-1]):
            matrix = step
        if tried % steps == 0:
            found.setdefault(matrix[:-1].tobytes(), matrix)
    return [dict(zip(jobs, one[:-1], strict=True)) for one in found.values()]


def _exchange(matrix: Matrix, _layout: Layout, random: Generator) -> Matrix:
    """One accelerator of one row against one of another row on another server."""
    step = matrix.copy()
    row, server = _pick(matrix, random)
    other, target = _pick(matrix, random)
    if row != other:
        step[[row, other], [server, target]] -= 1
        step[[row, other], [target, server]] += 1
    return step


def _pick(matrix: Matrix, random: Generator) -> tuple[int, int]:
    used = np.argwhere(matrix > 0)
    row, server = used[int(random.integers(len(used)))]
    return int(row), int(server)


def _swap_rows(matrix: Matrix, _layout: Layout, random: Generator) -> Matrix:
    """Two jobs change places; jobs with different numbers of workers do not."""
    one, two = random.integers(len(matrix) - 1, size=2)
    step = matrix.copy()
    if matrix[one].sum() == matrix[two].sum():
        step[[one, two]] = matrix[[two, one]]
    return step


def _swap_racks(matrix: Matrix, layout: Layout, random: Generator) -> Matrix:
    """Two racks of the same shape change all that may move."""
    racks = random.integers(len(layout.racks), size=2)
    here, there = (np.flatnonzero(layout.rack_of == rack) for rack in racks)
    room = matrix.sum(axis=0)
    here, there = here[np.argsort(room[here], kind="stable")], there[np.argsort(room[there], kind="stable")]
    step = matrix.copy()
    if np.array_equal(room[here], room[there]):
        step[:, here], step[:, there] = matrix[:, there], matrix[:, here]
    return step


def _relocate(matrix: Matrix, layout: Layout, random: Generator) -> Matrix:
    """One job leaves, and is packed into a random rack, or into all of them, as far as there is room."""
    step = matrix.copy()
    row, _ = _pick(matrix[:-1], random)
    workers = int(matrix[row].sum())
    step[-1] += step[row]
    step[row] = 0
    rack = int(random.integers(len(layout.racks) + 1))
    room = np.where((layout.rack_of == rack) | (rack == len(layout.racks)), step[-1], 0)
    if room.sum() < workers:
        return matrix
    slots = random.permutation(np.repeat(np.arange(len(room)), room))[:workers]
    step[row] = np.bincount(slots, minlength=len(room))
    step[-1] -= step[row]
    return step


_MOVES = (_exchange, _swap_rows, _swap_racks, _relocate)
