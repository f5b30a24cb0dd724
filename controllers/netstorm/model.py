"""A small model of the protocol under fire: nodes, a scheduler and a network that does its worst, all by one seed.

Control messages take random times and so overtake each other; tunnels change speed, are cut and come back; nodes are
killed and started again; throughputs are reported and policies change in the middle of rounds. What may never happen
is watched: a sum that lacks a node or has one twice, a chunk that is pushed twice in a stage or comes to a node twice
on one way, a round that is completed twice or not in order, and a standstill.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from controllers.netstorm import strategies
from controllers.netstorm.awareness import Settings
from controllers.netstorm.messages import Complete, Data, Order, ToNode, ToScheduler, Transmit
from controllers.netstorm.node import Node
from controllers.netstorm.overlay import Overlay, Pair, Tunnel
from controllers.netstorm.scheduler import Scheduler
from controllers.netstorm.tree import Plan

Names = tuple[str, ...]  # what a sum is made of: the nodes whose gradients are in it
TICK_S = 5.0
LONGEST_S = 5_000.0
CHUNK_ELEMENTS = 100_000


@dataclass(frozen=True)
class World:
    """What is tried: how many nodes, chunks and rounds, and how often a second something bad happens."""

    nodes: int = 6
    chunks: int = 8
    rounds: int = 4
    control_s: float = 1.0
    kills_per_s: float = 0.03
    cuts_per_s: float = 0.05
    reports_per_s: float = 0.5
    away_s: float = 3.0
    limit_bytes: int = 1_000_000
    fire_s: float = 60.0


@dataclass
class Tally:
    """What happened in a run: counts by kind, and everything that may not happen, in words."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    ended_s: float = 0.0


def try_seed(seed: int, world: World | None = None) -> Tally:
    """Return what happened under a seed: `faults` is empty if nothing went wrong."""
    return _Run(seed, world or World()).run()


class _Run:
    def __init__(self, seed: int, world: World) -> None:
        self.world, self.random, self.tally = world, random.Random(seed), Tally()
        self.overlay = _overlay(world.nodes, self.random)
        self.sizes = [4 * CHUNK_ELEMENTS] * world.chunks
        self.scheduler = Scheduler(
            self.overlay, self._strategy, chunk_bytes=self.sizes[0], awareness=Settings(look_s=2.0)
        )
        self.alive: dict[str, Node[Names]] = {}
        self.incarnation = dict.fromkeys(self.overlay.nodes, 0)
        self.complete = dict.fromkeys(self.overlay.nodes, 0)
        self.cut: set[frozenset[str]] = set()
        self.cuts: Counter[frozenset[str]] = Counter()
        self.pushed: set[tuple[object, ...]] = set()
        self.passed: set[tuple[object, ...]] = set()
        self.now_s, self.number = 0.0, 0
        self.later: list[tuple[float, int, Callable[[], None]]] = []

    def _strategy(self, overlay: Overlay) -> Plan:
        tensors = [CHUNK_ELEMENTS] * self.world.chunks
        count = self.random.randint(1, len(overlay.nodes))
        return strategies.multi_root(overlay, tensors, count, chunk_elements=CHUNK_ELEMENTS)

    def run(self) -> Tally:
        for node in self.overlay.nodes:
            self._begin(node)
        for rate, strike in (
            (self.world.kills_per_s, self._kill),
            (self.world.cuts_per_s, self._cut),
            (self.world.reports_per_s, self._report),
        ):
            if rate:
                self._strikes(rate, strike)
        self._tick()
        while self.later and not self.tally.faults and min(self.complete.values()) < self.world.rounds:
            self.now_s, _, happen = heapq.heappop(self.later)
            if self.now_s > LONGEST_S:
                self.tally.faults.append("a standstill: " + "; ".join(map(str, (self.scheduler, *self.alive.values()))))
            happen()
        self.tally.ended_s = self.now_s
        self.tally.counts["stages"] = len({entry[0] for entry in self.pushed})
        return self.tally

    def _in(self, after_s: float, happen: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.later, (self.now_s + after_s, self.number, happen))

    def _strikes(self, per_s: float, strike: Callable[[], None]) -> None:
        def again() -> None:
            if self.now_s < self.world.fire_s:
                strike()
                self._in(self.random.expovariate(per_s), again)

        self._in(self.random.expovariate(per_s), again)

    def _tick(self) -> None:
        for node in list(self.alive):
            self._do(node, self.alive[node].tick())
        self._carry(self.scheduler.look(self.now_s))
        self._in(TICK_S, self._tick)

    def _begin(self, name: str) -> None:
        """Start a node, for the first time or again."""
        self.incarnation[name] += 1
        node = Node[Names](
            name, self.sizes, lambda _round, _chunk: (name,), lambda one, other: one + other,
            incarnation=self.incarnation[name], complete=self.complete[name], limit_bytes=self.world.limit_bytes,
        )  # fmt: skip
        self.alive[name] = node
        self._do(name, node.start())
        for peer in self.overlay.neighbours[name]:
            if frozenset((name, peer)) in self.cut:
                self._do(name, node.link(peer, False))
        self._compute(name)

    def _compute(self, name: str) -> None:
        node, number = self.alive[name], self.complete[name] + 1

        def ready() -> None:
            if self.alive.get(name) is node and number <= self.world.rounds:
                self._do(name, node.ready(number))

        self._in(self.random.uniform(0.1, 2.0), ready)

    def _do(self, name: str, orders: list[Order[Names]]) -> None:
        for order in orders:
            if isinstance(order, ToScheduler):
                message = order.message
                self._control(lambda message=message: self._carry(self.scheduler.heard(message)))  # type: ignore[misc]
            elif isinstance(order, Transmit):
                self._transmit(name, order.peer, order.data)
            else:
                self._completed(name, order)

    def _control(self, deliver: Callable[[], None]) -> None:
        self.tally.counts["control messages"] += 1
        self._in(self.random.expovariate(1 / self.world.control_s), deliver)

    def _carry(self, messages: list[ToNode]) -> None:
        for one in messages:

            def deliver(one: ToNode = one) -> None:
                if one.node in self.alive:
                    self._do(one.node, self.alive[one.node].heard(one.message))

            self._control(deliver)

    def _transmit(self, name: str, peer: str, data: Data[Names]) -> None:
        self._watch(name, peer, data)
        sender, receiver = self.alive[name], self.incarnation[peer]
        tunnel = frozenset((name, peer))
        cuts, down = self.cuts[tunnel], tunnel in self.cut
        took_s = self.overlay.by_pair[name, peer].transfer_s(self.sizes[data.chunk]) * self.random.uniform(0.5, 4)

        def off() -> None:
            if self.alive.get(name) is sender:
                self._do(name, sender.sent(peer))
            # What was on its way when something broke is lost, also if all is well again by now.
            if down or self.cuts[tunnel] != cuts or peer not in self.alive or self.incarnation[peer] != receiver:
                self.tally.counts["lost in a tunnel"] += 1
            else:
                self._do(peer, self.alive[peer].arrived(data))

        self._in(took_s, off)

    def _watch(self, name: str, peer: str, data: Data[Names]) -> None:
        life, origin = self.incarnation[name], (data.source, self.incarnation[data.source])
        self.tally.counts["chunks sent"] += 1
        if data.path[-1] != peer or data.source != name:
            self.tally.counts["by an auxiliary path"] += 1
        passed = (data.stage, data.chunk, data.push, origin, data.target, name, life)
        if passed in self.passed:
            self.tally.faults.append(f"a loop: {name} sends chunk {data.chunk} of {data.stage} to {data.target} again")
        self.passed.add(passed)
        if data.push and data.source == name:
            pushed = (data.stage, data.chunk, name, life)
            if pushed in self.pushed:
                self.tally.faults.append(f"{name} pushes chunk {data.chunk} of {data.stage} twice")
            self.pushed.add(pushed)

    def _completed(self, name: str, order: Complete[Names]) -> None:
        if order.round != self.complete[name] + 1:
            self.tally.faults.append(f"{name} completes round {order.round} after {self.complete[name]}")
        for chunk in range(self.world.chunks):
            if sorted(order.results.get(chunk, ())) != sorted(self.overlay.nodes):
                self.tally.faults.append(f"{name} has a sum of {order.results.get(chunk)} in round {order.round}")
        self.complete[name] = order.round
        self.tally.counts["rounds completed"] += 1
        self._compute(name)

    def _kill(self) -> None:
        name = self.random.choice(self.overlay.nodes)
        if name in self.alive:
            self.tally.counts["kills"] += 1
            del self.alive[name]
            self._in(self.random.expovariate(1 / self.world.away_s), lambda: self._begin(name))

    def _cut(self) -> None:
        name, peer = self.random.choice(sorted(self.overlay.by_pair))
        tunnel = frozenset((name, peer))
        if tunnel in self.cut:
            return
        self.tally.counts["cuts"] += 1
        self.cut.add(tunnel)
        self.cuts[tunnel] += 1
        self._seen((name, peer), False)

        def heal() -> None:
            self.cut.discard(tunnel)
            self._seen((name, peer), True)

        self._in(self.random.expovariate(1 / self.world.away_s), heal)

    def _seen(self, ends: Pair, up: bool) -> None:
        """Both ends notice what happened to their tunnel, each in its own time but in order."""
        for name, peer in (ends, ends[::-1]):
            if name in self.alive:
                self._do(name, self.alive[name].link(peer, up))

    def _report(self) -> None:
        pair = self.random.choice(sorted(self.overlay.by_pair))
        rate_bps = self.overlay.by_pair[pair].throughput_bps * self.random.uniform(0.2, 5)
        self._control(lambda: self.scheduler.report(*pair, rate_bps))


def _overlay(nodes: int, generator: random.Random) -> Overlay:
    """Return a ring with some chords, of random throughputs: no single cut leaves it in pieces, two may."""
    names = [f"n{number}" for number in range(nodes)]
    pairs = {tuple(sorted((names[number - 1], names[number]))) for number in range(nodes)}
    for _ in range(nodes // 2):
        pairs.add(tuple(sorted(generator.sample(names, 2))))
    ends = [pair for a, b in sorted(pairs) for pair in ((a, b), (b, a))]
    return Overlay(tuple(names), tuple(Tunnel(a, b, generator.uniform(2e6, 20e6)) for a, b in ends))
