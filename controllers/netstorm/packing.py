"""Several trees at once: packings of spanning trees (Blink), and trees for some of the nodes (Steiner)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx
import numpy as np
from networkx.algorithms.approximation import steiner_tree
from scipy.optimize import linprog
from scipy.sparse import csr_array

from controllers.netstorm.overlay import Overlay
from controllers.netstorm.tree import Tree

ACCURACY = 0.1
NOTHING = 1e-9
Edge = tuple[int, int]


def pack(overlay: Overlay, root: str, accuracy: float = ACCURACY) -> list[tuple[Tree, float]]:
    """Return spanning trees hung up at the root, with the rate in bit/s at which each adds up and hands out.

    A chunk takes every tunnel of its tree once up and once down, so the rates of the trees that use a pair may not add
    up to more than the narrower direction. Trees are found by multiplicative weights (Garg and Könemann): the cheapest
    one is used as far as its narrowest pair allows, and what it uses becomes dearer, until everything is dear; with
    some rates they come within about 2 × `accuracy` of the most there can be. As in Blink, a linear program over these
    trees then leaves few of them, no more than there are pairs. Links that several tunnels share are not seen, as in
    Blink. Raises ValueError if pairs with a tunnel each way do not connect all nodes.
    """
    rate_bps = _narrower(overlay)
    start = (len(rate_bps) / (1 - accuracy)) ** (-1 / accuracy)
    length = {edge: start / rate for edge, rate in rate_bps.items()}
    used: dict[tuple[Edge, ...], float] = {}
    dearness = sum(length[edge] * rate for edge, rate in rate_bps.items())
    while dearness < 1:
        tree = _cheapest(len(overlay.nodes), length)
        narrowest = min(rate_bps[edge] for edge in tree)
        used[tree] = used.get(tree, 0.0) + narrowest
        for edge in tree:
            dearer = length[edge] * accuracy * narrowest / rate_bps[edge]
            length[edge] += dearer
            dearness += dearer * rate_bps[edge]
    rates = _few(list(used), rate_bps)
    return [
        (_hung(overlay, tree, root), rate) for tree, rate in sorted(rates.items(), key=lambda one: (-one[1], one[0]))
    ]


def _few(trees: Sequence[tuple[Edge, ...]], rate_bps: Mapping[Edge, float]) -> dict[tuple[Edge, ...], float]:
    """Return the rates with the highest sum; a vertex of the polytope has no more of them than there are pairs."""
    row = {edge: number for number, edge in enumerate(rate_bps)}
    uses = [(row[edge], column) for column, tree in enumerate(trees) for edge in tree]
    rows, columns = zip(*uses, strict=True)
    matrix = csr_array((np.ones(len(uses)), (rows, columns)), shape=(len(row), len(trees)))
    unit = max(rate_bps.values())
    solved = linprog(-np.ones(len(trees)), matrix, np.array(list(rate_bps.values())) / unit, method="highs-ds")
    return {tree: float(part * unit) for tree, part in zip(trees, solved.x, strict=True) if part > NOTHING}


def _narrower(overlay: Overlay) -> dict[Edge, float]:
    """Return the pairs with a tunnel each way, by their nodes' numbers, and the throughput of the narrower one."""
    found = {}
    for (source, target), tunnel in overlay.by_pair.items():
        back, edge = overlay.by_pair.get((target, source)), (overlay.index[source], overlay.index[target])
        if back is not None and edge[0] < edge[1]:
            found[edge] = min(tunnel.throughput_bps, back.throughput_bps)
    return found


def _cheapest(nodes: int, length: Mapping[Edge, float]) -> tuple[Edge, ...]:
    """Return the minimum spanning tree (Kruskal), its edges in order."""
    group, tree = list(range(nodes)), []
    for edge in sorted(length, key=lambda one: (length[one], one)):
        ends = []
        for end in edge:
            while group[end] != end:
                group[end] = end = group[group[end]]
            ends.append(end)
        if ends[0] != ends[1]:
            group[ends[0]] = ends[1]
            tree.append(edge)
    if len(tree) < nodes - 1:
        raise ValueError("the tunnels that go both ways do not connect all nodes")
    return tuple(sorted(tree))


def _hung(overlay: Overlay, tree: Sequence[Edge], root: str) -> Tree:
    graph = nx.Graph([(overlay.nodes[a], overlay.nodes[b]) for a, b in tree])
    return Tree(root, dict(nx.bfs_predecessors(graph, root)))


def steiner_forest(overlay: Overlay, groups: Sequence[Sequence[str]]) -> list[nx.Graph]:
    """Return for each group of nodes a tree that connects it, over other nodes where that is cheaper.

    A tunnel costs its time per bit there and back. Trees of one group are within twice the cheapest (Mehlhorn); the
    groups are connected one after another, the largest first, and what an earlier one has bought costs half, so that
    trees meet where that is cheap. The order of the result is that of `groups`. Raises ValueError for an empty group.
    """
    if any(not group for group in groups):
        raise ValueError("a group without nodes has no tree")
    graph = nx.Graph()
    graph.add_nodes_from(overlay.nodes)
    for (source, target), tunnel in overlay.by_pair.items():
        back = overlay.by_pair.get((target, source))
        if back is not None:
            graph.add_edge(source, target, weight=1 / tunnel.throughput_bps + 1 / back.throughput_bps)
    found: dict[int, nx.Graph] = {}
    for number in sorted(range(len(groups)), key=lambda one: (-len(groups[one]), one)):
        nodes = list(dict.fromkeys(groups[number]))
        tree = steiner_tree(graph, nodes, method="mehlhorn") if len(nodes) > 1 else graph.subgraph(nodes)
        found[number] = nx.Graph(tree)
        for source, target in tree.edges:
            graph.edges[source, target].setdefault("full", graph.edges[source, target]["weight"])
            graph.edges[source, target]["weight"] = graph.edges[source, target]["full"] / 2
    return [found[number] for number in range(len(groups))]
