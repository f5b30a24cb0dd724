"""Who pushes what to whom: trees, the chunks that go over each, and everything else the programs are told.

Nodes are numbered from 0 in the order of the sites. A policy has a version, which travels with every chunk, so that
later versions can come into force while chunks of earlier ones are on their way.
"""

# Imports only what starts quickly: the programs in the guest read plans.
from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property

from testbed.errors import InputError
from workloads.paramsync.protocol import Protocol

FULL_BITS = 32
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@dataclass(frozen=True)
class Tree:
    """An aggregation tree: `parents` has the parent of every node, None for the root alone.

    Raises InputError when it is no tree.
    """

    root: int
    parents: tuple[int | None, ...]

    def __post_init__(self) -> None:
        where = f"tree of root {self.root}"
        if not 0 <= self.root < len(self.parents) or self.parents[self.root] is not None:
            raise InputError(where, f"the root's parent is {self.parents[self.root]}", "a root has none")
        for node, parent in enumerate(self.parents):
            if node != self.root and (parent is None or not 0 <= parent < len(self.parents)):
                raise InputError(where, f"the parent of node {node} is {parent}", "another node")
            self._climb(where, node)

    def _climb(self, where: str, node: int) -> None:
        at, seen = node, {node}
        while (parent := self.parents[at]) is not None:
            if parent in seen:
                raise InputError(where, f"node {node} does not reach the root: {parent} comes twice", "remove the loop")
            seen.add(parent)
            at = parent

    def children(self, node: int) -> tuple[int, ...]:
        """The nodes that push to this one, in order."""
        return self._children[node]

    def edges(self) -> list[tuple[int, int]]:
        """(child, parent) of every node but the root."""
        return [(node, parent) for node, parent in enumerate(self.parents) if parent is not None]

    @cached_property
    def _children(self) -> tuple[tuple[int, ...], ...]:
        nodes = range(len(self.parents))
        return tuple(tuple(child for child in nodes if self.parents[child] == node) for node in nodes)


@dataclass(frozen=True)
class Way:
    """Two trees of the same root: gradients go up the first, results down the second. Raises InputError."""

    push: Tree
    pull: Tree

    def __post_init__(self) -> None:
        if self.push.root != self.pull.root or len(self.push.parents) != len(self.pull.parents):
            raise InputError("way", f"push to root {self.push.root}, pull from {self.pull.root}", "the same nodes")


@dataclass(frozen=True)
class Policy:
    """Ways, and for every chunk the way (its place in `ways`) that it goes. Raises InputError."""

    version: int
    ways: tuple[Way, ...]
    way_of: tuple[int, ...]

    def __post_init__(self) -> None:
        for chunk, way in enumerate(self.way_of):
            if not 0 <= way < len(self.ways):
                raise InputError(f"policy {self.version}", f"chunk {chunk} goes way {way}", "a way of the list")

    def way(self, chunk: int) -> Way:
        """The way of a chunk."""
        return self.ways[self.way_of[chunk]]

    def pairs(self) -> set[tuple[int, int]]:
        """The pairs of nodes that exchange chunks, each as (lower, higher)."""
        edges = (edge for way in self.ways for tree in (way.push, way.pull) for edge in tree.edges())
        return {(min(edge), max(edge)) for edge in edges}


@dataclass(frozen=True)
class SyncPlan:
    """A whole synchronisation: `rounds` rounds in which every node pushes `chunks` (elements of fp32 each).

    Server number i listens at `ips[i]`:`port`. Worker i computes for `compute_s[i]` before it pushes. A server merges
    `merge_bytes_per_s` of pushed bytes, one chunk after another (None: at once). Gradients follow from `seed`.
    With a `protocol` sites ask a scheduler before every round, and `policy` is only what it would decide at first.
    `silent` nodes have gradients of nothing but zeros. `bits` is how many bits per element each node pushes as a leaf
    (empty: all 32). Under `window` a leaf may be so many chunks ahead of the last one that the root has added up (0: as
    many as it likes). `oldest_first` queues send in the order of the chunks, results first. In `held` the first node
    keeps its sums, where they are to be near a direct sum rather than equal to it. `trained`: gradients are those of a
    real model (`learner`). Raises InputError for lists that do not fit together.
    """

    sites: tuple[str, ...]
    ips: tuple[str, ...]
    port: int
    chunks: tuple[int, ...]
    policy: Policy
    rounds: int
    compute_s: tuple[float, ...]
    merge_bytes_per_s: float | None
    seed: int
    congestion_control: str
    protocol: Protocol | None = None
    silent: tuple[int, ...] = ()
    bits: tuple[int, ...] = ()
    window: int = 0
    oldest_first: bool = False
    held: str = ""
    trained: bool = False

    def __post_init__(self) -> None:
        nodes = len(self.sites)
        for what, length in (("ips", len(self.ips)), ("compute_s", len(self.compute_s))):
            if length != nodes:
                raise InputError("sync", f"{length} {what} for {nodes} sites", "one each")
        for way in self.policy.ways:
            if len(way.push.parents) != nodes:
                raise InputError("sync", f"a tree of {len(way.push.parents)} nodes for {nodes} sites", "all of them")
        if len(self.policy.way_of) != len(self.chunks):
            raise InputError("sync", f"{len(self.policy.way_of)} chunks have ways, of {len(self.chunks)}", "all")
        if self.merge_bytes_per_s is not None and not self.merge_bytes_per_s > 0:
            raise InputError("sync.merge_rate", f"{self.merge_bytes_per_s:g} B/s", "above 0")

    def bits_of(self, node: int) -> int:
        """How many bits per element a node pushes as a leaf."""
        return self.bits[node] if self.bits else FULL_BITS

    def neighbours(self, node: int) -> list[int]:
        """The nodes that this one exchanges chunks with, in order."""
        return sorted({a + b - node for a, b in self.policy.pairs() if node in (a, b)})

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SyncPlan:
        """The inverse of `to_dict`."""
        policy = data["policy"]
        ways = tuple(
            Way(*(Tree(way[t]["root"], tuple(way[t]["parents"])) for t in ("push", "pull"))) for way in policy["ways"]
        )
        lists = {key: tuple(data[key]) for key in ("sites", "ips", "chunks", "compute_s", "silent", "bits")}
        protocol = data.get("protocol") and Protocol.from_dict(data["protocol"])
        made = Policy(policy["version"], ways, tuple(policy["way_of"]))
        return cls(**data | lists | {"policy": made, "protocol": protocol})
