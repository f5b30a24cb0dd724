"""Jobs that come and go, driven live: the cluster's orders carried out by the coordinator, at exact virtual times.

    python -m testbed.timeline FOLDER

FOLDER holds `plan.json` (testbed.cluster.ClusterExperiment.arm_plan) and receives the arm's files, as `testbed.arm`.
Deciding costs no virtual time, as nothing does that only computes: an auction and the choice among its candidates fall
on the moment at which they are due. Running jobs are told apart by their DSCP; one that is free is given to the next.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from controllers.cassini import search
from controllers.cassini.module import Settings
from controllers.placement.cluster import Cluster, Rules
from controllers.placement.interleave import Cassini, Traffic
from controllers.placement.layout import Layout
from controllers.placement.orders import Beat, Order, Plugin, Retime, Start, Stop
from controllers.placement.pollux import Pollux
from controllers.placement.pool import PoolPollux
from controllers.placement.random import Random
from controllers.placement.state import SPANS, ClusterState, Placement, Scheduler
from controllers.placement.themis import Themis
from controllers.sdn.paths import Routes
from testbed import plugins
from testbed.arm import Arm, run_arm
from testbed.net.topology import Topology
from testbed.programs import Status
from testbed.telemetry.events import EventLog
from testbed.telemetry.tables import Writer
from workloads.training.coordinator import Coordinator
from workloads.training.plan import JobPlan
from workloads.training.records import AgentSocket, Hold, IterationRecord


class Ended(Protocol):
    """What is told of a job that has come to its end: iterations since its start, time.time() of the last worker."""

    @property
    def job(self) -> str: ...
    @property
    def iterations(self) -> int: ...
    @property
    def t_s(self) -> float: ...


class Conductor(Protocol):
    """What is needed of `workloads.training.coordinator.Coordinator`; all times are time.time()."""

    def gather(self, jobs: Sequence[JobPlan]) -> list[AgentSocket]: ...
    def start(
        self,
        job: str,
        start_s: float,
        iterations: int | None = None,
        hold: Hold | None = None,
        first_iteration: int = 0,
    ) -> None: ...
    def hold(self, job: str, hold: Hold | None) -> None: ...
    def stop(self, job: str) -> None: ...
    def wait(self, until_s: float | None = None) -> Ended | None: ...
    def release(self, job: str) -> None: ...


MOST_DSCPS = 63
LARGE = 32  # servers; for more of them Pollux's matrices take minutes
MOST_MISSED = 2  # ticks in a row; a job that misses so many cannot keep its period
BUDGET = search.BUDGET // 32  # a decision is to take a second at most, in a guest
Log = Callable[..., None]  # (t_s: seconds since the trace began, event, details)


@dataclass(frozen=True)
class Kinds:
    """What jobs may run as: the plan and the traffic of every sort that was measured; `sorts[job][workers]` names it.

    Traffic is by span; in one that was not measured that of the widest stands for it.
    """

    plans: Mapping[str, JobPlan]
    traffic: Mapping[str, Mapping[str, Traffic]]
    sorts: Mapping[str, Mapping[int, str]]

    @classmethod
    def of(cls, kinds: Mapping[str, Any], sorts: Mapping[str, Mapping[str, str]]) -> Kinds:
        """Read what `testbed.cluster.ClusterExperiment.arm_plan` wrote."""
        return cls(
            {name: JobPlan.from_dict(kind["plan"]) for name, kind in kinds.items()},
            {
                name: {span: Traffic.from_dict(raw) for span, raw in kind["traffic"].items()}
                for name, kind in kinds.items()
            },
            {job: {int(workers): sort for workers, sort in of_job.items()} for job, of_job in sorts.items()},
        )

    def plan(self, start: Start, topology: Topology, dscp: int) -> JobPlan:
        """Return the plan of a job that is to start."""
        return replace(
            self.plans[self.sorts[start.job][len(start.placement)]],
            name=start.job,
            hosts=start.placement,
            fabric_ips=tuple(topology.ip(host) for host in start.placement),
            dscp=dscp,
            iterations=start.iterations,
        )

    def traffic_of(self, job: str, placement: Placement, layout: Layout) -> Traffic:
        """Return what a job sends if so placed."""
        spans = self.traffic[self.sorts[job][len(placement)]]
        span = layout.span(layout.counts(placement))
        return spans[span] if span in spans else next(spans[wide] for wide in reversed(SPANS) if wide in spans)


def cluster_of(
    plan: Mapping[str, Any],
    trial: Mapping[str, Any],
    topology: Topology,
    solver: Executor | None = None,
    plugin_kind: type[Cassini] = Cassini,
    *,
    pool: bool = False,
    folder: Path = Path(),
) -> tuple[Cluster, Kinds]:
    """Return the cluster of a trial as it is before its first job comes, and what its jobs may run as.

    solver: where CASSINI's links are solved, by default right here. pool: whether Pollux takes servers of one
    accelerator each as a pool (controllers.placement.pool), where it would breed matrices. folder: the arm's, where a
    scheduler of the user's lies (testbed.plugins).
    """
    state = ClusterState.from_dict(trial["state"])
    kinds = Kinds.of(plan["kinds"], trial["sorts"])
    large = len(state.servers) > LARGE and all(server.accelerators == 1 for server in state.servers)
    ours: dict[str, Scheduler] = {
        "themis": Themis(lease_s=plan["lease_s"]),
        "pollux": (PoolPollux if pool and large else Pollux)(restart_s=plan["restart_s"]),
        "random": Random(),
    }
    name = plan["scheduler"]
    scheduler = ours[name] if name in ours else plugins.scheduler(folder / plugins.FILE, name)
    plugin: Plugin | None = None
    if plan["plugin"]:
        layout, routes = Layout(state.servers), Routes(topology)
        plugin = plugin_kind(
            lambda job, placement: kinds.traffic_of(job, placement, layout),
            routes.route,
            {f"{a}->{b}": topology.direction(a, b).rate_bps for a, b in topology.directed()},
            Settings(angles=plan["angles"], budget=BUDGET, knot_budget=BUDGET, starts=2),
            plan["aggregate"],
            solver,
        )
    rules = Rules(plan["epoch_s"], plan["on_change"], plan["restart_s"], plan["lead_s"], plan["candidates"])
    return Cluster(state.servers, state.jobs, scheduler, rules, plugin, trial["seed"]), kinds


class Timeline:
    """One trace from its first arrival to its last completion; `zero_s` is when it begins, as time.time().

    `sockets` are those of all jobs as the kernel described them. `log` is given everything that happens. `dscps` are
    those that jobs may have, one for each that may run at once.
    """

    def __init__(
        self,
        cluster: Cluster,
        kinds: Kinds,
        topology: Topology,
        conductor: Conductor,
        zero_s: float,
        log: Log,
        dscps: Sequence[int],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster, self._kinds, self._topology = cluster, kinds, topology
        self._conductor, self._zero_s, self._log, self._clock = conductor, zero_s, log, clock
        self._free = sorted(dscps)
        self._dscp: dict[str, int] = {}
        self._first: dict[str, int] = {}
        self._rounds = 0
        self._missed: dict[str, int] = {}
        self.sockets: list[AgentSocket] = []

    def run(self) -> None:
        """Run the trace. Raises NotValid when an agent fails, goes away or is silent for too long."""
        cluster = self._cluster
        while True:
            self._carry_out(cluster.advance(self._now_s))
            if cluster.finished:
                return
            next_s = cluster.next_s
            ended = self._conductor.wait(None if next_s is None else self._zero_s + next_s)
            while ended is not None:  # all that have ended by now, before anything is decided
                self._leave(ended)
                ended = self._conductor.wait(self._clock())

    def on_iteration(self, job: str, iteration: int) -> None:
        """Take note that a job has ended an iteration, counted from its very first."""
        if job in self._first:
            self._cluster.progressed(job, iteration + 1 - self._first[job])

    def on_record(self, record: IterationRecord) -> None:
        """Take note of an iteration of any worker: a job whose first worker misses tick after tick is let free."""
        if record.rank or record.job not in self._first:
            return
        self._missed[record.job] = self._missed.get(record.job, 0) + 1 if record.adjusted else 0
        if self._missed[record.job] == MOST_MISSED:
            for order in self._cluster.misses(record.job):
                self._log(self._now_s, "misses", job=order.job)
                self._conductor.hold(order.job, None)

    def dscps(self) -> dict[str, int]:
        """Return the DSCP of every job that runs."""
        return dict(self._dscp)

    @property
    def _now_s(self) -> float:
        return self._clock() - self._zero_s

    def _leave(self, ended: Ended) -> None:
        self._conductor.release(ended.job)
        self._free.append(self._dscp.pop(ended.job))
        self._free.sort()
        del self._first[ended.job]
        self._missed.pop(ended.job, None)
        left_s = ended.t_s - self._zero_s
        self._cluster.ended(ended.job, ended.iterations, max(left_s, 0.0))
        complete = ended.job in self._cluster.completed
        contention = self._cluster.completed[ended.job].contention if complete else None
        self._log(left_s, "left", job=ended.job, iterations=ended.iterations, complete=complete, contention=contention)

    def _carry_out(self, orders: Sequence[Order]) -> None:
        for one in self._cluster.rounds[self._rounds :]:
            self._log(one.now_s, "round", **one.to_dict())
        self._rounds = len(self._cluster.rounds)
        for order in orders:
            if isinstance(order, Stop):
                self._log(self._now_s, "stop", job=order.job)
                self._conductor.stop(order.job)
            elif isinstance(order, Retime):
                self._log(self._now_s, "retime", job=order.job, beat=asdict(order.beat) if order.beat else None)
                self._conductor.hold(order.job, self._hold(order.beat))
        starts = [order for order in orders if isinstance(order, Start)]
        if starts:
            self._start(starts)

    def _start(self, starts: Sequence[Start]) -> None:
        """Give jobs their accelerators and connections, then a moment to begin at: all have joined by then."""
        lead_s = min(start.at_s for start in starts) - self._now_s
        plans = []
        for start in starts:
            self._dscp[start.job] = dscp = self._free.pop(0)
            self._first[start.job] = start.first_iteration
            plans.append(self._kinds.plan(start, self._topology, dscp))
        self.sockets += self._conductor.gather(plans)
        for start in starts:
            at_s = max(start.at_s, self._now_s + max(0.0, lead_s))
            beat = start.beat.after(at_s) if start.beat else None
            begin_s = beat.start_s if beat else at_s
            self._log(
                begin_s, "start", job=start.job, placement=list(start.placement), dscp=self._dscp[start.job],
                iterations=start.iterations, first_iteration=start.first_iteration, beat=asdict(beat) if beat else None,
            )  # fmt: skip
            self._conductor.start(
                start.job, self._zero_s + begin_s, start.iterations, self._hold(beat), start.first_iteration
            )

    def _hold(self, beat: Beat | None) -> Hold | None:
        return Hold(self._zero_s + beat.start_s, beat.period_s) if beat else None


class TimelineArm(Arm):
    """The running parts of one arm of a cluster."""

    def __init__(self, plan: dict[str, Any], out: Path, status: Status) -> None:
        """Take the plan of an arm, as testbed.arm does."""
        super().__init__(plan, out, status)
        self._timeline: Timeline | None = None

    @property
    def trials(self) -> list[Any]:
        """The traces."""
        trials: list[Any] = self.plan["cluster"]["trials"]
        return trials

    @property
    def dscps(self) -> dict[str, int]:
        """One for every job that may run at once. Who has it when is told by the events `start` and `left`."""
        accelerators = sum(self.plan["slots"].values())
        return {f"dscp-{number}": number for number in range(1, min(MOST_DSCPS, accelerators // 2) + 1)}

    def play(self, trial: Any, coordinator: Coordinator, events: EventLog, iterations: Writer) -> None:
        """One trace, from its first arrival to its last completion."""
        zero_s = time.time() + self.plan["lead_s"]
        events.write(zero_s - self.epoch_s, "trial", trial=self.trial, seed=trial["seed"])
        time.sleep(self.plan["lead_s"])

        def log(t_s: float, event: str, **details: Any) -> None:
            events.write(zero_s - self.epoch_s + t_s, event, trial=self.trial, **details)
            if event == "start":
                self._note_marks(details["job"], details["first_iteration"] - 1)

        cluster, kinds = cluster_of(self.plan["cluster"], trial, self.topology, folder=self.out)
        begun = len(coordinator.records)
        self._timeline = Timeline(cluster, kinds, self.topology, coordinator, zero_s, log, list(self.dscps.values()))
        self._timeline.run()
        for found in self._timeline.sockets:
            self.sockets.setdefault(found.job, []).append(found)
        for record in coordinator.records[begun:]:
            self.write_iteration(iterations, record)
        events.write(self.now_s, "trial done", trial=self.trial)

    def on_record(self, record: IterationRecord) -> None:
        """Take note of an iteration of any worker."""
        if self._timeline is not None:
            self._timeline.on_record(record)

    def on_iteration(self, job: str, iteration: int, t_s: float) -> None:
        """Take note that rank 0 of a job has ended an iteration at time.time() = `t_s`."""
        super().on_iteration(job, iteration, t_s)
        if self._timeline is not None:
            self._timeline.on_iteration(job, iteration)


def main(arguments: list[str]) -> int:
    """Run the arm of the folder named; the exit code says whether its files may be believed."""
    return run_arm(TimelineArm, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
