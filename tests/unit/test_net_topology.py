"""Fabrics as data: wiring, names, numbers, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError
from testbed.net.fabrics import NAMES, FabricSettings, build
from testbed.net.topology import Link, Node, Red, Topology, link_id

SETTINGS = FabricSettings(
    rate_bps=50_000_000_000,
    host_rate_bps=None,
    host_delay_s=2e-6,
    fabric_delay_s=0.0,
    loss=0.0,
    queue_bytes=16_000_000,
    red=Red(80_000, 160_000, 1.0),
    mtu_bytes=9000,
)


def test_cassini_48_is_the_papers_shape() -> None:
    t = build("cassini-48", SETTINGS)
    roles = [n.role for n in t.nodes]
    assert [roles.count(r) for r in ("host", "tor", "aggregation", "core")] == [24, 6, 4, 3]
    assert len(t.links) == 48
    assert len(list(t.directed())) == 96


def test_cassini_48_is_wired_as_stated() -> None:
    t = build("cassini-48", SETTINGS)
    graph = t.graph()
    for i in range(24):
        assert t.uplink(f"h{i + 1}") == f"tor{i // 4 + 1}"
    for tor in range(6):
        above = {n for n in graph[f"tor{tor + 1}"] if n.startswith("agg")}
        assert above == {f"agg{2 * (tor % 2) + 1}", f"agg{2 * (tor % 2) + 2}"}
    for aggregation in range(4):
        assert {n for n in graph[f"agg{aggregation + 1}"] if n.startswith("core")} == {
            "core1",
            "core2",
            "core3",
        }


def test_cassini_48_is_two_to_one_oversubscribed_at_every_tor() -> None:
    t = build("cassini-48", SETTINGS)
    for tor in (n.name for n in t.nodes if n.role == "tor"):
        rates = {b: t.direction(tor, b).rate_bps for a, b in t.directed() if a == tor}
        down = sum(rate for peer, rate in rates.items() if peer in t.hosts)
        assert down == 2 * (sum(rates.values()) - down)


def test_names_ports_and_addresses() -> None:
    t = build("cassini-48", SETTINGS)
    assert t.hosts[0] == "h1"
    assert t.hosts[-1] == "h24"
    assert t.switches == (
        "tor1",
        "tor2",
        "tor3",
        "tor4",
        "tor5",
        "tor6",
        *("agg1", "agg2", "agg3", "agg4"),
        *(
            "core1",
            "core2",
            "core3",
        ),
    )
    assert (t.dpid("tor1"), t.dpid("core3")) == (1, 13)
    assert (t.interface("h24", "tor6"), t.interface("tor6", "h24")) == ("h24-eth0", "tor6-eth4")
    assert t.interface("tor1", "agg1") == "tor1-eth5"
    assert (t.ip("h24"), t.mgmt_ip("h24"), t.mac("h24")) == ("10.0.0.24", "10.255.1.24", "00:00:00:00:00:18")
    assert link_id("tor1", "agg1") == "tor1->agg1"
    macs = [t.port_mac(a, b) for a, b in t.directed()]
    assert len(set(macs)) == len(macs)


def test_only_hosts_delay_and_only_switches_mark() -> None:
    t = build("cassini-48", SETTINGS)
    for a, b in t.directed():
        d = t.direction(a, b)
        assert (d.delay_s > 0) == (a in t.hosts)
        assert (d.aqm is None) == (a in t.hosts)
        assert d.burst_bytes == 2 * 9014


def test_dumbbell_and_its_bottleneck() -> None:
    t = build("dumbbell(3)", dataclasses.replace(SETTINGS, host_rate_bps=100_000_000_000, fabric_delay_s=1e-3))
    assert len(t.hosts) == 6
    assert [t.uplink(h) for h in t.hosts] == ["s1"] * 3 + ["s2"] * 3
    assert t.direction("h1", "s1").rate_bps == t.direction("s1", "h1").rate_bps == 100_000_000_000
    assert t.direction("s1", "s2") == t.direction("s2", "s1")
    assert (t.direction("s1", "s2").rate_bps, t.direction("s1", "s2").delay_s) == (50_000_000_000, 1e-3)
    assert len(build("dumbbell", SETTINGS).hosts) == 4


@given(leaves=st.integers(1, 6), spines=st.integers(1, 5), hosts=st.integers(1, 6))
def test_leaf_spine_connects_everything(leaves: int, spines: int, hosts: int) -> None:
    t = build(f"leaf-spine({leaves}, {spines}, {hosts})", SETTINGS)
    assert len(t.hosts) == leaves * hosts
    assert len(t.links) == leaves * (hosts + spines)
    assert nx.is_connected(t.graph())
    assert all(nx.has_path(t.graph(), "h1", h) for h in t.hosts)


@given(accelerators=st.integers(8, 72))
def test_scale_up_is_one_switch(accelerators: int) -> None:
    t = build(f"scale-up({accelerators})", SETTINGS)
    assert t.switches == ("s1",)
    assert [t.uplink(h) for h in t.hosts] == ["s1"] * accelerators
    assert len(t.links) == accelerators


@pytest.mark.parametrize("accelerators", [0, 7, 73, 1000])
def test_scale_up_has_8_to_72_accelerators(accelerators: int) -> None:
    with pytest.raises(InputError, match="8 to 72 accelerators"):
        build(f"scale-up({accelerators})", SETTINGS)


@given(name=st.sampled_from(["cassini-48", "dumbbell", "dumbbell(4)", "leaf-spine(3,2,2)", "scale-up(8)"]))
def test_a_topology_survives_json(name: str) -> None:
    t = build(name, SETTINGS)
    again = Topology.from_dict(json.loads(json.dumps(t.to_dict())))
    assert again == t
    assert list(again.directed()) == list(t.directed())
    assert build(name, dataclasses.replace(SETTINGS, red=None)) != t


@pytest.mark.parametrize(
    "name",
    [
        "",
        "cassini",
        "cassini-48(2)",
        "dumbbell(0)",
        "dumbbell(1,2)",
        "leaf-spine(2,2)",
        "leaf-spine(1,0,1)",
        "scale-up",
        "scale-up(8,8)",
        "dumbbell(x)",
    ],
)
def test_an_unknown_fabric_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InputError) as caught:
        build(name, SETTINGS)
    assert all(known in str(caught.value) for known in NAMES)


def test_a_fabric_beyond_the_addresses_is_refused_before_it_is_built() -> None:
    with pytest.raises(InputError, match="at most 8000"):
        build("leaf-spine(1000000, 1000, 1000000)", SETTINGS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate_bps": 100_000_000_008}, "rate_bps"),
        ({"rate_bps": 0}, "rate_bps"),
        ({"rate_bps": 1_000_001}, "multiple of 8"),
        ({"host_delay_s": -1e-6}, "delay_s"),
        ({"fabric_delay_s": 1e9}, "delay_s"),
        ({"loss": 1.0}, "loss"),
        ({"queue_bytes": 9013}, "queue_bytes"),
        ({"red": Red(160_000, 80_000, 1.0)}, "min <= max"),
        ({"red": Red(80_000, 16_000_001, 1.0)}, "max <= queue"),
        ({"red": Red(80_000, 160_000, 1.1)}, "probability"),
        ({"mtu_bytes": 67}, "MTU"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        build("dumbbell", dataclasses.replace(SETTINGS, **change))


def _rewired(t: Topology, index: int, **change: Any) -> Topology:
    links = list(t.links)
    links[index] = dataclasses.replace(links[index], **change)
    return Topology(t.name, t.mtu_bytes, t.nodes, tuple(links))


def test_wiring_that_does_not_fit_is_refused() -> None:
    t = build("dumbbell", SETTINGS)
    with pytest.raises(InputError, match="nowhere, which is not a node"):
        _rewired(t, 4, b="nowhere")
    with pytest.raises(InputError, match="two links end at s1 port 2"):
        _rewired(t, 0, b_port=2)
    with pytest.raises(InputError, match="port 0 of s1"):
        _rewired(t, 0, b_port=0)
    with pytest.raises(InputError, match="host h1 has 2 links"):
        _rewired(t, 1, a="h1", a_port=1)
    with pytest.raises(InputError, match="host h1 has 0 links"):
        Topology(t.name, t.mtu_bytes, t.nodes, t.links[2:])
    with pytest.raises(InputError, match="h1 is there twice"):
        Topology(t.name, t.mtu_bytes, (*t.nodes, Node("h1", "host")), t.links)
    with pytest.raises(InputError, match="at most 15 characters"):
        long = Node("a-very-long-name", "switch")
        both = t.direction("s1", "s2")
        cable = Link("s1", 9, long.name, 1, both, both)
        Topology(t.name, t.mtu_bytes, (*t.nodes, long), (*t.links, cable))
    with pytest.raises(InputError, match="two links between s1 and s2"):
        both = t.direction("s1", "s2")
        Topology(t.name, t.mtu_bytes, t.nodes, (*t.links, Link("s2", 8, "s1", 8, both, both)))
