"""Rules: packets go where the paths say and are counted as the columns say, in a flow table without a
kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from sdn_fakes import Entry, FakeFabric, FlowTable, Packet, fabric
from test_sdn_paths import networks

from controllers.sdn.flows import (
    CE,
    COUNT_TABLE,
    FORWARD_TABLE,
    check_jobs,
    count_cookie,
    counting_rules,
    difference,
    fabric_rules,
    marked_cookie,
    ordered_jobs,
)
from controllers.sdn.paths import Routes, Unreachable
from testbed.errors import InputError
from testbed.net.topology import Topology

JOBS = {"jobB": 20, "jobA": 10}


def counted(table: FlowTable, number: int, cookie: int) -> int:
    """Packets of the rules with a cookie in one table."""
    return sum(e.packets for e in table.entries.values() if e.rule.table == number and e.rule.cookie == cookie)


def packets(topology: Topology, dst: str) -> list[Packet]:
    """A packet to `dst` of every kind that rules tell apart, and one that is not IP."""
    kinds = [Packet(topology.mac(dst), dscp, ecn) for dscp in (0, 10, 20, 63) for ecn in range(4)]
    return [*kinds, Packet(topology.mac(dst), ipv4=False)]


def test_every_pair_of_cassini_is_delivered_over_its_route() -> None:
    topology = fabric("cassini-48")
    routes = Routes(topology)
    fake = FakeFabric.of(topology, fabric_rules(topology, routes, JOBS))
    for src in topology.hosts:
        for dst in topology.hosts:
            if src != dst:
                route = routes.route(src, dst)
                for packet in (Packet(topology.mac(dst), 10, 2), Packet(topology.mac(dst), 0, CE)):
                    assert fake.send(src, packet) == route


def test_every_kind_of_packet_takes_the_same_route() -> None:
    topology = fabric("leaf-spine(3,2,2)")
    routes = Routes(topology)
    fake = FakeFabric.of(topology, fabric_rules(topology, routes, JOBS))
    for packet in packets(topology, "h6"):
        assert fake.send("h1", packet) == routes.route("h1", "h6")


def test_packets_are_counted_by_port_job_and_mark() -> None:
    table = FlowTable({(r.table, r.priority, r.match): Entry(r) for r in counting_rules([1, 2], JOBS)})
    for dscp, ecn, times in ((10, 2, 3), (20, CE, 4), (63, 1, 5), (0, CE, 6), (10, 0, 7)):
        for _ in range(times):
            assert table.forward(Packet("00:00:00:00:00:01", dscp, ecn), in_port=2) is None
    numbers = {job: number for number, job in enumerate(ordered_jobs(JOBS))}
    expected = {("jobA", 2): 3, ("jobB", CE): 4, ("", 1): 5, ("", CE): 6}
    for job, number in numbers.items():
        for ecn in (1, 2, CE):
            assert counted(table, COUNT_TABLE, count_cookie(2, number, ecn)) == expected.get((job, ecn), 0)
            assert counted(table, COUNT_TABLE, count_cookie(1, number, ecn)) == 0


def test_a_packet_marked_before_it_came_counts_at_the_egress_it_leaves_by() -> None:
    topology = fabric("cassini-48")
    routes = Routes(topology)
    fake = FakeFabric.of(topology, fabric_rules(topology, routes, JOBS))
    fake.send("h1", Packet(topology.mac("h24"), 10, CE))
    fake.send("h1", Packet(topology.mac("h24"), 10, 2))
    route = set(routes.route("h1", "h24"))
    for a, b in topology.directed():
        if a in fake.tables:
            came_marked = counted(fake.tables[a], FORWARD_TABLE, marked_cookie(topology.port(a, b)))
            assert came_marked == (f"{a}->{b}" in route)


def test_no_rule_does_anything_but_go_on_or_out() -> None:
    topology = fabric("cassini-48")
    for rules in fabric_rules(topology, Routes(topology), JOBS).values():
        assert {type(rule.action).__name__ for rule in rules} == {"Goto", "Output"}
        assert len({(rule.table, rule.priority, rule.match) for rule in rules}) == len(rules)


def test_paths_are_mended_with_the_least_change() -> None:
    topology = fabric("cassini-48")
    before, after = Routes(topology), Routes(topology, ["tor1->agg1"])
    old, new = (fabric_rules(topology, routes, JOBS) for routes in (before, after))
    fake = FakeFabric.of(topology, old)
    fake.send("h9", Packet(topology.mac("h10"), 10, 2))
    changes = {switch: difference(old[switch], new[switch]) for switch in topology.switches}
    fake.change(changes)
    for src in topology.hosts:
        for dst in topology.hosts:
            if src != dst:
                assert fake.send(src, Packet(topology.mac(dst), 10, 2)) == after.route(src, dst)
    for switch, change in changes.items():
        assert fake.tables[switch].rules() == set(new[switch])
        actions = [{(r.table, r.priority, r.match): r.action for r in rules[switch]} for rules in (old, new)]
        differing = {key for key in actions[0].keys() | actions[1].keys() if actions[0].get(key) != actions[1].get(key)}
        assert {(r.table, r.priority, r.match) for r in (*change.remove, *change.add)} == differing
        assert not {rule.table for rule in change.remove} & {COUNT_TABLE}
    # A path that did not change kept its rules, and so the packet it had counted.
    assert counted(fake.tables["tor3"], COUNT_TABLE, count_cookie(topology.port("tor3", "h9"), 1, 2)) == 24


def test_nothing_changes_when_nothing_changed() -> None:
    topology = fabric("leaf-spine(3,2,2)")
    rules = fabric_rules(topology, Routes(topology), JOBS)["leaf1"]
    assert difference(rules, tuple(reversed(rules))) == ((), ())


@given(networks())
def test_random_networks_deliver_what_is_connected(network: tuple[Topology, list[str]]) -> None:
    topology, down = network
    whole, routes = Routes(topology), Routes(topology, down)
    old, new = (fabric_rules(topology, each, JOBS) for each in (whole, routes))
    fake = FakeFabric.of(topology, old)
    fake.change({switch: difference(old[switch], new[switch]) for switch in topology.switches})
    for src in topology.hosts:
        for dst in topology.hosts:
            if src != dst:
                taken = fake.send(src, Packet(topology.mac(dst), 10, CE))
                try:
                    assert taken == routes.route(src, dst)
                except Unreachable:
                    assert not taken[-1].endswith(f"->{dst}")


@pytest.mark.parametrize("jobs", [{"a": 0}, {"a": 64}, {"a": 5, "b": 5}, {"": 5}])
def test_jobs_need_a_dscp_of_their_own(jobs: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"jobs\."):
        check_jobs(jobs)
