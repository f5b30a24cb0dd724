"""A round chunk by chunk: trees share links, chunks pipeline, and queues build up.

Every ordered pair of neighbours has one connection with one queue, first in, first out unless the plan says otherwise.
The chunk at its head is a flow; flows share links max–min fairly, or by their windows (`windows`), and their
acknowledgements take a part of the links back. A node adds a child's chunk to its own when it has come, one after
another at a stated rate; once all children and its own worker have delivered, the sum goes to the parent, and from the
root back down. What is sent again is not modelled; `goodput` is the part of a link's rate that is left for payload.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from controllers.netstorm import auxiliary
from controllers.netstorm.auxiliary import Path
from controllers.netstorm.links import Fluid
from controllers.netstorm.overlay import BITS, Overlay, Pair, Rule
from controllers.netstorm.tree import Plan, Way
from controllers.netstorm.windows import Queues, Windows

Kind = Literal["sent", "received", "merged", "forwarded"]


@dataclass(frozen=True)
class Change:
    """A link's capacity in bit/s from `t_s` on."""

    t_s: float
    link: str
    capacity_bps: float


@dataclass(frozen=True)
class Conditions:
    """What a round meets with beside the plan.

    `ready_s` is when each node's gradients are there (0 where not said); `merge_bps` bits added up per second;
    `goodput` the payload's part of a link's rate; `ack` the part of a flow's rate that its acknowledgements need of the
    way back; `queues` those of links, where flows have windows; `changes` of links, in
    order of time; `auxiliary` the auxiliary paths of pairs, used by the queue rule; `rule` how pairs without a tunnel
    are reached by plans that are `meshed`.
    """

    ready_s: Mapping[str, float] = field(default_factory=dict)
    merge_bps: float = math.inf
    goodput: float = 1.0
    ack: float = 0.0
    queues: Queues | None = None
    changes: Sequence[Change] = ()
    auxiliary: Mapping[Pair, tuple[Path, ...]] = field(default_factory=dict)
    rule: Rule = "hops"


IDEAL = Conditions()


@dataclass(frozen=True)
class Happened:
    """Something that happened to a chunk at a node. `peer`: to or from whom."""

    t_s: float
    kind: Kind
    node: str
    chunk: int
    peer: str = ""


@dataclass(frozen=True)
class Measured:
    """Means over a node's chunks on the push, in seconds.

    `transmission_s` from handing a chunk to the queue to its arrival at the parent, `blocking_s` from there to when the
    last of its siblings and of the parent's own is there, `aggregation_s` from then to the sum.
    """

    transmission_s: float
    blocking_s: float
    aggregation_s: float


@dataclass(frozen=True)
class Transfer:
    """One chunk's journey over one tunnel: what passive awareness measures."""

    source: str
    target: str
    size_bytes: float
    began_s: float
    ended_s: float


@dataclass(frozen=True)
class Outcome:
    """How a round went, in seconds from its beginning.

    `push_s` is when the last root has its last sum, `round_s` when the last node has the last result. `root_s` is when
    everybody has what a root handed out; `sent_bytes` of every link; `transfers` in order of their ends.
    """

    round_s: float
    push_s: float
    node_s: dict[str, float]
    root_s: dict[str, float]
    sent_bytes: dict[str, float]
    measured: dict[str, Measured]
    transfers: tuple[Transfer, ...]
    events: tuple[Happened, ...]


@dataclass(eq=False)
class _Message:
    chunk: int
    push: bool
    source: str
    path: Path  # nodes still to come, the target last
    size_bits: float
    handed_s: float
    began_s: float = 0.0


def simulate(
    overlay: Overlay, plan: Plan, conditions: Conditions = IDEAL, windows: Windows[Pair] | None = None
) -> Outcome:
    """Return how a round of the plan goes on this overlay, whose links are what they are, whatever was believed.

    `windows`: the `connections` that earlier rounds have left.
    """
    simulation = _Round(seen(overlay, plan, conditions), plan, conditions, windows)
    return simulation.run()


def seen(overlay: Overlay, plan: Plan, conditions: Conditions) -> Overlay:
    """The overlay with the pairs that a plan may use."""
    return overlay.mesh(conditions.rule) if plan.meshed else overlay


def connections(overlay: Overlay, plan: Plan, conditions: Conditions) -> Windows[Pair] | None:
    """The connections of a plan before its first round; None where flows have no windows: no queues, or in turns."""
    if conditions.queues is None or plan.ordered:
        return None
    used = seen(overlay, plan, conditions)
    return Windows(
        _capacity_bps(overlay, conditions), conditions.queues, ack=conditions.ack,
        back=lambda pair: _back(used, pair), latency=lambda pair: _round_trip_s(used, pair),
    )  # fmt: skip


def _capacity_bps(overlay: Overlay, conditions: Conditions) -> dict[str, float]:
    return {link: one * conditions.goodput for link, one in overlay.links_bps.items()}


def _back(overlay: Overlay, pair: Pair) -> tuple[str, ...]:
    """Where the acknowledgements of what one node sends to another go."""
    opposite = (pair[1], pair[0])
    return overlay.links(*opposite) if opposite in overlay.by_pair else ()


def _round_trip_s(overlay: Overlay, pair: Pair) -> float:
    back = overlay.by_pair.get((pair[1], pair[0]))
    return overlay.by_pair[pair].latency_s + (back.latency_s if back else 0.0)


class _Round:
    def __init__(
        self, overlay: Overlay, plan: Plan, conditions: Conditions, windows: Windows[Pair] | None = None
    ) -> None:
        self.overlay, self.plan, self.conditions = overlay, plan, conditions
        self.active = set(plan.active or overlay.nodes)
        self.now_s = 0.0
        self.queues: dict[Pair, deque[_Message]] = {}
        turn = (lambda pair: (self.queues[pair][0].chunk,)) if plan.ordered else None
        windows = windows or connections(overlay, plan, conditions)
        self.fluid: Fluid[Pair] | Windows[Pair] = windows or Fluid(
            _capacity_bps(overlay, conditions), turn, ack=conditions.ack, back=lambda pair: _back(overlay, pair)
        )
        self.later: list[tuple[float, int, str, object]] = []
        self.number = 0
        self.free_s = dict.fromkeys(overlay.nodes, 0.0)
        self.missing = [
            {node: len(way.push.children[node]) + (node in self.active) for node in way.push.order}
            for way in (plan.ways[number] for number in plan.way_of)
        ]
        self.arrived_s: dict[tuple[int, str], float] = {}
        self.last_s: dict[tuple[int, str], float] = {}
        self.transmission: dict[str, list[float]] = {node: [] for node in overlay.nodes}
        self.blocking: dict[str, list[float]] = {node: [] for node in overlay.nodes}
        self.aggregation: dict[str, list[float]] = {node: [] for node in overlay.nodes}
        self.node_s = dict.fromkeys(overlay.nodes, 0.0)
        self.root_s = {way.root: 0.0 for way in plan.ways}
        self.push_s = 0.0
        self.left = sum(len(self._way(chunk).pull.order) for chunk in range(len(plan.chunks)))
        self.sent_bytes = dict.fromkeys(overlay.links_bps, 0.0)
        self.transfers: list[Transfer] = []
        self.events: list[Happened] = []

    def run(self) -> Outcome:
        for node in self.overlay.nodes:
            self._at(self.conditions.ready_s.get(node, 0.0), "ready", node)
        for change in self.conditions.changes:
            self._at(change.t_s, "change", change)
        while self.left:
            next_s = self.later[0][0] if self.later else math.inf
            ended = self.fluid.run_until(next_s)
            if ended is not None:
                self.now_s = self.fluid.now_s
                self._transmitted(ended)
                continue
            if not self.later:
                raise RuntimeError(f"{self.plan.name}: nothing happens any more, and {self.left} results are missing")
            self.now_s, _, what, about = heapq.heappop(self.later)
            self._happen(what, about)
        measured = {
            node: Measured(_mean(self.transmission[node]), _mean(self.blocking[node]), _mean(self.aggregation[node]))
            for node in self.overlay.nodes
        }
        return Outcome(
            max(self.node_s.values()), self.push_s, self.node_s, self.root_s, self.sent_bytes, measured,
            tuple(self.transfers), tuple(self.events),
        )  # fmt: skip

    def _at(self, t_s: float, what: str, about: object) -> None:
        self.number += 1
        heapq.heappush(self.later, (t_s, self.number, what, about))

    def _happen(self, what: str, about: object) -> None:
        if isinstance(about, str):  # a worker's gradients are there
            for chunk in range(len(self.plan.chunks)):
                if about in self.active and about in self.missing[chunk]:
                    self.last_s[chunk, about] = self.now_s
                    self._delivered(chunk, about)
        elif isinstance(about, Change):
            self.fluid.change(about.link, about.capacity_bps * self.conditions.goodput)
        elif isinstance(about, _Message):
            (self._arrived if what == "arrived" else self._added)(about)

    def _way(self, chunk: int) -> Way:
        return self.plan.ways[self.plan.way_of[chunk]]

    def _note(self, kind: Kind, node: str, chunk: int, peer: str = "") -> None:
        self.events.append(Happened(self.now_s, kind, node, chunk, peer))

    def _delivered(self, chunk: int, node: str) -> None:
        """One of those that a node waits for has delivered."""
        self.missing[chunk][node] -= 1
        if self.missing[chunk][node]:
            return
        self._note("merged", node, chunk)
        way = self._way(chunk)
        for child in way.push.children[node]:
            self.blocking[child].append(self.last_s[chunk, node] - self.arrived_s[chunk, child])
        if way.push.children[node]:
            self.aggregation[node].append(self.now_s - self.last_s[chunk, node])
        if node == way.root:
            self.push_s = self.now_s
            self._result(chunk, node)
        else:
            share = self.plan.push_share.get(node, 1.0) if not way.push.children[node] else 1.0
            self._send(chunk, True, node, way.push.parent[node], share)

    def _result(self, chunk: int, node: str) -> None:
        self.left -= 1
        self.node_s[node] = self.now_s
        way = self._way(chunk)
        self.root_s[way.root] = self.now_s
        for child in way.pull.children[node]:
            self._send(chunk, False, node, child, 1.0)

    def _send(self, chunk: int, push: bool, node: str, target: str, share: float) -> None:
        size_bits = self.plan.chunks[chunk].size_bytes * BITS * share
        self._note("sent", node, chunk, target)
        self._enqueue(node, _Message(chunk, push, node, (target,), size_bits, self.now_s))
        self._spread(node)

    def _spread(self, node: str) -> None:
        """Apply the queue rule to what waits at a node for a tunnel of its tree."""
        if not self.conditions.auxiliary:
            return
        peers = self.overlay.neighbours[node]
        for peer in peers:
            others = self.conditions.auxiliary.get((node, peer), ())
            for message in list(auxiliary.behind(self.queues.get((node, peer), ()))) if others else ():
                if message.source != node or message.path != (peer,):
                    continue  # only forwarded here, or already on its way round
                queued = {one: len(self.queues.get((node, one), ())) for one in peers}
                path = auxiliary.choose((node, peer), others, queued)
                if path[1] == peer:
                    break
                self.queues[node, peer].remove(message)
                message.path = path[1:]
                self._enqueue(node, message)

    def _enqueue(self, node: str, message: _Message) -> None:
        queue = self.queues.setdefault((node, message.path[0]), deque())
        place = len(queue)
        if self.plan.oldest_first:
            while place > 1 and (message.chunk, message.push) < (queue[place - 1].chunk, queue[place - 1].push):
                place -= 1
        queue.insert(place, message)
        if len(queue) == 1:
            self._start((node, message.path[0]))

    def _start(self, pair: Pair) -> None:
        message = self.queues[pair][0]
        message.began_s = self.now_s
        self.fluid.start(pair, self.overlay.links(*pair), message.size_bits, self.now_s)

    def _transmitted(self, pair: Pair) -> None:
        message = self.queues[pair].popleft()
        latency_s = self.overlay.by_pair[pair].latency_s
        for link in self.overlay.links(*pair):
            self.sent_bytes[link] += message.size_bits / BITS
        ended_s = self.now_s + latency_s
        self.transfers.append(Transfer(*pair, message.size_bits / BITS, message.began_s, ended_s))
        self._at(ended_s, "arrived", message)
        if self.queues[pair]:
            self._start(pair)
        self._spread(pair[0])

    def _arrived(self, message: _Message) -> None:
        node, path = message.path[0], message.path[1:]
        self._note("forwarded" if path else "received", node, message.chunk, message.source)
        if path:
            message.path = path
            self._enqueue(node, message)
        elif not message.push:
            self._result(message.chunk, node)
        else:
            self.arrived_s[message.chunk, message.source] = self.last_s[message.chunk, node] = self.now_s
            self.transmission[message.source].append(self.now_s - message.handed_s)
            self.free_s[node] = max(self.free_s[node], self.now_s) + message.size_bits / self.conditions.merge_bps
            self._at(self.free_s[node], "added", message)

    def _added(self, message: _Message) -> None:
        self._delivered(message.chunk, message.path[0])


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
