"""Score and best rotation: the paper's example, brute force, and what must always hold."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cassini_circle import square

from controllers.cassini import search
from controllers.cassini.circle import UnifiedCircle, unify
from controllers.cassini.compatibility import best_rotation, excess_bps, score, time_shift_s
from controllers.cassini.system import System, canonical

C = 10.0
LENGTHS = (3, 4, 6, 8, 12)
FAST = settings(deadline=None, max_examples=60)
SOME = settings(deadline=None, max_examples=20)


@st.composite
def circles(draw: st.DrawFn, most: int = 3, lengths: tuple[int, ...] = LENGTHS) -> UnifiedCircle:
    """A small unified circle with demands from nothing to more than the link."""
    count = draw(st.integers(1, most))
    sizes = [draw(st.sampled_from(lengths)) for _ in range(count)]
    level = st.sampled_from([0.0, 0.0, 3.0, 5.0, 10.0, 12.5])
    demands = tuple(np.array(draw(st.lists(level, min_size=size, max_size=size))) for size in sizes)
    return UnifiedCircle(tuple("cabdefgh"[:count]), 1.0, 1.0, math.lcm(*sizes), tuple(sizes), demands)


def brute(circle: UnifiedCircle) -> float:
    every = itertools.product(*(range(length) for length in circle.lengths))
    return max(score(circle, rotations, C) for rotations in every)


def test_the_papers_example() -> None:
    """Iterations of 40 and 60 ms: perimeter 120; turning the first by 30 degrees makes them fully compatible."""
    circle = unify([square("first", 0.040, 0.030), square("second", 0.060, 0.050)])
    assert circle.perimeter_s == pytest.approx(0.120)
    assert circle.turns == (3, 2)
    turned = round(circle.slots * 30 / 360)
    assert score(circle, [0, 0], 1e9) < 0.95
    assert score(circle, [turned, 0], 1e9) == pytest.approx(1)
    assert time_shift_s(math.radians(30), 0.120, 0.040) == pytest.approx(0.010)
    found = best_rotation(circle, 1e9)
    assert found.score == pytest.approx(1)
    assert found.proved


def test_two_halves_end_up_in_the_middle_of_what_is_best() -> None:
    circle = unify([square("a", 0.100, 0.060), square("b", 0.100, 0.070)], angles=100)
    found = best_rotation(circle, 1e9)
    assert found.rotations == (0, 45)  # b sends 70..100: best are delays of 30 to 60 ms
    assert found.slack == (15, 15)


def test_a_job_alone_has_nothing_to_decide() -> None:
    found = best_rotation(unify([square("a", 0.1, 0.06)]), 1e9)
    assert (found.rotations, found.score) == ((0,), pytest.approx(1))


def test_excess_and_score_as_published() -> None:
    circle = UnifiedCircle(("a", "b"), 1.0, 1.0, 4, (4, 4), (np.array([10.0, 0, 0, 0]), np.array([10.0, 6, 0, 0])))
    assert excess_bps(np.array([3.0, 10, 25]), C) == pytest.approx([0, 0, 15])
    assert score(circle, [0, 0], C) == pytest.approx(1 - 10 / (4 * C))
    assert score(circle, [1, 0], C) == pytest.approx(1 - 6 / (4 * C))


def test_the_score_has_no_lower_bound() -> None:
    circle = UnifiedCircle(("a", "b", "c"), 1.0, 1.0, 3, (3, 3, 3), (np.full(3, 10.0),) * 3)
    assert score(circle, [0, 0, 0], C) == pytest.approx(-1)


@FAST
@given(circles())
def test_brute_force_agrees(circle: UnifiedCircle) -> None:
    found = best_rotation(circle, C)
    assert found.score == pytest.approx(brute(circle), abs=1e-9)
    assert found.best == found.bound
    assert found.proved
    assert all(0 <= at < length for at, length in zip(found.rotations, circle.lengths, strict=True))


@SOME
@given(circles(most=4, lengths=(3, 4, 6)))
def test_branch_and_bound_agrees_with_brute_force(circle: UnifiedCircle) -> None:
    outcome = search.minimise(System.of_link([demand / C for demand in circle.demands]), gap=0.0, budget=None)
    assert 1 - outcome.excess == pytest.approx(brute(circle), abs=1e-9)
    assert outcome.lower <= outcome.excess
    assert score(circle, outcome.rotations, C) == pytest.approx(1 - outcome.excess)


@SOME
@given(circles(most=4, lengths=(3, 4, 6)), st.sampled_from([0, 50_000, 400_000]))
def test_bounds_hold_when_the_budget_runs_out(circle: UnifiedCircle, budget: int) -> None:
    outcome = search.minimise(System.of_link([demand / C for demand in circle.demands]), gap=0.0, budget=budget)
    assert outcome.lower - 1e-9 <= 1 - brute(circle) <= outcome.excess + 1e-9


@SOME
@given(circles(most=5, lengths=(4, 8)))
def test_a_search_for_less_than_the_best_is_within_the_gap(circle: UnifiedCircle) -> None:
    outcome = search.minimise(System.of_link([demand / C for demand in circle.demands]), gap=0.01, budget=None)
    assert outcome.excess - outcome.lower <= 0.01 + 1e-9
    assert outcome.lower - 1e-9 <= 1 - brute(circle) <= outcome.excess + 1e-9


@SOME
@given(circles(most=5, lengths=(3, 4, 6)))
def test_every_rotation_is_looked_at(circle: UnifiedCircle) -> None:
    found = System.of_link([demand / C for demand in circle.demands]).exhaust()
    assert 1 - found.min() == pytest.approx(brute(circle), abs=1e-9)
    index = np.unravel_index(int(found.argmax()), found.shape)
    assert 1 - found.max() == pytest.approx(score(circle, [0, *map(int, index)], C), abs=1e-9)


def test_four_jobs_that_demand_too_much_are_decided_for_certain() -> None:
    rng = np.random.default_rng(5)
    demands = tuple(rng.choice([0, 1.5, 2.5, 5.0], 72) for _ in range(4))
    found = best_rotation(UnifiedCircle(tuple("abcd"), 1.0, 1.0, 72, (72,) * 4, demands), C)
    assert found.proved
    assert found.best == found.bound < 1


@FAST
@given(circles(), st.lists(st.integers(-30, 30), min_size=3, max_size=3), st.integers(-2, 2))
def test_a_whole_iteration_and_a_turn_of_all_change_nothing(circle: UnifiedCircle, by: list[int], more: int) -> None:
    rotations = by[: len(circle.jobs)]
    before = score(circle, rotations, C)
    whole = [at + more * length for at, length in zip(rotations, circle.lengths, strict=True)]
    assert score(circle, whole, C) == pytest.approx(before)
    assert score(circle, [at + 5 for at in rotations], C) == pytest.approx(before)
    turned = [int(at) for at in canonical(rotations, circle.lengths)]
    assert turned[0] == 0
    assert score(circle, turned, C) == pytest.approx(before)


@FAST
@given(circles(), st.floats(0, 0.2))
def test_never_above_one_and_never_worse_than_no_shift(circle: UnifiedCircle, tie: float) -> None:
    found = best_rotation(circle, C, tie=tie)
    assert found.score <= 1 + 1e-12
    assert found.score >= score(circle, [0] * len(circle.jobs), C) - 1e-9
    assert found.score >= found.best - tie - 1e-9


@FAST
@given(circles(most=4, lengths=(4, 6)), st.permutations(range(4)))
def test_the_order_of_the_jobs_does_not_matter(circle: UnifiedCircle, order: list[int]) -> None:
    kept = [at for at in order if at < len(circle.jobs)]

    def pick(values: tuple) -> tuple:
        return tuple(values[at] for at in kept)

    other = UnifiedCircle(pick(circle.jobs), 1.0, 1.0, circle.slots, pick(circle.lengths), pick(circle.demands))
    one, two = best_rotation(circle, C), best_rotation(other, C)
    assert two.rotations == pick(one.rotations)
    assert two.slack == pick(one.slack)
    assert two.score == pytest.approx(one.score)


@FAST
@given(circles())
def test_within_its_slack_every_job_may_move_alone(circle: UnifiedCircle) -> None:
    found = best_rotation(circle, C)
    for job, free in enumerate(found.slack):
        for by in range(-free, free + 1):
            moved = [at + by * (index == job) for index, at in enumerate(found.rotations)]
            assert score(circle, moved, C) == pytest.approx(found.score, abs=1e-9)


@FAST
@given(circles(most=2))
def test_no_best_rotation_of_two_jobs_has_more_slack(circle: UnifiedCircle) -> None:
    found = best_rotation(circle, C)
    if len(circle.jobs) == 1:
        return

    def slack_of(rotations: tuple[int, ...]) -> int:
        rooms = []
        for job, length in enumerate(circle.lengths):
            steps = itertools.takewhile(
                lambda by, job=job: all(
                    score(circle, [at + sign * by * (index == job) for index, at in enumerate(rotations)], C)
                    >= found.score - 1e-9
                    for sign in (-1, 1)
                ),
                range(1, length // 2 + 1),
            )
            rooms.append(len(list(steps)))
        return min(rooms)

    every = itertools.product(*(range(length) for length in circle.lengths))
    best = [rotations for rotations in every if score(circle, rotations, C) >= found.score - 1e-9]
    assert min(found.slack) == max(slack_of(rotations) for rotations in best)


def test_a_tie_widens_what_counts_as_best() -> None:
    tail = np.array([10.0, 10, 10, 10, 0.05, 0, 0, 0, 0, 0])  # the tail of one meets the other at a delay of 4 or 6
    circle = UnifiedCircle(("a", "b"), 1.0, 1.0, 10, (10, 10), (tail, tail))
    assert best_rotation(circle, C).slack == (0, 0)
    assert best_rotation(circle, C, tie=1e-3).slack == (1, 1)
    assert best_rotation(circle, C, tie=1e-3).rotations == (0, 5)


def test_eight_jobs_that_fill_the_link_are_interleaved() -> None:
    widths = [5, 6, 7, 8, 9, 10, 12, 15]
    demands = tuple(np.roll(np.r_[np.full(width, C), np.zeros(72 - width)], 7 * width) for width in widths)
    circle = UnifiedCircle(tuple("hgfedcba"), 1.0, 1.0, 72, (72,) * 8, demands)
    found = best_rotation(circle, C)
    assert found.score == pytest.approx(1)
    assert found.proved


@pytest.mark.parametrize("capacity", [0.0, -1.0, math.nan])
def test_refuses_a_capacity_that_is_none(capacity: float) -> None:
    with pytest.raises(ValueError, match="capacity"):
        best_rotation(unify([square("a", 0.1, 0.05)]), capacity)
