"""One reading of a whole fabric: the questions to all switches, their answers, and the queues of the same
moment."""

from __future__ import annotations

from collections.abc import Iterable
from socket import if_nametoindex

from controllers.sdn import openflow
from controllers.sdn.counters import QueueCount
from testbed.errors import NotValid
from testbed.net.tc import queues
from testbed.net.topology import Topology, link_id
from testbed.telemetry.qdisc import Qdisc, QdiscReader, total

LIMITER = "2:"


class Round:
    """One question to all switches, and who has not answered yet. A request's xid names its round and its
    kind."""

    PORTS, TABLES, FLOWS = 0, 1, 2
    _KINDS = 8

    def __init__(self, number: int, switches: Iterable[str], tables: Iterable[int]) -> None:
        """Ask `switches` for their ports, and for the rules of `tables`; if any, also for the tables' own
        counters."""
        self._first_xid = number * self._KINDS
        self._tables = list(tables)
        kinds = [
            self.PORTS,
            *(self.FLOWS + table for table in self._tables),
            *([self.TABLES] if self._tables else []),
        ]
        self.waiting = {(switch, kind) for switch in switches for kind in kinds}
        self._parts: dict[tuple[str, int], bytes] = {}

    def request(self) -> bytes:
        """The messages to each switch, in one piece."""
        asked = [openflow.port_stats(self._first_xid)]
        asked += [openflow.flow_stats(self._first_xid + self.FLOWS + table, table) for table in self._tables]
        if self._tables:
            asked.append(openflow.table_stats(self._first_xid + self.TABLES))
        return b"".join(asked)

    def take(self, switch: str, xid: int, data: bytes, more: bool) -> tuple[int, bytes] | None:
        """Take a part of an answer: its kind and all its data once it is whole, None before that.

        None also for a late answer to an earlier round.
        """
        key = switch, xid - self._first_xid
        if key not in self.waiting:
            return None
        self._parts[key] = self._parts.get(key, b"") + data
        if more:
            return None
        self.waiting.remove(key)
        return key[1], self._parts.pop(key)

    def forget(self, switch: str) -> None:
        """Wait no longer for a switch that is gone."""
        self.waiting = {key for key in self.waiting if key[0] != switch}


class Queues:
    """The qdiscs of all switch ports, which live in the controller's network namespace."""

    def __init__(self, topology: Topology) -> None:
        """Raises NotValid when a port's interface does not exist."""
        switches = set(topology.switches)
        try:
            self._links = {
                if_nametoindex(topology.interface(a, b)): link_id(a, b) for a, b in topology.directed() if a in switches
            }
        except OSError as error:
            raise NotValid(f"a switch's port has no interface in the controller's namespace: {error}") from error
        self._handles = {link: queues(topology.direction(*link.split("->"))) for link in self._links.values()}
        self._reader = QdiscReader()

    def read(self) -> dict[str, QueueCount]:
        """The queue of every directed link that has a limiter 2: and its queues, 3: and those of further bands."""
        found: dict[str, dict[str, Qdisc]] = {}
        for qdisc in self._reader.dump():
            if qdisc.ifindex in self._links:
                found.setdefault(self._links[qdisc.ifindex], {})[qdisc.handle] = qdisc
        counts = {}
        for link, own in found.items():
            waiting = [own[handle] for handle in self._handles[link] if handle in own]
            if LIMITER in own and len(waiting) == len(self._handles[link]):
                queue = total(waiting)
                counts[link] = QueueCount(queue.backlog_bytes, queue.marked, own[LIMITER].drops)
        return counts
