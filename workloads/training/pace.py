"""When a worker begins its iterations: on the ticks of a time-shift, and how unsteadily it computes."""

from __future__ import annotations

import math
import random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

JITTER_CUT = 3.0


def first_tick(now_s: float, start_s: float, period_s: float, tolerance: float) -> int:
    """The tick that a worker takes which is told of a time-shift at `now_s`.

    Tick n is due at `start_s` + n * `period_s`. It is the next one, or the last one if that was no longer ago than
    `tolerance` * `period_s`; never before tick 0.
    """
    return max(0, math.ceil((now_s - start_s) / period_s - tolerance))


def next_begin(
    now_s: float, tick: int, start_s: float, period_s: float, tolerance: float
) -> tuple[float, int, float, float]:
    """(begin in s, the tick it counts as, seconds held, seconds lost) of a worker that could begin at `now_s`.

    `tick` is the one it should begin at. If that is yet to come it is held until then. If it is over by no more than
    `tolerance` * `period_s`, the worker begins at once, as it does at such a moment of any later tick: what counts is
    where on the circle it is. Else it has drifted, and loses what is left until the next tick (CASSINI, section 5.7).

    Without the rule for later ticks, a worker that waited in vain for a peer's next tick would then wait for the tick
    after, while the peer begins: the two would never meet again.
    """
    due_s = start_s + tick * period_s
    if now_s <= due_s:
        return due_s, tick, due_s - now_s, 0.0
    if now_s - due_s > tolerance * period_s:
        tick = max(tick, first_tick(now_s, start_s, period_s, tolerance))
        due_s = start_s + tick * period_s
    return max(now_s, due_s), tick, 0.0, max(0.0, due_s - now_s)


class Ticks:
    """The ticks a worker keeps to, in a job that may be given another time-shift while it runs.

    `hold` has start_s, period_s and tolerance (see `next_begin`), or is None: then every iteration begins at once.
    """

    def __init__(self, hold: Mapping[str, float] | None) -> None:
        self.change(hold)

    def change(self, hold: Mapping[str, float] | None) -> None:
        """Keep to another time-shift from the next iteration on."""
        self._hold = (hold["start_s"], hold["period_s"], hold["tolerance"]) if hold else None
        self._tick: int | None = None

    def begin(self, ready_s: float) -> tuple[float, float, float]:
        """(begin in s, seconds held, seconds lost) of the iteration after, which could begin at `ready_s`."""
        if self._hold is None:
            return ready_s, 0.0, 0.0
        tick = first_tick(ready_s, *self._hold) if self._tick is None else self._tick + 1
        begin_s, self._tick, held_s, lost_s = next_begin(ready_s, tick, *self._hold)
        return begin_s, held_s, lost_s


def compute_factor(jitter: float, slow: float, seed: int, job: str, rank: int, iteration: int) -> float:
    """By how much compute lasts longer than planned in one iteration of one worker.

    `slow` times a number drawn from a normal distribution about 1 with standard deviation `jitter`, cut at three
    deviations: the same for the same arguments, on every machine.
    """
    if not jitter:
        return slow
    drawn = random.Random(f"{seed}/{job}/{rank}/{iteration}").gauss(0.0, 1.0)
    return slow * (1.0 + jitter * min(JITTER_CUT, max(-JITTER_CUT, drawn)))
