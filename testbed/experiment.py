"""From a scenario to what its arms do: the fabric, the jobs, the links they share, and every trial's start times.

Nothing runs here: `--dry-run` shows all of it, and a scenario that makes no sense is refused here.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controllers.sdn.paths import Routes
from testbed.errors import InputError
from testbed.events.plan import Event, concrete, with_lines
from testbed.jobs import job_on
from testbed.net import fabric_file
from testbed.net.scale import Original, Scaling
from testbed.net.topology import Red, Topology, prioritised
from testbed.net.transport import Transport
from testbed.scenario import Arm, Scenario
from workloads.training.plan import JobPlan

FIRST_DSCP = 1
LEAD_S = 0.5
"""Virtual time between the order to start and the first job's start, so that every agent has heard it."""


@dataclass(frozen=True)
class Trial:
    """One start of jobs: `starts_s` is when each begins, in seconds after the trial's zero (jobs not named rest)."""

    starts_s: dict[str, float]


@dataclass(frozen=True)
class Experiment:
    """A validated scenario made concrete.

    `shared` maps every directed link that is watched to the names of the jobs that load it: those that several share,
    or the workers' own (telemetry.watch).
    """

    scenario: Scenario
    scaling: Scaling
    topology: Topology
    transport: Transport
    jobs: tuple[JobPlan, ...]
    shared: dict[str, list[str]]
    used: tuple[str, ...]
    events: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)
    """What happens in each trial of an arm, in order of time; no key where nothing does."""

    @property
    def captured(self) -> tuple[str, ...]:
        """The directed links whose packets are kept."""
        links = self.scenario.telemetry.capture.links
        return tuple(self.shared) if links == "shared" else links

    def trials(self, arm: Arm, shifts_s: Mapping[str, float]) -> list[Trial]:
        """Return the trials of an arm; `shifts_s` are the time-shifts that `cassini` and `refined` start with."""
        count = getattr(self.scenario.measure.trials, arm)
        names = [job.name for job in self.jobs]
        if arm == "alone":
            return [Trial({name: 0.0}) for _ in range(count) for name in names]
        if arm == "together":
            return [Trial(dict.fromkeys(names, 0.0)) for _ in range(count)]
        if arm in ("cassini", "refined"):
            return [Trial({name: shifts_s[name] for name in names}) for _ in range(count)]
        return [self._offsets(trial) for trial in range(count)]

    def by_priority(self) -> list[JobPlan]:
        """The jobs in order of GPU intensity, compute per byte sent: who computes much for few bytes goes first.

        The order is Crux's (SIGCOMM 2024) without its corrections; jobs of equal intensity keep their order.
        """
        return sorted(self.jobs, key=lambda job: -job.compute_s / job.total_bytes)

    def topology_of(self, arm: Arm) -> Topology:
        """The fabric as an arm has it: in `priority` switches send packets of one job before those of another; links
        that are given a delay or loss have a delay line for it."""
        topology = with_lines(self.topology, self.events.get(arm, ()))
        return prioritised(topology, [job.dscp for job in self.by_priority()]) if arm == "priority" else topology

    def _offsets(self, trial: int) -> Trial:
        """Draw each job's start within one iteration of its own: what a cluster without a scheduler really gets."""
        draw = random.Random(f"{self.scenario.measure.seed}/{self.scenario.name}/{trial}")
        return Trial({job.name: round(draw.random() * job.compute_s, 6) for job in self.jobs})

    def arm_plan(self, arm: Arm, trials: list[Trial], periods_s: Mapping[str, float] | None = None) -> dict[str, Any]:
        """Return everything the guest of an arm needs, as JSON types.

        `periods_s` has the iteration times that jobs are held to, from their starts on.
        """
        telemetry, measure = self.scenario.telemetry, self.scenario.measure
        held = periods_s if periods_s and measure.hold else {}
        slots: Counter[str] = Counter()
        for trial in trials:
            slots |= Counter(host for job in self.jobs if job.name in trial.starts_s for host in job.hosts)
        return {
            "scenario": self.scenario.name,
            "arm": arm,
            "topology": self.topology_of(arm).to_dict(),
            "transport": {
                "congestion_control": self.transport.congestion_control,
                "ecn": self.transport.ecn,
                "rto_min_s": self.transport.rto_min_s,
                "socket_buffer_bytes": self.transport.socket_buffer_bytes,
                "quick_ack": self.transport.quick_ack,
            },
            "jobs": [job.to_dict() for job in self.jobs],
            "trials": [trial.starts_s for trial in trials],
            "events": [event.to_dict() for event in self.events.get(arm, ())],
            "holds": {job: {"period_s": held[job], "tolerance": measure.tolerance} for job in held},
            "slots": dict(slots),
            "lead_s": LEAD_S,
            "shared": list(self.shared),
            "used": list(self.used),
            "controller_interval_s": telemetry.controller_interval,
            "queue_interval_s": telemetry.queue_interval,
            "capture": {
                "links": list(self.captured),
                "packets": telemetry.capture.packets,
                "snap_bytes": telemetry.capture.snap_bytes,
                "size_bytes": telemetry.capture.size,
            },
        }


def build(scenario: Scenario, where: str, base: Path = Path()) -> Experiment:
    """Make a scenario concrete; traces are looked for from `base` on. Raises InputError naming `where` and the key."""
    bare = network(scenario, where, base)
    topology = bare.topology
    places = _place(scenario, topology, where)
    jobs = tuple(
        job_on(keys, places[keys.name], FIRST_DSCP + index, scenario, topology, base, where)
        for index, keys in enumerate(scenario.job)
    )
    routes = Routes(topology)
    loads = {job.name: pairs(job) for job in jobs}
    shared = routes.shared_links(loads)
    if scenario.telemetry.watch == "workers":
        shared = {f"{host}->{topology.uplink(host)}": [job.name] for job in jobs for host in dict.fromkeys(job.hosts)}
    if scenario.require.shared_links and not shared:
        raise InputError(where, "the jobs share no directed link", "move workers, or set require.shared_links = false")
    used = sorted({link for job in loads.values() for src, dst in job for link in routes.route(src, dst)})
    names = [job.name for job in jobs]
    events = concrete(scenario.event, scenario.measure.arms, names, topology, bare.scaling, where)
    return replace(bare, jobs=jobs, shared=shared, used=tuple(used), events=events)


def network(scenario: Scenario, where: str, base: Path = Path()) -> Experiment:
    """Return the fabric and the transport of a scenario, without its jobs. Raises InputError as `build` does."""
    fabric, transport = scenario.fabric, scenario.transport
    red = Red(fabric.red.min, fabric.red.max, fabric.red.probability)
    original = Original(
        fabric.rate, fabric.host_rate, fabric.host_delay, fabric.fabric_delay, fabric.loss, fabric.queue, red,
        fabric.mtu_bytes, transport.rto_min,
    )  # fmt: skip
    scaling = Scaling(original, fabric.scale)
    try:
        topology = fabric_file.build(fabric.topology, scaling.settings, base)
    except InputError as error:
        raise InputError(where, f"fabric.topology: {error.what}", error.mend) from error
    tcp = Transport(
        transport.congestion_control, transport.ecn, scaling.rto_min_s, transport.socket_buffer, transport.quick_ack
    )
    known = {f"{a}->{b}" for a, b in topology.directed()}
    captured = scenario.telemetry.capture.links
    for link in () if captured == "shared" else captured:
        if link not in known:
            raise InputError(where, f"telemetry.capture.links: there is no link {link!r}", "as in tor1->agg1")
    return Experiment(scenario, scaling, topology, tcp, (), {}, ())


def pairs(job: JobPlan) -> list[tuple[str, str]]:
    """Return (source host, destination host) of every connection of a job that leaves a host."""
    hosts = [(job.hosts[source], job.hosts[destination]) for source, destination in job.connections()]
    return list(dict.fromkeys((source, destination) for source, destination in hosts if source != destination))


def _place(scenario: Scenario, topology: Topology, where: str) -> dict[str, tuple[str, ...]]:
    """Return every job's hosts in rank order: those it names, else the next free ones, rack after rack."""
    named = {host for job in scenario.job for host in job.named_hosts}
    for job in scenario.job:
        missing = [host for host in job.named_hosts if host not in topology.hosts]
        if missing:
            raise InputError(
                where, f"job.{job.name}.workers: {topology.name} has no host {missing[0]!r}",
                f"hosts are {topology.hosts[0]} to {topology.hosts[-1]}",
            )  # fmt: skip
    free = _rack_by_rack(topology, named)
    places = {}
    for job in scenario.job:
        if not isinstance(job.workers, int):
            places[job.name] = job.workers
            continue
        if job.workers > len(free):
            raise InputError(
                where, f"job.{job.name}.workers: {job.workers} workers, but only {len(free)} of {len(topology.hosts)} "
                "hosts are free", "use fewer workers or a larger topology",
            )  # fmt: skip
        places[job.name], free = tuple(free[: job.workers]), free[job.workers :]
    return places


def _rack_by_rack(topology: Topology, taken: set[str]) -> list[str]:
    """Return the free hosts so that neighbours in the list stand in different racks."""
    racks: dict[str, list[str]] = {}
    graph = topology.graph()
    for host in topology.hosts:
        if host not in taken:
            racks.setdefault(next(iter(graph[host])), []).append(host)
    deepest = max((len(rack) for rack in racks.values()), default=0)
    return [rack[i] for i in range(deepest) for rack in racks.values() if i < len(rack)]
