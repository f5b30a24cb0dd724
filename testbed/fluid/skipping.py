"""Stretches that need not be played: those that are proven to repeat, and samples for those that are not.

After every iteration of one of its jobs a part is compared with itself earlier: where every worker is in its
operations, when it will go on, on which phase of its ticks it is, and how long every flow still needs. If all of that
is as it was, to 0.1 us, what follows is what followed then: nothing in a part is drawn or depends on the hour. So whole
cycles are skipped until a job would end or somebody comes, goes or is given other ticks, and then it is played again.

Jobs whose iterations have nothing in common need not repeat for a very long time. Then, if asked for, a window of
iterations stands for those that follow (a sample), before the next window is played from where the last one ended. That
is not proven; how much of a run it is, is counted, and the error is measured against runs that skip nothing. Where
jobs are held to ticks, what is skipped is a multiple of the time after which all ticks fall as before, so that nobody's
phase is changed.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from testbed.fluid.part import Part
from testbed.fluid.workers import Beat, Crew, Ended, Worker

Float = TypeVar("Float", np.float32, np.float64)
Skipping = Literal["none", "periodic", "sampled"]
DIGITS = 7  # of a second
REPEATS = 8  # of the first window that is not proven to repeat; each one after it stands for twice as many
MOST_REPEATS = 64
MOST_KEPT = 4096  # earlier states that are compared with
SAME = 1e-10  # of periods, relative
MOST_S = 1e12
FINEST = 10_000  # of two periods: so many times goes what they have in common into one (controllers.cassini.circle)


@dataclass(slots=True)
class History:
    """The iterations of a job since it was started: from begin to begin in s, the last one to its end; marked packets.

    `waited_s` and `adjusted` are sums over its workers, divided by their number for the time.
    """

    times_s: array[float] = field(default_factory=lambda: array("d"))
    marked: array[float] = field(default_factory=lambda: array("f"))
    begin_s: float | None = None
    end_s: float = 0.0
    waited_s: float = 0.0
    adjusted: int = 0
    proven: int = 0
    sampled: int = 0

    def note(self, one: Ended, workers: int) -> None:
        """Take an iteration of rank 0, or of another one's what it waited."""
        self.waited_s += (one.held_s + one.lost_s) / workers
        self.adjusted += int(one.lost_s > 0)
        self.end_s = max(self.end_s, one.end_s)
        if one.rank == 0:
            if self.begin_s is not None:
                self.times_s.append(one.begin_s - self.begin_s)
            self.begin_s = one.begin_s
            self.marked.append(one.marked)

    @property
    def done(self) -> int:
        """How many iterations have ended."""
        return len(self.marked)

    def closed(self) -> array[float]:
        """Return the times with that of the last iteration, which lasts to its own end."""
        last = [self.end_s - self.begin_s] if self.begin_s is not None else []
        return self.times_s + array("d", last)

    def repeat(self, since: Mark, count: int, by_s: float, *, proven: bool) -> None:
        """Append `count` iterations like those since a mark, and move what is to come by so many seconds."""
        times = np.asarray(self.times_s[since.times :])
        marked = np.asarray(self.marked[since.done :])
        share = count / max(1, len(times))
        self.times_s.frombytes(_again(times, count).tobytes())
        self.marked.frombytes(_again(marked, count).tobytes())
        self.waited_s += share * (self.waited_s - since.waited_s)
        self.adjusted += round(share * (self.adjusted - since.adjusted))
        self.begin_s = None if self.begin_s is None else self.begin_s + by_s
        self.end_s += by_s
        if proven:
            self.proven += count
        else:
            self.sampled += count


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a job stood: iterations ended, times known, sums so far, marked packets so far."""

    done: int
    times: int
    waited_s: float
    adjusted: int
    marked: float


@dataclass(frozen=True, slots=True)
class Cycle:
    """What is repeated: from `begin_s` to `end_s` all jobs did what they are to do again; `since` is where they stood.

    `mean_s` has each job's iteration time meanwhile, `wake_s` is when the part must be played again at the latest. Only
    multiples of `step_s` may be skipped; 0: any time.
    """

    begin_s: float
    end_s: float
    since: dict[str, Mark]
    mean_s: dict[str, float]
    proven: bool
    step_s: float
    wake_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


class Asleep:
    """A part, and whether it is played or skips. `histories` are those of its jobs."""

    def __init__(self, part: Part, histories: dict[str, History], skipping: Skipping, window: int) -> None:
        self.part, self.histories, self._skipping, self._window = part, histories, skipping, window
        self.cycle: Cycle | None = None
        self.place = 0  # of whoever keeps parts in order
        self._seen: dict[Hashable, tuple[float, dict[str, Mark]]] = {}
        self._repeats = REPEATS
        self._reference = max(part.crews, key=lambda job: (len(part.crews[job].flows), job), default="")
        self._counted = 0
        self._opened: tuple[float, dict[str, Mark]] | None = None

    @property
    def next_s(self) -> float:
        """When it must be looked at again."""
        return self.cycle.wake_s if self.cycle else self.part.next_s

    def step(self) -> None:
        """Do what is due next."""
        if self.cycle:
            self.wake(self.cycle.wake_s)
            return
        crew = self.part.crews[self._reference]
        before = self.histories[self._reference].done
        self.part.step()
        if self._skipping != "none" and self.histories[self._reference].done > before and not crew.done:
            self._consider()

    def progress(self, job: str, now_s: float) -> int:
        """Return how many iterations a job has done by now, since it was started."""
        history = self.histories[job]
        if self.cycle is None:
            return history.done
        return history.done + self._count(job, now_s - self.cycle.end_s, self.cycle)

    def wake(self, now_s: float) -> None:
        """Stop skipping: bring the part to now, by whole cycles where they are proven, and play the rest."""
        cycle = self.cycle
        if cycle is not None:
            self.cycle = None
            self._skip(cycle, max(0.0, now_s - cycle.end_s))
        self.part.until(now_s)
        self._seen.clear()  # what comes next may be told other things than what came before
        self._opened, self._counted = None, 0

    def _mean_s(self, job: str, since: Mark) -> float:
        times = self.histories[job].times_s[since.times :]
        return sum(times) / len(times)

    @staticmethod
    def _count(job: str, passed_s: float, cycle: Cycle) -> int:
        return int(passed_s / cycle.mean_s[job] + 1e-6)

    def _skip(self, cycle: Cycle, passed_s: float) -> None:
        by_s = _whole(passed_s, cycle.step_s)
        if by_s <= 0:
            return
        for job, crew in self.part.crews.items():
            since = cycle.since[job]
            count = round(by_s / cycle.mean_s[job]) if cycle.proven else self._count(job, by_s, cycle)
            marked = (crew.marked - since.marked) * by_s / cycle.length_s
            self.histories[job].repeat(since, count, by_s, proven=cycle.proven)
            _move_crew(crew, by_s, count, marked)
        self.part.moved(by_s)

    def _consider(self) -> None:
        """Sleep if the part is as it was, or if a window is over."""
        if any(crew.done for crew in self.part.crews.values()):
            return  # somebody is about to leave
        here = self._marks()
        if any(mark.times == 0 for mark in here.values()):
            return
        now = _state(self.part)
        at_s = self.part.now_s
        self._counted += 1
        if now in self._seen:
            begin_s, since = self._seen[now]
            self._sleep(begin_s, since, proven=True, repeats=None)
            return
        if len(self._seen) < MOST_KEPT:
            self._seen[now] = at_s, here
        if self._opened is None:
            self._opened = at_s, here
        if self._skipping == "sampled" and self._counted > self._window:
            begin_s, since = self._opened
            if all(mark.times > since[job].times for job, mark in here.items()):
                self._sleep(begin_s, since, proven=False, repeats=self._repeats)
                self._repeats = min(MOST_REPEATS, 2 * self._repeats)

    def _marks(self) -> dict[str, Mark]:
        return {
            job: Mark(of.done, len(of.times_s), of.waited_s, of.adjusted, self.part.crews[job].marked)
            for job, of in self.histories.items()
        }

    def _sleep(self, begin_s: float, since: dict[str, Mark], *, proven: bool, repeats: int | None) -> None:
        """Skip until the first job would have two iterations left, or as often as allowed."""
        now_s, length_s = self.part.now_s, self.part.now_s - begin_s
        if any(len(self.histories[job].times_s) <= mark.times for job, mark in since.items()):
            return
        mean_s = {job: self._mean_s(job, mark) for job, mark in since.items()}
        left_s = min(
            (crew.last - min(worker.iteration for worker in crew.workers) - 1) * mean_s[job]
            for job, crew in self.part.crews.items()
        )
        step_s = length_s if proven else turn_s(self.part)
        longest_s = _whole(left_s if repeats is None else min(left_s, repeats * length_s), step_s)
        if longest_s < length_s:
            return
        self.cycle = Cycle(begin_s, now_s, since, mean_s, proven, step_s, now_s + longest_s)


def _again(values: NDArray[Float], count: int) -> NDArray[Float]:
    """Return so many values, the given ones over and over."""
    return np.tile(values, -(-count // len(values)))[:count] if len(values) else values


def _whole(span_s: float, step_s: float) -> float:
    """Return the largest multiple of a step that a span has room for; the span itself where the step is 0."""
    return step_s * int(span_s / step_s + 1e-9) if step_s else span_s


def turn_s(part: Part) -> float:
    """Return the time after which the ticks of all held jobs fall as they do now: 0 where nobody is held, and more
    than any span where periods have nothing in common."""
    beats = [worker.beat for crew in part.crews.values() for worker in crew.workers if worker.beat is not None]
    periods_s = sorted({beat.hold.period_s for beat in beats})
    if not periods_s:
        return 0.0
    ratios = [Fraction(period_s / periods_s[0]).limit_denominator(FINEST) for period_s in periods_s]
    exact = all(abs(ratio * periods_s[0] / one - 1) < SAME for ratio, one in zip(ratios, periods_s, strict=True))
    return periods_s[0] * math.lcm(*(ratio.numerator for ratio in ratios)) if exact else MOST_S


def _move_crew(crew: Crew, by_s: float, count: int, marked: float) -> None:
    crew.marked += marked
    for worker in crew.workers:
        worker.iteration += count
        worker.marked += marked
        worker.begin_s += by_s
        worker.computed_s += by_s
        worker.ends = [end_s + by_s for end_s in worker.ends]
        worker.up_begin_s += by_s if worker.up_begin_s else 0.0
        worker.wake_s = None if worker.wake_s is None else worker.wake_s + by_s
        if worker.beat is not None:
            worker.beat = _later(worker.beat, by_s)


def _later(beat: Beat, by_s: float) -> Beat:
    """Return the beat so much later, which is a whole number of ticks."""
    tick = None if beat.tick is None else beat.tick + round(by_s / beat.hold.period_s)
    return Beat(beat.hold, tick)


def _state(part: Part) -> Hashable:
    """Return what decides how a part goes on, times relative to now."""
    now_s = part.now_s
    workers = tuple(_of_worker(worker, now_s) for crew in part.crews.values() for worker in crew.workers)
    boxes = tuple(
        (key, tuple(box.waiting), box.busy, box.came)
        for crew in part.crews.values()
        for key, box in crew.messages.items()
    )
    rates = dict(zip(part.share.flows, part.share.bytes_per_s, strict=True))
    flows = tuple((flow, round(run.left_bytes / rates[flow], DIGITS)) for flow, run in sorted(part.running.items()))
    timers = sorted(
        (crew.name, round(at_s - now_s, DIGITS))
        for at_s, _, crew, whom, _ in part.timers
        if not isinstance(whom, Worker)
    )
    return workers, boxes, flows, tuple(timers)


def _of_worker(worker: Worker, now_s: float) -> Hashable:
    times_s = [worker.begin_s, worker.computed_s, *worker.ends]
    if worker.wake_s is not None:
        times_s.append(worker.wake_s)
    if worker.beat is not None and worker.beat.tick is not None:
        times_s.append(worker.beat.hold.start_s + (worker.beat.tick + 1) * worker.beat.hold.period_s)
    return worker.pos, worker.wake_s is None, tuple(round(at_s - now_s, DIGITS) for at_s in times_s)
