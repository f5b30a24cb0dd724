"""The chunk-level simulation: hand-made rounds, and what must hold in every round."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netstorm_overlays import ALEXNET, M, both_ways, netstorm_9, overlays, random_overlay

from controllers.netstorm import strategies
from controllers.netstorm.auxiliary import auxiliary_paths, choose, for_ways
from controllers.netstorm.chunks import cut
from controllers.netstorm.links import Fluid
from controllers.netstorm.metric import pull_s, push_s
from controllers.netstorm.overlay import Overlay, Tunnel
from controllers.netstorm.quantise import bits_by_bandwidth, levels, values
from controllers.netstorm.rates import in_turns, max_min
from controllers.netstorm.simulate import Change, Conditions, Outcome, simulate
from controllers.netstorm.tree import Plan, Tree, Way

CHAIN = Overlay(("a", "b", "c"), both_ways([("a", "b", 8), ("b", "c", 8)]))
"""A megabyte takes a second from neighbour to neighbour."""


def along(tree: Tree, chunks: int = 1) -> Plan:
    """A plan that sends so many chunks of a megabyte over one tree."""
    return Plan("one", (Way.both(tree),), cut([M // 4 * chunks], M // 4), (0,) * chunks)


def test_chunks_pipeline_through_a_chain() -> None:
    plan = along(Tree("a", {"b": "a", "c": "b"}), 10)
    outcome = simulate(CHAIN, plan)
    assert outcome.push_s == pytest.approx(11)  # ten chunks, and one tunnel more for the last
    assert outcome.round_s == pytest.approx(13)
    assert outcome.node_s == pytest.approx({"a": 11, "b": 12, "c": 13})
    assert outcome.sent_bytes == pytest.approx(dict.fromkeys(CHAIN.links_bps, 10 * M))


def test_adding_up_takes_its_time_chunk_after_chunk() -> None:
    star = Overlay(("a", "b", "c"), both_ways([("a", "b", 8), ("a", "c", 8)]))
    outcome = simulate(star, along(Tree("a", {"b": "a", "c": "a"})), Conditions(merge_bps=16e6))
    assert outcome.push_s == pytest.approx(2)  # both arrive at 1 s, and each is added in half a second
    assert outcome.measured["a"].aggregation_s == pytest.approx(1)


def test_who_is_late_blocks_its_siblings() -> None:
    star = Overlay(("a", "b", "c"), both_ways([("a", "b", 8), ("a", "c", 8)]))
    outcome = simulate(star, along(Tree("a", {"b": "a", "c": "a"})), Conditions(ready_s={"b": 4.0}))
    assert outcome.measured["c"].blocking_s == pytest.approx(4)
    assert outcome.measured["b"].blocking_s == pytest.approx(0)
    assert outcome.round_s == pytest.approx(6)


def test_flows_over_a_common_link_share_it() -> None:
    tunnels = [Tunnel(x, y, 8e6, 0, ("up" if y == "a" else "down",)) for x in "bc" for y in "a"]
    tunnels += [Tunnel("a", y, 8e6, 0, ("down",)) for y in "bc"]
    overlay = Overlay(("a", "b", "c"), tuple(tunnels), {"up": 8e6, "down": 8e6})
    outcome = simulate(overlay, along(Tree("a", {"b": "a", "c": "a"})))
    assert outcome.push_s == pytest.approx(2)
    assert outcome.round_s == pytest.approx(4)
    assert outcome.sent_bytes == pytest.approx({"up": 2 * M, "down": 2 * M})


def test_turns_at_the_bottleneck_give_whole_sums_early() -> None:
    """c is late; in turns its first chunk goes before b's last ones, instead of half as fast beside them."""
    tunnels = [Tunnel(x, "a", 8e6, 0, ("up",)) for x in "bc"] + [Tunnel("a", x, 8e6) for x in "bc"]
    overlay = Overlay(("a", "b", "c"), tuple(tunnels), {"up": 8e6})
    plan = along(Tree("a", {"b": "a", "c": "a"}), 4)
    late = Conditions(ready_s={"c": 2.0})

    def first_sum_s(one: Plan) -> float:
        return next(e.t_s for e in simulate(overlay, one, late).events if e.kind == "merged" and e.node == "a")

    assert first_sum_s(replace(plan, ordered=True)) == pytest.approx(3)
    assert first_sum_s(plan) == pytest.approx(4)


def test_a_link_that_changes_changes_what_is_on_its_way() -> None:
    plan = along(Tree("a", {"b": "a", "c": "b"}))
    slower = Conditions(changes=[Change(0.5, "c->b", 4e6), Change(5.0, "a->b", 1e6)])
    assert simulate(CHAIN, plan, slower).push_s == pytest.approx(0.5 + 1 + 1)
    assert simulate(CHAIN, plan, Conditions(goodput=0.5)).round_s == pytest.approx(8)


def check(overlay: Overlay, plan: Plan, outcome: Outcome) -> None:
    """What holds in every round: all sums are whole, every byte is on its link, and nothing is faster than its path."""
    merged = [(e.chunk, e.node) for e in outcome.events if e.kind == "merged"]
    assert len(merged) == len(set(merged)) == sum(len(plan.ways[way].push.order) for way in plan.way_of)
    received = [(e.chunk, e.node, e.peer) for e in outcome.events if e.kind == "received"]
    assert len(received) == len(set(received))
    assert outcome.sent_bytes == pytest.approx(plan.loads(overlay))
    for link, sent_bytes in outcome.sent_bytes.items():
        assert outcome.round_s >= sent_bytes * 8 / overlay.links_bps[link] * (1 - 1e-9)
    assert all(event.t_s <= later.t_s for event, later in zip(outcome.events, outcome.events[1:], strict=False))


PLANS = (strategies.star, strategies.binary, strategies.spanning, strategies.fapt, strategies.multi_root)


@settings(max_examples=40)
@given(overlays, st.sampled_from(PLANS), st.integers(1, 40), st.floats(0, 1))
def test_what_holds_in_every_round(overlay: Overlay, strategy: Callable[..., Plan], chunks: int, late_s: float) -> None:
    plan = strategy(overlay, [100_000 * chunks], chunk_elements=100_000)
    reach = overlay.mesh() if plan.meshed else overlay
    check(reach, plan, simulate(overlay, plan, Conditions(ready_s={overlay.nodes[0]: late_s}, merge_bps=1e9)))


@given(overlays, st.integers(0, 6))
def test_one_chunk_alone_takes_what_the_metric_says(overlay: Overlay, root: int) -> None:
    """Without pipelining and shared links the simulation and the metric are the same thing."""
    tree = strategies.fapt(overlay, [M], overlay.nodes[root % len(overlay.nodes)]).ways[0].push
    outcome = simulate(overlay, along(tree))
    assert outcome.push_s == pytest.approx(push_s(tree, overlay, M))
    assert outcome.round_s == pytest.approx(push_s(tree, overlay, M) + pull_s(tree, overlay, M))


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 6))
def test_rates_are_max_min_fair(seed: int, flows: int, links: int) -> None:
    generator = random.Random(seed)
    capacity = {f"l{number}": generator.uniform(1, 10) for number in range(links)}
    over = {n: tuple(generator.sample(sorted(capacity), generator.randint(1, links))) for n in range(flows)}
    rates = max_min(over, capacity)
    used = {link: sum(rates[n] for n in over if link in over[n]) for link in capacity}
    assert all(used[link] <= capacity[link] * (1 + 1e-9) for link in capacity)
    for flow, path in over.items():  # somewhere on its path it is held up, and nobody there has more
        assert any(
            used[link] >= capacity[link] * (1 - 1e-9)
            and rates[flow] >= max(rates[n] for n in over if link in over[n]) * (1 - 1e-9)
            for link in path
        )
    turns = in_turns(over, capacity, {n: (n,) for n in over})
    assert turns[0] == pytest.approx(min(capacity[link] for link in over[0]))
    assert all(sum(turns[n] for n in over if link in over[n]) <= capacity[link] * (1 + 1e-9) for link in capacity)


def test_a_fluid_gives_back_what_a_flow_leaves() -> None:
    fluid: Fluid[str] = Fluid({"x": 10.0})
    fluid.start("a", ("x",), 10.0, 0.0)
    fluid.start("b", ("x",), 20.0, 0.0)
    assert (fluid.run_until(1.0), fluid.now_s) == (None, 1.0)
    assert (fluid.run_until(9.0), fluid.now_s) == ("a", 2.0)
    assert (fluid.run_until(9.0), fluid.now_s) == ("b", 3.0)
    assert fluid.run_until(9.0) is None


@given(overlays, st.integers(0, 6), st.integers(0, 6))
def test_auxiliary_paths_are_the_enumerated_ones(overlay: Overlay, source: int, peer: int) -> None:
    """The authors' way: all simple paths in ascending cost, each that is disjoint from those taken before."""
    start = overlay.nodes[source % len(overlay.nodes)]
    target = overlay.neighbours[start][peer % len(overlay.neighbours[start])]
    graph = nx.DiGraph()
    for (a, b), tunnel in overlay.by_pair.items():
        graph.add_edge(a, b, weight=tunnel.transfer_s(M))
    barred: set[str] = set()
    costs = []
    for path in nx.shortest_simple_paths(graph, start, target, weight="weight"):
        if len(path) > 2 and not barred & set(path[1:-1]):
            barred |= set(path[1:-1])
            costs.append(nx.path_weight(graph, path, "weight"))
    found = auxiliary_paths(overlay, (start, target), M, None)
    assert [nx.path_weight(graph, list(path), "weight") for path in found] == pytest.approx(costs)
    interior = [node for path in found for node in path[1:-1]]
    assert len(interior) == len(set(interior))
    assert all(path[0] == start and path[-1] == target and len(path) > 2 for path in found)


def test_the_queue_rule() -> None:
    primary, others = ("a", "b"), [("a", "c", "b"), ("a", "d", "b")]
    assert choose(primary, others, {"b": 2}) == primary
    assert choose(primary, others, {"b": 3}) == others[0]
    assert choose(primary, others, {"b": 3, "c": 1}) == others[1]
    assert choose(primary, others, {"b": 3, "c": 1, "d": 1}) == primary
    assert choose(primary, others, {"b": 3, "c": 1}, length=2) == primary


def test_auxiliary_paths_carry_what_a_narrow_tunnel_cannot() -> None:
    """The tree wants a->b, which has become slow; chunks go round it, and are added up once all the same."""
    overlay = Overlay(("a", "b", "c"), both_ways([("a", "b", 8), ("a", "c", 80), ("c", "b", 80)]))
    plan = replace(along(Tree("a", {"b": "a"}), 20), active=("a", "b"))
    alone, helped = (
        simulate(overlay, plan, Conditions(auxiliary=paths)) for paths in ({}, for_ways(overlay, plan.ways, M))
    )
    assert alone.round_s == pytest.approx(21)
    assert helped.round_s < alone.round_s / 2
    assert any(event.kind == "forwarded" and event.node == "c" for event in helped.events)


@pytest.mark.parametrize("seed", range(3))
def test_the_paper_s_overlay_gives_the_paper_s_order(seed: int) -> None:
    """Trees beat the star by far, and several roots beat one."""
    overlay = netstorm_9(seed)
    star, one, many = (
        simulate(overlay, strategy(overlay, ALEXNET)).round_s
        for strategy in (strategies.star, strategies.fapt, strategies.multi_root)
    )
    assert star > 2 * one
    assert one > many * 0.9


@given(st.integers(1, 31), st.integers(0, 1000))
def test_quantising_loses_no_more_than_a_step_and_nothing_on_average(bits: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    gradient = generator.normal(size=2000).astype(np.float32)
    got = values(*levels(gradient, bits, generator), bits)
    step = 2 * float(np.abs(gradient).max()) / (2**bits - 1)
    assert np.abs(got - gradient).max() <= step * (1 + 1e-5) + 1e-6
    assert abs(float((got - gradient).mean())) < 5 * step / np.sqrt(2000) + 1e-6
    assert (values(*levels(np.zeros(3, np.float32), bits, generator), bits) == 0).all()
    with pytest.raises(ValueError, match="1 to 31 bits per element, not 32"):
        levels(gradient, 32, generator)


def test_bits_follow_bandwidth() -> None:
    assert bits_by_bandwidth({"a": 100.0, "b": 50.0, "c": 40.0, "d": 1.0, "e": 60.0}) == {
        "a": 32, "b": 32, "c": 16, "d": 2, "e": 32,
    }  # fmt: skip
    overlay = random_overlay(6, 1)
    plan = strategies.quantised_star(overlay, ALEXNET)
    assert simulate(overlay, plan).push_s <= simulate(overlay, strategies.star(overlay, ALEXNET)).push_s


def test_acknowledgements_take_their_part_of_the_way_back() -> None:
    """a->b is used by one flow, b->a by another pair's: it loses what the first one's acknowledgements need."""
    back: dict[str, tuple[str, ...]] = {"there": ("back",), "other": ()}
    fluid: Fluid[str] = Fluid({"forth": 10.0, "back": 10.0}, ack=0.05, back=lambda flow: back[flow])
    fluid.start("there", ("forth",), 1000.0, 0.0)
    fluid.start("other", ("back",), 95.0, 0.0)
    assert (fluid.run_until(99.0), fluid.now_s) == ("other", pytest.approx(10.0))


def test_acknowledgements_go_beside_segments_of_the_same_pair() -> None:
    both = {"ab": ("ba",), "ba": ("ab",)}
    fluid: Fluid[str] = Fluid({"ab": 10.0, "ba": 10.0}, ack=0.05, back=lambda flow: both[flow])
    fluid.start("ab", ("ab",), 100.0, 0.0)
    fluid.start("ba", ("ba",), 1000.0, 0.0)
    assert (fluid.run_until(99.0), fluid.now_s) == ("ab", pytest.approx(100 / 9.5, rel=1e-3))
