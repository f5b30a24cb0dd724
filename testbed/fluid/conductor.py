"""Jobs that come and go at flow level: what testbed.timeline needs of a coordinator, on a clock of its own.

Running jobs that share links are in one part of the network (`Part`), which is made anew when one comes or goes. Parts
are played in the order of time, each from event to event, or skip what repeats (`skipping`).

Two simplifications beside those of an arm: of the links that one job alone crosses only the tightest is kept, and
acknowledgements are counted on the links that the job's own data takes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from testbed.errors import NotValid
from testbed.fluid.arm import Network
from testbed.fluid.flows import Key, parts
from testbed.fluid.part import STUCK, Part, Running
from testbed.fluid.sharing import Flow
from testbed.fluid.skipping import Asleep, History, Skipping
from testbed.fluid.workers import Beat, Crew, Ended
from workloads.training.coordinator import STOP_LEAD_S, Done
from workloads.training.plan import JobPlan
from workloads.training.records import AgentSocket, Hold, IterationRecord


@dataclass
class Placed:
    """A job on its accelerators, before, while and after it runs."""

    plan: JobPlan
    flows: dict[Key, Flow]
    crew: Crew
    history: History
    first: int = 0
    home: Asleep | None = None

    @property
    def links(self) -> set[str]:
        """The links that its data takes."""
        return {link for flow in self.flows.values() for link in flow.links}


class FluidConductor:
    """Conducts jobs on a network; `now_s` is its clock. `on_iteration` and `on_record` are as the coordinator's, but
    are told once before `wait` returns with nobody, and of iterations that were held to ticks, of rank 0.

    `finished` has every stay that came to its end: job, iterations before it, and its history.
    """

    def __init__(self, network: Network, skipping: Skipping, window: int) -> None:
        self.network, self._skipping, self._window = network, skipping, window
        self.now_s = 0.0
        self.finished: list[tuple[str, int, History]] = []
        self.played = 0
        self.on_iteration: Callable[[str, int], None] = lambda *_: None
        self.on_record: Callable[[IterationRecord], None] = lambda _: None
        self._jobs: dict[str, Placed] = {}
        self._done: list[Done] = []
        self._queue: list[tuple[float, int, Asleep]] = []
        self._valid: dict[int, Asleep] = {}
        self._number = 0
        self._users: dict[str, set[str]] = {}
        """The jobs that are there, by the links they take."""

    def clock(self) -> float:
        """Return the time in s."""
        return self.now_s

    def gather(self, jobs: Sequence[JobPlan]) -> list[AgentSocket]:
        """Put jobs on their hosts. There are no sockets to tell of."""
        for plan in jobs:
            flows = {key: replace(flow, back=frozenset(flow.links)) for key, flow in self.network.flows(plan).items()}
            crew = self.network.crew(plan, flows, 0, None)
            crew.on_end = self._ended
            self._jobs[plan.name] = Placed(plan, flows, crew, History())
            for link in self._jobs[plan.name].links:
                self._users.setdefault(link, set()).add(plan.name)
        return []

    def start(
        self,
        job: str,
        start_s: float,
        iterations: int | None = None,
        hold: Hold | None = None,
        first_iteration: int = 0,
    ) -> None:
        """Have a job begin."""
        placed = self._jobs[job]
        crew = placed.crew
        placed.first = first_iteration
        crew.last = first_iteration + (placed.plan.iterations if iterations is None else iterations) - 1
        self._arrange([job], self._beside(placed))
        home = placed.home
        assert home is not None
        for worker in list(crew.workers):
            worker.beat = Beat(hold) if hold else None
            worker.start(home.part, max(start_s, self.now_s), first_iteration)
        self._queued(home)

    def hold(self, job: str, hold: Hold | None) -> None:
        """Give a running job other ticks, or none, from its next iteration on."""
        placed = self._jobs[job]
        home = self._awake(placed)
        for worker in placed.crew.workers:
            worker.beat = Beat(hold) if hold else None
        if home is not None:
            self._queued(home)

    def stop(self, job: str) -> None:
        """Have a running job end early, after the iteration after the next (coordinator.Coordinator.stop)."""
        placed = self._jobs[job]
        home = self._awake(placed)
        crew, compute_s = placed.crew, placed.plan.compute_s
        more = max(1, math.ceil(STOP_LEAD_S / compute_s)) if compute_s > 0 else 1000
        newest = max((worker.iteration - 1 for worker in crew.workers), default=crew.last)
        crew.last = min(crew.last, newest + 1 + more)
        if home is not None:
            self._queued(home)

    def wait(self, until_s: float | None = None) -> Done | None:
        """Go on to the next job that ends, or to a time."""
        limit_s = math.inf if until_s is None else until_s
        while not self._done:
            home = self._soonest()
            if home is None and (stuck := [job for job, placed in self._jobs.items() if placed.home]):
                raise NotValid(f"{', '.join(stuck)}: {STUCK}")
            if home is None or home.next_s > limit_s:
                if home is not None:
                    self._queued(home)
                if until_s is not None:
                    self.now_s = max(self.now_s, until_s)
                break
            self._play(home, limit_s)
        if self._done:
            return self._done.pop(0)
        for job, placed in self._jobs.items():
            if placed.home is not None and (count := placed.home.progress(job, self.now_s)):
                self.on_iteration(job, placed.first + count - 1)
        return None

    def _play(self, home: Asleep, limit_s: float) -> None:
        """Play a part until another one is due, a job ends, or the limit is reached."""
        due_s = min(limit_s, self._queue[0][0] if self._queue else math.inf)
        before = home.part.played
        while True:
            self.now_s = max(self.now_s, home.next_s)
            home.step()
            if self._done or home.next_s > due_s:
                break
        self.played += home.part.played - before
        self._queued(home)

    def release(self, job: str) -> None:
        """Take a job that has ended off its accelerators."""
        placed = self._jobs.pop(job)
        for link in placed.links:
            self._users[link].discard(job)
        self.finished.append((job, placed.first, placed.history))
        if placed.home is not None:
            others = [name for name in placed.home.part.crews if name != job]
            self._arrange(others, [placed.home])

    def _ended(self, crew: Crew, one: Ended) -> None:
        placed = self._jobs[crew.name]
        placed.history.note(one, placed.plan.workers if len(placed.plan.programs) > 1 else 1)
        if one.rank == 0 and any(worker.beat for worker in crew.workers):
            self.on_record(
                IterationRecord(
                    crew.name, 0, placed.plan.hosts[0], one.iteration, one.begin_s, one.up_begin_s, one.end_s, 0,
                    one.held_s, one.lost_s, int(one.lost_s > 0),
                )
            )  # fmt: skip
        if one.iteration >= crew.last and len(crew.workers) == 1:
            self._done.append(Done(crew.name, one.iteration + 1 - placed.first, one.end_s))

    def _awake(self, placed: Placed) -> Asleep | None:
        """Bring the part that a job is in to now."""
        if placed.home is not None:
            placed.home.wake(self.now_s)
        return placed.home

    def _beside(self, placed: Placed) -> list[Asleep]:
        """Return the parts that have a job on a link that a new one takes."""
        meets = set().union(*(self._users[link] for link in placed.links))
        homes = [other.home for job, other in self._jobs.items() if job in meets and other.home is not None]
        return list({id(home): home for home in homes}.values())

    def _arrange(self, jobs: Sequence[str], homes: Sequence[Asleep]) -> None:
        """Make the parts anew in which jobs are, with all others of the parts given."""
        for home in homes:
            home.wake(self.now_s)
            self._forget(home)
        names = list(dict.fromkeys([*jobs, *(name for home in homes for name in home.part.crews)]))
        names = [name for name in names if name in self._jobs]
        loads = {job: [link for flow in self._jobs[job].flows.values() for link in flow.links] for job in names}
        old = {name: home.part for home in homes for name in home.part.crews}
        for together in parts(loads):
            self._housed(together, old)

    def _housed(self, names: Sequence[str], old: dict[str, Part]) -> None:
        kept = _reduced({name: self._jobs[name].flows for name in names}, self.network)
        flows = [flow for name in names for flow in kept[name].values()]
        part = Part(self.network.sharing(flows, links_too=False), self.now_s, kept=False)
        first = 0
        running: list[tuple[int, Running]] = []
        for name in names:
            crew, before = self._jobs[name].crew, old.get(name)
            numbers = {key: first + at for at, key in enumerate(kept[name])}
            if before is not None:
                kept_on = [(key, was) for key, was in crew.flows.items() if was in before.running]
                running += [(numbers[key], before.running[was]) for key, was in kept_on]
            crew.flows = numbers
            first += len(numbers)
            if before is None:
                part.add(crew)
            else:
                part.take(crew, before)
        for flow, run in running:
            part.resume(flow, run)
        home = Asleep(part, {name: self._jobs[name].history for name in names}, self._skipping, self._window)
        for name in names:
            self._jobs[name].home = home
        self._queued(home)

    def _queued(self, home: Asleep) -> None:
        self._forget(home)
        self._number += 1
        self._valid[self._number] = home
        home.place = self._number
        if (next_s := home.next_s) < math.inf:
            heapq.heappush(self._queue, (next_s, self._number, home))

    def _forget(self, home: Asleep) -> None:
        self._valid.pop(home.place, None)

    def _soonest(self) -> Asleep | None:
        while self._queue:
            _, number, home = heapq.heappop(self._queue)
            if self._valid.pop(number, None) is home:
                return home
        return None


def _reduced(jobs: dict[str, dict[Key, Flow]], network: Network) -> dict[str, dict[Key, Flow]]:
    """Return the flows with the links that jobs share, and of a job's own the tightest; unchanged if it has several."""
    users: dict[str, set[str]] = {}
    for job, flows in jobs.items():
        for flow in flows.values():
            for link in flow.links:
                users.setdefault(link, set()).add(job)
    found: dict[str, dict[Key, Flow]] = {}
    for job, flows in jobs.items():
        found[job] = dict(flows)
        for key, flow in flows.items():
            own = [link for link in flow.links if len(users[link]) == 1]
            if len(flows) > 1 or len(own) < 2:
                continue
            tightest = min(own, key=lambda link: (network.wires[link].rate_bps / flow.links[link], link))
            links = {link: count for link, count in flow.links.items() if link == tightest or link not in own}
            found[job][key] = replace(flow, links=links, back=frozenset(links))
    return found
