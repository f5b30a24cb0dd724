"""Jobs that share links, moved from event to event: someone's time has come, or a flow has carried its last byte.

Between two events all rates stand still, so nothing is approximated in time. What is written down of links is one
number for every change: which flows were active from then on.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from testbed.errors import NotValid
from testbed.fluid.sharing import Share, Sharing
from testbed.fluid.workers import Crew, Worker

LEFT_BYTES = 1e-6
STUCK = 'flows without bandwidth, or workers that wait for ever; engine = "virtual" tells who waits for what'
Then = Callable[[], None]


class Running:
    """A flow that is active: payload bytes left on each of its connections, and what follows after a wait."""

    __slots__ = ("left_bytes", "then", "wait_s")

    def __init__(self, size_bytes: float, wait_s: float, then: Then) -> None:
        self.left_bytes, self.wait_s, self.then = size_bytes, wait_s, then


class Part:
    """Crews on the links of one `Sharing`, all at `now_s`. `log` has (time in s, active flows as bits) of every change
    if `kept`. `played` counts events.

    A timer is (time in s, number, crew, worker or what follows, the worker's stamp): of a worker the last one counts.
    """

    def __init__(self, sharing: Sharing, now_s: float, *, kept: bool = True) -> None:
        self.sharing, self.now_s = sharing, now_s
        self.crews: dict[str, Crew] = {}
        self.log: list[tuple[float, int]] = []
        self.played = 0
        self.active = 0
        self.timers: list[tuple[float, int, Crew, Worker | Then, int]] = []
        self.running: dict[int, Running] = {}
        self._kept, self._number = kept, 0
        self._share: Share | None = None
        self._next_s: float | None = None
        self._owners: dict[int, Crew] = {}

    def add(self, crew: Crew) -> None:
        """Take in a job, whose flows are numbers of the sharing."""
        self.crews[crew.name] = crew
        for flow in crew.flows.values():
            self._owners[flow] = crew

    def take(self, crew: Crew, other: Part) -> None:
        """Take over a job as it stands in another part at the same time; its flows have their new numbers already."""
        self.add(crew)
        for worker in crew.workers:
            worker.place = self
        for at_s, _, whose, whom, stamp in other.timers:
            if whose is crew:
                self._timer(at_s, crew, whom, stamp)

    def resume(self, flow: int, run: Running) -> None:
        """Go on with a flow of a job that was taken over."""
        self.running[flow] = run
        self._changed(self.active | 1 << flow)

    def wake(self, worker: Worker, at_s: float) -> None:
        """Have a worker go on at a time."""
        worker.wake_s = at_s
        worker.stamp += 1
        self._timer(at_s, worker.crew, worker, worker.stamp)

    def later(self, crew: Crew, at_s: float, then: Then) -> None:
        """Have something done for a job at a time."""
        self._timer(at_s, crew, then, 0)

    def _timer(self, at_s: float, crew: Crew, whom: Worker | Then, stamp: int) -> None:
        self._number += 1
        heapq.heappush(self.timers, (at_s, self._number, crew, whom, stamp))
        self._next_s = None

    def begin(self, flow: int, size_bytes: float, wait_s: float, then: Then) -> None:
        """Send bytes on every connection of a flow, wait, and then do what follows. A flow on no link takes no time."""
        if not self.sharing.flows[flow].links:
            self.later(self._owners[flow], self.now_s, then)
            return
        if flow in self.running:
            raise ValueError(f"flow {flow} of {self.sharing.flows[flow].job} is active already")
        self.running[flow] = Running(size_bytes, wait_s, then)
        self._changed(self.active | 1 << flow)

    def _changed(self, active: int) -> None:
        self.active, self._share, self._next_s = active, None, None

    @property
    def share(self) -> Share:
        """What the active flows have."""
        if self._share is None:
            self._share = self.sharing.share(self.active)
            if self._kept:
                if self.log and self.log[-1][0] == self.now_s:
                    self.log.pop()
                if not self.log or self.log[-1][1] != self.active:
                    self.log.append((self.now_s, self.active))
        return self._share

    @property
    def next_s(self) -> float:
        """When the next event is; infinity where nothing will ever happen."""
        if self._next_s is None:
            share, soonest = self.share, math.inf
            for flow, rate in zip(share.flows, share.bytes_per_s, strict=True):
                if rate > 0:
                    soonest = min(soonest, self.running[flow].left_bytes / rate)
            timer_s = self.timers[0][0] if self.timers else math.inf
            self._next_s = min(timer_s, self.now_s + max(0.0, soonest))
        return self._next_s

    def _move(self, to_s: float) -> None:
        passed_s = to_s - self.now_s
        if passed_s > 0:
            share = self.share
            for flow, rate, marked in zip(share.flows, share.bytes_per_s, share.marked_per_s, strict=True):
                self.running[flow].left_bytes -= rate * passed_s
                if marked:
                    self._owners[flow].marked += marked * passed_s
            self.now_s = to_s

    def step(self) -> None:
        """Do what is due at the next event. Raises NotValid where nothing will ever happen."""
        at_s = self.next_s
        if at_s == math.inf:
            raise NotValid(f"{', '.join(self.crews)}: {STUCK}")
        self.played += 1
        self._move(at_s)
        share, active = self.share, self.active
        for flow, rate in zip(share.flows, share.bytes_per_s, strict=True):
            run = self.running[flow]
            # What takes less time than the clock can tell is over.
            if run.left_bytes <= LEFT_BYTES or run.left_bytes < rate * 1e-14 * max(1.0, self.now_s):
                del self.running[flow]
                active &= ~(1 << flow)
                self.later(self._owners[flow], self.now_s + run.wait_s, run.then)
        if active != self.active:
            self._changed(active)
        while self.timers and self.timers[0][0] <= self.now_s:
            _, _, _, whom, stamp = heapq.heappop(self.timers)
            self._next_s = None
            if not isinstance(whom, Worker):
                whom()
            elif stamp == whom.stamp:
                whom.wake_s = None
                whom.go()

    def until(self, at_s: float) -> None:
        """Do all events up to a time, and stand there."""
        while self.next_s <= at_s:
            self.step()
        self._move(at_s)

    def play(self) -> None:
        """Go on until every crew is done."""
        while any(not crew.done for crew in self.crews.values()):
            self.step()

    def moved(self, by_s: float) -> None:
        """Move all that is to come by so many seconds; workers have been moved."""
        self.now_s += by_s
        self.timers = [(at_s + by_s, number, crew, whom, stamp) for at_s, number, crew, whom, stamp in self.timers]
        self._next_s = None
