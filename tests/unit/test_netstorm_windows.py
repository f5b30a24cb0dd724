"""Windows: what TCP's flows get of shared links, and when."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.netstorm import strategies
from controllers.netstorm.chunks import cut
from controllers.netstorm.overlay import Overlay, Tunnel
from controllers.netstorm.simulate import Conditions, connections, simulate
from controllers.netstorm.tree import Plan, Tree, Way
from controllers.netstorm.windows import Queues, Windows

SEGMENT_BYTES = 1250
SEGMENT_BITS = 8 * SEGMENT_BYTES
MBIT = 1e6
Paths = dict[str, tuple[str, ...]]


def windows(
    capacity_bps: dict[str, float],
    *,
    back: Paths | None = None,
    latency_s: dict[str, float] | None = None,
    marks: bool = True,
    room_bytes: float = 256_000,
    ack: float = 0.0,
) -> Windows[str]:
    queues = Queues(dict.fromkeys(capacity_bps, room_bytes), SEGMENT_BYTES, probability=0.1 if marks else 0.0)
    return Windows(
        capacity_bps, queues, ack=ack, back=lambda flow: (back or {}).get(flow, ()),
        latency=lambda flow: (latency_s or {}).get(flow, 0.0),
    )  # fmt: skip


def ends(made: Windows[str], until_s: float = math.inf) -> dict[str, float]:
    """When each flow ends."""
    found: dict[str, float] = {}
    while (flow := made.run_until(until_s)) is not None:
        found[flow] = made.now_s
    return found


@pytest.mark.parametrize("marks", [True, False])
def test_equals_share_a_link_and_leave_nothing_over(marks: bool) -> None:
    made = windows({"link": 8 * MBIT}, marks=marks)
    for flow in ("one", "two"):
        made.start(flow, ("link",), 80 * MBIT, 0.0)
    found = ends(made)
    assert found["one"] == pytest.approx(found["two"], rel=0.01)
    assert max(found.values()) == pytest.approx(20.0, rel=0.02)


def test_a_window_opens_by_twos_until_the_link_is_full() -> None:
    """Ten segments in the first second, then 20, 40 and so on: of 310 the last come in the fifth second."""
    made = windows({"far": 800 * MBIT}, latency_s={"one": 1.0})
    made.start("one", ("far",), 310 * SEGMENT_BITS, 0.0)
    (end_s,) = ends(made).values()
    assert 4 <= end_s <= 5.1
    made.start("one", ("far",), 310 * SEGMENT_BITS, end_s)  # the connection is open now
    (again_s,) = ends(made).values()
    assert again_s - end_s < 1.5


def test_chunks_one_after_another_are_as_one_large_one() -> None:
    made = windows({"far": 80 * MBIT}, latency_s={"one": 0.2})
    made.start("one", ("far",), 500 * SEGMENT_BITS, 0.0)
    (large_s,) = ends(made).values()
    made = windows({"far": 80 * MBIT}, latency_s={"one": 0.2})
    for _ in range(500):
        made.start("one", ("far",), SEGMENT_BITS, made.now_s)
        assert made.run_until(99.0) == "one"
    assert made.now_s == pytest.approx(large_s, rel=1e-3)


def test_who_waits_longer_for_acknowledgements_gets_less() -> None:
    made = windows({"link": 8 * MBIT}, latency_s={"far": 0.4})
    for flow in ("near", "far"):
        made.start(flow, ("link",), 400 * MBIT, 0.0)
    assert made.run_until(1e3) == "near"
    assert made.now_s < 90  # a hundred if they shared alike, fifty if the far one got nothing


def test_acknowledgements_wait_behind_what_goes_the_other_way() -> None:
    """Two flows share `forth`; acknowledgements of one of them come back through a link that others keep full."""
    back: Paths = {"slow": ("back",), "fast": ()}
    made = windows({"forth": 8 * MBIT, "back": 2 * MBIT}, back=back, ack=0.01)
    for flow, path in (("slow", ("forth",)), ("fast", ("forth",)), ("other", ("back",)), ("another", ("back",))):
        made.start(flow, path, 200 * MBIT, 0.0)
    assert made.run_until(1e3) == "fast"
    assert made.now_s < 45  # fifty if they shared alike


def test_a_flow_over_several_full_links_gets_less_of_each() -> None:
    made = windows({"a": 8 * MBIT, "b": 8 * MBIT})
    made.start("long", ("a", "b"), 200 * MBIT, 0.0)
    for link in ("a", "b"):
        made.start(f"short-{link}", (link,), 200 * MBIT, 0.0)
    first_s = ends(made)
    assert first_s["long"] > max(first_s["short-a"], first_s["short-b"]) + 5


@pytest.mark.parametrize(("marks", "least", "most"), [(True, 0.2, 0.76), (False, 0.6, 1.3)])
def test_marks_keep_queues_shorter_than_losses_do(marks: bool, least: float, most: float) -> None:
    """A new connection meets the queue that others keep: its first bits come that much later."""
    made = windows({"link": 8 * MBIT}, marks=marks)
    for number in range(4):
        made.start(f"long-{number}", ("link",), 800 * MBIT, 0.0)
    shares = []
    for number in range(1, 20):
        began_s = 10.0 * number
        assert made.run_until(began_s) is None
        made.start(f"short-{number}", ("link",), 1.0, began_s)
        assert made.run_until(1e3) == f"short-{number}"
        shares.append((made.now_s - began_s) * 8 * MBIT / (8 * 256_000))
    assert least < sum(shares) / len(shares) < most


def test_a_link_that_changes_is_as_fast_as_it_is() -> None:
    made = windows({"link": 8 * MBIT})
    made.start("one", ("link",), 80 * MBIT, 0.0)
    assert made.run_until(5.0) is None
    made.change("link", 4 * MBIT)
    assert made.run_until(99.0) == "one"
    assert made.now_s == pytest.approx(15.0, rel=0.03)


def test_a_window_that_was_not_used_for_long_is_small_again() -> None:
    def second_s(idle_s: float) -> float:
        made = windows({"far": 80 * MBIT}, latency_s={"one": 0.2})
        made.start("one", ("far",), 2000 * SEGMENT_BITS, 0.0)
        (end_s,) = ends(made).values()
        assert made.run_until(end_s + idle_s) is None
        made.start("one", ("far",), 100 * SEGMENT_BITS, end_s + idle_s)
        (again_s,) = ends(made).values()
        return again_s - end_s - idle_s

    assert second_s(0.5) == pytest.approx(second_s(0.9))
    assert second_s(5.5) > 2 * second_s(0.9)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 5), st.booleans())
def test_no_link_carries_more_than_it_can(seed: int, flows: int, links: int, marks: bool) -> None:
    generator = random.Random(seed)
    capacity = {f"l{number}": generator.uniform(1, 10) * MBIT for number in range(links)}
    paths = {f"f{n}": tuple(generator.sample(sorted(capacity), generator.randint(1, links))) for n in range(flows)}
    made = windows(capacity, back=dict(zip(paths, reversed(paths.values()), strict=True)), marks=marks)
    sizes = {flow: generator.uniform(0.1, 20) * MBIT for flow in paths}
    for flow, path in paths.items():
        made.start(flow, path, sizes[flow], 0.0)
    found = ends(made)
    assert found.keys() == paths.keys()
    for link, rate_bps in capacity.items():
        carried = sum(sizes[flow] for flow, path in paths.items() if link in path)
        assert carried <= rate_bps * max(found.values()) * (1 + 1e-6)
    last_s = max(found.values())
    assert last_s <= sum(sizes[flow] / min(capacity[link] for link in paths[flow]) for flow in paths) * 1.2 + 5


def test_rounds_of_a_far_pair_go_on_with_open_windows() -> None:
    far = Overlay(("a", "b"), (Tunnel("a", "b", 80 * MBIT, 0.2), Tunnel("b", "a", 80 * MBIT, 0.2)))
    plan = Plan("one", (Way.both(Tree("a", {"b": "a"})),), cut([500_000], 250_000), (0, 0))
    conditions = Conditions(queues=Queues(dict.fromkeys(far.links_bps, 256_000.0), SEGMENT_BYTES, probability=0.1))
    kept = connections(far, plan, conditions)
    assert kept is not None
    first_s = simulate(far, plan, conditions, kept).round_s
    kept.rewind()
    second_s = simulate(far, plan, conditions, kept).round_s
    assert second_s < 0.8 * first_s
    assert simulate(far, plan, conditions).round_s == first_s


def test_where_nothing_is_shared_windows_change_little() -> None:
    nodes = ("a", "b", "c", "d")
    near = Overlay(nodes, tuple(Tunnel(x, y, 8 * MBIT) for x in nodes for y in nodes if x != y))
    conditions = Conditions(queues=Queues(dict.fromkeys(near.links_bps, 256_000.0), SEGMENT_BYTES, probability=0.1))
    plan = strategies.star(near, [4_000_000] * 4)
    assert simulate(near, plan, conditions).round_s == pytest.approx(simulate(near, plan).round_s, rel=0.1)
