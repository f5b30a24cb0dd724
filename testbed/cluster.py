"""A scenario with a cluster made concrete: which jobs come when, what must be measured alone, what each arm is told.

Every *kind* of job (model, batch, number of workers) that the trace needs runs alone first, on servers as close
together and as far apart as a scheduler may place it: that gives its iteration times, from which rho and goodput
follow, and the traffic that CASSINI works with. Arms then differ in their scheduler and in nothing else.

All lengths are divided by `cluster.shortened`: iterations, arrival times, epochs, leases, and what a restart costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from controllers.cassini.profile import angles_of
from controllers.placement import arrivals
from controllers.placement.goodput import Goodput
from controllers.placement.interleave import Traffic
from controllers.placement.layout import Layout
from controllers.placement.state import SPANS, ClusterState, Job, Placement, Server, Span, Timing
from testbed import decide, plugins
from testbed.errors import InputError
from testbed.experiment import Experiment, network, pairs
from testbed.jobs import PROJECT, job_on
from testbed.scenario import ClusterKeys, KindKeys, Scenario
from testbed.telemetry.tables import ITERATIONS
from workloads.training.plan import JobPlan

MOST_MEASURED = 63  # jobs of the arm alone: each has a DSCP of its own
LEAD_JOB_S = 0.05
"""Virtual time between the order to start a job and its first iteration."""


@dataclass(frozen=True)
class Sort:
    """A kind of jobs with its number of workers: what is measured alone. `batch` None is the model's own."""

    keys: KindKeys
    workers: int
    batch: int | None

    @property
    def name(self) -> str:
        """What it is called in files."""
        return f"{self.keys.name}-w{self.workers}" + (f"-b{self.batch}" if self.batch else "")


@dataclass(frozen=True)
class Coming:
    """One job of a trace: who it is, when it comes, and the sorts it may run as, by number of workers."""

    name: str
    arrival: arrivals.Arrival
    sorts: Mapping[int, Sort]


@dataclass(frozen=True)
class Measured:
    """What the arm alone measured, by (sort, span): iteration times in s, and the traffic."""

    iteration_s: Mapping[tuple[str, Span], float]
    traffic: Mapping[tuple[str, Span], Traffic]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it: profiles.json of a run with a cluster."""
        return {
            f"{sort}.{span}": {"iteration_s": time_s, "traffic": self.traffic[sort, span].to_dict()}
            for (sort, span), time_s in self.iteration_s.items()
        }


@dataclass(frozen=True)
class ClusterExperiment:
    """A validated scenario with a cluster. `alone` is the experiment that measures every sort in every span."""

    scenario: Scenario
    keys: ClusterKeys
    servers: tuple[Server, ...]
    alone: Experiment
    measured_as: Mapping[str, tuple[Sort, Span]]
    traces: Mapping[int, tuple[Coming, ...]]
    file: Path | None
    plugin: Path | None = None

    @cached_property
    def watched(self) -> tuple[str, ...]:
        """The directed links between switches: where jobs meet, and packets are marked."""
        switches = set(self.alone.topology.switches)
        return tuple(f"{a}->{b}" for a, b in self.alone.topology.directed() if {a, b} <= switches)

    def plan(self, sort: str) -> JobPlan:
        """Return the plan of a sort, on the servers where it was measured."""
        return next(job for job in self.alone.jobs if self.measured_as[job.name][0].name == sort)

    def measure(self, folder: Path) -> Measured:
        """Return what the arm alone measured, out of its folder. Raises NotValid where it left nothing."""
        profiles = decide.measured_profiles(self.alone, folder)
        rows = ITERATIONS.read(folder / ITERATIONS.file).where(rank=0)
        angles = angles_of(self.scenario.measure.precision_deg)
        times: dict[tuple[str, Span], float] = {}
        traffic: dict[tuple[str, Span], Traffic] = {}
        for plan in self.alone.jobs:
            sort, span = self.measured_as[plan.name]
            own = rows.where(job=plan.name)
            lasted = np.array(own.numbers("end_s")) - np.array(own.numbers("begin_s"))
            times[sort.name, span] = float(lasted[1:].mean())
            uplinks = {
                link.partition("->")[0]: profile
                for link, of_link in profiles.items()
                for profile in of_link
                if profile.job == plan.name
            }
            traffic[sort.name, span] = (
                Traffic.measured(plan.hosts, uplinks, plan.traffic())
                if uplinks
                else Traffic(times[sort.name, span], ((0.0,) * angles,) * plan.workers, plan.traffic())
            )
        return Measured(times, traffic)

    def jobs(self, measured: Measured, seed: int) -> list[tuple[Coming, Job]]:
        """Return the trace of a seed with its jobs as schedulers see them; Poisson arrivals by measured times."""
        trace = self.traces[seed]
        if self.keys.arrivals == "poisson":
            slowest = {
                sort.keys.name: max(time_s for (name, _), time_s in measured.iteration_s.items() if name == sort.name)
                for coming in trace
                for sort in coming.sorts.values()
            }
            # Kinds that do not come in this trace were not measured; how often others come depends on theirs too.
            others = dict.fromkeys((kind.name for kind in self.keys.kind), sum(slowest.values()) / len(slowest))
            trace = tuple(_trace(self.keys, self.servers, seed, others | slowest, self.file))
        return [(coming, self._job(coming, measured)) for coming in trace]

    def _job(self, coming: Coming, measured: Measured) -> Job:
        arrival, factor = coming.arrival, self.keys.shortened
        iterations = max(2, round(arrival.iterations / factor))
        timings = tuple(
            Timing(workers, span, measured.iteration_s[sort.name, span])
            for workers, sort in sorted(coming.sorts.items())
            for span in SPANS
            if (sort.name, span) in measured.iteration_s
        )
        return Job(
            coming.name,
            arrival.model,
            arrival.arrival_s / factor,
            arrival.workers,
            iterations,
            iterations,
            timings,
            goodput=self._goodput(coming, timings),
        )

    def _goodput(self, coming: Coming, timings: tuple[Timing, ...]) -> Goodput:
        """Return Pollux's parameters, fitted to the measured times; batches per worker are not adapted.

        What an iteration takes beyond its compute is fitted by a + b (k - 2) for k workers on one server, and on
        several. The noise scale is unknown: `cluster.noise` in units of the batch asked for.
        """
        batch = next(iter(coming.sorts.values())).batch or 1
        compute_s = {workers: self.plan(sort.name).compute_s for workers, sort in coming.sorts.items()}
        local = _line(
            [(one.workers, one.iteration_s - compute_s[one.workers]) for one in timings if one.span == "server"]
        )
        widest = {one.workers: one for one in timings if one.span != "server"}
        node = _line([(workers, one.iteration_s - compute_s[workers]) for workers, one in widest.items()])
        asked = batch * coming.arrival.workers
        return Goodput(
            0.0, max(compute_s.values()) / batch, *(local or (0.0, 0.0)), *(node or (0.0, 0.0)), 1.0,
            self.keys.noise * asked, batch * min(coming.sorts), batch * max(coming.sorts), batch,
        )  # fmt: skip

    def arm_plan(self, arm: str, measured: Measured) -> dict[str, Any]:
        """Return everything the guest of an arm needs, as JSON types (testbed.timeline)."""
        scheduler, _, plugin = arm.partition("+")
        keys, factor = self.keys, self.keys.shortened
        common = self.alone.arm_plan("alone", [])
        telemetry = {"shared": list(self.watched), "used": list(self.watched), "queue_interval_s": keys.watch_interval}
        asked = self.scenario.telemetry.capture.links
        # Which links jobs will share nobody knows before they have come: all that are watched, they may.
        capture = common["capture"] | {"links": list(self.watched if asked == "shared" else asked)}
        kinds = {
            sort.name: {"plan": self.plan(sort.name).to_dict(), "traffic": {}} for sort, _ in self.measured_as.values()
        }
        for (sort, span), traffic in measured.traffic.items():
            kinds[sort]["traffic"][span] = traffic.to_dict()
        trials = []
        for seed in keys.seeds:
            jobs = self.jobs(measured, seed)
            state = ClusterState(0.0, self.servers, tuple(job for _, job in jobs)).to_dict()
            sorts = {
                coming.name: {str(workers): sort.name for workers, sort in coming.sorts.items()} for coming, _ in jobs
            }
            trials.append({"seed": seed, "state": state, "sorts": sorts})
        cluster = {
            "scheduler": scheduler,
            "plugin": plugin or None,
            "epoch_s": keys.epoch / factor,
            "lease_s": (keys.lease or keys.epoch) / factor,
            "restart_s": keys.restart / factor,
            "lead_s": LEAD_JOB_S,
            "on_change": keys.on_change,
            "candidates": keys.candidates,
            "aggregate": keys.aggregate,
            "angles": angles_of(self.scenario.measure.precision_deg),
            "skipping": keys.skipping,
            "window": keys.window,
            "kinds": kinds,
            "trials": trials,
        }
        slots = {server.name: server.accelerators for server in self.servers}
        here = {"arm": arm, "jobs": [], "slots": slots, "capture": capture, "cluster": cluster}
        return common | telemetry | here


def build(scenario: Scenario, where: str, base: Path = Path(), plugin: Path | None = None) -> ClusterExperiment:
    """Make a scenario with a cluster concrete; plugin: the file with the user's schedulers, which is run.

    Raises InputError naming `where` and the key.
    """
    keys = scenario.cluster
    assert keys is not None
    for arm in keys.arms:
        if plugins.own_name(arm):
            if plugin is None:
                raise InputError(where, f"cluster.arms: {arm} is a scheduler of your own", "name its file by --plugin")
            plugins.scheduler(plugin, arm)
    bare = network(scenario, where, base)
    topology = bare.topology
    graph = topology.graph()
    servers = tuple(Server(host, next(iter(graph[host])), keys.accelerators) for host in topology.hosts)
    file = _file(keys.arrivals, base, where)
    estimates = {kind.name: 1.0 for kind in keys.kind}
    try:
        traces = {seed: tuple(_trace(keys, servers, seed, estimates, file)) for seed in keys.seeds}
    except ValueError as error:
        raise InputError(where, f"cluster: {error}", "use fewer workers, or a larger topology") from error
    layout, jobs = Layout(servers), list[JobPlan]()
    measured_as: dict[str, tuple[Sort, Span]] = {}
    sorts = {sort.name: sort for trace in traces.values() for coming in trace for sort in coming.sorts.values()}
    for sort in sorts.values():
        for span in SPANS:
            hosts = _spread(layout, sort.workers, span)
            if hosts:
                name = f"{sort.name}.{span}"
                measured_as[name] = sort, span
                asked = sort.keys.model_copy(update={"name": name, "batch": sort.batch})
                plan = job_on(asked, hosts, 1 + len(jobs), scenario, topology, base, where)
                jobs.append(replace(plan, iterations=keys.profile_iterations))
    if len(jobs) > MOST_MEASURED:
        what = (
            f"cluster: {len(sorts)} kinds, batches and numbers of workers in several spans are {len(jobs)} to measure"
        )
        raise InputError(where, what, f"at most {MOST_MEASURED}: use fewer kinds, sizes or batches")
    used: dict[str, list[str]] = {}
    for job in jobs:
        for source, _ in pairs(job):
            of_link = used.setdefault(f"{source}->{next(iter(graph[source]))}", [])
            if job.name not in of_link:
                of_link.append(job.name)
    one = scenario.measure.model_copy(update={"arms": ("alone",), "iterations": keys.profile_iterations})
    quiet = scenario.telemetry.model_copy(
        update={"capture": scenario.telemetry.capture.model_copy(update={"links": ()})}
    )
    alone = replace(
        bare,
        scenario=scenario.model_copy(update={"measure": one, "telemetry": quiet}),
        jobs=tuple(jobs),
        shared=used,
        used=tuple(used),
    )
    return ClusterExperiment(scenario, keys, servers, alone, measured_as, traces, file, plugin)


def _file(name: str, base: Path, where: str) -> Path | None:
    """Return the file of arrivals, None for a trace that is drawn."""
    if name in ("poisson", "dynamic", "snapshot"):
        return None
    for folder in (base, PROJECT / "scenarios"):
        if (folder / name).is_file():
            return folder / name
    raise InputError(
        where,
        f"cluster.arrivals: {name!r} is not there",
        "poisson, dynamic, snapshot, or a CSV file beside the scenario",
    )


def _trace(
    keys: ClusterKeys, servers: tuple[Server, ...], seed: int, iteration_s: Mapping[str, float], file: Path | None
) -> list[Coming]:
    """Return the jobs of a trace in full length. Raises ValueError for a kind larger than the cluster."""
    room = sum(server.accelerators for server in servers)
    if file is not None:
        found = arrivals.read(file, {kind.name for kind in keys.kind})
    else:
        drawn = [
            arrivals.Kind(
                kind.name, (kind.workers, kind.most_workers or kind.workers), (kind.batch or 1,) * 2,
                iteration_s[kind.name], kind.iterations,
            )
            for kind in keys.kind
        ]  # fmt: skip
        if keys.arrivals == "poisson":
            found = arrivals.poisson(drawn, load=keys.load, accelerators=room, jobs=keys.jobs, seed=seed)
        else:
            each = arrivals.draw(
                [one for one, kind in zip(drawn, keys.kind, strict=True) for _ in range(kind.count)], seed
            )
            comes = [kind.arrives for kind in keys.kind for _ in range(kind.count)]
            present = [one for one, late in zip(each, comes, strict=True) if not late]
            coming = [one for one, late in zip(each, comes, strict=True) if late]
            dynamic = keys.arrivals == "dynamic"
            found = arrivals.dynamic(present, coming, keys.at) if dynamic else arrivals.snapshot(each)
    kinds = {kind.name: kind for kind in keys.kind}
    return [_coming(at, one, kinds[one.model], room, from_file=file is not None) for at, one in enumerate(found, 1)]


def _coming(number: int, arrival: arrivals.Arrival, kind: KindKeys, room: int, *, from_file: bool) -> Coming:
    batch = arrival.batch if from_file else kind.batch
    if arrival.workers > room or arrival.workers < 2:
        raise ValueError(f"job {number}, {arrival.model}: {arrival.workers} workers, not 2 to {room}")
    sizes = sorted({arrival.workers, *(size for size in kind.sizes if size <= room)})
    return Coming(f"{number:02d}-{kind.name}", arrival, {size: Sort(kind, size, batch) for size in sizes})


def _spread(layout: Layout, workers: int, span: Span) -> Placement:
    """Return servers for so many workers in just that span, in rank order: where a sort is measured. () for none."""
    counts = np.zeros_like(layout.capacity)
    racks = [np.flatnonzero(layout.rack_of == rack) for rack in range(len(layout.racks))]
    if span == "server":
        order = [int(np.argmax(layout.capacity))]
    elif span == "rack":
        order = [int(server) for server in max(racks, key=lambda rack: int(layout.capacity[rack].sum()))]
    else:
        deepest = max(len(rack) for rack in racks)
        half = racks[: max(2, -(-workers // max(1, int(max(layout.capacity[rack].sum() for rack in racks)))))]
        order = [int(rack[at]) for at in range(deepest) for rack in half if at < len(rack)]
    left = workers
    while left and int(counts[order].sum()) < int(layout.capacity[order].sum()):
        for server in order:
            if left and counts[server] < layout.capacity[server]:
                counts[server] += 1
                left -= 1
    return layout.placement(counts) if not left and layout.span(counts) == span else ()


def _line(points: list[tuple[int, float]]) -> tuple[float, float] | None:
    """Return a and b, none negative, so that a + b (k - 2) is nearest to the points (k, value); None without any."""
    if not points:
        return None
    matrix = np.array([[1.0, workers - 2.0] for workers, _ in points])
    values = np.array([max(0.0, value) for _, value in points])
    (first, slope), _ = nnls(matrix, values)
    return float(first), float(slope)
