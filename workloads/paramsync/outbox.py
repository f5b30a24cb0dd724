"""What waits to be sent to one neighbour: in the order in which it came, or of the chunks, or as far as it may."""

from __future__ import annotations

import heapq
import itertools
import threading

from workloads.paramsync import wire

Entry = tuple[int, int, int, memoryview]  # kind, round, chunk, payload


class Outbox:
    """A queue for one sending thread. Any thread may put.

    `oldest_first`: earlier chunks first, results before gradients. With a `window` a gradient waits until the receiver
    has added up all but the last so many chunks before it, as it says by granting; grants themselves never wait.
    """

    def __init__(self, oldest_first: bool = False, window: int = 0) -> None:
        self._oldest_first, self._window = oldest_first, window
        self._waiting: list[tuple[tuple[int, ...], Entry]] = []
        self._granted: dict[int, int] = {}
        self._numbers = itertools.count()
        self._changed = threading.Condition()

    def put(self, kind: int, round_: int, chunk: int, payload: memoryview) -> None:
        """Have something sent."""
        turn: tuple[int, ...] = (round_, chunk, int(kind == wire.PUSH)) if self._oldest_first else ()
        with self._changed:
            heapq.heappush(
                self._waiting, ((int(kind != wire.GRANT), *turn, next(self._numbers)), (kind, round_, chunk, payload))
            )
            self._changed.notify()

    def grant(self, round_: int, complete: int) -> None:
        """Take note of how many chunks of a round the receiver has added up."""
        with self._changed:
            self._granted[round_] = max(complete, self._granted.get(round_, 0))
            self._changed.notify()

    def get(self) -> Entry:
        """Wait for what is next, and take it."""
        with self._changed:
            self._changed.wait_for(self._ready)
            return heapq.heappop(self._waiting)[1]

    def qsize(self) -> int:
        """How many are waiting."""
        return len(self._waiting)

    def _ready(self) -> bool:
        if not self._waiting:
            return False
        kind, round_, chunk, _ = self._waiting[0][1]
        return kind != wire.PUSH or not self._window or chunk < self._granted.get(round_, 0) + self._window
