"""The paper's metric: transmission, blocking and aggregation delay of a tree (sections II and III).

    T(leaf) = 0;  T(v) = max over children c of (T(c) + tau(c, v)) + a(v)

tau is the time that a child's bytes take, a(v) what adding them up takes. A child's blocking delay is what it waits at
its parent for its slowest sibling. The metric covers the push: one message per node, sent when it is complete. It knows
neither that trees share links nor that chunks pipeline; the event simulation (`simulate`) does.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controllers.netstorm.overlay import Overlay
from controllers.netstorm.tree import Tree, Way


@dataclass(frozen=True)
class Aggregation:
    """What adding up costs a node: seconds per node that has children (`node_s`, by name), and per child."""

    node_s: Mapping[str, float] = field(default_factory=dict)
    child_s: float = 0.0

    def delay_s(self, node: str, children: int) -> float:
        """Return a(v) in seconds; a leaf adds nothing up."""
        return self.node_s.get(node, 0.0) + self.child_s * children if children else 0.0


INSTANT = Aggregation()


@dataclass(frozen=True)
class Delay:
    """A node's part in the metric, in seconds.

    `ready_s` is T(v), when it has all of its subtree; `transmission_s` how long its bytes take to its parent,
    `blocking_s` how long they wait there for the slowest sibling, `aggregation_s` is a(v).
    """

    ready_s: float
    aggregation_s: float
    transmission_s: float = 0.0
    blocking_s: float = 0.0


def delays(tree: Tree, overlay: Overlay, size_bytes: float, aggregation: Aggregation = INSTANT) -> dict[str, Delay]:
    """Return every node's delays when `size_bytes` are pushed up the tree, by recursion from the leaves."""
    sent = {child: overlay.by_pair[child, parent].transfer_s(size_bytes) for child, parent in tree.edges()}
    ready: dict[str, float] = {}
    slowest: dict[str, float] = {}
    for node in reversed(tree.order):
        children = tree.children[node]
        slowest[node] = max((ready[child] + sent[child] for child in children), default=0.0)
        ready[node] = slowest[node] + aggregation.delay_s(node, len(children))
    found = {}
    for node in tree.order:
        added_s = aggregation.delay_s(node, len(tree.children[node]))
        if node == tree.root:
            found[node] = Delay(ready[node], added_s)
        else:
            blocked_s = slowest[tree.parent[node]] - ready[node] - sent[node]
            found[node] = Delay(ready[node], added_s, sent[node], blocked_s)
    return found


def push_s(tree: Tree, overlay: Overlay, size_bytes: float, aggregation: Aggregation = INSTANT) -> float:
    """Return T(root): when the root has the sum, in seconds."""
    return delays(tree, overlay, size_bytes, aggregation)[tree.root].ready_s


def pull_s(tree: Tree, overlay: Overlay, size_bytes: float) -> float:
    """Return when the last node has the result that goes down the tree, in seconds: rates are those from the root."""
    arrival = {tree.root: 0.0}
    for child, parent in tree.edges():
        arrival[child] = arrival[parent] + overlay.by_pair[parent, child].transfer_s(size_bytes)
    return max(arrival.values())


def round_s(
    ways: Sequence[Way], sizes_bytes: Sequence[float], overlay: Overlay, aggregation: Aggregation = INSTANT
) -> float:
    """Return when a round with several roots ends by the metric: with its slowest tree, push and then pull."""
    return max(
        push_s(way.push, overlay, size_bytes, aggregation) + pull_s(way.pull, overlay, size_bytes)
        for way, size_bytes in zip(ways, sizes_bytes, strict=True)
        if size_bytes
    )


def replayed(tree: Tree, overlay: Overlay, size_bytes: float, aggregation: Aggregation = INSTANT) -> dict[str, float]:
    """Return T(v) of every node by letting it happen: messages arrive one after another, nodes send when complete."""
    waits = {node: len(children) for node, children in tree.children.items()}
    ready: dict[str, float] = {}
    happens = [(0.0, number, leaf, False) for number, leaf in enumerate(tree.leaves)]
    heapq.heapify(happens)
    number = len(happens)
    while happens:
        now_s, _, node, arrived = heapq.heappop(happens)
        if arrived:
            waits[node] -= 1
            if waits[node]:
                continue
            now_s += aggregation.delay_s(node, len(tree.children[node]))
        ready[node] = now_s
        if node != tree.root:
            parent = tree.parent[node]
            number += 1
            arrives_s = now_s + overlay.by_pair[node, parent].transfer_s(size_bytes)
            heapq.heappush(happens, (arrives_s, number, parent, True))
    return ready
