"""Sampling times that do not drift: multiples of the interval, however late each sample was."""

from __future__ import annotations


class Schedule:
    """The times `start_s + k * interval_s`, k = 1, 2, ..., on the clock of `time.time()` (virtual time in a
    guest).

    Every time is a multiple of the interval from the start and not from the last sample, so lateness never
    adds up. A sample that took longer than the interval skips times instead of catching up in a burst.
    """

    def __init__(self, start_s: float, interval_s: float) -> None:
        if not interval_s > 0:
            raise ValueError(f"interval {interval_s} s is not positive")
        self._start_s, self._interval_s, self._count = start_s, interval_s, 0

    def after(self, now_s: float) -> float:
        """The next time of the schedule: later than `now_s`, and later than every time returned before."""
        passed = int((now_s - self._start_s) // self._interval_s)
        self._count = max(self._count, passed) + 1
        return self._start_s + self._count * self._interval_s
