"""What no schedule can beat, and the planner that comes near it."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netstorm_overlays import ALEXNET, M, both_ways, netstorm_9, overlays, random_overlay

from controllers.netstorm import arborescence, planner, strategies
from controllers.netstorm.bound import cut_bound_s, flow_bound_s
from controllers.netstorm.overlay import Overlay, Tunnel
from controllers.netstorm.simulate import simulate


def ring(count: int) -> Overlay:
    """A ring in which a megabyte takes a second from neighbour to neighbour."""
    nodes = tuple(f"n{number}" for number in range(count))
    return Overlay(nodes, both_ways([(nodes[number - 1], nodes[number], 8) for number in range(count)]))


@pytest.mark.parametrize("count", [3, 4, 6])
def test_rings_and_meshes_have_known_bounds(count: int) -> None:
    """A piece takes 2 (n - 1) tunnels at least, whichever way; in rings and meshes all tunnels can be equally busy."""
    assert flow_bound_s(ring(count), M) == pytest.approx((count - 1) / count)
    nodes = ring(count).nodes
    mesh = Overlay(nodes, both_ways([(a, b, 8) for number, a in enumerate(nodes) for b in nodes[:number]]))
    assert flow_bound_s(mesh, M) == pytest.approx(2 / count)
    assert cut_bound_s(mesh, M) == pytest.approx(1 / (count - 1))


def test_links_that_tunnels_share_count_once() -> None:
    tunnels = [Tunnel(x, y, 8e6, 0, ("all",)) for x in "abc" for y in "abc" if x != y]
    shared = Overlay(("a", "b", "c"), tuple(tunnels), {"all": 8e6})
    assert flow_bound_s(shared, M) == pytest.approx(4)
    assert cut_bound_s(shared, M) == pytest.approx(1)
    assert planner.best_trees(shared).bound_s_per_byte * M == pytest.approx(4)


@settings(max_examples=25)
@given(overlays)
def test_the_bounds_are_in_order_and_trees_reach_the_program_s(overlay: Overlay) -> None:
    """Cuts <= flows = trees: Edmonds' theorem, found by two programs that have nothing in common."""
    cut, flow, weighted = cut_bound_s(overlay, M), flow_bound_s(overlay, M), planner.best_trees(overlay, gap=1e-6)
    assert cut <= flow * (1 + 1e-6)
    assert 8 * M / sum(weighted.rate_bps) == pytest.approx(flow, rel=1e-4)
    assert weighted.bound_s_per_byte * M == pytest.approx(flow, rel=1e-4)
    used = dict.fromkeys(overlay.links_bps, 0.0)
    for way, rate_bps in zip(weighted.ways, weighted.rate_bps, strict=True):
        for pair in way.pairs():
            for link in overlay.links(*pair):
                used[link] += rate_bps
    assert all(rate_bps <= overlay.links_bps[link] * (1 + 1e-6) for link, rate_bps in used.items())


@settings(max_examples=25)
@given(overlays, st.integers(1, 8))
def test_no_strategy_beats_the_bound(overlay: Overlay, chunks: int) -> None:
    tensors = [chunks * 500_000]
    bound_s = flow_bound_s(overlay, 4 * tensors[0])
    for strategy in (strategies.star, strategies.binary, strategies.spanning, strategies.packed, strategies.multi_root):
        plan = strategy(overlay, tensors, chunk_elements=500_000)
        assert simulate(overlay, plan).round_s >= bound_s * (1 - 1e-6)


@settings(max_examples=60)
@given(st.integers(2, 9), st.integers(0, 10**6))
def test_the_cheapest_arborescence_is_networkx_s(nodes: int, seed: int) -> None:
    overlay = random_overlay(nodes, seed, 4.0)
    cost = {(overlay.index[a], overlay.index[b]): 1e8 / one.throughput_bps for (a, b), one in overlay.by_pair.items()}
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((a, b, value) for (a, b), value in cost.items() if b != 0)
    best = nx.minimum_spanning_arborescence(graph).size(weight="weight")
    parents = arborescence.cheapest(0, nodes, cost)
    tree = nx.DiGraph((parent, child) for child, parent in parents.items())
    assert nx.is_arborescence(tree)
    assert sum(cost[parent, child] for child, parent in parents.items()) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(3))
def test_the_planner_beats_multi_root_fapt_on_the_paper_s_overlay(seed: int) -> None:
    overlay = netstorm_9(seed)
    bound_s = cut_bound_s(overlay, 4 * sum(ALEXNET))
    ours = simulate(overlay, planner.plan(overlay, ALEXNET)).round_s
    theirs = simulate(overlay, strategies.multi_root(overlay, ALEXNET)).round_s
    print(
        f"seed {seed}: bound {bound_s:.1f} s, planned {ours / bound_s:.2f}, multi-root {theirs / bound_s:.2f} times it"
    )
    assert bound_s < ours < 0.9 * theirs


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="too many cuts"):
        cut_bound_s(ring(17), 1)
    with pytest.raises(ValueError, match="does not reach every node"):
        arborescence.cheapest(0, 3, {(0, 1): 1.0, (2, 1): 1.0})
