"""The arithmetic of a ring all-reduce, without a socket: who sends which chunk in which step.

Rank r starts by sending chunk r, and then always passes on what it received in the step before. After n-1
steps it holds the whole sum of chunk r+1, which it sends round in the n-1 steps of the all-gather.
"""

from __future__ import annotations

from collections.abc import Iterator


def chunk_bounds(size: int, workers: int) -> list[tuple[int, int]]:
    """(begin, end) of the `workers` chunks of `size` units: they cover it, and differ by at most one."""
    return [(size * i // workers, size * (i + 1) // workers) for i in range(workers)]


def ring_steps(rank: int, workers: int) -> Iterator[tuple[int, int, bool]]:
    """The 2(n-1) steps of `rank`: (chunk to send, chunk to receive, whether the latter is to be added)."""
    for step in range(workers - 1):
        yield (rank - step) % workers, (rank - step - 1) % workers, True
    for step in range(workers - 1):
        yield (rank - step + 1) % workers, (rank - step) % workers, False


def sent_bytes(size_bytes: int, rank: int, workers: int) -> int:
    """Bytes that `rank` sends while a buffer of `size_bytes` is all-reduced, to the byte."""
    bounds = chunk_bounds(size_bytes, workers)
    return sum(bounds[send][1] - bounds[send][0] for send, _, _ in ring_steps(rank, workers))
