"""The search against a mixed integer program solved by HiGHS: another formulation, another solver, the same optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from controllers.cassini.circle import ANGLES, UnifiedCircle, unify
from controllers.cassini.compatibility import best_rotation, score
from controllers.cassini.profile import Profile

C = 10.0


def highs(circle: UnifiedCircle) -> float:
    """Return the best score: one binary for each rotation of each job, one excess for each slot, their mean least."""
    counts = [1, *circle.lengths[1:]]  # turning everything changes nothing: the first job stays
    first = np.concatenate([[0], np.cumsum(counts)])
    chosen, slots = int(first[-1]), circle.slots
    rows = lil_array((slots + len(counts), chosen + slots))
    for job, (count, demand, length) in enumerate(zip(counts, circle.demands, circle.lengths, strict=True)):
        for rotation in range(count):
            rows[:slots, [first[job] + rotation]] = (np.resize(np.roll(demand, rotation), slots) / C)[:, None]
        rows[[slots + job], first[job] : first[job + 1]] = 1.0
        assert length == len(demand)
    rows[:slots, chosen:] = -np.eye(slots)
    low = np.r_[np.full(slots, -np.inf), np.ones(len(counts))]
    high = np.ones(slots + len(counts))  # demand - excess <= capacity; one rotation for each job
    kinds = np.r_[np.ones(chosen), np.zeros(slots)]
    limits = Bounds(np.zeros(chosen + slots), np.r_[np.ones(chosen), np.full(slots, np.inf)])
    costs = np.r_[np.zeros(chosen), np.full(slots, 1 / slots)]
    found = milp(costs, constraints=LinearConstraint(rows.tocsr(), low, high), integrality=kinds, bounds=limits)
    assert found.status == 0, found.message
    return 1 - float(found.fun)


@st.composite
def circles(draw: st.DrawFn, fewest: int, most: int, lengths: tuple[int, ...]) -> UnifiedCircle:
    """Jobs that each send at one rate for a part of their iteration, as training does."""
    count = draw(st.integers(fewest, most))
    sizes = tuple(draw(st.sampled_from(lengths)) for _ in range(count))
    demands = []
    for size in sizes:
        sending, rate = draw(st.integers(1, size - 1)), draw(st.sampled_from([2.5, 5.0, 7.5, 10.0]))
        demands.append(np.r_[np.zeros(size - sending), np.full(sending, rate)])
    return UnifiedCircle(tuple("hgfedcba"[:count]), 1.0, 1.0, math.lcm(*sizes), sizes, tuple(demands))


@settings(deadline=None, max_examples=15)
@given(circles(2, 3, (6, 8, 12, 18)))
def test_up_to_three_jobs_the_search_is_optimal(circle: UnifiedCircle) -> None:
    found = best_rotation(circle, C)
    assert found.score == pytest.approx(highs(circle), abs=1e-6)
    assert found.best == found.bound
    assert found.proved


@settings(deadline=None, max_examples=8)
@given(circles(4, 8, (6, 8, 12)))
def test_up_to_eight_jobs_the_search_is_within_a_hundredth_of_the_optimum(circle: UnifiedCircle) -> None:
    found, optimum = best_rotation(circle, C), highs(circle)
    assert optimum - 0.01 <= found.score <= optimum + 1e-6
    assert found.bound >= optimum - 1e-6
    if found.proved:
        assert found.bound - found.best <= 0.01 + 1e-9


def tiled(turns: tuple[int, ...], seed: int) -> UnifiedCircle:
    """Jobs that fit without a gap, at random rotations: arcs of 72 slots, each left to so many jobs in turn."""
    rng = np.random.default_rng(seed)
    ends = np.r_[0, np.sort(rng.choice(np.arange(3, 70), len(turns) - 1, replace=False)), 72]
    demands = []
    for begin, end, count in zip(ends, ends[1:], turns, strict=False):
        for turn in range(count):
            demand = np.zeros(72 * count)
            demand[72 * turn + begin : 72 * turn + end] = C
            demands.append(np.roll(demand, int(rng.integers(72 * count))))
    mixed = tuple(demands[at] for at in rng.permutation(len(demands)))
    lengths = tuple(map(len, mixed))
    return UnifiedCircle(tuple("hgfedcba"[: len(mixed)]), 1.0, 1.0, math.lcm(*lengths), lengths, mixed)


@pytest.mark.parametrize("turns", [(1,) * 8, (2,) * 4, (4, 4), (1, 2, 4), (1, 3, 3), (1, 1, 2, 4), (1, 1, 2, 2, 2)])
def test_up_to_eight_jobs_of_72_angles_that_fill_a_link_are_fitted(turns: tuple[int, ...]) -> None:
    """The optimum is known to be 1, since they were cut out of full circles."""
    assert min(best_rotation(tiled(turns, seed), C).score for seed in range(8)) >= 0.99


def test_two_jobs_of_72_angles() -> None:
    profiles = [
        Profile("a", 0.240, (0.0,) * 30 + (C,) * 42),
        Profile("b", 0.320, (C,) * 30 + (0.0,) * 30 + (C / 2,) * 12),
    ]
    circle = unify(profiles)
    assert best_rotation(circle, C).score == pytest.approx(highs(circle), abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0.01, 0.9), min_size=1, max_size=4))
def test_five_degrees_are_72_angles_of_each_job_s_own_iteration(periods_s: list[float]) -> None:
    """And not of the circle, whose perimeter may be fifty iterations long."""
    profiles = [Profile(f"j{at}", period, (0.0, C)) for at, period in enumerate(periods_s)]
    circle = unify(profiles)
    assert min(circle.lengths) >= ANGLES == 72
    assert circle.slot_s <= min(circle.quantised_s(at) for at in range(len(profiles))) / 72 + 1e-12
    whole = [3 * length for length in circle.lengths]
    assert score(circle, whole, C) == pytest.approx(score(circle, [0] * len(whole), C))
