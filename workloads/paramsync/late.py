"""Control messages that arrive late and out of order, by a seed: what a protocol has to stand."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Late:
    """Hands on what it is given: at once, or, with a mean delay of `late_s`, each after a time of its own."""

    def __init__(self, late_s: float, seed: str, hand_on: Callable[[list[Any]], None]) -> None:
        self._late_s, self._random, self._hand_on = late_s, random.Random(seed), hand_on

    def __call__(self, body: list[Any]) -> None:
        if not self._late_s:
            self._hand_on(body)
            return
        timer = threading.Timer(self._random.expovariate(1 / self._late_s), self._hand_on, (body,))
        timer.daemon = True
        timer.start()
