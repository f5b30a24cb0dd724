"""Intervals come from trials, and only from enough of them."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.report import stats


def mean(trials: list[float]) -> float:
    return float(np.mean(trials))


def test_fewer_than_three_trials_claim_no_interval() -> None:
    assert stats.estimate([[1.0, 2.0]], mean) == {"value": 1.5, "low": None, "high": None}
    assert stats.estimate([[1.0, 2.0, 3.0], [5.0]], mean)["low"] is None


def test_interval_of_three_trials_holds_the_value_and_stays_within_them() -> None:
    found = stats.estimate([[1.0, 2.0, 6.0]], mean)
    assert found["value"] == 3.0
    assert 1.0 <= found["low"] < 3.0 < found["high"] <= 6.0


def test_the_same_every_time() -> None:
    trials = [list(np.random.default_rng(3).normal(5, 1, 9))]
    assert stats.estimate(trials, mean) == stats.estimate(trials, mean)


def test_width_is_that_of_the_trials_not_of_what_is_in_them() -> None:
    """Ten iterations or a thousand in each of the same four trials: the interval is the same."""
    few = [[np.full(10, level) for level in (1.0, 2.0, 3.0, 4.0)]]
    many = [[np.full(1000, level) for level in (1.0, 2.0, 3.0, 4.0)]]

    def pooled(trials: list[np.ndarray]) -> float:
        return float(np.concatenate(trials).mean())

    assert stats.estimate(few, pooled) == pytest.approx(stats.estimate(many, pooled))


def test_interval_is_close_to_theory_for_many_trials() -> None:
    trials = np.random.default_rng(11).normal(100, 10, 400)
    found = stats.estimate([trials.tolist()], mean)
    half = 1.96 * trials.std() / np.sqrt(400)
    assert found["high"] - found["low"] == pytest.approx(2 * half, rel=0.1)


def test_strata_are_drawn_each_within_itself() -> None:
    found = stats.estimate([[1.0, 1.0, 1.0], [9.0, 9.0, 9.0]], mean)
    assert found == {"value": 5.0, "low": 5.0, "high": 5.0}


def test_ratio_and_its_interval() -> None:
    found = stats.ratio([[3.0, 3.3, 3.6]], [[1.0, 1.1, 1.2]], mean)
    assert found["value"] == pytest.approx(3.0)
    assert 2.5 <= found["low"] < 3.0 < found["high"] <= 3.6
    assert (found["above"], found["below"]) == pytest.approx((3.3, 1.1))


def test_nothing_is_divided_by_zero() -> None:
    found = stats.ratio([[3.0, 4.0, 5.0]], [[0.0, 0.0, 0.0]], mean)
    assert found == {"value": None, "low": None, "high": None, "above": 4.0, "below": 0.0}
    assert stats.ratio([[3.0, 4.0, 5.0]], [[0.0, 0.0, 9.0]], mean)["low"] is None  # some draws have no mark at all


def test_ratio_claims_no_interval_where_one_arm_has_too_few_trials() -> None:
    assert stats.ratio([[3.0, 4.0, 5.0]], [[1.0]], mean)["low"] is None
