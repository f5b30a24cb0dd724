"""Every published strategy as a plan: NETSTORM's FAPT with one or several roots, and what it is compared with.

    fapt          one root, the tree over which it has the sum soonest
    multi_root    K roots by quality, chunks by quota (NETSTORM; the authors use all nine)
    star          MXNET: parameter servers that everybody sends to
    placed_star   the star whose server stands where the metric says it is cheapest
    ordered_star  the star whose flows take turns at the bottleneck, chunk by chunk, as they come
    quantised_star  the star whose workers send fewer bits per element where they have less bandwidth
    k_ary         MLNET: a balanced k-ary tree; `binary` is that with k = 2
    spanning      TSEngine as the paper models it: the spanning tree of the highest throughput
    packed        Blink: several spanning trees at once, by weight (`packing`)
    steiner       trees over the active nodes alone (`packing`)

Star and k-ary trees know nothing of the network. They may use pairs without a tunnel, so their plans are `meshed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import networkx as nx

from controllers.netstorm import fapt as trees
from controllers.netstorm.chunks import CHUNK_ELEMENTS, Chunk, cut, deal
from controllers.netstorm.fapt import Direction
from controllers.netstorm.metric import INSTANT, Aggregation, pull_s, push_s
from controllers.netstorm.overlay import Overlay, Rule
from controllers.netstorm.packing import pack, steiner_forest
from controllers.netstorm.quantise import bits_by_bandwidth, push_shares
from controllers.netstorm.tree import Plan, Tree, Way

BIG_ARRAY_ELEMENTS = 1_000_000
"""MXNET splits arrays of this many elements over all servers, and gives smaller ones to one."""
_HASH_PRIME = 9973  # MXNET's own, in kvstore_dist.h
ARITY = 3


def fapt(
    overlay: Overlay, tensors: Sequence[int], root: str | None = None, *, chunk_elements: int = CHUNK_ELEMENTS
) -> Plan:
    """Return the plan of FAPT with one root: the one of the highest quality if none is named."""
    found = trees.forest(overlay, None if root is None else [root])
    return _single("fapt", found.tree(root or found.best(1)[0]), tensors, chunk_elements)


def multi_root(
    overlay: Overlay,
    tensors: Sequence[int],
    count: int | None = None,
    *,
    direction: Direction = "push",
    aggregation: Mapping[str, float] | None = None,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Plan:
    """Return the plan of FAPT with the `count` best roots (all nodes if None), chunks by their quality."""
    found = trees.forest(overlay, direction=direction, aggregation=aggregation)
    roots = found.best(len(overlay.nodes) if count is None else count)
    chunks = cut(tensors, chunk_elements)
    quotas = found.quotas(roots)
    ways = tuple(Way.both(found.tree(root)) for root in roots)
    return Plan(f"fapt-{len(roots)}", ways, chunks, deal(chunks, [quotas[root] for root in roots]))


def star(
    overlay: Overlay,
    tensors: Sequence[int],
    roots: Sequence[str] = (),
    *,
    split_elements: int = BIG_ARRAY_ELEMENTS,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Plan:
    """Return MXNET's plan with servers at these nodes; the first node if none is named.

    With several servers an array of less than `split_elements` goes to one by a hash of its number, and a larger one is
    split over all of them in equal parts.
    """
    servers = tuple(roots) or overlay.nodes[:1]
    ways = tuple(Way.both(star_tree(overlay, server)) for server in servers)
    chunks: list[Chunk] = []
    way_of: list[int] = []
    for tensor, elements in enumerate(tensors):
        for server, offset, part in _mxnet(tensor, elements, len(servers), split_elements):
            for piece in cut([part], chunk_elements):
                chunks.append(replace(piece, tensor=tensor, offset=offset + piece.offset))
                way_of.append(server)
    return Plan(f"star-{len(servers)}", ways, tuple(chunks), tuple(way_of), meshed=True)


def _mxnet(tensor: int, elements: int, servers: int, split_elements: int) -> list[tuple[int, int, int]]:
    """Return (server, offset, elements) of an array's parts."""
    if elements < split_elements:
        return [(tensor * _HASH_PRIME % servers, 0, elements)]
    ends = [elements * number // servers for number in range(servers + 1)]
    return [(number, ends[number], ends[number + 1] - ends[number]) for number in range(servers)]


def star_tree(overlay: Overlay, root: str) -> Tree:
    """Return the tree in which everybody is a child of the root."""
    return Tree(root, {node: root for node in overlay.nodes if node != root})


def placed_star(
    overlay: Overlay,
    tensors: Sequence[int],
    *,
    rule: Rule = "hops",
    aggregation: Aggregation = INSTANT,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Plan:
    """Return the star with its server where push and pull take the least by the metric; ties go to the lower number."""
    mesh, size_bytes = overlay.mesh(rule), sum(chunk.size_bytes for chunk in cut(tensors))

    def cost_s(root: str) -> float:
        tree = star_tree(overlay, root)
        return push_s(tree, mesh, size_bytes, aggregation) + pull_s(tree, mesh, size_bytes)

    best = min(overlay.nodes, key=cost_s)
    return replace(star(overlay, tensors, [best], chunk_elements=chunk_elements), name="placed-star")


def ordered_star(
    overlay: Overlay, tensors: Sequence[int], root: str | None = None, *, chunk_elements: int = CHUNK_ELEMENTS
) -> Plan:
    """Return the star whose flows are scheduled at the bottleneck: the oldest chunk's come first (see `rates`)."""
    one = star(overlay, tensors, () if root is None else [root], chunk_elements=chunk_elements)
    return replace(one, name="ordered-star", ordered=True)


def quantised_star(
    overlay: Overlay,
    tensors: Sequence[int],
    root: str | None = None,
    *,
    rule: Rule = "hops",
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Plan:
    """Return the star whose workers quantise their gradients to their bandwidth to the server (see `quantise`)."""
    one = star(overlay, tensors, () if root is None else [root], chunk_elements=chunk_elements)
    server, mesh = one.ways[0].root, overlay.mesh(rule)
    bandwidth_bps = {node: mesh.by_pair[node, server].throughput_bps for node in overlay.nodes if node != server}
    return replace(one, name="quantised-star", push_share=push_shares(bits_by_bandwidth(bandwidth_bps)))


def k_ary(
    overlay: Overlay,
    tensors: Sequence[int],
    root: str | None = None,
    *,
    arity: int = ARITY,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Plan:
    """Return MLNET's plan: a balanced tree in the order of the nodes, the root first."""
    return _single(f"k-ary-{arity}", balanced_tree(overlay, root, arity), tensors, chunk_elements, meshed=True)


def binary(
    overlay: Overlay, tensors: Sequence[int], root: str | None = None, *, chunk_elements: int = CHUNK_ELEMENTS
) -> Plan:
    """Return the plan of the balanced binary tree."""
    return replace(k_ary(overlay, tensors, root, arity=2, chunk_elements=chunk_elements), name="binary")


def balanced_tree(overlay: Overlay, root: str | None, arity: int) -> Tree:
    """Return the tree that is filled level by level. Raises ValueError for an arity below one."""
    if arity < 1:
        raise ValueError(f"a tree needs a child per node, not {arity}")
    first = overlay.nodes[0] if root is None else root
    order = [first, *(node for node in overlay.nodes if node != first)]
    return Tree(first, {node: order[number // arity] for number, node in enumerate(order[1:])})


def spanning(
    overlay: Overlay, tensors: Sequence[int], root: str | None = None, *, chunk_elements: int = CHUNK_ELEMENTS
) -> Plan:
    """Return TSEngine's plan: the minimum spanning tree by time per bit there and back, hung up at the root."""
    return _single(
        "spanning", spanning_tree(overlay, overlay.nodes[0] if root is None else root), tensors, chunk_elements
    )


def spanning_tree(overlay: Overlay, root: str) -> Tree:
    """Return the spanning tree of the highest throughput: of the least sum of time per bit, both ways together."""
    graph = nx.Graph()
    graph.add_nodes_from(overlay.nodes)
    for (source, target), tunnel in overlay.by_pair.items():
        back = overlay.by_pair.get((target, source))
        if back is not None:
            graph.add_edge(source, target, weight=1 / tunnel.throughput_bps + 1 / back.throughput_bps)
    return Tree(root, dict(nx.bfs_predecessors(nx.minimum_spanning_tree(graph), root)))


def packed(
    overlay: Overlay, tensors: Sequence[int], root: str | None = None, *, chunk_elements: int = CHUNK_ELEMENTS
) -> Plan:
    """Return Blink's plan: chunks are dealt to a packing of spanning trees, all with the same root, by their rates."""
    packing = pack(overlay, overlay.nodes[0] if root is None else root)
    chunks = cut(tensors, chunk_elements)
    ways = tuple(Way.both(tree) for tree, _ in packing)
    return Plan("packed", ways, chunks, deal(chunks, [rate_bps for _, rate_bps in packing]))


def steiner(
    overlay: Overlay,
    tensors: Sequence[int],
    active: Sequence[str],
    root: str | None = None,
    *,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Plan:
    """Return the plan for a round in which only `active` nodes take part; others may forward. Root: an active node."""
    first = active[0] if root is None else root
    (tree,) = steiner_forest(overlay, [active])
    parent = dict(nx.bfs_predecessors(tree, first))
    return replace(_single("steiner", Tree(first, parent), tensors, chunk_elements), active=tuple(active))


def _single(name: str, tree: Tree, tensors: Sequence[int], chunk_elements: int, *, meshed: bool = False) -> Plan:
    chunks = cut(tensors, chunk_elements)
    return Plan(name, (Way.both(tree),), chunks, (0,) * len(chunks), meshed=meshed)
