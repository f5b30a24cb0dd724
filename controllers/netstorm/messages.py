"""What scheduler and nodes say to each other, and what they ask of whoever runs them.

A round is tried once more, as another *attempt*, when a node was restarted or a tunnel was cut in the middle of it. All
data carries its round and attempt; since every attempt has one policy, no two policies ever meet in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from controllers.netstorm.auxiliary import Path
from controllers.netstorm.overlay import Pair
from controllers.netstorm.tree import Way

V = TypeVar("V")
Stage = tuple[int, int]
"""A round, from 1, and an attempt at it, from 0; what is greater is later."""


@dataclass(frozen=True)
class Policy:
    """The ways of all chunks. Versions grow with every decision."""

    version: int
    ways: tuple[Way, ...]
    way_of: tuple[int, ...]

    def way(self, chunk: int) -> Way:
        """Return the way of a chunk."""
        return self.ways[self.way_of[chunk]]


@dataclass(frozen=True)
class Routes:
    """Auxiliary paths, used from the moment they are known; a higher number replaces a lower one."""

    number: int
    paths: Mapping[Pair, tuple[Path, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """TRP: a node's gradients of a round are there, and it knows this version of the policy (0: none)."""

    node: str
    incarnation: int
    round: int
    version: int


@dataclass(frozen=True)
class Hello:
    """A node has started again, for the `incarnation`-th time."""

    node: str
    incarnation: int


@dataclass(frozen=True)
class Link:
    """The tunnel between a node and a peer is down or up; `count` numbers what this incarnation has seen of it."""

    node: str
    peer: str
    incarnation: int
    count: int
    up: bool


@dataclass(frozen=True)
class Report:
    """The throughput of the tunnel from `source` to `target` in bit/s, as its end measures it (`awareness`)."""

    source: str
    target: str
    throughput_bps: float


@dataclass(frozen=True)
class Answer:
    """What holds in a stage. `policy` None: no change, it is the version that the node knows."""

    stage: Stage
    version: int
    policy: Policy | None
    routes: Routes


@dataclass(frozen=True)
class Data(Generic[V]):
    """A chunk on its way from `source` to the last node of `path`, which holds all nodes that are still to come."""

    stage: Stage
    chunk: int
    push: bool
    source: str
    path: Path
    value: V

    @property
    def target(self) -> str:
        """Whom it is for."""
        return self.path[-1]


@dataclass(frozen=True)
class ToScheduler:
    """To be carried to the scheduler, surely but at leisure."""

    message: Request | Hello | Link | Report


@dataclass(frozen=True)
class ToNode:
    """To be carried to a node, at leisure; lost if it is down."""

    node: str
    message: Answer | Routes


@dataclass(frozen=True)
class Transmit(Generic[V]):
    """To be sent over the tunnel to a peer; the node is to be told (`Node.sent`) when the next may go."""

    peer: str
    data: Data[V]


@dataclass(frozen=True)
class Complete(Generic[V]):
    """A node has all sums of a round, by chunk; its number and what it stands for are to be kept on disk."""

    round: int
    results: Mapping[int, V]


Order = ToScheduler | Transmit[V] | Complete[V]
