"""The iterations of a worker in the fluid engine, as workloads.training.agent and executor act them out.

Two streams: compute is known when it ends, communication goes step by step. Whoever acts in a `Part` is told to `go`
when its time has come, or when what it waits for is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from testbed.fluid.programs import AWAIT, CALCULATE, HAND, Step
from workloads.training import pace
from workloads.training.plan import Conduct
from workloads.training.records import Hold

EPSILON_S = 1e-12


class Place(Protocol):
    """What a worker needs of the part of the network it is in (part.Part)."""

    now_s: float

    def wake(self, worker: Worker, at_s: float) -> None: ...
    def begin(self, flow: int, size_bytes: float, wait_s: float, then: Callable[[], None]) -> None: ...


@dataclass(slots=True)
class Beat:
    """The ticks a worker keeps to (workloads.training.pace), with the tick it is at; None before its first one."""

    hold: Hold
    tick: int | None = None

    def begin(self, ready_s: float) -> tuple[float, float, float]:
        """Return (begin in s, seconds held, seconds lost) of the iteration after, which could begin at `ready_s`."""
        terms = self.hold.start_s, self.hold.period_s, self.hold.tolerance
        tick = pace.first_tick(ready_s, *terms) if self.tick is None else self.tick + 1
        begin_s, self.tick, held_s, lost_s = pace.next_begin(ready_s, tick, *terms)
        return begin_s, held_s, lost_s


@dataclass(slots=True)
class Ended:
    """One iteration of a worker: times in s on the part's clock; `marked` packets of all of its job's workers."""

    rank: int
    iteration: int
    begin_s: float
    up_begin_s: float
    end_s: float
    held_s: float
    lost_s: float
    marked: float


@dataclass(slots=True)
class Messages:
    """What one rank has handed over for another: what is still to be sent, and what has come and was not awaited."""

    waiting: deque[float] = field(default_factory=deque)
    busy: bool = False
    came: int = 0
    awaited_by: Worker | None = None
    flushed_by: list[Worker] = field(default_factory=list)


@dataclass(slots=True)
class Crew:
    """A job in the fluid engine: what its workers share. `flows` are the numbers of its flows in their part.

    `members` is how many must join a collective; `on_end` is told of every iteration.
    """

    name: str
    flows: dict[tuple[str, int, int], int]
    members: dict[tuple[str, int, int], int]
    on_end: Callable[[Crew, Ended], None]
    seed: int = 0
    marked: float = 0.0
    joined: dict[tuple[str, int, int], list[Worker]] = field(default_factory=dict)
    messages: dict[tuple[str, int, int], Messages] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    buffer_bytes: float = 0.0
    last: int = -1
    done: bool = False

    def of(self, key: tuple[str, int, int]) -> Messages:
        """Return the messages of a pair."""
        if key not in self.messages:
            self.messages[key] = Messages()
        return self.messages[key]


class Worker:
    """One worker; where all of a job are in step, one for all of them (`rank` 0)."""

    __slots__ = (
        "beat",
        "begin_s",
        "computed_s",
        "conduct",
        "crew",
        "ends",
        "factor",
        "held_s",
        "iteration",
        "lost_s",
        "marked",
        "place",
        "pos",
        "rank",
        "stamp",
        "steps",
        "up_begin_s",
        "wake_s",
    )  # fmt: skip

    def __init__(self, crew: Crew, rank: int, steps: Sequence[Step], conduct: Conduct, beat: Beat | None) -> None:
        self.crew, self.rank, self.steps, self.conduct, self.beat = crew, rank, tuple(steps), conduct, beat
        self.place: Place
        self.pos, self.iteration, self.ends = 0, 0, list[float]()
        self.begin_s = self.computed_s = self.up_begin_s = self.held_s = self.lost_s = self.marked = 0.0
        self.factor, self.stamp = 1.0, 0
        self.wake_s: float | None = None

    def start(self, place: Place, start_s: float, iteration: int = 0) -> None:
        """Begin with an iteration at `start_s`, or at the tick that follows, and the worker's own delay later."""
        self.place, self.iteration = place, iteration
        begin_s, self.held_s, self.lost_s = self.beat.begin(start_s) if self.beat else (start_s, 0.0, 0.0)
        self._prepare(begin_s + self.conduct.late_s)

    def _prepare(self, begin_s: float) -> None:
        self.pos, self.ends = 0, []
        self.begin_s = self.computed_s = begin_s
        self.up_begin_s = 0.0
        self.factor = pace.compute_factor(
            self.conduct.jitter, self.conduct.slow, self.crew.seed, self.crew.name, self.rank, self.iteration
        )
        self.place.wake(self, begin_s)

    def go(self) -> None:
        """Go on as far as possible, now that what was waited for is there."""
        now_s, ends = self.place.now_s, self.ends
        while self.pos < len(self.steps):
            step = self.steps[self.pos]
            if step.kind == CALCULATE:
                for at in step.after:
                    if ends[at] > self.computed_s:
                        self.computed_s = ends[at]
                self.computed_s += step.amount * self.factor
                ends.append(self.computed_s)
                self.pos += 1
                continue
            due_s = max([ends[at] for at in step.after], default=self.begin_s)
            if due_s > now_s + EPSILON_S:
                self.place.wake(self, due_s)
                return
            if not self._communicate(step):
                return
        if self._unsent():
            return
        if self.computed_s > now_s + EPSILON_S:
            self.place.wake(self, self.computed_s)
            return
        self._finish(now_s)

    def _communicate(self, step: Step) -> bool:
        """Do a step of communication; whether it has ended already."""
        crew, key = self.crew, step.key
        if step.kind == AWAIT:
            box = crew.of(key)
            if not box.came:
                box.awaited_by = self
                return False
            box.came -= 1
            self._stepped()
            return True
        self.up_begin_s = self.up_begin_s or self.place.now_s
        if step.kind == HAND:
            crew.of(key).waiting.append(step.amount)
            self._stepped()
            self._send(key)
            return True
        there = crew.joined.setdefault(key, [])
        there.append(self)
        if len(there) == crew.members[key]:
            crew.joined[key] = []
            self.place.begin(crew.flows[key], step.amount, step.wait_s, lambda: self._all_go(there))
        return False

    def _stepped(self) -> None:
        self.ends.append(self.place.now_s)
        self.pos += 1

    @staticmethod
    def _all_go(members: list[Worker]) -> None:
        for member in members:
            member._stepped()
        for member in members:
            member.go()

    def _send(self, key: tuple[str, int, int]) -> None:
        """Have the next message of a pair sent, if none is on its way."""
        box = self.crew.of(key)
        if box.busy or not box.waiting:
            return
        box.busy = True
        self.place.begin(self.crew.flows[key], box.waiting[0], 0.0, lambda: self._sent(key))

    def _sent(self, key: tuple[str, int, int]) -> None:
        box = self.crew.of(key)
        box.waiting.popleft()
        box.busy, box.came = False, box.came + 1
        self._send(key)
        whom, box.awaited_by = box.awaited_by, None
        freed, box.flushed_by = box.flushed_by, []
        if whom is not None:
            whom.go()
        for worker in freed:
            worker.go()

    def _unsent(self) -> bool:
        """Return whether more than a socket's buffer holds is still to be sent; go on once it is less."""
        for key, box in self.crew.messages.items():
            if key[1] == self.rank and sum(box.waiting) > self.crew.buffer_bytes:
                box.flushed_by.append(self)
                return True
        return False

    def _finish(self, now_s: float) -> None:
        crew = self.crew
        before, self.marked = self.marked, crew.marked
        ended = Ended(
            self.rank, self.iteration, self.begin_s, self.up_begin_s or now_s, now_s, self.held_s, self.lost_s,
            self.marked - before,
        )  # fmt: skip
        crew.on_end(crew, ended)
        if self.iteration >= crew.last:
            crew.workers.remove(self)
            crew.done = not crew.workers
            return
        self.iteration += 1
        begin_s, self.held_s, self.lost_s = self.beat.begin(now_s) if self.beat else (now_s, 0.0, 0.0)
        self._prepare(begin_s)
