"""Control messages through whatever tunnels are up: passed on by everybody, acknowledged, sent again until they are.

A message goes to all neighbours, who pass on what they have not seen, so that it arrives by the fastest way and around
what is cut or dead. Nothing is delivered twice to one life of a program. Order is not kept.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIRST_AGAIN_S, LONGEST_AGAIN_S = 5.0, 40.0
"""A message that nobody has acknowledged is sent again after this long, and then after twice as long, and so on."""
Key = tuple[int, int, int]
"""Who a message is from, in which life, and its number there."""


@dataclass
class _Waiting:
    body: list[Any]
    targets: set[int]
    due_s: float
    again_s: float = FIRST_AGAIN_S
    tries: int = 0


@dataclass
class Relay:
    """One program's part: `own` number and `life`, `pass_on` to all neighbours but one, `deliver` what is for it."""

    own: int
    life: int
    pass_on: Callable[[bytes, int | None], None]
    deliver: Callable[[list[Any]], None]
    _number: int = 0
    _waiting: dict[Key, _Waiting] = field(default_factory=dict)
    _seen: set[tuple[int, ...]] = field(default_factory=set)
    _delivered: set[Key] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, body: list[Any], targets: Sequence[int], now_s: float) -> None:
        """Send a message until all targets have acknowledged it."""
        with self._lock:
            key = self._next()
            self._waiting[key] = _Waiting(body, set(targets), now_s + FIRST_AGAIN_S)
            packed = self._pack(key, 0, sorted(targets), body)
        self.pass_on(packed, None)

    def received(self, packed: bytes, peer: int) -> None:
        """Take what a neighbour has sent or passed on."""
        source, life, number, tries, targets, body = json.loads(zlib.decompress(packed))
        key = (source, life, number)
        with self._lock:
            if (*key, tries) in self._seen or key[:2] == (self.own, self.life):
                return
            self._seen.add((*key, tries))
            mine = self.own in targets
            fresh = mine and key not in self._delivered
            if mine:
                self._delivered.add(key)
        if targets != [self.own]:
            self.pass_on(packed, peer)
        if not mine:
            return
        if body[0] == "ack":
            self._acknowledged((body[1], body[2], body[3]), source)
            return
        with self._lock:
            answer = self._pack(self._next(), 0, [source], ["ack", *key])
        self.pass_on(answer, None)
        if fresh:
            self.deliver(body)

    def again(self, now_s: float) -> None:
        """Send again what has waited for its acknowledgements for long."""
        with self._lock:
            due = []
            for key, one in self._waiting.items():
                if one.due_s <= now_s:
                    one.tries += 1
                    one.again_s = min(2 * one.again_s, LONGEST_AGAIN_S)
                    one.due_s = now_s + one.again_s
                    due.append(self._pack(key, one.tries, sorted(one.targets), one.body))
        for packed in due:
            self.pass_on(packed, None)

    def state(self) -> list[str]:
        """What has not been acknowledged, and by whom."""
        with self._lock:
            waiting = list(self._waiting.values())
        return [f"{one.body[0]} to {sorted(one.targets)}, sent {one.tries + 1} times" for one in waiting]

    def _next(self) -> Key:
        self._number += 1
        return self.own, self.life, self._number

    def _pack(self, key: Key, tries: int, targets: list[int], body: list[Any]) -> bytes:
        return zlib.compress(json.dumps([*key, tries, targets, body], separators=(",", ":")).encode())

    def _acknowledged(self, key: Key, by: int) -> None:
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.targets.discard(by)
                if not waiting.targets:
                    del self._waiting[key]
