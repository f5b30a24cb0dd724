"""Passive awareness as the public code has it, and what it brings in many rounds."""

from __future__ import annotations

import itertools
from functools import partial
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netstorm_overlays import ALEXNET, both_ways, netstorm_9

from controllers.netstorm import strategies
from controllers.netstorm.awareness import Awareness, Receiver
from controllers.netstorm.loop import System, run
from controllers.netstorm.overlay import Overlay
from controllers.netstorm.simulate import Change

TRIANGLE = Overlay(("a", "b", "c"), both_ways([("a", "b", 10), ("b", "c", 10), ("a", "c", 10)]))


def test_four_probes_of_two_megabytes_make_a_report() -> None:
    one = Receiver()
    assert [one.received(2_000_000, 1.0), one.received(1_999_999, 9.0), one.received(4_000_000, 1.0)] == [None] * 3
    assert one.received(4_000_000, 1.0) is None
    assert one.received(2_000_000, 1.0) == pytest.approx((16 + 32 + 32 + 16) / 4 * 1e6)


def test_only_a_change_is_reported_again() -> None:
    one = Receiver()
    assert [one.received(2_000_000, 1.0) for _ in range(4)][-1] == pytest.approx(16e6)
    assert [one.received(2_000_000, 1.05) for _ in range(8)] == [None] * 8
    assert one.received(2_000_000, 0.5) == pytest.approx((3 * 16 / 1.05 + 32) / 4 * 1e6)


def test_the_scheduler_looks_every_five_seconds_and_needs_a_mean_change() -> None:
    view = Awareness(TRIANGLE)
    view.report("a", "b", 10.5e6)
    assert view.look(5.0) is None
    view.report("b", "a", 20e6)
    assert view.change() == pytest.approx((0.05 + 1.0) / 2)
    assert view.look(9.9) is None
    fresh = view.look(10.0)
    assert fresh is not None
    assert fresh.by_pair["b", "a"].throughput_bps == pytest.approx(20e6)
    assert fresh.by_pair["b", "c"].throughput_bps == pytest.approx(10e6)
    assert view.look(15.0) is None


@given(st.lists(st.tuples(st.floats(1e5, 1e7), st.floats(0.01, 100)), max_size=40))
def test_reports_lie_among_the_probes_and_differ(messages: list[tuple[float, float]]) -> None:
    one, reports = Receiver(), []
    for size_bytes, elapsed_s in messages:
        report = one.received(size_bytes, elapsed_s)
        if report is not None:
            reports.append(report)
    rates = [8 * size / elapsed for size, elapsed in messages if size >= 2_000_000]
    assert len(reports) <= max(0, len(rates) - 3)
    assert all(min(rates) * (1 - 1e-9) <= report <= max(rates) * (1 + 1e-9) for report in reports)
    assert all(abs(b - a) > 0.1 * a for a, b in itertools.pairwise(reports))


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="cannot have come in 0 s"):
        Receiver().received(1.0, 0)
    with pytest.raises(KeyError):
        Awareness(TRIANGLE).report("a", "x", 1.0)


@pytest.mark.parametrize("seed", range(2))
def test_who_learns_soon_does_as_well_as_who_knew(seed: int) -> None:
    """Starting from throughputs that are all the same."""
    truth = netstorm_9(seed)
    even = truth.with_throughputs(dict.fromkeys(truth.by_pair, 80e6))
    strategy = partial(strategies.multi_root, tensors=ALEXNET)
    blind, aware, knowing = (
        run(truth, believed, System(strategy, learns), 6)
        for believed, learns in ((even, False), (even, True), (truth, False))
    )
    assert len(set(blind.policies)) == 1
    assert aware.policies[-1] > 1
    assert aware.round_s[0] == blind.round_s[0]
    assert len(set(knowing.round_s)) == 1
    assert fmean(aware.round_s[3:]) < fmean(blind.round_s[3:])
    assert fmean(aware.round_s[3:]) < 1.4 * knowing.round_s[0]


def test_links_change_within_rounds_and_between_them() -> None:
    strategy = partial(strategies.fapt, tensors=[10_000_000], root="a")
    changes = [Change(20.0, link, 1e6) for link in ("b->a", "c->a")]
    ran = run(TRIANGLE, TRIANGLE, System(strategy), 3, compute_s=1.0, changes=changes)
    assert ran.began_s[0] == 1.0
    # 40 MB: 19 s at 10 Mbit/s, what is left at 1 Mbit/s, and the last chunk down again at 10 Mbit/s.
    assert ran.round_s[0] == pytest.approx(19 + 8 * (40 - 19 * 10 / 8) + 3.2)
    assert ran.round_s[1:] == pytest.approx([8 * 40 + 3.2] * 2)


def test_awareness_alone_gets_stuck_and_auxiliary_paths_get_it_out() -> None:
    """The avalanche: a tunnel that was slow is outside the tree, and nobody sees that it has become fast."""
    overlay = Overlay(("a", "b", "c"), both_ways([("a", "b", 2), ("b", "c", 20), ("a", "c", 20)]))
    changes = [Change(100.0, link, 400e6) for link in ("b->a", "a->b")]
    strategy = partial(strategies.fapt, tensors=[40_000_000], root="a")
    stuck, free = (
        run(overlay, overlay, System(strategy, aware=True, auxiliary=auxiliary), 12, changes=changes)
        for auxiliary in (False, True)
    )
    assert stuck.policies[-1] == 1
    assert free.policies[-1] > 1
    assert free.round_s[-1] < 0.8 * stuck.round_s[-1]
