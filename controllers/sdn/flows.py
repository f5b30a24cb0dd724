"""From paths to OpenFlow rules, and from one set of rules to the next: pure functions that return rules.

Table 0 counts. For every ingress port, every job (by its DSCP) and the ECN fields 1, 2 (capable) and 3
(marked) there is a rule that goes on to table 1; what is not ECN-capable goes on by the rule for everything.
Table 1 forwards: for every ingress port and destination that some path needs, one rule, and the same again
for ECN field 3 at a higher priority, so that packets that were marked before they came are counted by egress.
No rule changes a packet.

A rule's cookie says what its counters mean, so that statistics can be read without parsing matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controllers.sdn.paths import Hop, Routes
from testbed.errors import InputError
from testbed.net.topology import Topology

COUNT_TABLE, FORWARD_TABLE = 0, 1
CE = 3
COUNTED_ECN = (1, 2, CE)
OTHER = ""

EVERYTHING_PRIORITY, OTHER_PRIORITY, JOB_PRIORITY = 0, 10, 20
FORWARD_PRIORITY, MARKED_PRIORITY = 10, 20

_EVERYTHING, _COUNT, _FORWARD, _MARKED = range(1, 5)
_KIND_BIT, _PORT_BIT, _JOB_BIT = 56, 16, 4


class Match(NamedTuple):
    """What a rule looks at; None = anything. A match on an IP field means IPv4."""

    in_port: int | None = None
    eth_dst: str | None = None
    ip_dscp: int | None = None
    ip_ecn: int | None = None


class Goto(NamedTuple):
    """Go on to another table."""

    table: int


class Output(NamedTuple):
    """Leave by a port."""

    port: int


@dataclass(frozen=True)
class Rule:
    """One entry of a switch's table."""

    table: int
    priority: int
    match: Match
    cookie: int
    action: Goto | Output

    @property
    def counted(self) -> bool:
        """Whether the rule's counters are read, and so must not be lost when it is removed."""
        return self.cookie >> _KIND_BIT in (_COUNT, _MARKED)


class Difference(NamedTuple):
    """What turns one set of rules into another: first `remove`, then `add`."""

    remove: tuple[Rule, ...]
    add: tuple[Rule, ...]


def count_cookie(in_port: int, job: int, ecn: int) -> int:
    """The cookie of a counting rule of table 0; `job` is the job's place in `ordered_jobs`, 0 = other
    traffic."""
    return _COUNT << _KIND_BIT | in_port << _PORT_BIT | job << _JOB_BIT | ecn


def marked_cookie(out_port: int) -> int:
    """The cookie shared by the rules of table 1 that send packets already marked out of `out_port`."""
    return _MARKED << _KIND_BIT | out_port << _PORT_BIT


def ordered_jobs(jobs: Iterable[str]) -> list[str]:
    """Jobs in the order that cookies number them: OTHER first, then by name."""
    return [OTHER, *sorted(jobs)]


def check_jobs(jobs: Mapping[str, int]) -> None:
    """Raise InputError unless every job has a DSCP of its own from 1 to 63 (0 is everybody else's)."""
    for job, dscp in jobs.items():
        if not job or not 1 <= dscp <= 63:
            raise InputError(f"jobs.{job or '(no name)'}", f"DSCP {dscp}", "a name and a DSCP from 1 to 63")
    owners = {dscp: job for job, dscp in jobs.items()}
    if len(owners) < len(jobs):
        doubled = next(job for job, dscp in jobs.items() if owners[dscp] != job)
        raise InputError(f"jobs.{doubled}", f"DSCP {jobs[doubled]} belongs to another job", "one DSCP per job")


def counting_rules(ports: Iterable[int], jobs: Mapping[str, int]) -> list[Rule]:
    """Table 0 of a switch with these ports; `jobs` maps a job to its DSCP."""
    rules = [Rule(COUNT_TABLE, EVERYTHING_PRIORITY, Match(), _EVERYTHING << _KIND_BIT, Goto(FORWARD_TABLE))]
    for port in ports:
        for number, job in enumerate(ordered_jobs(jobs)):
            priority, dscp = (JOB_PRIORITY, jobs[job]) if job in jobs else (OTHER_PRIORITY, None)
            for ecn in COUNTED_ECN:
                match, cookie = Match(in_port=port, ip_dscp=dscp, ip_ecn=ecn), count_cookie(port, number, ecn)
                rules.append(Rule(COUNT_TABLE, priority, match, cookie, Goto(FORWARD_TABLE)))
    return rules


def forwarding_rules(topology: Topology, hops: Iterable[Hop]) -> list[Rule]:
    """Table 1 of one switch, whose decisions are `hops`."""
    rules = []
    for hop in hops:
        out_port, mac = topology.port(hop.switch, hop.to), topology.mac(hop.dst)
        plain, marked = (
            Match(in_port=hop.in_port, eth_dst=mac),
            Match(in_port=hop.in_port, eth_dst=mac, ip_ecn=CE),
        )
        cookie = _FORWARD << _KIND_BIT | out_port << _PORT_BIT
        rules.append(Rule(FORWARD_TABLE, FORWARD_PRIORITY, plain, cookie, Output(out_port)))
        rules.append(Rule(FORWARD_TABLE, MARKED_PRIORITY, marked, marked_cookie(out_port), Output(out_port)))
    return rules


def fabric_rules(topology: Topology, routes: Routes, jobs: Mapping[str, int]) -> dict[str, tuple[Rule, ...]]:
    """All rules of every switch."""
    hops: dict[str, list[Hop]] = {switch: [] for switch in topology.switches}
    for hop in routes.hops():
        hops[hop.switch].append(hop)
    ports: dict[str, list[int]] = {switch: [] for switch in topology.switches}
    for a, b in topology.directed():
        if a in ports:
            ports[a].append(topology.port(a, b))
    return {
        switch: (*counting_rules(sorted(ports[switch]), jobs), *forwarding_rules(topology, hops[switch]))
        for switch in topology.switches
    }


def difference(old: Sequence[Rule], new: Sequence[Rule]) -> Difference:
    """The least change from `old` to `new`: rules in both stay, with their counters.

    A rule whose action changed is removed and added again rather than modified, so that its counters do not
    pass from one egress to another.
    """
    kept = set(old) & set(new)
    return Difference(tuple(rule for rule in old if rule not in kept), tuple(rule for rule in new if rule not in kept))
