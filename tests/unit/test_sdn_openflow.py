"""Messages: what we write as bytes, both frameworks' own parsers read as what we meant."""

from __future__ import annotations

import struct
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from sdn_fakes import FRAMEWORKS, fabric, parser_of, rule_of

from controllers.sdn import openflow
from controllers.sdn.counters import FlowCount, PortCount, TableCount
from controllers.sdn.flows import Difference, Rule, fabric_rules
from controllers.sdn.paths import Routes

# Ryu 4.34 still asks distutils for versions.
pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning")


@pytest.fixture(params=FRAMEWORKS)
def parser(request: pytest.FixtureRequest) -> ModuleType:
    return parser_of(request.param)


@pytest.fixture(scope="module")
def rules() -> tuple[Rule, ...]:
    topology = fabric("leaf-spine(2,2,2)")
    return fabric_rules(topology, Routes(topology), {"a": 10})["leaf1"]


def messages(data: bytes) -> list[tuple[int, int, bytes]]:
    """Type, xid and bytes of every message."""
    found = []
    while data:
        version, kind, length, xid = struct.unpack_from("!BBHI", data)
        assert version == 4
        found.append((kind, xid, data[:length]))
        data = data[length:]
    return found


def parse(parser: ModuleType, message: tuple[int, int, bytes]) -> Any:
    """A message as the framework sees it."""
    kind, xid, data = message
    datapath = SimpleNamespace(ofproto=parser.ofproto, ofproto_parser=parser)
    return parser.msg_parser(datapath, 4, kind, len(data), xid, data)


def test_rules_are_added(parser: ModuleType, rules: tuple[Rule, ...]) -> None:
    sent = [parse(parser, message) for message in messages(openflow.change(Difference((), rules)))]
    assert [rule_of(message) for message in sent] == list(rules)
    assert {message.command for message in sent} == {parser.ofproto.OFPFC_ADD}
    for rule, message in zip(rules, sent, strict=True):
        assert message.flags == (parser.ofproto.OFPFF_SEND_FLOW_REM if rule.counted else 0)
        assert (message.idle_timeout, message.hard_timeout) == (0, 0)
        assert message.buffer_id == parser.ofproto.OFP_NO_BUFFER


def test_rules_are_removed_before_others_are_added(parser: ModuleType, rules: tuple[Rule, ...]) -> None:
    sent = [parse(parser, m) for m in messages(openflow.change(Difference(rules[-1:], rules[:1])))]
    assert [m.command for m in sent] == [parser.ofproto.OFPFC_DELETE_STRICT, parser.ofproto.OFPFC_ADD]
    assert [rule_of(message) for message in sent] == [rules[-1], rules[0]]


def test_everything_is_deleted(parser: ModuleType) -> None:
    (message,) = [parse(parser, message) for message in messages(openflow.delete_everything())]
    assert (message.command, message.table_id) == (parser.ofproto.OFPFC_DELETE, parser.ofproto.OFPTT_ALL)
    assert (message.out_port, message.out_group) == (parser.ofproto.OFPP_ANY, parser.ofproto.OFPG_ANY)
    assert (message.match.items(), message.cookie_mask) == ([], 0)


def test_requests(parser: ModuleType) -> None:
    datapath = SimpleNamespace(ofproto=parser.ofproto, ofproto_parser=parser)
    expected = [
        (openflow.barrier(1), parser.OFPBarrierRequest(datapath)),
        (openflow.port_stats(1), parser.OFPPortStatsRequest(datapath, 0, parser.ofproto.OFPP_ANY)),
        (openflow.flow_stats(1, 1), parser.OFPFlowStatsRequest(datapath, table_id=1)),
        (openflow.table_stats(1), parser.OFPTableStatsRequest(datapath, 0)),
    ]
    for ours, theirs in expected:
        theirs.set_xid(1)
        theirs.serialize()
        assert ours == bytes(theirs.buf)


def test_statistics_are_read() -> None:
    ports = b"".join(struct.pack("!I4x12QII", n, 1, 2, 3, 4, *(9,) * 8, 9, 9) for n in (1, 2))
    assert openflow.read_ports(ports) == [PortCount(1, 1, 2, 3, 4), PortCount(2, 1, 2, 3, 4)]
    tables = b"".join(struct.pack("!B3xIQQ", n, n + 1, n + 2, n + 3) for n in range(254))
    assert openflow.read_tables(tables, (0, 1)) == [TableCount(0, 1, 2, 3), TableCount(1, 2, 3, 4)]


def test_rule_statistics_are_read_whatever_their_length(parser: ModuleType) -> None:
    stats = []
    for match in ({}, {"in_port": 3, "eth_dst": "00:00:00:00:00:07"}):
        entry = parser.OFPFlowStats(0, 1, 2, 3, 4, 5, 6, 0x77, 8, 9, parser.OFPMatch(**match), [])
        body = bytearray()
        entry.match.serialize(body, 0)
        head = struct.pack("!HBxIIHHHH4xQQQ", 48 + len(body), 0, 1, 2, 3, 4, 5, 6, entry.cookie, 8, 9)
        stats.append(head + bytes(body))
    assert openflow.read_flows(b"".join(stats)) == [FlowCount(0x77, 8, 9)] * 2
    assert openflow.read_flows(b"") == []
