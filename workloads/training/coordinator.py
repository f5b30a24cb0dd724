"""The conductor of all jobs: puts them on accelerators, starts and stops them, and collects what they report.

It runs outside the hosts and talks to the agents over the management network, which shares no link with the fabric.
There is one agent per accelerator slot, and it lives as long as the coordinator; jobs come and go. `gather` makes new
connections, so that a job inherits no congestion windows of another, nor of an earlier trial. Whatever goes wrong with
any agent ends the run with `testbed.errors.NotValid`, which tells the state of every agent.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.errors import NotValid
from workloads.training.plan import JobPlan
from workloads.training.records import AgentSocket, Hold, IterationRecord, SocketTerms
from workloads.training.slots import WENT_AWAY, Agent, Channel, RunError, Slot, orders, spare_s, start_agents

__all__ = ["Coordinator", "Done", "Slot", "start_agents"]

SETTLE_S = 0.5  # after the first failure, how long the others may still say what they saw
STOP_LEAD_S = 0.1  # how much compute is left to every worker, at least, when it is told to stop


@dataclass(frozen=True)
class Done:
    """A job that came to its end: how many iterations it did since its start, and when its last worker was done.

    A job that `failed` lost a worker, says why here, and did so many iterations with all of its workers.
    """

    job: str
    iterations: int
    t_s: float
    failed: str = ""


@dataclass
class _Job:
    """A job on its slots, agents in rank order. While it runs, `deadline_s` is by when one must say something."""

    plan: JobPlan
    agents: list[Agent]
    running: bool = False
    first_iteration: int = 0
    deadline_s: float = math.inf
    ended_s: float = 0.0


class Coordinator:
    """Conducts jobs on the accelerators `slots`, whose agents report to `bind` (port 0: any; see `address`).

    `on_iteration(job, iteration, t_s)` is called as soon as rank 0 of a job reports the end of an iteration, with its
    time.time(); `on_record` with every record as it comes. `timeout_s` is how long, in the time of this kernel, an
    agent may be silent beyond what its plan explains. Workers listen at `first_port` + 64 times their job's DSCP + how
    many ranks before them are on their host: so jobs that share hosts need different DSCPs. Starting the agents
    (`start_agents`) is the caller's work, since it knows the namespaces. To be used as a context, which sends the
    agents home at its end.

    With `contain` a worker that fails, goes away or is silent for too long while its job runs ends that job alone: its
    other workers are killed, as the launcher of a job does, and the agents that `lost` names must be started again.
    """

    def __init__(
        self,
        bind: tuple[str, int],
        slots: Sequence[Slot],
        on_iteration: Callable[[str, int, float], None],
        terms: SocketTerms,
        timeout_s: float = 60.0,
        first_port: int = 5200,
        on_record: Callable[[IterationRecord], None] | None = None,
        contain: bool = False,
    ) -> None:
        self._on_iteration, self._on_record = on_iteration, on_record
        self._terms, self._timeout_s, self._first_port = terms, timeout_s, first_port
        self._agents = {slot: Agent(slot) for slot in slots}
        self._jobs: dict[str, _Job] = {}
        self._contain = contain
        self.failures: list[Done] = []
        """The jobs that failed in the last `run`."""
        self._lost: list[Slot] = []
        self._done: list[Done] = []
        self.records: list[IterationRecord] = []
        """Every record of every job, in the order in which they came."""
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(bind, backlog=max(1, len(self._agents)))
        self._selector.register(self._listener, selectors.EVENT_READ)

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> tuple[str, int]:
        """Where the agents report: what `bind` became."""
        ip, port = self._listener.getsockname()
        return ip, port

    def free(self, host: str) -> list[Slot]:
        """The slots of a host that no job is on, in order."""
        return [slot for slot, agent in self._agents.items() if slot.host == host and agent.plan is None]

    def lost(self) -> list[Slot]:
        """The slots whose agents are gone since they were last asked for."""
        lost, self._lost = self._lost, []
        return lost

    def send_signal(self, host: str, number: signal.Signals) -> int:
        """Send a signal to every agent of a host; how many there are. Only with `contain`; any thread may call it."""
        return sum(agent.send_signal(number) for slot, agent in list(self._agents.items()) if slot.host == host)

    def gather(self, jobs: Sequence[JobPlan]) -> list[AgentSocket]:
        """Put jobs on free slots of their hosts and connect their workers; what the kernel uses on each socket.

        A job that is there already, and rests, is replaced: a trial inherits nothing from the one before. Raises
        ValueError when a host has too few free slots, or a job runs; NotValid when an agent does not come, fails, or
        has a socket that is not as its plan and `terms` demand.
        """
        for plan in jobs:
            self._vacate(plan.name)
        for plan in jobs:
            self._place(plan)
        agents = [agent for plan in jobs for agent in self._jobs[plan.name].agents]
        with self._failures_told():
            self._await("hello", [agent for agent in agents if agent.connection is None])
            for plan in jobs:
                for rank, agent in enumerate(self._jobs[plan.name].agents):
                    given = orders(plan, rank, self._terms, self._timeout_s / 2, self._first_port)
                    agent.tell("listen", rank=rank, plan=given)
            self._await("listening", agents)
            for agent in agents:
                agent.tell("connect")
            self._await("connected", agents)
        wrong = [
            f"{agent}, socket {found.direction}: {difference}"
            for plan in jobs
            for agent in self._jobs[plan.name].agents
            for found in agent.sockets
            for difference in found.differences(plan, self._terms)
        ]
        if wrong:
            raise NotValid("the kernel did not do what the transport demands:\n  " + "\n  ".join(wrong))
        return [found for agent in agents for found in agent.sockets]

    def start(
        self,
        job: str,
        start_s: float,
        iterations: int | None = None,
        hold: Hold | None = None,
        first_iteration: int = 0,
    ) -> None:
        """Have a gathered job begin at time.time() = `start_s`, in the future; returns at once.

        `iterations` is the plan's own number unless given; they are counted from `first_iteration` on. With `hold` it
        keeps to a time-shift. Raises NotValid when an agent is gone.
        """
        placed = self._job(job, running=False)
        count = placed.plan.iterations if iterations is None else iterations
        placed.running, placed.first_iteration, placed.ended_s = True, first_iteration, 0.0
        self._extend(placed, start_s)
        with self._failures_told():
            for agent in placed.agents:
                agent.iteration, agent.awaited = first_iteration - 1, "done"
                order = {"iterations": count, "first_iteration": first_iteration, "hold": _told(hold)}
                agent.tell("run", start_s=start_s, **order)
                agent.state = "was told to run"

    def hold(self, job: str, hold: Hold | None) -> None:
        """Give a running job another time-shift, from the next iteration of each worker on; None ends the holding."""
        with self._failures_told():
            for agent in self._job(job, running=True).agents:
                agent.tell("hold", hold=_told(hold))

    def stop(self, job: str) -> None:
        """Have a running job end before its time, all workers after the same iteration: `wait` tells when."""
        placed = self._job(job, running=True)
        newest = max(agent.iteration for agent in placed.agents)
        compute_s = placed.plan.compute_s
        more = max(1, math.ceil(STOP_LEAD_S / compute_s)) if compute_s > 0 else 1000
        with self._failures_told():
            for agent in placed.agents:
                agent.tell("stop", after=newest + 1 + more)

    def wait(self, until_s: float | None = None) -> Done | None:
        """Wait for the next job that comes to its end; None when time.time() reaches `until_s`, or nothing runs.

        Without jobs that run it still waits until `until_s`. Raises NotValid when an agent fails, goes away or is
        silent for too long.
        """
        with self._failures_told():
            self._take(0.0)
            while not self._done:
                running = [job for job in self._jobs.values() if job.running]
                if until_s is None and not running:
                    return None
                now_s = time.time()
                if until_s is not None and now_s >= until_s:
                    return None
                for job in running:
                    if now_s >= job.deadline_s:
                        silent = ", ".join(str(agent) for agent in job.agents if agent.awaited)
                        patience_s = self._timeout_s + spare_s(job.plan)
                        why = f"nobody said anything for {patience_s:g} s; missing: {silent}"
                        if not self._contain:
                            raise RunError(why)
                        self._fail(job, why)
                running = [job for job in running if job.running]
                times_s = [job.deadline_s for job in running] + ([until_s] if until_s is not None else [])
                if times_s and not self._done:
                    self._take(max(0.0, min(times_s) - now_s))
            return self._done.pop(0)

    def release(self, job: str) -> None:
        """Take a job that rests off its slots, which are free again; its connections are closed."""
        self._vacate(job)

    def run(
        self, starts_s: Mapping[str, float], iterations: int | None = None, holds: Mapping[str, Hold] | None = None
    ) -> list[IterationRecord]:
        """One trial: each job of `starts_s` starts at its time.time(), in the future; other jobs rest.

        Waits until all are done. `iterations` is the plan's own number unless given; `holds` has the time-shifts that
        jobs keep to. Returns the records in the order in which they came. Raises NotValid when an agent fails, goes
        away or is silent for too long.
        """
        unknown = sorted(set(starts_s) - set(self._jobs))
        if unknown or not starts_s:
            raise ValueError(f"no such jobs: {', '.join(unknown)}" if unknown else "no job is to run")
        before, self.failures = len(self.records), []
        for job, start_s in starts_s.items():
            self.start(job, start_s, iterations, (holds or {}).get(job))
        for _ in starts_s:
            if (done := self.wait()) is not None and done.failed:
                self.failures.append(done)
        return self.records[before:]

    def close(self) -> None:
        """Send all agents home and hang up; more than once does no harm."""
        for key in list((self._selector.get_map() or {}).values()):
            if key.data is None:
                continue
            if key.data.agent is not None:
                with contextlib.suppress(RunError):
                    key.data.agent.tell("bye")
            key.data.connection.close()
        for agent in self._agents.values():
            agent.let_go()
        self._listener.close()
        self._selector.close()

    def _job(self, name: str, running: bool) -> _Job:
        job = self._jobs.get(name)
        if job is None:
            raise ValueError(f"no such jobs: {name}")
        if job.running is not running:
            raise ValueError(f"job {name} {'does not run' if running else 'runs'}")
        return job

    def _place(self, plan: JobPlan) -> None:
        agents: list[Agent] = []
        for rank, host in enumerate(plan.hosts):
            free = self.free(host)
            if not free:
                for agent in agents:
                    agent.plan = None
                raise ValueError(f"job {plan.name}, rank {rank}: {host} has no free accelerator")
            agents.append(self._agents[free[0]])
            agents[-1].plan, agents[-1].rank = plan, rank
        self._jobs[plan.name] = _Job(plan, agents)

    def _vacate(self, name: str) -> None:
        if name not in self._jobs:
            return
        job = self._job(name, running=False)
        del self._jobs[name]
        with self._failures_told():
            for agent in job.agents:
                agent.plan, agent.sockets, agent.state = None, [], "has no job, rests"
                agent.tell("leave")

    def _extend(self, job: _Job, from_s: float) -> None:
        job.deadline_s = max(time.time(), from_s) + self._timeout_s + spare_s(job.plan)

    def _await(self, what: str, agents: Sequence[Agent]) -> None:
        """Take messages until each of `agents` has said `what`."""
        for agent in agents:
            agent.awaited = what
        deadline_s = time.monotonic() + self._timeout_s
        while any(agent.awaited for agent in agents):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                silent = ", ".join(str(agent) for agent in agents if agent.awaited)
                raise RunError(f"nobody said anything for {self._timeout_s:g} s; missing: {silent}")
            if self._take(left_s):
                deadline_s = time.monotonic() + self._timeout_s

    def _take(self, wait_s: float) -> bool:
        """Wait for messages and act on them; whether there were any."""
        events = self._selector.select(wait_s)
        for key, _ in events:
            if key.data is None:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(connection, selectors.EVENT_READ, Channel(connection))
            elif key.data.connection.fileno() >= 0:  # not hung up since it was found readable
                self._read_contained(key.data)
        return bool(events)

    def _read_contained(self, channel: Channel) -> None:
        try:
            self._read(channel)
        except RunError as error:
            plan = channel.agent.plan if channel.agent is not None else None
            job = self._jobs.get(plan.name) if plan is not None else None
            if not (self._contain and job is not None and job.running):
                raise
            self._fail(job, str(error))

    def _fail(self, job: _Job, why: str) -> None:
        """End a job that lost a worker; the others are killed."""
        iterations = min(agent.iteration for agent in job.agents) + 1 - job.first_iteration
        for key in list(self._selector.get_map().values()):
            if key.data is not None and key.data.agent in job.agents:
                self._selector.unregister(key.data.connection)
                key.data.connection.close()
        for agent in job.agents:
            agent.kill()
            self._agents[agent.slot] = Agent(agent.slot)
            self._lost.append(agent.slot)
        job.running, job.deadline_s, job.agents = False, math.inf, []
        self._done.append(Done(job.plan.name, iterations, time.time(), why))

    def _read(self, channel: Channel) -> None:
        lines = channel.read()
        if lines is None:
            self._selector.unregister(channel.connection)
            channel.connection.close()
            if channel.agent is not None:
                channel.agent.left()
            return
        for line in lines:
            try:
                message = json.loads(line)
                record = self._act(channel, message["say"], message)
            except (ValueError, KeyError, TypeError):
                whom = channel.agent or "a stranger"
                raise RunError(f"{whom} said what nobody understands: {line[:200]!r}") from None
            if record is not None:
                self._note(record)

    def _act(self, channel: Channel, what: str, message: dict[str, Any]) -> IterationRecord | None:
        """Note what was said; the iteration, if that is what it was."""
        if what == "hello":
            self._greet(channel, Slot(message["host"], message["slot"]), message.get("pid", 0))
        agent = channel.agent
        if agent is None:
            raise RunError(f"a stranger said {what} before hello")
        if what == "iteration":
            return agent.record(message)
        agent.heard(what, message)
        if what == "done" and agent.plan is not None:
            self._end(self._jobs[agent.plan.name])
        return None

    def _note(self, record: IterationRecord) -> None:
        job = self._jobs[record.job]
        job.ended_s = max(job.ended_s, record.end_s)
        self._extend(job, record.end_s)
        self.records.append(record)
        if self._on_record is not None:
            self._on_record(record)
        if record.rank == 0:
            self._on_iteration(record.job, record.iteration, record.end_s)

    def _end(self, job: _Job) -> None:
        """End a job if all its workers are done; they must have been after the same iteration."""
        if any(agent.awaited for agent in job.agents):
            return
        lasts = {agent.iteration for agent in job.agents}
        if len(lasts) > 1:
            raise RunError(f"workers of job {job.plan.name} ended after different iterations: {sorted(lasts)}")
        job.running, job.deadline_s = False, math.inf
        self._done.append(Done(job.plan.name, lasts.pop() + 1 - job.first_iteration, job.ended_s))

    def _greet(self, channel: Channel, slot: Slot, pid: int) -> None:
        agent = self._agents.get(slot)
        if agent is None or agent.connection is not None:
            why = "which nobody knows" if agent is None else "which is there already"
            raise RunError(f"an agent came as slot {slot.index} of {slot.host}, {why}")
        agent.connection, channel.agent = channel.connection, agent
        if self._contain:
            agent.process = os.pidfd_open(pid)

    @contextlib.contextmanager
    def _failures_told(self) -> Iterator[None]:
        try:
            yield
        except RunError as first:
            cause = str(first)
        else:
            return
        until_s = time.monotonic() + SETTLE_S
        while (left_s := until_s - time.monotonic()) > 0:
            with contextlib.suppress(RunError):
                self._take(left_s)
        # Whoever dies without a word is the cause, though its neighbours may be the first to say so.
        dead = [agent for agent in self._agents.values() if agent.state.startswith(WENT_AWAY)]
        if dead:
            cause = " and ".join(f"{agent} {WENT_AWAY}" for agent in dead)
        states = "".join(f"\n  {agent}: {agent.state}" for agent in self._agents.values())
        raise NotValid(f"{cause}; the agents:{states}")


def _told(hold: Hold | None) -> dict[str, float] | None:
    return asdict(hold) if hold else None
