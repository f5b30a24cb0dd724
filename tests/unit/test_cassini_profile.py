"""Folding byte counters into the bandwidth of one iteration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.cassini.profile import Profile, angles_of, fold

RATE_BPS, PERIOD_S, DOWN_S = 1e9, 0.255, 0.141


def counter(times_s: np.ndarray) -> np.ndarray:
    """Bytes sent until each time by a job that computes and then sends at line rate, from time 0 on."""
    turns, phase = np.divmod(times_s, PERIOD_S)
    return (turns * (PERIOD_S - DOWN_S) + np.maximum(0, phase - DOWN_S)) * RATE_BPS / 8


def spans(count: int) -> list[tuple[float, float]]:
    return [(turn * PERIOD_S, (turn + 1) * PERIOD_S) for turn in range(count)]


def test_folds_readings_wider_than_an_angle() -> None:
    times = np.arange(0, 2.8, 5e-3)
    profile = fold("vgg16", times, counter(times), spans(10), angles=72)
    assert profile.period_s == pytest.approx(PERIOD_S)
    assert profile.iterations == 9
    assert profile.volume_bytes == pytest.approx(RATE_BPS / 8 * (PERIOD_S - DOWN_S), rel=1e-6)
    middle_s = (np.arange(72) + 0.5) * PERIOD_S / 72
    demand = np.array(profile.demand_bps)
    assert demand[middle_s < DOWN_S - 8e-3][3:] == pytest.approx(0, abs=1e-3)  # what blurs into the next one ends by 3
    assert demand[(middle_s > DOWN_S + 8e-3) & (middle_s < PERIOD_S - 8e-3)] == pytest.approx(RATE_BPS)
    assert demand.max() <= RATE_BPS * (1 + 1e-9)


@settings(deadline=None)
@given(st.floats(1e-3, 8e-3), st.integers(3, 12))
def test_loses_and_makes_no_byte(interval_s: float, iterations: int) -> None:
    times = np.arange(0, (iterations + 1) * PERIOD_S, interval_s)
    profile = fold("vgg16", times, counter(times), spans(iterations), skip=0)
    sent = np.interp(iterations * PERIOD_S, times, counter(times)) / iterations
    assert profile.volume_bytes == pytest.approx(sent, rel=1e-9)


def test_repeated_readings_may_be_missing() -> None:
    times = np.arange(0, 2.8, 5e-3)
    counted = counter(times)
    changed = np.concatenate([[True], np.diff(counted) > 0])
    whole = fold("vgg16", times, counted, spans(10), interval_s=5e-3)
    thin = fold("vgg16", times[changed], counted[changed], spans(10), interval_s=5e-3)
    assert thin.demand_bps == pytest.approx(whole.demand_bps, abs=1.0)


def test_no_angle_above_the_limit_and_no_byte_lost() -> None:
    times = np.arange(0, 2.8, 5e-3)
    packets = np.ceil(counter(times) / 9014) * 9014  # readings in whole packets: now and then one more than the rate
    free = fold("vgg16", times, packets, spans(4))
    held = fold("vgg16", times, packets, spans(4), limit_bps=RATE_BPS)
    assert max(free.demand_bps) > RATE_BPS * 1.0001
    assert max(held.demand_bps) <= RATE_BPS
    assert held.volume_bytes == pytest.approx(free.volume_bytes)
    assert np.cumsum(held.demand_bps)[:-1] == pytest.approx(np.cumsum(free.demand_bps)[:-1], abs=0.1 * RATE_BPS)


def test_more_than_the_limit_in_the_mean_is_refused() -> None:
    times = np.arange(0, 2.8, 5e-3)
    with pytest.raises(ValueError, match="over a link of"):
        fold("vgg16", times, counter(times), spans(4), limit_bps=0.4 * RATE_BPS)


def test_folds_iterations_of_unequal_length() -> None:
    lengths = np.array([0.25, 0.25, 0.26, 0.24])
    edges = np.concatenate([[0], np.cumsum(lengths)])
    times = np.linspace(0, edges[-1], 2001)
    turn = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, 3)
    phase = (times - edges[turn]) / lengths[turn]
    profile = fold("job", times, 1e6 * (turn + np.maximum(0, 2 * phase - 1)), list(itertools.pairwise(edges)))
    assert profile.period_s == pytest.approx(0.25)
    assert profile.spread_s == pytest.approx(np.std(lengths[1:]))
    assert profile.volume_bytes == pytest.approx(1e6, rel=1e-6)
    assert profile.demand_bps[:34] == pytest.approx([0] * 34, abs=1e-3)


def test_leaves_out_what_began_before_the_first_reading() -> None:
    times = np.arange(0.3, 2.8, 5e-3)
    assert fold("vgg16", times, counter(times), spans(10), skip=0).iterations == 8


@pytest.mark.parametrize(
    ("times", "counted", "iterations", "says"),
    [
        ([0, 1], [0], [(0, 1)], "as many times as counters"),
        ([0, 1, 2], [0, 5, 4], [(0, 1)], "must not run backwards"),
        ([0, 2, 1], [0, 1, 2], [(0, 1)], "in order of time"),
        ([0, 1, 2], [0, 1, 2], [], "no complete iteration"),
        ([5, 6, 7], [0, 1, 2], [(0, 1)], "no complete iteration"),
    ],
)
def test_refuses_what_is_no_profile(times: list[float], counted: list[float], iterations: list, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fold("job", times, counted, iterations, skip=0)


def test_profile_as_json_comes_back_the_same() -> None:
    profile = Profile("job", 0.1, (0.0, 5e8, 1e9 / 3), 7, 1e-4)
    assert Profile.from_dict(profile.to_dict()) == profile


@pytest.mark.parametrize("demand", [(), (-1.0,), (float("nan"),)])
def test_profile_refuses_impossible_demand(demand: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="demand"):
        Profile("job", 0.1, demand)


def test_precision_in_degrees_of_an_iteration() -> None:
    assert [angles_of(precision) for precision in (5, 1, 7, 180)] == [72, 360, 52, 2]
    with pytest.raises(ValueError, match="precision"):
        angles_of(0)
