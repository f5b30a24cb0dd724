"""Switches without a kernel: a flow table that forwards and counts, and a switch that speaks OpenFlow 1.3
around it.

The wire side decodes rules with Ryu's own parser (os-ken's, where Ryu is missing) and encodes answers by hand, so that
it shares nothing with the code under test.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import socket
import struct
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from controllers.sdn.flows import Difference, Goto, Match, Output, Rule
from testbed.net.fabrics import FabricSettings, build
from testbed.net.topology import Red, Topology, link_id

FRAMEWORKS = tuple(name for name in ("ryu", "os-ken") if importlib.util.find_spec(name.replace("-", "_")))
"""Those that are installed: Ryu cannot be, from Python 3.12 on."""


def parser_of(framework: str) -> ModuleType:
    """A framework's own reader and writer of OpenFlow 1.3."""
    return importlib.import_module(f"{framework.replace('-', '_')}.ofproto.ofproto_v1_3_parser")


def fabric(name: str) -> Topology:
    """A fabric whose rates and delays do not matter."""
    red = Red(80_000, 160_000, 1.0)
    return build(name, FabricSettings(10**9, None, 2e-6, 0.0, 0.0, 16_000_000, red, 9000))


@dataclass(frozen=True)
class Packet:
    """What rules can see of a packet."""

    eth_dst: str
    dscp: int = 0
    ecn: int = 0
    ipv4: bool = True
    size: int = 1000

    def fits(self, match: Match, in_port: int) -> bool:
        """Whether a rule with this match takes the packet."""
        if (match.ip_dscp is not None or match.ip_ecn is not None) and not self.ipv4:
            return False
        wanted = ((match.in_port, in_port), (match.eth_dst, self.eth_dst), (match.ip_dscp, self.dscp))
        return all(want in (None, have) for want, have in (*wanted, (match.ip_ecn, self.ecn)))


@dataclass
class Entry:
    """A rule in a table, with its counters."""

    rule: Rule
    packets: int = 0
    bytes: int = 0


@dataclass
class FlowTable:
    """The tables of one switch."""

    entries: dict[tuple[int, int, Match], Entry] = field(default_factory=dict)

    def apply(self, change: Difference) -> list[Entry]:
        """Remove rules, then add rules; the removed entries."""
        gone = [self.entries.pop((rule.table, rule.priority, rule.match)) for rule in change.remove]
        for rule in change.add:
            self.entries[rule.table, rule.priority, rule.match] = Entry(rule)
        return gone

    def forward(self, packet: Packet, in_port: int) -> int | None:
        """Send a packet through the tables; the port it leaves by, None when it is dropped."""
        table = 0
        while True:
            fitting = [
                entry
                for entry in self.entries.values()
                if entry.rule.table == table and packet.fits(entry.rule.match, in_port)
            ]
            if not fitting:
                return None
            best = max(fitting, key=lambda entry: entry.rule.priority)
            assert [e.rule.priority for e in fitting].count(best.rule.priority) == 1, "two rules of one priority fit"
            best.packets += 1
            best.bytes += packet.size
            if isinstance(best.rule.action, Output):
                return best.rule.action.port
            assert best.rule.action.table > table
            table = best.rule.action.table

    def rules(self) -> set[Rule]:
        """What is in the tables."""
        return {entry.rule for entry in self.entries.values()}


class FakeFabric:
    """The switches of a topology, with cables between them."""

    def __init__(self, topology: Topology, tables: dict[str, FlowTable]) -> None:
        self.topology, self.tables = topology, tables
        self._peers = {(a, topology.port(a, b)): b for a, b in topology.directed()}

    @classmethod
    def of(cls, topology: Topology, rules: dict[str, tuple[Rule, ...]]) -> FakeFabric:
        """A fabric whose switches hold these rules."""
        made = cls(topology, {switch: FlowTable() for switch in topology.switches})
        made.change({switch: Difference((), new) for switch, new in rules.items()})
        return made

    def change(self, changes: dict[str, Difference]) -> None:
        """Apply a change to every switch."""
        for switch, change in changes.items():
            self.tables[switch].apply(change)

    def send(self, src: str, packet: Packet) -> list[str]:
        """Send a packet from a host; the directed links it took, the last one ending where it was delivered
        or lost."""
        at, node = src, self._peers[src, 0]
        taken = [link_id(at, node)]
        while node in self.tables:
            out = self.tables[node].forward(packet, self.topology.port(node, at))
            if out is None:
                return taken
            at, node = node, self._peers[node, out]
            taken.append(link_id(at, node))
            assert len(taken) < 50, f"a loop: {taken}"
        return taken


HEADER = struct.Struct("!BBHI")
HELLO, ERROR, ECHO, ECHO_REPLY, FEATURES, FEATURES_REPLY, FLOW_REMOVED, PORT_STATUS = 0, 1, 2, 3, 5, 6, 11, 12
FLOW_MOD, MULTIPART, MULTIPART_REPLY, BARRIER, BARRIER_REPLY = 14, 18, 19, 20, 21


class FakeSwitch(threading.Thread):
    """An OpenFlow 1.3 switch on a TCP connection, with a flow table and port counters that the test sets."""

    def __init__(self, topology: Topology, name: str, port: int) -> None:
        super().__init__(daemon=True)
        self.topology, self.name_, self.table = topology, name, FlowTable()
        self.ports = {topology.port(a, b): topology.interface(a, b) for a, b in topology.directed() if a == name}
        self.counts = {number: [0, 0, 0, 0] for number in self.ports}
        self.down: set[int] = set()
        self.requests: list[tuple[int, int]] = []
        self._parser = parser_of(FRAMEWORKS[0])
        self._socket = socket.create_connection(("127.0.0.1", port))

    def run(self) -> None:
        """Answer until the controller is gone."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._serve()

    def _serve(self) -> None:
        self.say(HELLO, 0, b"")
        pending = b""
        while data := self._socket.recv(65536):
            pending += data
            while len(pending) >= 8 and len(pending) >= (length := HEADER.unpack_from(pending)[2]):
                _, kind, _, xid = HEADER.unpack_from(pending)
                self._answer(kind, xid, pending[:length])
                pending = pending[length:]

    def close(self) -> None:
        """Pull the plug."""
        with contextlib.suppress(OSError):  # the controller may have gone first
            self._socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self._socket.close()

    def say(self, kind: int, xid: int, body: bytes) -> None:
        """Send one message."""
        self._socket.sendall(HEADER.pack(4, kind, 8 + len(body), xid) + body)

    def set_port(self, number: int, down: bool) -> None:
        """Pull or plug a cable, and tell the controller."""
        (self.down.add if down else self.down.discard)(number)
        self.say(PORT_STATUS, 0, struct.pack("!B7x", 2) + self._port(number))

    def _answer(self, kind: int, xid: int, message: bytes) -> None:
        if kind == ECHO:
            self.say(ECHO_REPLY, xid, message[8:])
        elif kind == FEATURES:
            dpid = self.topology.dpid(self.name_)
            self.say(FEATURES_REPLY, xid, struct.pack("!QIBB2xII", dpid, 0, 254, 0, 0, 0))
        elif kind == BARRIER:
            self.say(BARRIER_REPLY, xid, b"")
        elif kind == FLOW_MOD:
            self._modify(message)
        elif kind == MULTIPART:
            (what,) = struct.unpack_from("!H", message, 8)
            self.requests.append((what, message[16] if what == 1 else -1))
            parts = self._statistics(what, message)
            for number, part in enumerate(parts, 1):
                more = int(number < len(parts))
                self.say(MULTIPART_REPLY, xid, struct.pack("!HH4x", what, more) + part)

    def _modify(self, message: bytes) -> None:
        parsed = self._parser.OFPFlowMod.parser(_Datapath(self._parser), 4, FLOW_MOD, len(message), 0, message)
        if parsed.command == 3 and parsed.table_id == 255:
            gone = self.table.apply(Difference(tuple(self.table.rules()), ()))
        elif parsed.command == 4:
            rule = rule_of(parsed)
            gone = self.table.apply(Difference((rule,), ()))
        else:
            assert parsed.command == 0
            gone = self.table.apply(Difference((), (rule_of(parsed),)))
        for entry in gone:
            if entry.rule.counted:
                rule = entry.rule
                head = struct.pack("!QHBB", rule.cookie, rule.priority, 2, rule.table)
                counts = struct.pack("!IIHHQQ", 0, 0, 0, 0, entry.packets, entry.bytes)
                self.say(FLOW_REMOVED, 0, head + counts + struct.pack("!HH4x", 1, 4))

    def _statistics(self, what: int, message: bytes) -> list[bytes]:
        if what == 13:
            return [b"".join(map(self._port, sorted(self.ports)))]
        if what == 4:
            return [b"".join(_port_stats(number, *counts) for number, counts in sorted(self.counts.items()))]
        if what == 3:
            active = [sum(key[0] == table for key in self.table.entries) for table in range(254)]
            return [b"".join(struct.pack("!B3xIQQ", table, active[table], 0, 0) for table in range(254))]
        assert what == 1
        wanted = [e for key, e in sorted(self.table.entries.items(), key=str) if message[16] in (key[0], 255)]
        # In parts, as a switch does with many rules.
        return [b"".join(map(_flow_stats, wanted[at : at + 40])) for at in range(0, len(wanted), 40)] or [b""]

    def _port(self, number: int) -> bytes:
        state = int(number in self.down)
        head = struct.pack("!I4x6s2x16s", number, bytes(6), self.ports[number].encode())
        return head + struct.pack("!II6I", 0, state, 0, 0, 0, 0, 0, 0)


class _Datapath:
    def __init__(self, parser: Any) -> None:
        self.ofproto, self.ofproto_parser = parser.ofproto, parser


def rule_of(parsed: Any) -> Rule:
    """A rule from a framework's parsed flow-mod."""
    fields: dict[str, Any] = dict(parsed.match.items())
    assert fields.pop("eth_type", 0x0800) == 0x0800
    (instruction,) = parsed.instructions
    action: Goto | Output
    if type(instruction).__name__ == "OFPInstructionGotoTable":
        action = Goto(instruction.table_id)
    else:
        (output,) = instruction.actions
        assert type(output).__name__ == "OFPActionOutput"
        action = Output(output.port)
    return Rule(parsed.table_id, parsed.priority, Match(**fields), parsed.cookie, action)


def _flow_stats(entry: Entry) -> bytes:
    rule = entry.rule
    head = struct.pack("!HBxIIHHHH4xQ", 64, rule.table, 0, 0, rule.priority, 0, 0, 0, rule.cookie)
    return head + struct.pack("!QQHH4x", entry.packets, entry.bytes, 1, 4) + struct.pack("!HHB3x", 1, 8, 1)


def _port_stats(number: int, *counts: int) -> bytes:
    return struct.pack("!I4x12QII", number, *counts, *(0,) * 8, 0, 0)


def start_switches(topology: Topology, port: int, names: Iterable[str] | None = None) -> dict[str, FakeSwitch]:
    """Connected switches, by name."""
    switches = {name: FakeSwitch(topology, name, port) for name in names or topology.switches}
    for switch in switches.values():
        switch.start()
    return switches
