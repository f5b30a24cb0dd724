"""From a job on hosts to its flows: which connections there are, over which links, and what they carry.

The rule by which a collective becomes one flow: all connections of it send at one rate, that of the slowest, and all
its members end together. A ring does so step by step anyway, since nobody passes on what has not come; what is left out
is that a member that joins first may already send its first chunk. An all-to-all does so if its pairs meet the same
links, and is drawn out to its slowest pair if not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.fluid.sharing import Flow, Wire
from testbed.net.topology import Topology
from workloads.training.operations import Op
from workloads.training.plan import JobPlan
from workloads.training.schedule import ALL_TO_ALL

Route = Callable[[str, str], Sequence[str]]


def wires(topology: Topology) -> dict[str, Wire]:
    """Return every directed link of a fabric; a marking one is full where RED is in the middle of its range."""
    found = {}
    for a, b in topology.directed():
        way = topology.direction(a, b)
        marks_at = (way.aqm.min_bytes + way.aqm.max_bytes) / 2 if way.aqm else None
        found[f"{a}->{b}"] = Wire(way.rate_bps, marks_at)
    return found


@dataclass
class Plumbing:
    """What a job's connections are made of, for all jobs of a fabric; routes are looked up once."""

    topology: Topology
    route: Route
    _known: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def path(self, source: str, destination: str) -> tuple[str, ...]:
        """Return the directed links from one host to another; none on one host."""
        if source == destination:
            return ()
        key = source, destination
        if key not in self._known:
            self._known[key] = tuple(self.route(source, destination))
        return self._known[key]

    def flow(self, job: str, pairs: Sequence[tuple[str, str]], level: int = 0) -> Flow:
        """Return the flow of connections between these pairs of hosts."""
        links: Counter[str] = Counter()
        back: set[str] = set()
        step_s = round_s = 0.0
        for source, destination in pairs:
            there, here = self.path(source, destination), self.path(destination, source)
            links.update(there)
            back.update(here)
            if there:
                trip_s = sum(self.topology.direction(*link.split("->")).delay_s for link in (*there, *here))
                # A step waits for a round trip, less what the token bucket of the host lets go at once.
                first = self.topology.direction(*there[0].split("->"))
                step_s = max(step_s, trip_s - 8 * first.burst_bytes / first.rate_bps)
                round_s = max(round_s, trip_s)
        return Flow(job, dict(links), frozenset(back), max(0.0, step_s), round_s, level)


Key = tuple[str, int, int]
"""("group", its index, 1 for all-to-all), or ("pair", source rank, destination rank)."""


def key_of(op: Op, rank: int) -> Key:
    """Return which flow of its job an operation that communicates belongs to."""
    if op.group is not None:
        return "group", op.group, int(op.kind == ALL_TO_ALL)
    assert op.peer is not None
    return ("pair", rank, op.peer) if op.kind == "send" else ("pair", op.peer, rank)


def flows_of(plan: JobPlan, plumbing: Plumbing, level: int = 0) -> dict[Key, Flow]:
    """Return all flows of a job by key."""
    found: dict[Key, Flow] = {}
    for rank in range(plan.workers if len(plan.programs) > 1 else 1):
        for op in plan.program(rank):
            if op.kind != "compute" and (key := key_of(op, rank)) not in found:
                found[key] = plumbing.flow(plan.name, [_hosts(plan, pair) for pair in _pairs(plan, key)], level)
    return found


def _hosts(plan: JobPlan, pair: tuple[int, int]) -> tuple[str, str]:
    return plan.hosts[pair[0]], plan.hosts[pair[1]]


def _pairs(plan: JobPlan, key: Key) -> list[tuple[int, int]]:
    kind, first, second = key
    if kind == "pair":
        return [(first, second)]
    group = plan.groups[first]
    if second:
        return [(a, b) for a in group for b in group if a != b]
    return [(rank, group[(at + 1) % len(group)]) for at, rank in enumerate(group)]


def connection_bytes(op: Op, groups: Sequence[Sequence[int]]) -> float:
    """Return what each connection of an operation's flow carries: the mean, since chunks differ by a byte at most."""
    if op.group is None:
        return float(op.size_bytes)
    count = len(groups[op.group])
    # In a round of a ring every chunk is sent once, by somebody; all-to-all sends everybody a share.
    return op.size_bytes * {"all-reduce": 2 * (count - 1), ALL_TO_ALL: 1}.get(op.kind, count - 1) / count


def steps_of(op: Op, groups: Sequence[Sequence[int]]) -> int:
    """Return after how many steps, one waiting for the other, a collective is done; 0 for a message."""
    if op.group is None:
        return 0
    rounds = len(groups[op.group]) - 1
    return {"all-reduce": 2 * rounds, ALL_TO_ALL: 1}.get(op.kind, rounds)


def parts(loads: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return jobs that hang together by links they share; loads: the links of each job, in order of names."""
    at: dict[str, str] = {}

    def root(job: str) -> str:
        while at[job] != job:
            at[job] = job = at[at[job]]
        return job

    owner: dict[str, str] = {}
    for job, links in loads.items():
        at[job] = job
        for link in links:
            if link in owner:
                at[root(owner[link])] = root(job)
            owner[link] = job
    found: dict[str, list[str]] = {}
    for job in loads:
        found.setdefault(root(job), []).append(job)
    return list(found.values())
