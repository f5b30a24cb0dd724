"""Paths: the stated rule, on CASSINI's fabric and on random networks."""

from __future__ import annotations

import itertools

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sdn_fakes import fabric

from controllers.sdn.paths import Routes, Unreachable
from testbed.net.topology import Direction, Link, Node, Topology, link_id

EGRESS = Direction(10**9, 0.0, 0.0, 16_000_000, 18_028, None)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Topology, list[str]]:
    """A network of up to six switches and five hosts, and some directed links that are down."""
    switches = [f"s{n}" for n in range(draw(st.integers(1, 6)))]
    pairs = [(a, b) for i, a in enumerate(switches) for b in switches[i + 1 :]]
    cables = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    hosts = [f"h{n}" for n in range(1, draw(st.integers(2, 5)) + 1)]
    cables = draw(st.permutations(cables + [(draw(st.sampled_from(switches)), host) for host in hosts]))
    ports = dict.fromkeys(switches, 1) | dict.fromkeys(hosts, 0)
    links = []
    for a, b in cables:
        links.append(Link(a, ports[a], b, ports[b], EGRESS, EGRESS))
        ports[a], ports[b] = ports[a] + 1, ports[b] + 1
    nodes = [Node(switch, "switch") for switch in switches] + [Node(host, "host") for host in hosts]
    topology = Topology("random", 9000, tuple(nodes), tuple(links))
    down = draw(st.lists(st.sampled_from([link_id(a, b) for a, b in topology.directed()]), unique=True, max_size=3))
    return topology, down


def graph_without(topology: Topology, down: list[str]) -> nx.Graph:
    """The network without links that are down in either direction."""
    graph = topology.graph()
    graph.remove_edges_from([tuple(link.split("->")) for link in down])
    return graph


def test_the_rule_as_stated() -> None:
    topology = fabric("cassini-48")
    # tor1 has two uplinks: for host 24, candidate (in_port + 24) mod 2 in the order of ports.
    uplinks = sorted((topology.port("tor1", peer), peer) for peer in ("agg1", "agg2"))
    for host in ("h1", "h2", "h3", "h4"):
        in_port = topology.port("tor1", host)
        assert Routes(topology).next_hop("tor1", in_port, "h24") == uplinks[(in_port + 24) % 2][1]


def test_every_pair_of_cassini_takes_a_shortest_path_without_loops() -> None:
    topology = fabric("cassini-48")
    routes, distance = Routes(topology), dict(nx.all_pairs_shortest_path_length(topology.graph()))
    for src in topology.hosts:
        for dst in topology.hosts:
            if src != dst:
                route = [link.split("->") for link in routes.route(src, dst)]
                nodes = [src, *(b for _, b in route)]
                assert nodes[-1] == dst
                assert [a for a, _ in route] == nodes[:-1]
                assert len(set(nodes)) == len(nodes) == distance[src][dst] + 1


def test_every_link_between_switches_is_used() -> None:
    topology = fabric("cassini-48")
    routes = Routes(topology)
    used = {link for s in topology.hosts for d in topology.hosts if s != d for link in routes.route(s, d)}
    assert used == {link_id(a, b) for a, b in topology.directed()}


def test_what_two_racks_share_is_named_with_the_jobs() -> None:
    topology = fabric("dumbbell(2)")
    jobs = {"b": [("h1", "h3")], "a": [("h2", "h4")], "c": [("h4", "h2")]}
    assert Routes(topology).shared_links(jobs) == {link_id(*topology.switches): ["a", "b"]}


def test_a_host_that_is_cut_off_is_named() -> None:
    topology = fabric("dumbbell(2)")
    routes = Routes(topology, down=[link_id(topology.switches[0], "h1")])
    for pair in (("h1", "h3"), ("h3", "h1")):
        with pytest.raises(Unreachable, match=f"{pair[1]} cannot be reached from {pair[0]}"):
            routes.route(*pair)
    assert routes.next_hop(topology.switches[0], 2, "h1") is None
    assert routes.route("h2", "h3")[-1].endswith("->h3")


@given(networks())
def test_random_networks(network: tuple[Topology, list[str]]) -> None:
    topology, down = network
    routes, graph = Routes(topology, down), graph_without(topology, down)
    dead = {link_id(*pair) for link in down for pair in (link.split("->"), link.split("->")[::-1])}
    for src in topology.hosts:
        for dst in topology.hosts:
            if src == dst:
                continue
            if not nx.has_path(graph, src, dst):
                with pytest.raises(Unreachable):
                    routes.route(src, dst)
                continue
            route = routes.route(src, dst)
            assert len(route) == nx.shortest_path_length(graph, src, dst)
            assert not dead & set(route)
            for before, after in itertools.pairwise(route):
                at, switch = before.split("->")
                assert routes.next_hop(switch, topology.port(switch, at), dst) == after.split("->")[1]
