"""The life of a cluster as a state machine: what happened goes in, orders come out; nothing here waits or sends.

Jobs arrive, and in a *round* a scheduler proposes placements for all that are there. Rounds are held every epoch, and
whenever a job arrives or ends (`Rules.on_change`): then only what is free or no longer leased is at stake. A job that
is to run elsewhere, or no longer, is stopped at its next iteration boundary, and those that get its accelerators start
once it has left. Until all who must leave have left no further round is held. A job that was moved stands still for
`Rules.restart_s`.

Whoever runs the jobs calls `advance` at `next_s`, and after each `ended`, and carries out what it returns:

    orders = cluster.advance(now_s)         Stop, Start and Retime; a Retime holds from the next iteration on
    cluster.progressed(job, iterations)     a job has done so many since it was started
    orders = cluster.misses(job)            a job misses tick after tick: it is let free for the rest of its stay
    cluster.ended(job, iterations, now_s)   a job has left its accelerators: it was stopped, or had done all

Times are seconds on one clock that begins with the trace. What a job has done is counted in iterations with the
workers it asked for: one with fewer workers is a part of that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controllers.placement import beats
from controllers.placement.orders import Beat, Chosen, Order, Plugin, Retime, Round, Shift, Start, Stop
from controllers.placement.state import CANDIDATES, ClusterState, Job, Placement, Proposal, Scheduler, Server

ALL_DONE = 1e-6  # of an iteration: less than that is left by rounding


@dataclass(frozen=True)
class Rules:
    """When rounds are held: every `epoch_s`, and if `on_change` when a job arrives or ends.

    `restart_s`: how long a job that was moved stands still. `lead_s`: how long before its first iteration a job is
    told to start. `candidates`: how many placements a scheduler is asked for.
    """

    epoch_s: float
    on_change: bool = True
    restart_s: float = 0.0
    lead_s: float = 0.0
    candidates: int = CANDIDATES

    def __post_init__(self) -> None:
        """Raise ValueError for an epoch of nothing and times that are negative."""
        if not 0 < self.epoch_s < math.inf or min(self.restart_s, self.lead_s) < 0 or self.candidates < 1:
            raise ValueError(f"an epoch must last, other times must not be negative: {self}")


@dataclass(frozen=True)
class Completed:
    """When a job had done all, and the mean number of jobs there were while it was there."""

    at_s: float
    contention: float


@dataclass
class _Life:
    """What is known of a job that is there. `job` is as schedulers see it, without its progress since `begun`."""

    job: Job
    since_s: float
    shared_s: float = 0.0  # integral of the number of jobs over the time since it arrived
    done: float = 0.0  # iterations with all its workers, before the present start
    iterations: int = 0  # of any size, before the present start
    running: int = 0  # since the present start
    stopping: bool = False
    target: Placement = ()  # where it is to run, while it is not there
    not_before_s: float = 0.0
    beat: Beat | None = None
    loose: bool = False  # whether it could not keep its beat, where it is

    @property
    def part(self) -> float:
        """How much of an iteration of the size asked for is done in one of the present size."""
        return len(self.job.placement) / self.job.workers

    def seen(self, now_s: float) -> Job:
        """Return the job as a scheduler sees it now."""
        left = self.job.iterations - self.done - self.running * self.part
        age_s = now_s - self.job.arrival_s
        contention = max(1.0, self.shared_s / age_s) if age_s > 0 else 1.0
        return replace(self.job, remaining_iterations=max(0.0, left), contention=contention)


class Cluster:
    """One trace on one cluster, with one scheduler and perhaps a plug-in. `rounds` is what was decided so far."""

    def __init__(
        self,
        servers: Sequence[Server],
        jobs: Iterable[Job],
        scheduler: Scheduler,
        rules: Rules,
        plugin: Plugin | None = None,
        seed: int = 0,
    ) -> None:
        """Take jobs as they are before they arrive. Raises ValueError for a job that is larger than the cluster."""
        self._servers, self._scheduler, self._rules = tuple(servers), scheduler, rules
        self._plugin, self._seed = plugin, seed
        self._coming = sorted(jobs, key=lambda job: (job.arrival_s, job.name))
        self._room = {server.name: server.accelerators for server in servers}
        room = sum(self._room.values())
        for job in self._coming:
            if min([job.workers, *job.sizes]) > room:
                raise ValueError(f"{job.name}: {job.workers} workers do not fit {room} accelerators")
        self._there: dict[str, _Life] = {}
        self._epoch_s = 0.0
        self._due = False
        self.rounds: list[Round] = []
        self.completed: dict[str, Completed] = {}

    @property
    def finished(self) -> bool:
        """Whether every job has come and gone."""
        return not self._coming and not self._there

    @property
    def next_s(self) -> float | None:
        """When `advance` must be called though nothing was heard; None when the trace is over."""
        arrival_s = self._coming[0].arrival_s if self._coming else math.inf
        next_s = min(arrival_s, self._epoch_s if self._there else math.inf)
        return None if next_s == math.inf else next_s

    @property
    def placements(self) -> dict[str, Placement]:
        """Where the jobs run that have accelerators."""
        return {name: life.job.placement for name, life in self._there.items() if life.job.placement}

    def progressed(self, job: str, iterations: int) -> None:
        """Take note that a job has done so many iterations since it was started."""
        if job in self._there:
            self._there[job].running = iterations

    def misses(self, job: str) -> list[Order]:
        """Let a job run free until it leaves: its period cannot be kept, since links are worse than was expected."""
        life = self._there.get(job)
        if life is None or life.beat is None or not life.job.placement:
            return []
        life.loose, life.beat = True, None
        return [Retime(job, None)]

    def ended(self, job: str, iterations: int, now_s: float) -> None:
        """Take note that a job has left its accelerators after so many iterations since it was started."""
        life = self._there[job]
        if not life.job.placement:
            raise ValueError(f"{job} ended, but it has not been started")
        self._age(now_s)
        life.done += iterations * life.part
        life.iterations += iterations
        life.job = replace(life.job, placement=(), lease_end_s=0.0 if not life.target else life.job.lease_end_s)
        life.running, life.stopping, life.loose, life.beat = 0, False, False, life.beat if life.target else None
        life.not_before_s = now_s + self._rules.restart_s
        if life.done > life.job.iterations - ALL_DONE:
            del self._there[job]
            self.completed[job] = Completed(now_s, life.seen(now_s).contention)
            self._due = self._due or self._rules.on_change

    def advance(self, now_s: float) -> list[Order]:
        """Do what is due by now, and return the orders that follow, in the order in which they are to be given."""
        self._age(now_s)
        if not self._there:  # nobody was there to hold the rounds that have passed
            self._epoch_s = max(self._epoch_s, math.ceil(now_s / self._rules.epoch_s) * self._rules.epoch_s)
        while self._coming and self._coming[0].arrival_s <= now_s:
            job = self._coming.pop(0)
            self._there[job.name] = _Life(job, since_s=now_s)
            self._due = self._due or self._rules.on_change
        if now_s >= self._epoch_s:
            self._epoch_s += self._rules.epoch_s * (1 + math.floor((now_s - self._epoch_s) / self._rules.epoch_s))
            self._due = True
        orders: list[Order] = []
        if self._due and not any(life.stopping for life in self._there.values()):
            self._due = False
            orders += self._round(now_s) if self._there else []
        return orders + self._starts(now_s)

    def _age(self, now_s: float) -> None:
        """Count for every job how many there were with it."""
        for life in self._there.values():
            life.shared_s += len(self._there) * (now_s - life.since_s)
            life.since_s = now_s

    def _round(self, now_s: float) -> list[Order]:
        jobs = tuple(life.seen(now_s) for life in self._there.values())
        seed = self._seed * 1_000_003 + len(self.rounds)
        state = ClusterState(now_s, self._servers, jobs)
        proposal = self._scheduler.propose(state, candidates=self._rules.candidates, seed=seed)
        chosen = self._plugin.choose(proposal.candidates) if self._plugin else Chosen(0)
        placements = proposal.candidates[chosen.index].placements
        orders: list[Order] = []
        moved = []
        for name, life in self._there.items():
            target = placements.get(name, ())
            stays = bool(life.job.placement) and Counter(target) == Counter(life.job.placement)
            lease_end_s = proposal.lease_end_s.get(name, 0.0) if target else 0.0
            life.job = replace(life.job, lease_end_s=lease_end_s)
            life.target = () if stays else target
            if life.job.placement and not stays:
                life.stopping = True
                life.job = replace(life.job, restarts=life.job.restarts + 1)
                moved.append(name)
                orders.append(Stop(name))
        self._note(now_s, proposal, chosen, placements, tuple(moved))
        return orders + self._retimed(now_s, chosen.shifts)

    def _retimed(self, now_s: float, shifts: Mapping[str, Shift]) -> list[Order]:
        """Give all jobs their beats; return the orders for those that run and have another one now."""
        staying = {name: life for name, life in self._there.items() if life.job.placement and not life.stopping}
        laid = beats.lay(shifts, now_s, {name: life.beat for name, life in staying.items()})
        orders: list[Order] = []
        for name, life in self._there.items():
            beat = None if life.loose and name in staying else laid.get(name)
            if name in staying and not beats.same(life.beat, beat):
                orders.append(Retime(name, beat))
            life.beat = beat
        return orders

    def _note(
        self,
        now_s: float,
        proposal: Proposal,
        chosen: Chosen,
        placements: Mapping[str, Placement],
        moved: tuple[str, ...],
    ) -> None:
        self.rounds.append(
            Round(
                now_s=now_s,
                scheduler=self._scheduler.name + (f"+{self._plugin.name}" if self._plugin else ""),
                candidates=len(proposal.candidates),
                chosen=chosen.index,
                merit_name=proposal.merit_name,
                merit=dict(proposal.merit),
                placements=dict(placements),
                moved=moved,
                waiting=tuple(name for name in self._there if name not in placements),
                shifts=dict(chosen.shifts),
                expects=dict(chosen.expects),
            )
        )

    def _starts(self, now_s: float) -> list[Order]:
        """Start every job whose accelerators are free."""
        starting = {name: life for name, life in self._there.items() if life.target and not life.job.placement}
        if not starting:
            return []
        free = dict(self._room)
        for life in self._there.values():
            for server in life.job.placement:
                free[server] -= 1
        orders: list[Order] = []
        for name, life in starting.items():
            wanted = Counter(life.target)
            if any(free[server] < count for server, count in wanted.items()):
                continue
            for server, count in wanted.items():
                free[server] -= count
            life.job, life.target = replace(life.job, placement=life.target), ()
            left = math.ceil((life.job.iterations - life.done) / life.part - ALL_DONE)
            at_s = max(now_s + self._rules.lead_s, life.not_before_s)
            beat = life.beat.after(at_s) if life.beat else None
            orders.append(Start(name, life.job.placement, at_s, left, life.iterations, beat))
        return orders
