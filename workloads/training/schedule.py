"""The arithmetic of collectives, without a socket: who sends which chunk to whom, and what it receives.

In a ring, position r starts by sending chunk r, and then always passes on what it received in the step before. After
n-1 steps it holds the whole sum of chunk r+1 (reduce-scatter), which it sends round in n-1 more (all-gather); both
together are an all-reduce. In an all-to-all, position r sends chunk j of its buffer to position j, to all at once.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ALL_TO_ALL = "all-to-all"
COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", ALL_TO_ALL)
SEND, RECEIVE, ADD = "send", "receive", "add"


def chunk_bounds(size: int, workers: int) -> list[tuple[int, int]]:
    """(begin, end) of the `workers` chunks of `size` units: they cover it, and differ by at most one."""
    return [(size * i // workers, size * (i + 1) // workers) for i in range(workers)]


def moves(kind: str, position: int, workers: int) -> Iterator[tuple[str, int, int]]:
    """What `position` does in a collective, in order: (SEND, RECEIVE or ADD, the other position, the chunk).

    ADD is to receive, and to add to what there is. Chunks are of the buffer that is reduced; in an all-to-all of the
    sender's. Sending is handed to a sender; receiving ends before the next is done.
    """
    if kind == ALL_TO_ALL:
        for step in range(1, workers):
            peer = (position + step) % workers
            yield SEND, peer, peer
        for step in range(1, workers):
            yield RECEIVE, (position - step) % workers, position
        return
    following, previous = (position + 1) % workers, (position - 1) % workers
    if kind != "all-gather":
        for step in range(workers - 1):
            yield SEND, following, (position - step) % workers
            yield ADD, previous, (position - step - 1) % workers
    if kind != "reduce-scatter":
        for step in range(workers - 1):
            yield SEND, following, (position - step + 1) % workers
            yield RECEIVE, previous, (position - step) % workers


def sent_to(kind: str, size_bytes: int, position: int, workers: int) -> dict[int, int]:
    """Bytes that `position` sends in one collective of a buffer of `size_bytes`, by the position that receives them."""
    bounds, sent = chunk_bounds(size_bytes, workers), dict[int, int]()
    for what, peer, chunk in moves(kind, position, workers):
        if what == SEND:
            sent[peer] = sent.get(peer, 0) + bounds[chunk][1] - bounds[chunk][0]
    return sent
