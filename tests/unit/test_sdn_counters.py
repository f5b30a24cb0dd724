"""Counters: both ends of a link joined, written only when they change, and never going back."""

from __future__ import annotations

import pytest
from sdn_fakes import fabric

from controllers.sdn.counters import Counters, FlowCount, PortCount, QueueCount, TableCount
from controllers.sdn.flows import CE, COUNT_TABLE, FORWARD_TABLE, count_cookie, marked_cookie
from testbed.net.topology import Topology, link_id


@pytest.fixture
def topology() -> Topology:
    return fabric("dumbbell(2)")


@pytest.fixture
def counters(topology: Topology) -> Counters:
    made = Counters(topology, ["a"])
    left, right = topology.switches
    port, peer = topology.port(left, right), topology.port(right, left)
    made.set_ports(left, [PortCount(port, 1, 20, 3, 4000)])
    made.set_ports(right, [PortCount(peer, 19, 2, 3900, 4)])
    made.set_rules(
        right,
        COUNT_TABLE,
        [
            FlowCount(count_cookie(peer, 0, 1), 1, 100),
            FlowCount(count_cookie(peer, 1, 2), 10, 2000),
            FlowCount(count_cookie(peer, 1, CE), 5, 1000),
        ],
    )
    made.set_rules(left, FORWARD_TABLE, [FlowCount(marked_cookie(port), 2, 20), FlowCount(marked_cookie(port), 1, 10)])
    made.set_queues({link_id(left, right): QueueCount(7, 3, 1)})
    return made


def test_a_row_joins_both_ends_and_the_queue(topology: Topology, counters: Counters) -> None:
    left, right = topology.switches
    rows = {row[1]: row for row in counters.rows(2.5).links}
    assert len(rows) == len(list(topology.directed()))
    assert rows[link_id(left, right)] == (
        2.5,
        link_id(left, right),
        20,
        4000,
        19,
        3900,
        11,
        2100,
        5,
        1000,
        7,
        3,
        1,
    )
    # Nobody counts what a host sends or gets.
    assert rows["h1->" + left] == (2.5, "h1->" + left, None, None, None, None, 0, 0, 0, 0, None, None, None)
    assert rows[left + "->h1"] == (2.5, left + "->h1", *(None,) * 11)


def test_rows_per_job(topology: Topology, counters: Counters) -> None:
    between = link_id(*topology.switches)
    rows = [row for row in counters.rows(1.0).flows if row[1] == between]
    assert rows == [(1.0, between, "", 1, 100, 0, 0), (1.0, between, "a", 10, 2000, 5, 1000)]


def test_only_what_changed_is_written_again(topology: Topology, counters: Counters) -> None:
    left, right = topology.switches
    counters.set_tables(left, [TableCount(0, 5, 6, 7)])
    assert counters.rows(1.0).tables == [(1.0, left, 0, 5, 6, 7)]
    assert counters.rows(2.0) == ([], [], [])
    peer = topology.port(right, left)
    counters.set_rules(right, COUNT_TABLE, [FlowCount(count_cookie(peer, 1, 2), 11, 2100)])
    counters.set_tables(left, [TableCount(0, 5, 6, 8)])
    links, flows, tables = counters.rows(3.0)
    assert [row[1] for row in links] == [link_id(left, right)]
    assert [row[1:3] for row in flows] == [(link_id(left, right), ""), (link_id(left, right), "a")]
    assert tables == [(3.0, left, 0, 5, 6, 8)]


def test_a_removed_rule_keeps_counting(topology: Topology, counters: Counters) -> None:
    left, right = topology.switches
    cookie = marked_cookie(topology.port(left, right))
    before = counters.snapshot()["links"][link_id(left, right)]["ce_in_packets"]
    counters.remove_rule(left, FORWARD_TABLE, FlowCount(cookie, 4, 40))
    counters.set_rules(left, FORWARD_TABLE, [FlowCount(cookie, 1, 10)])
    assert before == 3
    assert counters.snapshot()["links"][link_id(left, right)]["ce_in_packets"] == 4 + 1


def test_a_snapshot_says_what_is_unseen(topology: Topology, counters: Counters) -> None:
    left, right = topology.switches
    snapshot = counters.snapshot()
    assert snapshot["links"][link_id(left, right)] == {
        "tx_packets": 20,
        "tx_bytes": 4000,
        "rx_packets": 19,
        "rx_bytes": 3900,
        "ce_in_packets": 3,
        "ect_out_packets": 11,
        "ect_out_bytes": 2100,
        "ce_out_packets": 5,
        "ce_out_bytes": 1000,
        "backlog_bytes": 7,
        "marked_packets": 3,
        "dropped_packets": 1,
    }
    assert snapshot["links"][f"{left}->h1"]["ce_out_packets"] is None
    assert snapshot["links"][f"h1->{left}"]["ce_in_packets"] is None
    assert snapshot["jobs"]["a"][link_id(left, right)]["ce_packets"] == 5


def test_queues_are_worth_reading_while_packets_move_or_wait(topology: Topology, counters: Counters) -> None:
    left, right = topology.switches
    between = link_id(left, right)
    assert counters.moving
    counters.set_queues({between: QueueCount(0, 3, 1)})
    assert not counters.moving
    counters.set_ports(left, [PortCount(topology.port(left, right), 1, 20, 3, 4000)])
    assert not counters.moving
    counters.set_ports(left, [PortCount(topology.port(left, right), 1, 21, 3, 4000)])
    assert counters.moving
