"""Policies, topology requests, buffering, backpressure; and the protocol under fire, with a watcher that is watched."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netstorm_overlays import both_ways

from controllers.netstorm import strategies
from controllers.netstorm.messages import (
    Answer,
    Complete,
    Data,
    Hello,
    Link,
    Policy,
    Request,
    Routes,
    ToScheduler,
    Transmit,
)
from controllers.netstorm.model import World, try_seed
from controllers.netstorm.node import Node
from controllers.netstorm.overlay import Overlay
from controllers.netstorm.scheduler import Scheduler
from controllers.netstorm.tree import Tree, Way

SEEDS = 40
CHAIN = Way.both(Tree("a", {"b": "a", "c": "b"}))
POLICY = Policy(1, (CHAIN,), (0, 0))


def node(name: str, sizes: tuple[int, ...] = (10, 10), **more: int) -> Node[int]:
    """A node whose gradients are ones."""
    return Node(name, sizes, lambda _round, _chunk: 1, lambda one, other: one + other, **more)


def answer(number: int, attempt: int = 0, policy: Policy | None = POLICY, routes: Routes | None = None) -> Answer:
    return Answer((number, attempt), 1, policy, routes or Routes(1))


def pushed(orders: list[object]) -> list[tuple[str, int, int]]:
    """(peer, chunk, value) of what is transmitted."""
    return [(one.peer, one.data.chunk, one.data.value) for one in orders if isinstance(one, Transmit)]


def test_a_worker_asks_before_it_pushes_and_again_until_it_is_answered() -> None:
    leaf = node("c")
    assert leaf.ready(1) == [ToScheduler(Request("c", 1, 1, 0))]
    assert leaf.tick() == [ToScheduler(Request("c", 1, 1, 0))]
    assert pushed(leaf.heard(answer(1))) == [("b", 0, 1)]
    assert pushed(leaf.sent("b")) == [("b", 1, 1)]
    assert leaf.tick() == []
    assert leaf.ready(2) == [ToScheduler(Request("c", 1, 2, 1))]
    leaf.sent("b")
    assert pushed(leaf.heard(answer(2, policy=None))) == [("b", 0, 1)]


def test_data_for_a_relation_that_is_not_known_yet_is_buffered() -> None:
    inner = node("b")
    inner.ready(1)
    assert inner.arrived(Data((1, 0), 0, True, "c", ("b",), 1)) == []
    assert pushed(inner.heard(answer(1))) == [("a", 0, 2)]


def test_what_is_late_is_dropped_and_what_comes_twice_counts_once() -> None:
    root = node("a", (10,))
    root.ready(1)
    root.heard(answer(1, 1, Policy(1, (CHAIN,), (0,))))
    assert root.arrived(Data((1, 0), 0, True, "b", ("a",), 5)) == []
    orders = root.arrived(Data((1, 1), 0, True, "b", ("a",), 2))
    assert Complete(1, {0: 3}) in orders
    assert pushed(orders) == [("b", 0, 3)]
    assert root.arrived(Data((1, 1), 0, True, "b", ("a",), 2)) == []
    assert root.heard(answer(1, 0)) == []


def test_who_is_passed_follows_the_path_and_nothing_else() -> None:
    passed = node("x")
    (order,) = passed.arrived(Data((7, 0), 0, True, "c", ("x", "y", "a"), 1))
    assert order == Transmit("y", Data((7, 0), 0, True, "c", ("y", "a"), 1))


def test_what_is_passed_on_for_a_stage_that_is_not_known_yet_is_kept_when_it_begins() -> None:
    """Whoever had the answer first sends through nodes that have it later: clearing their queues would lose chunks."""
    passed = node("x")
    passed.arrived(Data((1, 0), 0, True, "c", ("x", "a"), 1))
    for stage in ((1, 0), (2, 0)):
        assert passed.arrived(Data(stage, 1, True, "c", ("x", "a"), 1)) == []
    leaves = Policy(1, (Way.both(Tree("a", {"x": "a"})),), (0, 0))
    passed.heard(Answer((2, 0), 1, leaves, Routes(1)))
    assert [(one.data.stage, one.data.chunk) for one in passed.sent("a") if isinstance(one, Transmit)] == [((2, 0), 1)]
    assert passed.sent("a") == []


def test_a_worker_stops_at_the_limit_and_goes_on_below_a_fifth() -> None:
    leaf = node("c", (10,) * 12, limit_bytes=50)
    leaf.ready(1)
    leaf.heard(answer(1, policy=Policy(1, (CHAIN,), (0,) * 12)))
    assert leaf.cached_bytes() == 50
    for left in (40, 30, 20, 10):
        leaf.sent("b")
        assert leaf.cached_bytes() == left
    leaf.sent("b")
    assert leaf.cached_bytes() == 50


def test_auxiliary_routes_count_at_once_and_the_queue_rule_holds() -> None:
    leaf = node("c", (10,) * 6)
    leaf.ready(1)
    assert pushed(leaf.heard(answer(1, policy=Policy(1, (CHAIN,), (0,) * 6)))) == [("b", 0, 1)]
    assert leaf.heard(Routes(2, {("c", "b"): (("c", "a", "b"),)})) == []
    orders = leaf.sent("b")  # four are still queued behind the one that goes now, so one of them goes round
    assert [(one.peer, one.data.chunk, one.data.path) for one in orders] == [("b", 1, ("b",)), ("a", 4, ("a", "b"))]
    assert leaf.heard(Routes(1)) == []


TRIANGLE = Overlay(("a", "b", "c"), both_ways([("a", "b", 10), ("b", "c", 20), ("a", "c", 5)]))


def scheduler() -> Scheduler:
    return Scheduler(TRIANGLE, lambda overlay: strategies.multi_root(overlay, [2_000_000]), chunk_bytes=4e6)


def test_the_scheduler_answers_when_all_have_asked_and_says_when_nothing_has_changed() -> None:
    one = scheduler()
    assert one.heard(Request("a", 1, 1, 0)) == one.heard(Request("b", 1, 1, 0)) == []
    first = one.heard(Request("c", 1, 1, 0))
    assert [order.node for order in first] == ["a", "b", "c"]
    assert all(order.message.policy is not None and order.message.stage == (1, 0) for order in first)
    for name in "ab":
        assert one.heard(Request(name, 1, 2, 1)) == []
    assert [order.message.policy for order in one.heard(Request("c", 1, 2, 1))] == [None] * 3
    (again,) = one.heard(Request("a", 1, 2, 0))
    assert again.message.policy is not None


def test_reports_change_the_policy_at_the_next_round_and_routes_at_once() -> None:
    one = scheduler()
    for name in "abc":
        first = one.heard(Request(name, 1, 1, 0))
    one.report("a", "c", 500e6)
    (route, *_) = one.look(5.0)
    assert isinstance(route.message, Routes)
    assert route.message.number > first[0].message.routes.number
    for name in "abc":
        second = one.heard(Request(name, 1, 2, 1))
    assert second[0].message.version == 2
    assert second[0].message.policy is not None


def test_a_restart_and_a_cut_begin_the_round_again_without_what_is_down() -> None:
    one = scheduler()
    for name in "abc":
        one.heard(Request(name, 1, 1, 0))
    again = one.heard(Hello("b", 2))
    assert {order.message.stage for order in again} == {(1, 1)}
    assert [order.node for order in one.heard(Hello("b", 2))] == ["b"]
    cut = one.heard(Link("b", "c", 2, 1, False))
    assert {order.message.stage for order in cut} == {(1, 2)}
    assert all({"b", "c"} != set(pair) for order in cut for way in order.message.policy.ways for pair in way.pairs())
    assert one.heard(Link("c", "b", 1, 1, False)) == []  # the other end of the same cut
    assert one.heard(Link("a", "c", 1, 1, False)) == []  # in pieces: it waits
    assert {order.message.stage for order in one.heard(Link("a", "c", 1, 2, True))} == {(1, 3)}


def test_a_cut_that_is_heard_of_only_afterwards_counts() -> None:
    one = scheduler()
    for name in "abc":
        one.heard(Request(name, 1, 1, 0))
    assert {order.message.stage for order in one.heard(Link("a", "b", 1, 2, True))} == {(1, 1)}
    assert one.heard(Link("a", "b", 1, 1, False)) == []
    assert one.down == set()


def test_nothing_is_lost_counted_twice_or_stuck_under_fire() -> None:
    """The first of the thousand seeds that `python -m benchmarks --only netstorm` tries."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        tally = try_seed(seed)
        assert tally.faults == [], f"seed {seed}"
        assert tally.counts["rounds completed"] == 24
        counts += tally.counts
    print(f"{SEEDS} seeds: {dict(counts)}")
    for what in ("kills", "cuts", "lost in a tunnel", "by an auxiliary path"):
        assert counts[what] > SEEDS / 2, what
    assert counts["stages"] > SEEDS * 4, "no round was ever begun again"


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 10), st.floats(0.01, 20))
def test_nor_in_other_worlds(seed: int, nodes: int, chunks: int, control_s: float) -> None:
    world = World(nodes, chunks, 2, control_s=control_s, kills_per_s=0.1, cuts_per_s=0.1, fire_s=30.0)
    assert try_seed(seed, world).faults == []


def faults(world: World | None = None) -> set[str]:
    """The first words of all faults under some seeds."""
    return {fault[:6] for seed in range(6) for fault in try_seed(seed, world).faults}


def test_the_watcher_sees_what_an_old_stage_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that take data of an earlier stage for that of their own: sums of two attempts, or rounds, mix."""
    honest = Node.arrived

    def careless(self: Node[tuple[str, ...]], data: Data[tuple[str, ...]]) -> list[object]:
        return honest(self, replace(data, stage=max(data.stage, self.stage)))

    monkeypatch.setattr(Node, "arrived", careless)
    assert faults(World(kills_per_s=0.1, cuts_per_s=0.3, reports_per_s=2.0))


def test_the_watcher_sees_a_chunk_that_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Node._deliver

    def twice(self: Node[tuple[str, ...]], chunk: int, source: str, value: tuple[str, ...]) -> None:
        honest(self, chunk, source, value if source == self.name else value + value)

    monkeypatch.setattr(Node, "_deliver", twice)
    assert all("has a sum" in fault for seed in range(3) for fault in try_seed(seed).faults)
    assert faults()


def test_the_watcher_sees_a_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that does not begin again after a restart or a cut leaves everybody waiting."""
    monkeypatch.setattr(Scheduler, "_again", lambda _: [])
    assert faults(World(kills_per_s=0.1)) == {"a stan"}
