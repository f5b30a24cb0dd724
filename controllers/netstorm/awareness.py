"""Passive network awareness: throughput is learnt from the model's own messages (public code).

A probe is any model message of at least 2 MB: it carries its sender's timestamp, and the receiver takes the time that
has elapsed. A tunnel's throughput is the mean over 4 probes, and is reported when it differs from what was last
reported by more than a threshold. The scheduler looks every 5 s and decides anew when the mean relative change exceeds
a threshold. Starting throughputs are arbitrary.

"Avalanche": tunnels outside the trees carry nothing, are never measured, and are never chosen again; see `auxiliary`.

Assumed, since the text is not available: the mean is over the last 4 probes, sliding; the scheduler's mean is over the
tunnels reported since the last policy; both thresholds are 0.1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from controllers.netstorm.overlay import BITS, Overlay, Pair

PROBE_BYTES = 2_000_000
PROBES = 4
LOOK_S = 5.0
REPORT_CHANGE = 0.1
DECIDE_CHANGE = 0.1


@dataclass(frozen=True)
class Settings:
    """Sizes in bytes (divide them by a scenario's scale), times in seconds, changes relative."""

    probe_bytes: int = PROBE_BYTES
    probes: int = PROBES
    look_s: float = LOOK_S
    report_change: float = REPORT_CHANGE
    decide_change: float = DECIDE_CHANGE


DEFAULTS = Settings()


class Receiver:
    """The end of one tunnel: takes the time of messages, and says when there is something to report."""

    def __init__(self, settings: Settings = DEFAULTS) -> None:
        self._settings = settings
        self._last_bps: deque[float] = deque(maxlen=settings.probes)
        self._reported_bps: float | None = None

    def received(self, size_bytes: float, elapsed_s: float) -> float | None:
        """Take note of a message; return the throughput in bit/s if it is to be reported now.

        elapsed_s: from the sender's timestamp to the arrival of the last byte. Raises ValueError unless it is positive.
        """
        if not elapsed_s > 0:
            raise ValueError(f"a message of {size_bytes} bytes cannot have come in {elapsed_s} s")
        if size_bytes < self._settings.probe_bytes:
            return None
        self._last_bps.append(size_bytes * BITS / elapsed_s)
        if len(self._last_bps) < self._settings.probes:
            return None
        mean_bps = sum(self._last_bps) / len(self._last_bps)
        if self._reported_bps is not None and _change(mean_bps, self._reported_bps) <= self._settings.report_change:
            return None
        self._reported_bps = mean_bps
        return mean_bps


class Awareness:
    """The scheduler's view of all tunnels: takes reports, and says when a new policy is due."""

    def __init__(self, start: Overlay, settings: Settings = DEFAULTS) -> None:
        self._settings = settings
        self._decided = start
        self._reported_bps: dict[Pair, float] = {}
        self._looked_s = 0.0

    def report(self, source: str, target: str, throughput_bps: float) -> None:
        """Take a report. Raises KeyError for a tunnel that the overlay does not have."""
        if (source, target) not in self._decided.by_pair:
            raise KeyError((source, target))
        self._reported_bps[source, target] = throughput_bps

    def believed(self) -> Overlay:
        """Return the overlay with the throughputs reported last."""
        return self._decided.with_throughputs(self._reported_bps)

    def change(self) -> float:
        """Return the mean relative change of what was reported since the last policy; 0 if nothing was."""
        changes = [
            _change(one_bps, self._decided.by_pair[pair].throughput_bps) for pair, one_bps in self._reported_bps.items()
        ]
        return sum(changes) / len(changes) if changes else 0.0

    def look(self, now_s: float) -> Overlay | None:
        """Return the overlay to decide on if it is time to look and enough has changed; else None."""
        if now_s - self._looked_s < self._settings.look_s:
            return None
        self._looked_s = now_s
        if self.change() <= self._settings.decide_change:
            return None
        self._decided, self._reported_bps = self.believed(), {}
        return self._decided


def _change(now: float, before: float) -> float:
    return abs(now - before) / before
