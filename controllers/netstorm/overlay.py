"""The overlay as data: data centres, the tunnels between them, and the links that tunnels share.

A tunnel has one direction, a throughput and a latency, both as measured from end to end (paper, section II). Every
tunnel runs over links: over one of its own, named "a->b", unless the overlay says which ones; what is not known of the
underlay is simply not said. Planners read throughputs, the event simulation reads links.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Pair = tuple[str, str]
Floats = NDArray[np.float64]
Rule = Literal["hops", "widest"]
BITS = 8


def own_link(source: str, target: str) -> str:
    """Return the name of the link that a tunnel has to itself."""
    return f"{source}->{target}"


@dataclass(frozen=True)
class Tunnel:
    """One direction of a tunnel. `links` are those it runs over; none stands for a link of its own."""

    source: str
    target: str
    throughput_bps: float
    latency_s: float = 0.0
    links: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a tunnel that goes nowhere or carries nothing."""
        name = own_link(self.source, self.target)
        if self.source == self.target:
            raise ValueError(f"tunnel {name} ends where it begins")
        if not 0 < self.throughput_bps < math.inf:
            raise ValueError(f"tunnel {name} has a throughput of {self.throughput_bps} bit/s")
        if not 0 <= self.latency_s < math.inf:
            raise ValueError(f"tunnel {name} has a latency of {self.latency_s} s")

    def transfer_s(self, size_bytes: float) -> float:
        """Return how long `size_bytes` take when nothing else is sent: latency and bytes over throughput."""
        return self.latency_s + size_bytes * BITS / self.throughput_bps


@dataclass(frozen=True)
class Overlay:
    """Nodes in the order of their numbers, and tunnels. `capacity_bps` is of the links that tunnels name.

    Raises ValueError, which names the node, tunnel or link, for what cannot be an overlay.
    """

    nodes: tuple[str, ...]
    tunnels: tuple[Tunnel, ...]
    capacity_bps: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check names and numbers, and that every node can reach every other."""
        for what, names in (("node", self.nodes), ("tunnel", [own_link(*pair) for pair in self._pairs()])):
            twice = [name for name, times in Counter(names).items() if times > 1]
            if twice:
                raise ValueError(f"{what} {twice[0]} is there twice")
        known = set(self.nodes)
        for tunnel in self.tunnels:
            for end in (tunnel.source, tunnel.target):
                if end not in known:
                    raise ValueError(f"tunnel {own_link(tunnel.source, tunnel.target)} ends at {end}, which is no node")
            missing = [link for link in tunnel.links if link not in self.capacity_bps]
            if missing:
                raise ValueError(
                    f"tunnel {own_link(tunnel.source, tunnel.target)} runs over {missing[0]}, whose capacity is unknown"
                )
        for link, capacity in self.capacity_bps.items():
            if not 0 < capacity < math.inf:
                raise ValueError(f"link {link} has a capacity of {capacity} bit/s")
        for direction in ("out of", "into"):
            if lost := sorted(known - _reached(self.nodes, self._pairs(), back=direction == "into")):
                raise ValueError(f"there is no way {direction} {self.nodes[0]} for {lost[0]}: the overlay is in pieces")

    def _pairs(self) -> Iterable[Pair]:
        return [(tunnel.source, tunnel.target) for tunnel in self.tunnels]

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each node, from 0."""
        return {name: number for number, name in enumerate(self.nodes)}

    @cached_property
    def by_pair(self) -> dict[Pair, Tunnel]:
        """The tunnel from one node to another, where there is one."""
        return {(tunnel.source, tunnel.target): tunnel for tunnel in self.tunnels}

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """Who can be reached from each node by one tunnel, in the order of the nodes."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for source, target in sorted(self.by_pair, key=lambda pair: self.index[pair[1]]):
            found[source].append(target)
        return {name: tuple(targets) for name, targets in found.items()}

    @cached_property
    def links_bps(self) -> dict[str, float]:
        """The capacity of every link, those that tunnels have to themselves included."""
        own = {own_link(one.source, one.target): one.throughput_bps for one in self.tunnels if not one.links}
        return {**self.capacity_bps, **own}

    def links(self, source: str, target: str) -> tuple[str, ...]:
        """Return the links the tunnel runs over. Raises KeyError where there is no such tunnel."""
        return self.by_pair[source, target].links or (own_link(source, target),)

    def with_throughputs(self, throughput_bps: Mapping[Pair, float]) -> Overlay:
        """Return the overlay with other throughputs of some tunnels: what a scheduler believes, or a new draw."""
        tunnels = (
            replace(one, throughput_bps=throughput_bps.get((one.source, one.target), one.throughput_bps))
            for one in self.tunnels
        )
        return replace(self, tunnels=tuple(tunnels))

    def without(self, pairs: Iterable[Pair]) -> Overlay:
        """Return the overlay without some tunnels. Raises ValueError if that leaves it in pieces."""
        gone = set(pairs)
        return replace(self, tunnels=tuple(one for one in self.tunnels if (one.source, one.target) not in gone))

    def mesh(self, rule: Rule = "hops") -> Overlay:
        """Return the overlay in which every pair has a tunnel: pairs without one are reached over several.

        Such a way has the throughput of its narrowest tunnel, the sum of the latencies, and shares all links with the
        tunnels it runs over. `hops` takes the fewest tunnels, `widest` the way whose narrowest tunnel is the widest
        (of such ways the one with the fewest tunnels); ties go to the next node with the lowest number, and whoever
        has a tunnel to the target uses it.
        """
        costs = {target: _costs(self, target, rule) for target in self.nodes}
        tunnels = [
            self._along(self._walk(source, target, costs[target], rule))
            for target in self.nodes
            for source in self.nodes
            if source != target
        ]
        return Overlay(self.nodes, tuple(tunnels), self.links_bps)

    def _walk(self, source: str, target: str, cost: Mapping[str, tuple[float, int]], rule: Rule) -> list[str]:
        way = [source]
        while way[-1] != target:
            peers = self.neighbours[way[-1]]
            direct = target in peers
            way.append(target if direct else min(peers, key=lambda peer: _step(self, way[-1], peer, cost[peer], rule)))
        return way

    def _along(self, way: list[str]) -> Tunnel:
        hops = [self.by_pair[pair] for pair in itertools.pairwise(way)]
        links = tuple(link for hop in hops for link in self.links(hop.source, hop.target))
        throughput_bps = min(hop.throughput_bps for hop in hops)
        return Tunnel(way[0], way[-1], throughput_bps, sum(hop.latency_s for hop in hops), links)

    def matrix(self, size_bytes: float) -> Floats:
        """Return how long `size_bytes` take from node to node, shape (nodes, nodes); infinite without a tunnel."""
        found = np.full((len(self.nodes), len(self.nodes)), np.inf)
        for one in self.tunnels:
            found[self.index[one.source], self.index[one.target]] = one.transfer_s(size_bytes)
        return found


def _reached(nodes: tuple[str, ...], pairs: Iterable[Pair], back: bool) -> set[str]:
    onward: dict[str, list[str]] = {}
    for source, target in pairs:
        onward.setdefault(target if back else source, []).append(source if back else target)
    reached, waiting = set(nodes[:1]), list(nodes[:1])
    while waiting:
        for peer in onward.get(waiting.pop(), ()):
            if peer not in reached:
                reached.add(peer)
                waiting.append(peer)
    return reached


def _step(overlay: Overlay, node: str, peer: str, beyond: tuple[float, int], rule: Rule) -> tuple[float, int]:
    """Return the cost of going through a neighbour: (minus the bottleneck, tunnels)."""
    if rule == "hops":
        return 0.0, beyond[1] + 1
    return max(beyond[0], -overlay.by_pair[node, peer].throughput_bps), beyond[1] + 1


def _costs(overlay: Overlay, target: str, rule: Rule) -> dict[str, tuple[float, int]]:
    """Return the best cost of every node to the target, by Dijkstra; neighbours go straight."""
    best: dict[str, tuple[float, int]] = {target: (0.0 if rule == "hops" else -math.inf, 0)}
    into: dict[str, list[str]] = {}
    for source, end in overlay.by_pair:
        into.setdefault(end, []).append(source)
    done: set[str] = set()
    while waiting := [node for node in best if node not in done]:
        node = min(waiting, key=lambda one: (best[one], overlay.index[one]))
        done.add(node)
        for source in into.get(node, ()):
            if source not in done and (node == target or (source, target) not in overlay.by_pair):
                step = _step(overlay, source, node, best[node], rule)
                best[source] = min(best.get(source, step), step)
    return best
