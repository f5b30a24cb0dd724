"""FAPT: the tree over which one root has the sum soonest, for every root at once (paper, section III).

T(root) is the longest way from any node to the root, where a tunnel costs its transfer time and every node passed, the
root included, its aggregation delay. A shortest-path tree makes each of these ways as short as it can be, so it also
makes the longest as short as it can be: Dijkstra with node weights is exact as long as a node's aggregation delay does
not depend on how many children it has. The authors enumerate all simple paths; the tree is the same.

A root's quality (public code): the tree's tunnels are laid by depth, with a barrier per level:

    quality = 1 / sum over depths of max(1 / throughput at that depth)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from controllers.netstorm.metric import INSTANT, Aggregation
from controllers.netstorm.overlay import Floats, Overlay
from controllers.netstorm.tree import Tree

Direction = Literal["push", "pull", "both"]
Ints = NDArray[np.int64]
UNIT_BYTES = 4_000_000
"""What a tunnel's cost is the time of: a chunk. Without latency and aggregation the size does not matter."""


@dataclass(frozen=True)
class Forest:
    """One tree per root, as arrays of shape (roots, nodes).

    `parents` holds numbers of nodes, the root's being its own; `delay_s` the time from each node to the root;
    `quality` of each root in bit/s.
    """

    nodes: tuple[str, ...]
    roots: tuple[str, ...]
    parents: Ints
    delay_s: Floats
    quality: Floats

    def tree(self, root: str) -> Tree:
        """Return the tree of a root, nodes in their order. Raises ValueError for a root that has none here."""
        row = self.roots.index(root)
        parents = self.parents[row].tolist()
        return Tree(root, {node: self.nodes[parents[number]] for number, node in enumerate(self.nodes) if node != root})

    def best(self, count: int) -> tuple[str, ...]:
        """Return so many roots of the highest quality, the best first; ties go to the lower number."""
        ranked = np.argsort(-self.quality, kind="stable")[:count]
        return tuple(self.roots[int(row)] for row in ranked)

    def quotas(self, roots: Sequence[str]) -> dict[str, float]:
        """Return each root's part of the whole: its quality over the sum of theirs."""
        quality = {root: float(self.quality[self.roots.index(root)]) for root in roots}
        whole = sum(quality.values())
        return {root: one / whole for root, one in quality.items()}


def forest(
    overlay: Overlay,
    roots: Sequence[str] | None = None,
    *,
    direction: Direction = "push",
    aggregation: Mapping[str, float] | None = None,
    size_bytes: float = UNIT_BYTES,
) -> Forest:
    """Return the FAPTs of these roots (all nodes if None), by Dijkstra in O(E log V) each.

    direction: whose rates count, those of the push (child to parent, as published), of the pull, or the sum of both
    times. aggregation: seconds per node by name. size_bytes: of the message whose way is to be shortest; it matters
    only where there is latency or aggregation.
    """
    names = tuple(overlay.nodes if roots is None else roots)
    sources, targets, cost_s, inverse = _arcs(overlay, direction, size_bytes)
    node_s = np.array([(aggregation or {}).get(node, 0.0) for node in overlay.nodes])
    count = len(overlay.nodes)
    # Walked from the root outwards, hence from parent to child; the parent adds up what the child has sent.
    graph = csr_array((cost_s + node_s[targets], (targets, sources)), shape=(count, count))
    rows = np.array([overlay.index[root] for root in names], dtype=np.int64)
    delay_s, before = dijkstra(graph, indices=rows, return_predecessors=True)
    parents: Ints = before.astype(np.int64)
    parents[np.arange(len(rows)), rows] = rows
    return Forest(overlay.nodes, names, parents, delay_s, _quality(parents, rows, inverse))


def fapt(overlay: Overlay, root: str, size_bytes: float = UNIT_BYTES, aggregation: Aggregation = INSTANT) -> Tree:
    """Return the tree of one root for the push. What a child adds to a node's delay is left out of account."""
    return forest(overlay, [root], aggregation=aggregation.node_s, size_bytes=size_bytes).tree(root)


def _arcs(overlay: Overlay, direction: Direction, size_bytes: float) -> tuple[Ints, Ints, Floats, Floats]:
    """Return child, parent and seconds of every tunnel, and seconds per bit as a matrix [child, parent]."""
    time_s = overlay.matrix(size_bytes)
    inverse = np.full_like(time_s, np.inf)
    for one in overlay.tunnels:
        inverse[overlay.index[one.source], overlay.index[one.target]] = 1 / one.throughput_bps
    if direction == "pull":
        time_s, inverse = time_s.T, inverse.T
    elif direction == "both":
        time_s, inverse = time_s + time_s.T, inverse + inverse.T
    sources, targets = np.nonzero(np.isfinite(time_s))
    return sources, targets, time_s[sources, targets], inverse


def _quality(parents: Ints, rows: Ints, inverse: Floats) -> Floats:
    """Return the quality of every tree: level by level, the slowest tunnel of each."""
    trees, count = parents.shape
    depth = np.ones_like(parents)
    depth[np.arange(trees), rows] = 0
    above = parents
    while (above != rows[:, None]).any():  # pointer doubling: the ways that are left are halved each time
        depth = depth + np.take_along_axis(depth, above, axis=1)
        above = np.take_along_axis(above, above, axis=1)
    slowest = np.zeros((trees, count))
    cost = inverse[np.arange(count)[None, :], parents]
    cost[np.arange(trees), rows] = 0.0
    np.maximum.at(slowest, (np.arange(trees)[:, None], depth), cost)
    with np.errstate(divide="ignore"):
        return np.asarray(1 / slowest.sum(axis=1))


def quality(tree: Tree, overlay: Overlay, direction: Direction = "push") -> float:
    """Return a tree's quality in bit/s, level by level as it is written down; infinite for a root alone."""
    slowest: dict[int, float] = {}
    for child, parent in tree.edges():
        up, down = 1 / overlay.by_pair[child, parent].throughput_bps, 0.0
        if direction != "push":
            down = 1 / overlay.by_pair[parent, child].throughput_bps
        cost = {"push": up, "pull": down, "both": up + down}[direction]
        slowest[tree.depth[child]] = max(slowest.get(tree.depth[child], 0.0), cost)
    return 1 / sum(slowest.values()) if slowest else float("inf")
