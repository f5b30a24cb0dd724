"""Refined time-shifts: by what links marked, never dearer, unchanged where nothing was marked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cassini_circle import square

from controllers.cassini.decision import Decision, decide, moved, rescore
from controllers.cassini.refine import Marks, refine

RATE_BPS = 1e9
PACKET_BYTES = 9000.0
FITS = decide("l", [square("a", 0.1, 0.06), square("b", 0.1, 0.06)], RATE_BPS)  # 40 ms each, so 10 ms between them
TIGHT = decide("l", [square("a", 0.1, 0.04), square("b", 0.1, 0.04)], RATE_BPS)  # 60 ms each


def marks_of(decision: Decision, packets: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Marks:
    return Marks(packets, np.full(decision.slots, decision.slot_s))


def marked_at(decision: Decision, begin_s: float, end_s: float, packets: float = 10.0) -> Marks:
    at_s = np.arange(decision.slots) * decision.slot_s
    return marks_of(decision, np.where((at_s >= begin_s) & (at_s < end_s), packets, 0.0))


@pytest.mark.parametrize("decision", [FITS, TIGHT])
def test_where_nothing_is_marked_nothing_is_changed(decision: Decision) -> None:
    found = refine([decision], {"l": marks_of(decision, np.zeros(decision.slots))}, PACKET_BYTES, late=0.05)
    assert found.decisions == (decision,)
    assert found.given_marks == found.refined_marks == 0


def test_a_job_leaves_the_seam_at_which_marks_are_and_goes_where_there_is_room() -> None:
    """One ends at 100 ms, where other begins after 10 ms of rest; in truth it ends late, and that is marked."""
    a, b = FITS.jobs
    end_s = a.time_shift_s + 0.1  # of a, and of its Up
    gap_s = (b.time_shift_s + 0.06 - end_s) % 0.1
    assert gap_s == pytest.approx(0.01, abs=FITS.slot_s)
    found = refine([FITS], {"l": marked_at(FITS, b.time_shift_s + 0.06 - 0.1, b.time_shift_s + 0.065 - 0.1)}, 9e3, 0.15)
    later_s = found.decisions[0].shifts_s["b"] - b.time_shift_s
    assert found.refined_marks < found.given_marks
    assert 0 < later_s <= 0.011
    assert found.decisions[0].score == pytest.approx(1.0, abs=1e-6)


def test_marks_where_one_job_is_alone_move_nobody() -> None:
    found = refine([FITS], {"l": marked_at(FITS, 0.07, 0.08)}, PACKET_BYTES)
    assert found.decisions == (FITS,)
    assert found.given_marks < 1e-9


@given(
    packets=st.lists(st.floats(0, 1e4), min_size=TIGHT.slots, max_size=TIGHT.slots),
    unseen=st.sets(st.integers(0, TIGHT.slots - 1)),
    late=st.floats(0, 0.2),
    shift=st.integers(0, TIGHT.slots - 1),
)
def test_it_is_never_dearer_than_what_was_given(
    packets: list[float], unseen: set[int], late: float, shift: int
) -> None:
    start = moved(TIGHT, {"a": 0.0, "b": shift * TIGHT.slot_s})
    watched = np.full(TIGHT.slots, 3 * TIGHT.slot_s)
    watched[list(unseen)] = 0.0
    found = refine([start], {"l": Marks(np.where(watched > 0, packets, 0.0), watched)}, PACKET_BYTES, late)
    assert found.refined_marks <= found.given_marks
    [decision] = found.decisions
    assert decision.shifts_s["a"] == 0
    assert 0 <= decision.shifts_s["b"] < 0.1
    if found.refined_marks == found.given_marks:
        assert decision == start


def test_a_bad_start_is_left_with_the_marks_alone() -> None:
    """Full overlap, and marks in proportion to it: the best rotation is found again."""
    start = moved(FITS, {"a": 0.0, "b": 0.0})
    found = refine([start], {"l": marked_at(start, 0.06, 0.1, 100.0)}, PACKET_BYTES)
    assert found.given_marks == pytest.approx(start.slots * 0.4 * 100, rel=0.05)
    assert found.refined_marks < 0.01 * found.given_marks
    assert found.decisions[0].score > 0.999


def test_a_job_has_one_shift_on_all_links() -> None:
    jobs = [square(name, 0.1, 0.06) for name in "abc"]
    first, second = (decide(link, pair, RATE_BPS) for link, pair in (("l", jobs[:2]), ("m", jobs[1:])))
    starts = [moved(one, dict.fromkeys("abc", 0.0)) for one in (first, second)]
    marks = {one.link: marked_at(one, 0.06, 0.1) for one in starts}
    of_l, of_m = refine(starts, marks, PACKET_BYTES).decisions
    assert of_l.shifts_s["b"] == pytest.approx(of_m.shifts_s["b"])
    assert of_l.score > 0.99
    assert of_m.score > 0.99


def test_a_link_without_marks_to_go_by_costs_nothing_and_its_jobs_keep_one_shift() -> None:
    jobs = [square(name, 0.1, 0.06) for name in "abc"]
    first, second = (decide(link, pair, RATE_BPS) for link, pair in (("l", jobs[:2]), ("m", jobs[1:])))
    starts = [moved(one, dict.fromkeys("abc", 0.0)) for one in (first, second)]
    assert refine(starts, {}, PACKET_BYTES).decisions == tuple(starts)
    of_l, of_m = refine(starts, {"l": marked_at(starts[0], 0.06, 0.1)}, PACKET_BYTES).decisions
    assert of_l.shifts_s["b"] == pytest.approx(of_m.shifts_s["b"])
    assert of_l.shifts_s["b"] > 0
    assert of_m.shifts_s["c"] == 0


def test_moved_says_what_rescore_says() -> None:
    shifts_s = {"a": 0.0, "b": 0.02}
    assert moved(TIGHT, shifts_s).score == pytest.approx(rescore(TIGHT, shifts_s))
    assert moved(TIGHT, TIGHT.shifts_s).excess_bytes == pytest.approx(TIGHT.excess_bytes)


def test_marks_of_another_circle_are_refused() -> None:
    with pytest.raises(ValueError, match="the circle has"):
        refine([FITS], {"l": Marks(np.zeros(3), np.zeros(3))}, PACKET_BYTES)
