"""From the switches' counters to rows: joins what both ends of each directed link say. Pure: messages in,
rows out.

For the link a->b, a's port counts what it sent and a's queue what it marked and dropped; b's port counts what
came, b's table 0 how much of that was ECN-capable or marked. Table 1 of a counts what left into the link and
had been marked before. A removed rule's last counters are kept and added, so every number only grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from controllers.sdn.flows import CE, COUNT_TABLE, FORWARD_TABLE, count_cookie, marked_cookie, ordered_jobs
from testbed.net.topology import Topology, link_id
from testbed.telemetry.tables import Value

Row = tuple[Value, ...]


class PortCount(NamedTuple):
    """OpenFlow counters of one port."""

    port: int
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int


class FlowCount(NamedTuple):
    """OpenFlow counters of one rule."""

    cookie: int
    packets: int
    bytes: int


class TableCount(NamedTuple):
    """OpenFlow counters of one table."""

    table: int
    active: int
    lookups: int
    matched: int


class QueueCount(NamedTuple):
    """What an egress queue holds now, and has marked and dropped."""

    backlog_bytes: int
    marked_packets: int
    dropped_packets: int


class Tally(NamedTuple):
    """ECN-capable (field 1 or 2) and marked (field 3) packets and bytes of a counting rule's traffic."""

    ect_packets: int
    ect_bytes: int
    ce_packets: int
    ce_bytes: int


class Rows(NamedTuple):
    """Rows for `links.csv`, `flows.csv` and `tables.csv`."""

    links: list[Row]
    flows: list[Row]
    tables: list[Row]


SNAPSHOT_COLUMNS = (
    "tx_packets",
    "tx_bytes",
    "rx_packets",
    "rx_bytes",
    "ce_in_packets",
    "ect_out_packets",
    "ect_out_bytes",
    "ce_out_packets",
    "ce_out_bytes",
    "backlog_bytes",
    "marked_packets",
    "dropped_packets",
)


class _Link(NamedTuple):
    """A directed link with its ends' ports, None where the end is a host."""

    name: str
    near: str
    near_port: int | None
    far: str
    far_port: int | None


class _Rules:
    """Counters of one table's rules by cookie, (packets, bytes), the removed rules included."""

    def __init__(self) -> None:
        self.sums: dict[int, tuple[int, int]] = {}
        self._removed: dict[int, tuple[int, int]] = {}

    def replace(self, flows: Iterable[FlowCount]) -> None:
        self.sums = dict(self._removed)
        for flow in flows:
            _add(self.sums, flow)

    def remove(self, last: FlowCount) -> None:
        # The sums hold an older count of the rule; they become exact with the next `replace`.
        _add(self._removed, last)


class Counters:
    """The latest counters of a fabric, and which rows have changed since they were last taken."""

    def __init__(self, topology: Topology, jobs: Iterable[str]) -> None:
        self._jobs = list(enumerate(ordered_jobs(jobs)))
        ends = set(topology.switches)
        self._links = [
            _Link(
                link_id(a, b),
                a,
                topology.port(a, b) if a in ends else None,
                b,
                topology.port(b, a) if b in ends else None,
            )
            for a, b in topology.directed()
        ]
        self._ports: dict[str, dict[int | None, PortCount]] = {
            name: {} for name in (*topology.switches, *topology.hosts)
        }
        self._rules = {(switch, table): _Rules() for switch in topology.switches for table in (0, 1)}
        self._tables: dict[str, list[TableCount]] = {switch: [] for switch in topology.switches}
        self._queues: dict[str, QueueCount] = {}
        self._moving = self._changed = True
        self._tallies = {link.name: [_NOTHING] * len(self._jobs) for link in self._links if link.far_port is not None}
        self._taken: dict[tuple[str, str | int], Row] = {}

    def set_ports(self, switch: str, ports: Iterable[PortCount]) -> None:
        """Take a switch's port statistics."""
        counted: dict[int | None, PortCount] = {port.port: port for port in ports}
        if counted != self._ports[switch]:
            self._ports[switch] = counted
            self._moving = self._changed = True

    def set_rules(self, switch: str, table: int, flows: Iterable[FlowCount]) -> None:
        """Take the statistics of all rules of one table."""
        rules = self._rules[switch, table]
        before = rules.sums
        rules.replace(flows)
        if table == COUNT_TABLE and rules.sums != before:
            self._changed = True
            for link in self._links:
                if link.far == switch and link.far_port is not None:
                    self._tallies[link.name] = [_tally(rules.sums, link.far_port, number) for number, _ in self._jobs]

    def remove_rule(self, switch: str, table: int, last: FlowCount) -> None:
        """Take the last counters of a rule that is gone; they show once the table has been read again."""
        self._rules[switch, table].remove(last)

    def set_tables(self, switch: str, tables: Iterable[TableCount]) -> None:
        """Take a switch's table statistics."""
        counted = list(tables)
        self._changed |= counted != self._tables[switch]
        self._tables[switch] = counted

    def active(self, switch: str) -> dict[int, int]:
        """How many rules a switch has, by table, as it last said."""
        return {table.table: table.active for table in self._tables[switch]}

    def set_queues(self, queues: Mapping[str, QueueCount]) -> None:
        """Take the readings of the egress queues, by directed link."""
        self._queues.update(queues)
        self._changed = True
        self._moving = any(queue.backlog_bytes for queue in self._queues.values())

    @property
    def moving(self) -> bool:
        """Whether the queues may have changed since they were read: a packet passed a port, or one was
        waiting."""
        return self._moving

    def rows(self, t_s: float) -> Rows:
        """The rows at `t_s` that differ from the last ones of their link, job or table."""
        rows = Rows([], [], [])
        if not self._changed:
            return rows
        self._changed = False
        for link in self._links:
            row = (*self._moved(link), *self._seen(link), *self._queue(link))
            if self._differs((link.name, "links"), row):
                rows.links.append((t_s, link.name, *row))
        for name, tallies in self._tallies.items():
            for (number, job), tally in zip(self._jobs, tallies, strict=True):
                if self._differs((name, number), tally):
                    rows.flows.append((t_s, name, job, *tally))
        for switch, tables in self._tables.items():
            for table in tables:
                if self._differs((switch, table.table), table):
                    rows.tables.append((t_s, switch, *table))
        return rows

    def snapshot(self) -> dict[str, Any]:
        """All counters as JSON values: `links` by directed link, `jobs` by job and directed link; null =
        unseen."""
        links: dict[str, dict[str, int | None]] = {}
        for link in self._links:
            values = (*self._moved(link), self._marked_before(link), *self._seen(link), *self._queue(link))
            links[link.name] = dict(zip(SNAPSHOT_COLUMNS, values, strict=True))
        jobs = {
            job: {name: tallies[number]._asdict() for name, tallies in self._tallies.items()}
            for number, job in self._jobs
        }
        return {"links": links, "jobs": jobs}

    def _differs(self, key: tuple[str, str | int], row: Row) -> bool:
        if self._taken.get(key) == row:
            return False
        self._taken[key] = row
        return True

    def _moved(self, link: _Link) -> tuple[int | None, int | None, int | None, int | None]:
        """tx packets, tx bytes, rx packets, rx bytes."""
        near, far = self._ports[link.near].get(link.near_port), self._ports[link.far].get(link.far_port)
        sent = (near.tx_packets, near.tx_bytes) if near else (None, None)
        return (*sent, far.rx_packets, far.rx_bytes) if far else (*sent, None, None)

    def _seen(self, link: _Link) -> tuple[int | None, ...]:
        """ECT packets, ECT bytes, CE packets, CE bytes, of all jobs."""
        tallies = self._tallies.get(link.name)
        return tuple(map(sum, zip(*tallies, strict=True))) if tallies else (None,) * 4

    def _queue(self, link: _Link) -> tuple[int | None, ...]:
        return self._queues.get(link.name) or (None,) * 3

    def _marked_before(self, link: _Link) -> int | None:
        if link.near_port is None:
            return None
        return self._rules[link.near, FORWARD_TABLE].sums.get(marked_cookie(link.near_port), (0, 0))[0]


_NOTHING = Tally(0, 0, 0, 0)


def _add(sums: dict[int, tuple[int, int]], flow: FlowCount) -> None:
    packets, size = sums.get(flow.cookie, (0, 0))
    sums[flow.cookie] = packets + flow.packets, size + flow.bytes


def _tally(sums: Mapping[int, tuple[int, int]], port: int, job: int) -> Tally:
    first, second, marked = (sums.get(count_cookie(port, job, ecn), (0, 0)) for ecn in (1, 2, CE))
    return Tally(first[0] + second[0], first[1] + second[1], *marked)
