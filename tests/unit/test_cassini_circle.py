"""Quantised iteration times and the unified circle."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.cassini.circle import quantise, unify
from controllers.cassini.profile import Profile

periods = st.lists(st.floats(0.02, 3.0), min_size=1, max_size=6)


def square(job: str, period_s: float, down_s: float, rate_bps: float = 1e9, angles: int = 720) -> Profile:
    """A job that computes for `down_s` and then sends at `rate_bps` until the iteration ends."""
    edge = down_s / period_s * angles
    return Profile(job, period_s, tuple(rate_bps * min(1.0, max(0.0, at + 1 - edge)) for at in range(angles)))


@settings(deadline=None)
@given(periods, st.sampled_from([1e-3, 5e-3, 20e-3]), st.floats(5.0, 60.0))
def test_quantised_upwards_and_bounded(periods_s: list[float], quantum_s: float, longest_s: float) -> None:
    quanta = quantise(tuple(periods_s), quantum_s, longest_s)
    assert math.lcm(*quanta) * quantum_s <= longest_s * (1 + 1e-6)
    for period, units in zip(periods_s, quanta, strict=True):
        assert units * quantum_s >= period - 1.001e-3 * quantum_s


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(2, 12), min_size=1, max_size=3), st.integers(12, 30))
def test_no_quantised_times_are_padded_less(periods_s: list[int], longest_s: int) -> None:
    found = quantise(tuple(map(float, periods_s)), 1.0, float(longest_s))
    every = itertools.product(*(range(period, longest_s + 1) for period in periods_s))
    paddings = [
        max(units / period for units, period in zip(quanta, periods_s, strict=True))
        for quanta in every
        if math.lcm(*quanta) <= longest_s
    ]
    worst = max(units / period for units, period in zip(found, periods_s, strict=True))
    assert worst == pytest.approx(min(paddings))


def test_nothing_is_padded_where_it_fits() -> None:
    assert quantise((0.2547, 0.2861), 1e-3, 80.0) == (255, 287)
    assert math.lcm(255, 287) == 73185


def test_the_least_padding_where_it_does_not() -> None:
    assert quantise((0.255, 0.287), 1e-3, 10.0) == (256, 288)  # perimeter 2 304 ms


def test_nearly_equal_iteration_times_are_one() -> None:
    assert quantise((0.25501, 0.25499, 0.2553), 5e-3, 10.0) == (52, 52, 52)


def test_an_iteration_longer_than_the_longest_perimeter_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than the longest perimeter"):
        quantise((3.0, 0.1), 1e-3, 2.0)


@settings(deadline=None)
@given(st.lists(st.floats(0.05, 0.5), min_size=1, max_size=3), st.integers(8, 90))
def test_every_iteration_has_its_angles_and_all_its_bytes(periods_s: list[float], angles: int) -> None:
    profiles = [square(f"job{at}", period, 0.4 * period) for at, period in enumerate(periods_s)]
    circle = unify(profiles, angles=angles)
    assert min(circle.lengths) >= angles
    for at, profile in enumerate(profiles):
        assert circle.lengths[at] * circle.turns[at] == circle.slots
        assert circle.turns[at] * circle.quantised_s(at) == pytest.approx(circle.perimeter_s)
        assert circle.demands[at].sum() * circle.slot_s / 8 == pytest.approx(profile.volume_bytes, rel=1e-9)


def test_padding_is_silent_and_up_is_not_stretched() -> None:
    circle = unify([square("job", 0.2501, 0.2)], angles=100, quantum_s=0.1)
    assert circle.perimeter_s == pytest.approx(0.3)
    middle_s = (np.arange(circle.slots) + 0.5) * circle.slot_s
    sending = (middle_s > 0.204) & (middle_s < 0.247)
    assert circle.demands[0][sending] == pytest.approx(1e9)
    assert circle.demands[0][(middle_s > 0.254) | (middle_s < 0.196)] == pytest.approx(0, abs=1e-3)


def test_rotation_is_a_delay() -> None:
    circle = unify([square("a", 0.04, 0.03), square("b", 0.06, 0.03)], angles=12)
    still, late = circle.rotated([0, 0]), circle.rotated([1, 0])
    assert late.shape == (2, circle.slots)
    assert late[0] == pytest.approx(np.roll(still[0], 1))
    assert late[1] == pytest.approx(still[1])


@pytest.mark.parametrize("jobs", [[], ["a", "a"]])
def test_refuses_no_job_and_the_same_job_twice(jobs: list[str]) -> None:
    with pytest.raises(ValueError, match="different names"):
        unify([square(job, 0.1, 0.05) for job in jobs])
