"""Auxiliary paths: what a tree leaves idle carries chunks when the tree's own tunnel is behind (public code).

Auxiliary paths between two nodes are simple paths in ascending cost whose interior nodes are disjoint from the primary
path's and from each other's. There is one send queue per neighbour; a chunk takes an auxiliary path when the primary
queue is longer than 2L and the auxiliary one shorter than L. Nodes in between only forward, and the whole path that is
left travels with the message, so that no change of policy can send it in a circle.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from controllers.netstorm.overlay import Overlay, Pair
from controllers.netstorm.tree import Way

Path = tuple[str, ...]
T = TypeVar("T")
L_CHUNKS = 1
MOST_PATHS = 3
"""How many auxiliary paths a pair is given; the paper's text that would say so is not available."""


def auxiliary_paths(
    overlay: Overlay, primary: Path, size_bytes: float, most: int | None = MOST_PATHS
) -> tuple[Path, ...]:
    """Return the auxiliary paths beside a primary path, cheapest first; each begins and ends where it does.

    The cost of a path is the sum of its tunnels' transfer times for `size_bytes`. The cheapest path that avoids the
    nodes of all earlier ones is the next in ascending order that is disjoint from them, so Dijkstra finds them one by
    one. most: how many at most, None for all there are.
    """
    source, target = primary[0], primary[-1]
    barred = set(primary[1:-1])
    taken = set(itertools.pairwise(primary))
    found: list[Path] = []
    while most is None or len(found) < most:
        path = _cheapest(overlay, source, target, barred, taken, size_bytes)
        if path is None:
            break
        found.append(path)
        barred.update(path[1:-1])
        taken.update(itertools.pairwise(path))
    return tuple(found)


def _cheapest(
    overlay: Overlay, source: str, target: str, barred: set[str], taken: set[Pair], size_bytes: float
) -> Path | None:
    best: dict[str, float] = {source: 0.0}
    before: dict[str, str] = {}
    heap, done = [(0.0, overlay.index[source], source)], set()
    while heap:
        cost_s, _, node = heapq.heappop(heap)
        if node == target:
            path = [target]
            while path[-1] != source:
                path.append(before[path[-1]])
            return tuple(reversed(path))
        if node in done:
            continue
        done.add(node)
        for peer in overlay.neighbours[node]:
            reached_s = cost_s + overlay.by_pair[node, peer].transfer_s(size_bytes)
            if peer not in barred and (node, peer) not in taken and reached_s < best.get(peer, float("inf")):
                best[peer], before[peer] = reached_s, node
                heapq.heappush(heap, (reached_s, overlay.index[peer], peer))
    return None


def for_ways(
    overlay: Overlay, ways: Iterable[Way], size_bytes: float, most: int | None = MOST_PATHS
) -> dict[Pair, tuple[Path, ...]]:
    """Return the auxiliary paths of every pair that sends to each other in these ways."""
    pairs = dict.fromkeys(pair for way in ways for pair in way.pairs())
    return {pair: auxiliary_paths(overlay, pair, size_bytes, most) for pair in pairs}


def choose(primary: Path, others: Sequence[Path], queued: Mapping[str, int], length: int = L_CHUNKS) -> Path:
    """Return the path of the next chunk by the queue rule; of several auxiliary ones the cheapest with a short queue.

    queued: chunks in the queue to each neighbour, that on its way included; length: L in chunks.
    """
    if queued.get(primary[1], 0) > 2 * length:
        for path in others:
            if queued.get(path[1], 0) < length:
                return path
    return primary


def behind(queue: Iterable[T], length: int = L_CHUNKS) -> Iterator[T]:
    """Return the chunks of a queue that have more than 2L ahead of them, the oldest first: they may choose again.

    A worker hands over all its chunks at once. If they chose only then, the rule would send one of them round and no
    other, so it is applied again whenever a chunk has left (our reading: the public code queues them one by one).
    """
    return islice(queue, 2 * length + 1, None)
