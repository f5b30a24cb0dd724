"""Aggregation trees, and the plan of a round: which chunk is summed up along which tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from controllers.netstorm.chunks import Chunk
from controllers.netstorm.overlay import Overlay, Pair


@dataclass(frozen=True)
class Tree:
    """A tree over some nodes: everybody but the root has a parent. Raises ValueError if it is none."""

    root: str
    parent: Mapping[str, str]

    def __post_init__(self) -> None:
        """Check that every node comes to the root."""
        if self.root in self.parent:
            raise ValueError(f"{self.root} is the root and has a parent, {self.parent[self.root]}")
        lost = set(self.parent) - set(self.order)
        if lost:
            raise ValueError(f"{sorted(lost)[0]} does not come to the root {self.root}")

    @cached_property
    def children(self) -> dict[str, tuple[str, ...]]:
        """The children of every node, in the order in which `parent` has them."""
        found: dict[str, list[str]] = {self.root: [], **{node: [] for node in self.parent}}
        for node, parent in self.parent.items():
            found.setdefault(parent, []).append(node)
        return {node: tuple(children) for node, children in found.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All nodes, parents before children."""
        found = [self.root]
        for node in found:  # grows while it is walked through
            found += self.children[node]
        return tuple(found)

    @cached_property
    def depth(self) -> dict[str, int]:
        """How many tunnels lie between each node and the root."""
        found = {self.root: 0}
        for node in self.order[1:]:
            found[node] = found[self.parent[node]] + 1
        return found

    @property
    def leaves(self) -> Iterator[str]:
        """The nodes without children; a root alone is one."""
        return (node for node in self.order if not self.children[node])

    def edges(self) -> Iterator[Pair]:
        """Every (child, parent), parents before children."""
        return ((node, self.parent[node]) for node in self.order[1:])


@dataclass(frozen=True)
class Way:
    """How a chunk travels: up `push` to its root and down `pull` from there. NETSTORM uses one tree for both."""

    push: Tree
    pull: Tree

    def __post_init__(self) -> None:
        """Raise ValueError if what is summed up at one root would be handed out from another."""
        if self.push.root != self.pull.root:
            raise ValueError(f"pushed to {self.push.root}, but pulled from {self.pull.root}")

    @classmethod
    def both(cls, tree: Tree) -> Way:
        """Return the way that goes up and down the same tree."""
        return cls(tree, tree)

    @property
    def root(self) -> str:
        """Where the sum is complete."""
        return self.push.root

    def pairs(self) -> Iterator[Pair]:
        """Every (sender, receiver) of a chunk on this way: first those of the push, then those of the pull."""
        yield from self.push.edges()
        yield from ((parent, child) for child, parent in self.pull.edges())


@dataclass(frozen=True)
class Plan:
    """What a strategy decides: `way_of` gives each of `chunks` an index into `ways`.

    `active` are the nodes whose gradients count (empty: all nodes of the overlay); others only forward and add up.
    `push_share` is the part of a chunk's bytes that a node sends as a leaf, where it quantises its gradient.
    `ordered`: senders at a common bottleneck take turns, chunk by chunk, rather than share it. `oldest_first`: a
    send queue is in the order of the chunks, results before gradients, rather than first in, first out. `meshed`: trees
    use pairs that have no tunnel of their own, so the plan is for `Overlay.mesh`.
    """

    name: str
    ways: tuple[Way, ...]
    chunks: tuple[Chunk, ...]
    way_of: tuple[int, ...]
    active: tuple[str, ...] = ()
    push_share: Mapping[str, float] = field(default_factory=dict)
    ordered: bool = False
    oldest_first: bool = False
    meshed: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError if a chunk has no way."""
        if len(self.way_of) != len(self.chunks) or not set(self.way_of) <= set(range(len(self.ways))):
            raise ValueError(f"{self.name}: {len(self.chunks)} chunks on ways {sorted(set(self.way_of))}")

    @property
    def size_bytes(self) -> int:
        """Bytes of all chunks."""
        return sum(chunk.size_bytes for chunk in self.chunks)

    def way_bytes(self) -> list[int]:
        """Return the bytes that go each way."""
        found = [0] * len(self.ways)
        for chunk, way in zip(self.chunks, self.way_of, strict=True):
            found[way] += chunk.size_bytes
        return found

    def shares(self) -> dict[str, float]:
        """Return the part of all bytes that each root adds up."""
        found: dict[str, float] = {way.root: 0.0 for way in self.ways}
        for way, size_bytes in zip(self.ways, self.way_bytes(), strict=True):
            found[way.root] += size_bytes / self.size_bytes
        return found

    def loads(self, overlay: Overlay) -> dict[str, float]:
        """Return the bytes that a round sends over each link of the overlay, push and pull together."""
        found = dict.fromkeys(overlay.links_bps, 0.0)
        for chunk, number in zip(self.chunks, self.way_of, strict=True):
            way = self.ways[number]
            for place, (source, target) in enumerate(way.pairs()):
                leaf = place < len(way.push.parent) and not way.push.children[source]
                share = self.push_share.get(source, 1.0) if leaf else 1.0
                for link in overlay.links(source, target):
                    found[link] += chunk.size_bytes * share
        return found
