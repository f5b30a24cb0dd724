"""The arithmetic of collectives, without a socket: who sends which chunk to whom in which step.

In a ring, position r starts by sending chunk r, and then always passes on what it received in the step before. After
n-1 steps it holds the whole sum of chunk r+1 (reduce-scatter), which it sends round in n-1 more (all-gather); both
together are an all-reduce. In an all-to-all, position r sends chunk j of its buffer to position j, pair by pair.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

RING = ("all-reduce", "reduce-scatter", "all-gather")
ALL_TO_ALL = "all-to-all"
COLLECTIVES = (*RING, ALL_TO_ALL)


def chunk_bounds(size: int, workers: int) -> list[tuple[int, int]]:
    """(begin, end) of the `workers` chunks of `size` units: they cover it, and differ by at most one."""
    return [(size * i // workers, size * (i + 1) // workers) for i in range(workers)]


def ring_steps(rank: int, workers: int, kind: str = "all-reduce") -> Iterator[tuple[int, int, bool]]:
    """The steps of `rank` in a ring: (chunk to send, chunk to receive, whether the latter is to be added)."""
    if kind != "all-gather":
        for step in range(workers - 1):
            yield (rank - step) % workers, (rank - step - 1) % workers, True
    if kind != "reduce-scatter":
        for step in range(workers - 1):
            yield (rank - step + 1) % workers, (rank - step) % workers, False


def exchange_steps(rank: int, workers: int) -> Iterator[tuple[int, int]]:
    """The n-1 steps of `rank` in an all-to-all: (position to send its chunk to, position to receive from)."""
    for step in range(1, workers):
        yield (rank + step) % workers, (rank - step) % workers


def sent_bytes(size_bytes: int, rank: int, workers: int, kind: str = "all-reduce") -> int:
    """Bytes that `rank` sends to the next in a ring while a buffer of `size_bytes` is reduced, to the byte."""
    bounds = chunk_bounds(size_bytes, workers)
    return sum(bounds[send][1] - bounds[send][0] for send, _, _ in ring_steps(rank, workers, kind))


def sent_to(kind: str, size_bytes: int, rank: int, workers: int) -> dict[int, int]:
    """Bytes that `rank` sends in one collective of a buffer of `size_bytes`, by the position of who receives them."""
    if kind in RING:
        return {(rank + 1) % workers: sent_bytes(size_bytes, rank, workers, kind)}
    bounds = chunk_bounds(size_bytes, workers)
    return {peer: bounds[peer][1] - bounds[peer][0] for peer, _ in exchange_steps(rank, workers)}
