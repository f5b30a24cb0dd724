"""Flows on shared links as TCP makes them: windows that CUBIC opens and closes, and queues that hold what they send.

Queues settle within a round trip or two, windows need many: so at every moment the queues are taken to be those at
which the windows under way and the links agree (Massoulié and Roberts, 1999, "Bandwidth sharing", fixed windows). A
flow's rate is its window over its round trip, and that is what its segments wait in queues, what their
acknowledgements wait behind whatever goes the other way, and the links' latency. Queues mark as RED does, or lose what
they cannot hold; a flow closes its window once a mark or a loss of its own is to be expected. Not modelled: segments
sent again, timeouts, bursts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

CUBIC_C, CUBIC_BETA = 0.4, 0.7
"""RFC 9438, 5: segments per second cubed, and what is left of a window after a mark."""
RENO_SLOPE = 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA)
"""RFC 9438, 4.3: segments per round trip of a window that is as fast as Reno's."""
LEAST_SEGMENTS, HYSTART_SEGMENTS = 2.0, 16.0
HYSTART_S = (0.004, 0.016)
"""Slow start ends when queues add an eighth to the round trip, within these bounds (HyStart; Ha and Rhee, 2011)."""
STEPS_PER_TRIP, STEP_S = 4, (0.005, 0.25)
SETTLED, TURNS, MOST_TURNS = 0.005, 4, 60
"""How far a full link may be from its capacity, how many turns between two looks, and how many there are at most."""
F = TypeVar("F", bound=Hashable)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Queues:
    """What the queues of links do, and the connections that meet there.

    `size_bytes` is what a link's queue holds of payload, `segment_bytes` the payload of a full packet, `first_segments`
    the window of a new connection; one that was not used for `idle_s` seconds halves its window, and again for as long.
    With `probability` they mark from the share `mark_from` of their size on, ever more up to that probability at the
    share `mark_all`, and then every packet; with 0 they lose what they have no room for.
    """

    size_bytes: Mapping[str, float]
    segment_bytes: float
    first_segments: float = 10.0
    idle_s: float = 1.0
    mark_from: float = 0.25
    mark_all: float = 0.75
    probability: float = 0.0


class Windows(Generic[F]):
    """Flows in progress, each of a connection of the same name whose window outlives it.

    `links` and `back` name the links of a flow's segments and of its acknowledgements, `ack` the part of its rate that
    these need, `latency` the round trip in seconds when nothing queues.
    """

    def __init__(
        self,
        capacity_bps: Mapping[str, float],
        queues: Queues,
        *,
        ack: float,
        back: Callable[[F], tuple[str, ...]],
        latency: Callable[[F], float],
    ) -> None:
        self.now_s = 0.0
        self._row = {link: number for number, link in enumerate(capacity_bps)}
        self._capacity_bps = np.array(list(capacity_bps.values()))
        self._queues, self._ack, self._back, self._latency = queues, ack, back, latency
        self._segment_bits = 8.0 * queues.segment_bytes
        self._room_bits = np.array([8.0 * queues.size_bytes[link] for link in capacity_bps])
        self._wait_s = np.zeros(len(self._row))  # in the queue of each link
        self._column: dict[F, int] = {}
        self._names: list[F] = []
        self._there = np.zeros((len(self._row), 0))
        self._back_there = np.zeros((len(self._row), 0))
        self._latency_s = self._left_bits = self._window = self._most = self._low = np.zeros(0)
        self._since_s = self._marks = self._cut_s = self._idle_s = np.zeros(0)
        self._opening = np.zeros(0, dtype=bool)
        self._waiting: dict[F, float] = {}  # until their first bits arrive
        self._active: set[int] = set()
        self._settled: set[int] | None = None
        self._at = np.zeros(0, dtype=int)
        self._rate_bps = self._trip_s = self._base_s = np.zeros(0)
        self._sends = self._takes = self._meets = np.zeros((0, 0))
        self._tick_s = math.inf

    def start(self, flow: F, links: tuple[str, ...], size_bits: float, now_s: float) -> None:
        """Begin a flow that is not in progress: of a connection that was idle the first bits meet the queues."""
        if flow not in self._column:
            self._connect(flow, links)
        column = self._column[flow]
        self._left_bits[column] = size_bits
        if self._idle_s[column] == now_s:
            self._active.add(column)
            return
        self._resume(column, now_s)
        self._waiting[flow] = now_s + float(self._there[:, column] @ self._wait_s)

    def change(self, link: str, capacity_bps: float) -> None:
        """Give a link another capacity from now on."""
        self._capacity_bps[self._row[link]] = capacity_bps
        self._settled = None

    def run_until(self, until_s: float) -> F | None:
        """Go on to the next flow that ends before or at a moment, and return it; None if there is none."""
        while True:
            for flow in [one for one, at_s in self._waiting.items() if at_s <= self.now_s]:
                del self._waiting[flow]
                self._active.add(self._column[flow])
            if self._settled != self._active:
                self._settle()
            ends_s = self._left_bits[self._at] / self._rate_bps
            first = int(np.argmin(ends_s)) if len(ends_s) else -1
            end_s = self.now_s + float(ends_s[first]) if first >= 0 else math.inf
            next_s = min(end_s, until_s, self._tick_s, *self._waiting.values())
            if next_s == math.inf:
                return None
            self._left_bits[self._at] -= self._rate_bps * (next_s - self.now_s)
            if next_s == end_s:
                self.now_s = end_s
                return self._finish(int(self._at[first]))
            self.now_s = next_s
            if next_s == self._tick_s:
                self._open()
                self._settle()
            if next_s == until_s:
                return None

    def rewind(self) -> None:
        """Call this moment 0 and forget flows in progress: connections stay, with windows as they are."""
        for times in (self._since_s, self._cut_s, self._idle_s):
            times -= self.now_s
        self._idle_s[sorted(self._active)] = 0.0
        self._active.clear()
        self._waiting.clear()
        self.now_s, self._tick_s = 0.0, math.inf
        self._settled = None

    def _connect(self, flow: F, links: tuple[str, ...]) -> None:
        self._column[flow] = len(self._names)
        self._names.append(flow)
        for name, used in (("_there", links), ("_back_there", self._back(flow))):
            uses = np.zeros((len(self._row), 1))
            uses[[self._row[link] for link in used]] = 1.0
            setattr(self, name, np.hstack([getattr(self, name), uses]))
        both = self._there[:, -1] + self._ack * self._back_there[:, -1]
        sending_s = float(both @ (self._segment_bits / self._capacity_bps))
        new = {
            "_latency_s": self._latency(flow) + sending_s, "_left_bits": 0.0, "_window": self._queues.first_segments,
            "_most": 0.0, "_low": 0.0, "_since_s": 0.0, "_marks": 0.0, "_cut_s": -math.inf, "_idle_s": math.nan,
        }  # fmt: skip
        for name, value in new.items():
            setattr(self, name, np.append(getattr(self, name), value))
        self._opening = np.append(self._opening, True)

    def _resume(self, column: int, now_s: float) -> None:
        """A window that nobody used for long is not believed any more (RFC 2861), and time stood still for it."""
        idle_s = now_s - self._idle_s[column]
        if math.isnan(idle_s):
            return
        self._since_s[column] += idle_s
        least = min(self._window[column], self._queues.first_segments)
        self._window[column] = max(least, self._window[column] / 2 ** (idle_s // self._queues.idle_s))

    def _finish(self, column: int) -> F:
        self._active.remove(column)
        self._idle_s[column] = self.now_s
        return self._names[column]

    def _settle(self) -> None:
        """Find the queues at which windows and links agree, and the rates at which flows then are."""
        if self._settled != self._active:
            self._choose()
        if not len(self._at):
            self._rate_bps, self._tick_s, self._wait_s = np.zeros(0), math.inf, np.zeros_like(self._wait_s)
            return
        window_bits = self._window[self._at] * self._segment_bits
        per_bps = 1 / self._capacity_bps
        wait_s = self._wait_s
        for _ in range(MOST_TURNS // TURNS):
            trip_s = self._base_s + self._meets @ wait_s
            shortest_s = float(trip_s.min())
            for _ in range(TURNS):
                over = (self._takes @ (window_bits / (self._base_s + self._meets @ wait_s))) * per_bps
                # A queue that is empty needs something to begin with; it goes to nothing again where it is not needed.
                begins_s = (0.1 * shortest_s) * np.minimum(np.maximum(over - 1, 0.0), 1.0)
                wait_s = wait_s * np.minimum(np.maximum(over, 0.5), 2.0) + begins_s
            if np.all((np.abs(over - 1) < SETTLED) | ((over < 1) & (wait_s < SETTLED * shortest_s))):
                break
        # What a queue has no room for is lost, and nobody waits behind it.
        self._wait_s, full_s = wait_s, self._room_bits * per_bps
        rate_bps = window_bits / (self._base_s + self._meets @ wait_s)
        self._trip_s = self._base_s + self._meets @ np.minimum(wait_s, full_s)
        # What has not settled quite must not send more than there is room for.
        over = np.maximum((self._takes @ rate_bps) * per_bps, 1.0)
        self._rate_bps = rate_bps / (over[:, None] * self._sends).max(axis=0)
        step_s = min(max(float(np.median(self._trip_s)) / STEPS_PER_TRIP, STEP_S[0]), STEP_S[1])
        if not self.now_s < self._tick_s <= self.now_s + step_s:
            self._tick_s, self._step_s = self.now_s + step_s, step_s

    def _choose(self) -> None:
        """Note what the flows in progress use."""
        self._settled = set(self._active)
        self._at = np.array(sorted(self._active), dtype=int)
        self._sends, back = self._there[:, self._at], self._back_there[:, self._at]
        self._takes = self._sends + self._ack * back
        self._meets = np.ascontiguousarray((self._sends + back).T)
        self._base_s = self._latency_s[self._at]

    def _open(self) -> None:
        """Let the windows of flows go on by a step: open as CUBIC does, or close where a mark is due."""
        at, trip_s, step_s = self._at, self._trip_s, self._step_s
        window = self._window[at]
        fresh = self.now_s - self._cut_s[at] >= trip_s  # a window closes once in a round trip
        packets = self._rate_bps / self._segment_bits * step_s
        odds = np.minimum(1.0, self._odds() @ self._sends)
        marks = np.where(fresh, self._marks[at] + packets * odds, 0.0)
        queued_s = trip_s - self._latency_s[at]
        full = (window >= HYSTART_SEGMENTS) & (queued_s > np.clip(self._latency_s[at] / 8, *HYSTART_S))
        cut = marks >= 1
        steady = self._opening[at] & (full | cut)
        self._opening[at] &= ~steady
        # A flow that closes below where it closed last makes room for new ones (RFC 9438, 4.7).
        top = np.where(window < self._most[at], window * (1 + CUBIC_BETA) / 2, window)
        low = np.where(cut, np.maximum(window * CUBIC_BETA, LEAST_SEGMENTS), window)
        turned = cut | steady
        self._most[at] = np.where(cut, top, np.where(steady, window, self._most[at]))
        self._low[at] = np.where(turned, low, self._low[at])
        self._since_s[at] = np.where(turned, self.now_s, self._since_s[at])
        self._cut_s[at] = np.where(cut, self.now_s, self._cut_s[at])
        self._marks[at] = np.where(cut, 0.0, marks)
        doubled = window * 2 ** np.minimum(step_s / trip_s, 1.0)
        opened = np.clip(self._cubic(at, trip_s), window, 1.5 * window)
        self._window[at] = np.where(self._opening[at], doubled, np.where(cut, low, opened))

    def _cubic(self, at: NDArray[np.int_], trip_s: Floats) -> Floats:
        """RFC 9438, 4.2 and 4.3: windows in segments some time after they were closed."""
        most, low = self._most[at], self._low[at]
        t_s = self.now_s - self._since_s[at]
        flat_s = np.cbrt((most - low) / CUBIC_C)
        grown: Floats = np.maximum(most + CUBIC_C * (t_s - flat_s) ** 3, low + RENO_SLOPE * t_s / trip_s)
        return grown

    def _odds(self) -> Floats:
        """How likely a packet is to be marked or lost in each queue."""
        queues, bits = self._queues, self._wait_s * self._capacity_bps
        lost: Floats = np.maximum(0.0, 1 - self._room_bits / np.maximum(bits, 1.0))
        if not queues.probability:
            return lost
        share = bits / self._room_bits
        rising = queues.probability * (share - queues.mark_from) / (queues.mark_all - queues.mark_from)
        marked: Floats = np.where(share >= queues.mark_all, 1.0, np.maximum(0.0, rising))
        return np.maximum(lost, marked)
