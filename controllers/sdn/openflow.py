"""The few OpenFlow 1.3 messages that the controller sends often, as bytes, and the counters it reads often.

Ryu can build and parse every message; it takes some 200 us for a rule, and a fabric has three thousand. What
is written here is checked against Ryu's own parser by the tests. Format: OpenFlow Switch Specification 1.3.5,
chapter 7.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from controllers.sdn.counters import FlowCount, PortCount, TableCount
from controllers.sdn.flows import Difference, Goto, Match, Rule

VERSION = 4
FLOW_MOD, MULTIPART_REQUEST, BARRIER_REQUEST = 14, 18, 20
STATS_FLOW, STATS_TABLE, STATS_PORT = 1, 3, 4
ADD, DELETE, DELETE_STRICT = 0, 3, 4
SEND_FLOW_REMOVED = 1
ALL_TABLES = 0xFF
ANY = 0xFFFFFFFF
IPV4 = 0x0800

_HEADER = struct.Struct("!BBHI")
_FLOW_MOD = struct.Struct("!QQBBHHHIIIH2x")
_GOTO = struct.Struct("!HHB3x")
_APPLY_OUTPUT = struct.Struct("!HH4xHHIH6x")
_MULTIPART = struct.Struct("!HH4x")
_FLOW_REQUEST = struct.Struct("!B3xII4xQQ")
_FLOW_STATS = struct.Struct("!HB21xQQQ")
_PORT_STATS = struct.Struct("!I4xQQQQ")
_TABLE_STATS = struct.Struct("!B3xIQQ")
PORT_STATS_BYTES, TABLE_STATS_BYTES = 112, 24

_IN_PORT, _ETH_DST, _ETH_TYPE, _IP_DSCP, _IP_ECN = (
    struct.pack("!HBB", 0x8000, field << 1, size) for field, size in ((0, 4), (3, 6), (5, 2), (8, 1), (9, 1))
)


def barrier(xid: int) -> bytes:
    """A request to answer once everything before it has been done."""
    return _message(BARRIER_REQUEST, xid, b"")


def delete_everything() -> bytes:
    """Empty all tables."""
    body = _FLOW_MOD.pack(0, 0, ALL_TABLES, DELETE, 0, 0, 0, ANY, ANY, ANY, 0)
    return _message(FLOW_MOD, 0, body + _match(Match()))


def change(difference: Difference) -> bytes:
    """The messages that remove and add rules; a removed rule that counts will report its last counters."""
    return b"".join(
        [_flow_mod(DELETE_STRICT, rule) for rule in difference.remove]
        + [_flow_mod(ADD, rule) for rule in difference.add]
    )


def port_stats(xid: int) -> bytes:
    """Ask for the counters of all ports."""
    return _message(MULTIPART_REQUEST, xid, _MULTIPART.pack(STATS_PORT, 0) + struct.pack("!I4x", ANY))


def flow_stats(xid: int, table: int) -> bytes:
    """Ask for the counters of all rules of one table."""
    body = _MULTIPART.pack(STATS_FLOW, 0) + _FLOW_REQUEST.pack(table, ANY, ANY, 0, 0)
    return _message(MULTIPART_REQUEST, xid, body + _match(Match()))


def table_stats(xid: int) -> bytes:
    """Ask for the counters of all tables."""
    return _message(MULTIPART_REQUEST, xid, _MULTIPART.pack(STATS_TABLE, 0))


def read_ports(data: bytes) -> list[PortCount]:
    """The entries of a port statistics reply."""
    return [PortCount(*_PORT_STATS.unpack_from(data, at)) for at in range(0, len(data), PORT_STATS_BYTES)]


def read_flows(data: bytes) -> list[FlowCount]:
    """The entries of a flow statistics reply, without their matches: the cookie says what a rule counts."""
    flows, at = [], 0
    while at < len(data):
        length, _, cookie, packets, size = _FLOW_STATS.unpack_from(data, at)
        flows.append(FlowCount(cookie, packets, size))
        at += length
    return flows


def read_tables(data: bytes, tables: Iterable[int]) -> list[TableCount]:
    """The entries of `tables` in a table statistics reply, which lists every table that a switch could
    have."""
    return [TableCount(*_TABLE_STATS.unpack_from(data, table * TABLE_STATS_BYTES)) for table in tables]


def _message(kind: int, xid: int, body: bytes) -> bytes:
    return _HEADER.pack(VERSION, kind, _HEADER.size + len(body), xid) + body


def _flow_mod(command: int, rule: Rule) -> bytes:
    flags = SEND_FLOW_REMOVED if rule.counted else 0
    body = _FLOW_MOD.pack(rule.cookie, 0, rule.table, command, 0, 0, rule.priority, ANY, ANY, ANY, flags)
    return _message(FLOW_MOD, 0, body + _match(rule.match) + _instruction(rule))


def _match(match: Match) -> bytes:
    fields = b""
    if match.in_port is not None:
        fields += _IN_PORT + match.in_port.to_bytes(4, "big")
    if match.eth_dst is not None:
        fields += _ETH_DST + bytes.fromhex(match.eth_dst.replace(":", ""))
    if match.ip_dscp is not None or match.ip_ecn is not None:
        fields += _ETH_TYPE + IPV4.to_bytes(2, "big")
    if match.ip_dscp is not None:
        fields += _IP_DSCP + bytes([match.ip_dscp])
    if match.ip_ecn is not None:
        fields += _IP_ECN + bytes([match.ip_ecn])
    kind_oxm, length = 1, 4 + len(fields)
    return struct.pack("!HH", kind_oxm, length) + fields + bytes(-length % 8)


def _instruction(rule: Rule) -> bytes:
    goto_table, apply_actions, output = 1, 4, 0
    if isinstance(rule.action, Goto):
        return _GOTO.pack(goto_table, _GOTO.size, rule.action.table)
    return _APPLY_OUTPUT.pack(apply_actions, _APPLY_OUTPUT.size, output, 16, rule.action.port, 0)
