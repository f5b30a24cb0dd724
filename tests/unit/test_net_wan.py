"""Wide-area networks as data: every source, what is refused and in which words, dynamics, routes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError
from testbed.net.wan import dynamics, netstorm, routing, underlay
from testbed.net.wan.build import Defaults, RawLink, assemble
from testbed.net.wan.dynamics import Change
from testbed.net.wan.model import LEAST_QUEUE_BYTES, Site, Wan, link_name
from testbed.net.wan.sources import load

GRAPHML = """<?xml version="1.0" encoding="utf-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="LinkSpeedRaw" for="edge" id="d1" /><key attr.name="label" for="node" id="d2" />
  <key attr.name="Longitude" for="node" id="d3" /><key attr.name="Latitude" for="node" id="d4" />
  <graph edgedefault="undirected">
    <node id="0"><data key="d2">Bern</data><data key="d3">7.4</data><data key="d4">46.9</data></node>
    <node id="1"><data key="d2">Oslo</data><data key="d3">10.7</data><data key="d4">59.9</data></node>
    <node id="2"><data key="d2">Oslo</data><data key="d3">10.8</data><data key="d4">59.9</data></node>
    <edge source="0" target="1"><data key="d1">155000000.0</data></edge>
    <edge source="1" target="2">{speed}</edge>
    {more}
  </graph></graphml>"""
FAST = '<data key="d1">2500000000.0</data>'
TOML = """
[[link]]
between = ["a", "b"]
rate = "100 Mbit/s"
back_rate = "50 Mbit/s"
delay = "11 ms"
jitter = "1 ms"
back_loss = 0.25
[[link]]
between = ["b", "c"]
rate = "20 Mbit/s"
delay = "0 s"
queue = "1 MB"
"""


def written(folder: Path, name: str, text: str, defaults: Defaults | None = None) -> Wan:
    (folder / name).write_text(text)
    return load(name, [folder], 1, defaults or Defaults())


@st.composite
def wans(draw: st.DrawFn) -> Wan:
    """Connected networks of 2 to 7 sites: a random tree and some links more."""
    count = draw(st.integers(2, 7))
    names = [f"n{i}" for i in range(count)]
    pairs = {(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, count)}
    more = draw(st.sets(st.sampled_from(list(itertools.combinations(names, 2)))))
    rates = st.integers(1, 20).map(lambda mbps: mbps * 10**6)
    links = [RawLink(a, b, draw(rates), draw(st.floats(0, 0.3)), draw(rates)) for a, b in sorted(pairs | more)]
    return assemble("drawn", [Site(name) for name in names], links, Defaults())


def test_netstorm_9_is_the_authors_network() -> None:
    wan = load("netstorm-9", [], 1, Defaults())
    assert wan.names == tuple(f"dc{i}" for i in range(1, 10))
    assert len(wan.links) == len(wan.tunnels) == 13
    rates = [attributes.rate_bps for _, _, attributes in wan.directed()]
    assert len(rates) == 26
    assert all(20e6 <= rate <= 155e6 and rate % 10**6 == 0 for rate in rates)
    assert {attributes.delay_s for _, _, attributes in wan.directed()} == {0.0}
    assert load("netstorm-9", [], 1, Defaults()) == wan != load("netstorm-9", [], 2, Defaults())


def test_the_draws_are_uniform_from_20_to_155() -> None:
    names = [str(i) for i in range(2000)]
    rates = sorted(netstorm.draw(names, 3, 7).values())
    assert (rates[0], rates[-1]) == (20_000_000, 155_000_000)
    assert abs(sum(rates) / len(rates) / 87.5e6 - 1) < 0.03


def test_graphml_has_speeds_positions_and_labels(tmp_path: Path) -> None:
    wan = written(tmp_path, "zoo.graphml", GRAPHML.format(speed=FAST, more=""))
    assert wan.names == ("Bern", "Oslo 1", "Oslo 2")
    there = wan.direction("Bern", "Oslo 1")
    assert there == wan.direction("Oslo 1", "Bern")
    assert there.rate_bps == 155_000_000
    assert there.delay_s == pytest.approx(1461 / 200_000, rel=0.01)
    assert wan.direction("Oslo 1", "Oslo 2").queue_bytes == LEAST_QUEUE_BYTES
    assert there.queue_bytes == math.ceil(155e6 / 8 * 2 * there.delay_s) or there.queue_bytes == LEAST_QUEUE_BYTES


def test_a_pairwise_table_is_a_mesh(tmp_path: Path) -> None:
    wan = written(tmp_path, "aws.csv", "region_a,region_b,delay_ms,bandwidth_gbps\nX,Y,67,0.79\nX,Z,49,1.10\nY,Z,9,1\n")
    assert wan.names == ("X", "Y", "Z")
    assert wan.direction("Y", "X").delay_s == 0.067
    assert wan.direction("X", "Z").rate_bps == 1_100_000_000
    assert wan.direction("X", "Y").queue_bytes == round(0.79e9 / 8 * 2 * 0.067)
    halved = written(tmp_path, "rtt.csv", "region_a,region_b,rtt_ms,bandwidth_mbps\nX,Y,67,790\n")
    assert halved.direction("X", "Y").delay_s == 0.0335
    assert halved.direction("X", "Y").rate_bps == wan.direction("X", "Y").rate_bps


def test_our_own_format_says_every_direction(tmp_path: Path) -> None:
    wan = written(tmp_path, "own.toml", 'name = "three"\n' + TOML)
    there, back = wan.direction("a", "b"), wan.direction("b", "a")
    assert (wan.name, there.rate_bps, back.rate_bps) == ("three", 100_000_000, 50_000_000)
    assert (there.jitter_s, back.jitter_s, there.loss, back.loss) == (0.001, 0.001, 0.0, 0.25)
    assert (wan.direction("c", "b").queue_bytes, wan.direction("c", "b").delay_s) == (1_000_000, 0.0)
    assert wan.tunnels == (("a", "b"), ("b", "c"))
    chosen = written(tmp_path, "own.toml", TOML + "".join(f'[[tunnel]]\nbetween = ["a", "{b}"]\n' for b in "bc"))
    assert chosen.tunnels == (("a", "b"), ("a", "c"))


def test_topohub_has_positions_and_gets_capacities_by_the_rule() -> None:
    pytest.importorskip("topohub")
    wan = load("topohub:topozoo/Abilene", [], 1, Defaults(rate_bps=1_000_000_000))
    assert len(wan.sites) == 11
    rates = [attributes.rate_bps for _, _, attributes in wan.directed()]
    assert max(rates) == 1_000_000_000
    assert min(rates) >= 100_000_000
    assert wan.direction("New York", "Chicago").delay_s == pytest.approx(1146.16 / 200_000)
    with pytest.raises(InputError, match=r"topohub:topozoo/Abilene: has no capacities"):
        load("topohub:topozoo/Abilene", [], 1, Defaults())
    with pytest.raises(InputError, match="no such network"):
        load("topohub:topozoo/Nowhere", [], 1, Defaults(rate_bps=1))


MALFORMED = {
    "no capacity.graphml": (
        GRAPHML.format(speed="", more=""),
        "no capacity.graphml, link Oslo 1-Oslo 2: has no capacity "
        "(give every link a rate, or set wan.rate for those without)",
    ),
    "doubled.graphml": (
        GRAPHML.format(speed=FAST, more=f'<edge source="1" target="0">{FAST}</edge>'),
        "doubled.graphml: link Oslo 1-Bern is there twice (one per pair, with the rate of both)",
    ),
    "apart.graphml": (
        GRAPHML.format(speed=FAST, more='<node id="3"><data key="d2">Rome</data></node>'),
        "apart.graphml: links do not connect Rome with Bern (add a link between them)",
    ),
    "negative.graphml": (
        GRAPHML.format(speed='<data key="d1">-1.0</data>', more=""),
        "negative.graphml, link Oslo 1-Oslo 2: LinkSpeedRaw is -1 (a number that is not negative)",
    ),
    "nowhere.graphml": (
        GRAPHML.format(speed=FAST, more='<edge source="1" target="9"/>'),
        "nowhere.graphml: edge 1-9 ends at '9', which is no node",
    ),
    "unplaced.graphml": (
        GRAPHML.format(speed=FAST, more=f'<node id="3"/><edge source="3" target="0">{FAST}</edge>'),
        "unplaced.graphml, link node 3-Bern: has no delay "
        "(give positions or delays, or set wan.delay for those without)",
    ),
    "short.csv": (
        "region_a,region_b,delay_ms,bandwidth_gbps\nX,Y,67,0.79\nX,Z,49\n",
        "short.csv:3, link X-Z: 3 values (one for each of 4)",
    ),
    "empty.csv": (
        "region_a,region_b,delay_ms,bandwidth_gbps\nX,Y,,0.79\n",
        "empty.csv:2, link X-Y: 3 values (one for each of 4)",
    ),
    "negative.csv": (
        "region_a,region_b,delay_ms,bandwidth_gbps\nX,Y,-67,0.79\n",
        "negative.csv:2, link X-Y: delay_ms is -67 (a number that is not negative)",
    ),
    "word.csv": (
        "region_a,region_b,delay_ms,bandwidth_gbps\nX,Y,67,fast\n",
        "word.csv:2, link X-Y: bandwidth_gbps is 'fast' (a number)",
    ),
    "doubled.csv": (
        "region_a,region_b,delay_ms,bandwidth_gbps\nX,Y,67,1\nY,X,67,1\n",
        "doubled.csv: link Y-X is there twice (one per pair, with the rate of both)",
    ),
    "header.csv": ("a,b\n", "header.csv:1: columns are 'a,b' (region_a,region_b,delay_ms,bandwidth_gbps)"),
    "unit.toml": (
        TOML.replace('"20 Mbit/s"', "20"),
        'unit.toml, link b-c: rate: write the unit too, as in "50 Gbit/s"',
    ),
    "itself.toml": (
        TOML.replace('["b", "c"]', '["b", "b"]'),
        "itself.toml: link b-b joins a site to itself (remove the link)",
    ),
    "jitter.toml": (
        TOML.replace('"1 ms"', '"12 ms"'),
        "jitter.toml, link a->b: jitter_s 0.012 is above delay_s 0.011 (a delay does not become negative)",
    ),
    "tunnels.toml": (
        TOML + '[[tunnel]]\nbetween = ["a", "b"]\n',
        "tunnels.toml: tunnels do not connect c with a (add a tunnel between them)",
    ),
    "key.toml": (
        TOML + 'colour = "red"\n',
        "key.toml, link b-c: unknown key colour (one of back_delay, back_jitter, back_loss, back_queue, back_rate, "
        "between, delay, jitter, loss, queue, rate)",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_is_named(name: str, tmp_path: Path) -> None:
    text, message = MALFORMED[name]
    with pytest.raises(InputError) as caught:
        written(tmp_path, name, text)
    assert str(caught.value) == message


def test_what_a_source_lacks_the_user_may_say(tmp_path: Path) -> None:
    wan = written(tmp_path, "z.graphml", GRAPHML.format(speed="", more=""), Defaults(rate_bps=8_000_000, delay_s=0.004))
    assert wan.direction("Oslo 2", "Oslo 1").rate_bps == 8_000_000
    assert wan.direction("Bern", "Oslo 1").rate_bps == 155_000_000
    assert {attributes.delay_s for _, _, attributes in wan.directed()} == {0.004}


@given(wans(), st.sampled_from([1.0, 2.0, 10.0]))
def test_a_network_survives_its_dict_and_its_scaling(wan: Wan, scale: float) -> None:
    assert Wan.from_dict(wan.to_dict()) == wan
    for (a, b, scaled), (_, _, original) in zip(wan.scaled(scale).directed(), wan.directed(), strict=True):
        assert scaled.rate_bps == pytest.approx(original.rate_bps / scale, abs=8)
        assert scaled.delay_s == pytest.approx(original.delay_s * scale, abs=1e-9)
        assert scaled.queue_bytes == wan.direction(a, b).queue_bytes


@given(wans(), st.sampled_from(routing.RULES))
def test_routes_are_the_best_ones_and_have_no_loop(wan: Wan, rule: routing.Rule) -> None:
    nexts = routing.next_sites(wan, rule)
    rates = routing.tunnel_rates_bps(wan)
    graph = nx.Graph(wan.tunnels)
    for a, b in itertools.permutations(wan.names, 2):
        sites = routing.route(nexts, a, b)
        assert len(set(sites)) == len(sites)
        hops = list(itertools.pairwise(sites))
        if (a, b) in rates:
            assert sites == [a, b]
        elif rule == "hops":
            best = [[*path] for path in nx.all_shortest_paths(graph, a, b)]
            assert sites == min(best, key=lambda path: [wan.number(site) for site in path])
        else:
            # No other first tunnel leads to a wider way, given what the sites beyond it do.
            widths = [min(rates[a, peer], _width(rates, nexts, peer, b)) for peer in graph[a]]
            assert min(rates[hop] for hop in hops) == max(widths)


def _width(rates: dict[tuple[str, str], int], nexts: dict[tuple[str, str], str], a: str, b: str) -> int:
    return min(rates[hop] for hop in itertools.pairwise(routing.route(nexts, a, b)))


def test_a_tunnel_over_several_links_has_the_slowest_ones_rate(tmp_path: Path) -> None:
    wan = written(tmp_path, "own.toml", TOML + "".join(f'[[tunnel]]\nbetween = ["a", "{b}"]\n' for b in "bc"))
    assert routing.tunnel_rates_bps(wan)["a", "c"] == 20_000_000
    assert routing.route(routing.next_sites(wan), "b", "c") == ["b", "a", "c"]


def test_all_rates_are_drawn_again_every_period() -> None:
    wan = load("netstorm-9", [], 5, Defaults())
    changes = dynamics.redrawn(wan, 5, 180.0, 541.0)
    assert sorted({change.t_s for change in changes}) == [180.0, 360.0, 540.0]
    assert len(changes) == 3 * 26
    assert len({change.value for change in changes}) > 40
    assert changes == dynamics.redrawn(wan, 5, 180.0, 541.0) != dynamics.redrawn(wan, 6, 180.0, 541.0)
    scaled = dynamics.scaled(wan, changes, 10)
    assert [change.t_s for change in scaled] == [change.t_s for change in changes]
    assert [change.value for change in scaled] == [change.value // 10 for change in changes]


def test_a_trace_is_read_in_order_of_time(tmp_path: Path) -> None:
    wan = load("netstorm-9", [], 1, Defaults())
    path = tmp_path / "trace.csv"
    path.write_text("t_s,link,attribute,value\n9.5,dc1->dc2,loss,0.5\n3,dc2->dc1,rate_bps,1e6\n")
    changes = dynamics.read(path, wan)
    assert changes == [Change(3.0, "dc2->dc1", "rate_bps", 1e6), Change(9.5, "dc1->dc2", "loss", 0.5)]
    after = dynamics.apply(wan, changes[0])
    assert after.direction("dc2", "dc1").rate_bps == 1_000_000
    assert after.direction("dc1", "dc2") == wan.direction("dc1", "dc2")
    lines = underlay.topology(wan, 1500, changes)
    assert lines.direction("s1", "s2").delay_s == underlay.LINE_S
    assert lines.direction("s2", "s1").delay_s == 0.0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,dc1->dc9,loss,0", r"trace\.csv, 1 s, link dc1->dc9: there is no such link"),
        ("1,dc1->dc2,colour,0", "colour is no attribute of a link"),
        ("1,dc1->dc2,loss,1", r"loss is 1 \(a probability, below 1\)"),
        ("1,dc1->dc2,rate_bps,nan", "rate_bps is nan"),
        ("-1,dc1->dc2,loss,0", "t_s is -1"),
        ("1,dc1->dc2,jitter_s,0.5", r"jitter_s 0\.5 is above delay_s 0"),
        ("soon,dc1->dc2,loss,0", r"trace\.csv:2: 'soon' and '0'"),
        ("1,dc1->dc2,loss", r"trace\.csv:2: has 3 values"),
    ],
)
def test_a_wrong_trace_is_refused(row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"t_s,link,attribute,value\n{row}\n")
    with pytest.raises(InputError, match=message):
        dynamics.read(path, load("netstorm-9", [], 1, Defaults()))


@given(wans())
def test_the_underlay_is_a_gateway_and_a_switch_per_site(wan: Wan) -> None:
    topology = underlay.topology(wan, 1500)
    assert topology.hosts == tuple(underlay.gateway(wan, site) for site in wan.names)
    for a, b, attributes in wan.directed():
        direction = topology.direction(underlay.switch(wan, a), underlay.switch(wan, b))
        assert (direction.rate_bps, direction.delay_s) == (attributes.rate_bps, attributes.delay_s)
        assert direction.aqm is not None
        assert (direction.aqm.min_bytes, direction.aqm.max_bytes) == (
            attributes.queue_bytes // 4, attributes.queue_bytes * 3 // 4,
        )  # fmt: skip
        assert direction.aqm.keeps
    assert len(topology.links) == len(wan.links) + len(wan.sites)
    assert link_name("a", "b") == "a->b"
    silent = underlay.topology(dataclasses.replace(wan, ecn=False), 1500)
    assert all(silent.direction(f"s{wan.number(a)}", f"s{wan.number(b)}").aqm is None for a, b, _ in wan.directed())


def test_a_network_needs_names_that_files_can_hold() -> None:
    wan = load("netstorm-9", [], 1, Defaults())
    with pytest.raises(InputError, match="a name without comma"):
        dataclasses.replace(wan, sites=(*wan.sites, Site("a,b")))
    with pytest.raises(InputError, match="site dc1 is there 2 times"):
        dataclasses.replace(wan, sites=(*wan.sites, Site("dc1")))
    with pytest.raises(InputError, match=r"no such network \(netstorm-9, topohub:NAME, or a file"):
        load("nonesuch", [], 1, Defaults())
