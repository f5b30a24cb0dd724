"""The rule by which workers are held for their ticks, and how unsteadily they compute."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workloads.training.pace import JITTER_CUT, Ticks, compute_factor, first_tick, next_begin

starts = st.floats(0.0, 2e9)
periods = st.floats(1e-3, 100.0)
tolerances = st.floats(0.0, 0.9)
later = st.floats(0.0, 50.0)  # in periods


@given(starts, periods, tolerances, st.integers(0, 1000), st.floats(-0.999, 50.0))
def test_nobody_begins_before_its_tick_or_later_than_it_may(
    start_s: float, period_s: float, tolerance: float, tick: int, turns: float
) -> None:
    now_s = start_s + (tick + turns) * period_s
    begin_s, taken, held_s, lost_s = next_begin(now_s, tick, start_s, period_s, tolerance)
    fuzz_s = 1e-6 + 1e-9 * period_s
    assert begin_s >= max(now_s, start_s + tick * period_s) - fuzz_s
    assert begin_s - (start_s + taken * period_s) <= tolerance * period_s + fuzz_s
    assert taken >= tick
    assert held_s >= 0
    assert lost_s >= 0
    assert not (held_s and lost_s)
    assert begin_s == pytest.approx(now_s + held_s + lost_s, abs=fuzz_s)
    assert lost_s <= period_s + fuzz_s


@given(starts, periods, tolerances, later)
def test_who_is_told_of_a_time_shift_takes_the_first_tick_there_is(
    start_s: float, period_s: float, tolerance: float, turns: float
) -> None:
    now_s = start_s + turns * period_s
    first = first_tick(now_s, start_s, period_s, tolerance)
    assert first >= 0
    assert start_s + first * period_s >= now_s - tolerance * period_s - 1e-6
    assert first == 0 or start_s + (first - 1) * period_s <= now_s - tolerance * period_s + 1e-6


@given(st.floats(0.001, 0.2), st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_workers_whose_ticks_ran_apart_meet_again_in_one_iteration(tolerance: float, one: float, two: float) -> None:
    """Workers that need each other end an iteration together; one that began a turn earlier must not stay behind."""
    pair = [Ticks({"start_s": 0.0, "period_s": 1.0, "tolerance": tolerance}) for _ in range(2)]
    ready_s = max(ticks.begin(at)[0] for ticks, at in zip(pair, (one, two), strict=True)) + 0.99
    ready_s = max(ticks.begin(ready_s)[0] for ticks in pair) + 0.99
    begins = [ticks.begin(ready_s)[0] for ticks in pair]
    assert begins[0] == begins[1]


def test_the_rule_by_hand() -> None:
    # Ticks at 10, 20, 30 ...; a period is 10 s, and half a second late is late.
    assert next_begin(17.0, 1, 10.0, 10.0, 0.05) == (20.0, 1, 3.0, 0.0)
    assert next_begin(20.0, 1, 10.0, 10.0, 0.05) == (20.0, 1, 0.0, 0.0)
    assert next_begin(20.5, 1, 10.0, 10.0, 0.05) == (20.5, 1, 0.0, 0.0)
    assert next_begin(21.0, 1, 10.0, 10.0, 0.05) == (30.0, 2, 0.0, 9.0)
    assert next_begin(56.0, 1, 10.0, 10.0, 0.05) == (60.0, 5, 0.0, 4.0)
    assert next_begin(50.25, 1, 10.0, 10.0, 0.05) == (50.25, 4, 0.0, 0.0)  # late for its tick, in time for a later one


@given(periods, st.lists(st.floats(0.5, 0.999), min_size=2, max_size=50))
def test_iterations_shorter_than_the_period_keep_the_pace_and_lose_nothing(
    period_s: float, lengths: list[float]
) -> None:
    ticks = Ticks({"start_s": 100.0, "period_s": period_s, "tolerance": 0.05})
    ready_s = 100.0
    for number, length in enumerate(lengths):
        begin_s, _, lost_s = ticks.begin(ready_s)
        assert begin_s == pytest.approx(100.0 + number * period_s)
        assert lost_s == 0.0
        ready_s = begin_s + length * period_s


def test_a_late_iteration_within_tolerance_is_caught_up_with() -> None:
    ticks = Ticks({"start_s": 0.0, "period_s": 1.0, "tolerance": 0.05})
    assert ticks.begin(0.0) == (0.0, 0.0, 0.0)
    assert ticks.begin(1.04) == (1.04, 0.0, 0.0)
    assert ticks.begin(1.94) == pytest.approx((2.0, 0.06, 0.0))


def test_another_time_shift_holds_from_the_next_iteration_on() -> None:
    ticks = Ticks(None)
    assert ticks.begin(3.3) == (3.3, 0.0, 0.0)
    ticks.change({"start_s": 0.25, "period_s": 1.0, "tolerance": 0.05})
    assert ticks.begin(4.4) == pytest.approx((5.25, 0.85, 0.0))
    assert ticks.begin(6.2) == pytest.approx((6.25, 0.05, 0.0))
    ticks.change(None)
    assert ticks.begin(7.1) == (7.1, 0.0, 0.0)


def test_a_start_between_ticks_is_held_for_the_next() -> None:
    ticks = Ticks({"start_s": 0.0, "period_s": 1.0, "tolerance": 0.05})
    assert ticks.begin(41.5) == (42.0, 0.5, 0.0)
    early = Ticks({"start_s": 50.0, "period_s": 1.0, "tolerance": 0.05})
    assert early.begin(41.5) == (50.0, 8.5, 0.0)


# Jitter


@given(st.floats(1e-6, 0.33), st.floats(0.1, 10.0), st.integers(0, 100), st.integers(0, 100))
def test_factors_come_from_their_arguments_and_are_cut(jitter: float, slow: float, rank: int, iteration: int) -> None:
    factor = compute_factor(jitter, slow, 1, "a", rank, iteration)
    assert factor == compute_factor(jitter, slow, 1, "a", rank, iteration)
    assert abs(factor / slow - 1) <= JITTER_CUT * jitter + 1e-9
    assert factor > 0


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_workers_and_iterations_draw_for_themselves(rank: int, other: int, iteration: int, another: int) -> None:
    assume((rank, iteration) != (other, another))
    one, two = (compute_factor(0.05, 1.0, 1, "a", *key) for key in ((rank, iteration), (other, another)))
    assert one != two


def test_factors_have_the_deviation_asked_for() -> None:
    drawn = [compute_factor(0.05, 1.0, 3, "a", 0, iteration) for iteration in range(4000)]
    mean = sum(drawn) / len(drawn)
    deviation = (sum((each - mean) ** 2 for each in drawn) / len(drawn)) ** 0.5
    assert mean == pytest.approx(1.0, abs=0.004)
    assert deviation == pytest.approx(0.05, rel=0.05)
    assert compute_factor(0.0, 1.5, 3, "a", 0, 0) == 1.5
    assert drawn[0] == pytest.approx(1.017570665540914)  # the same on every machine
