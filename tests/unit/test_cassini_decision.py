"""The decision of a link: what it predicts, and its form as JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from test_cassini_circle import square

from controllers.cassini.compatibility import time_shift_s
from controllers.cassini.decision import Decision, decide, rescore

RATE_BPS = 1e9
VGG16 = (square("b", 0.255, 0.141), square("a", 0.255, 0.141))


def test_two_vgg16_interleave_and_keep_their_time() -> None:
    decision = decide("tor1->agg1", VGG16, RATE_BPS)
    assert decision.score > 0.999
    assert decision.score_unshifted == pytest.approx(1 - 0.114 / 0.255, abs=0.01)  # an angle is 1/72
    assert decision.shifts_s["a"] == 0
    assert decision.shifts_s["b"] == pytest.approx(0.1275, abs=decision.slot_s)
    assert decision.excess_bytes < 1e-3 * RATE_BPS / 8 * 0.255
    assert decision.excess_bytes_unshifted == pytest.approx(RATE_BPS / 8 * 0.114, rel=0.01)
    for job in decision.jobs:
        assert job.iteration_s == 0.255
        assert job.iteration_unshifted_s == pytest.approx(0.255 + 0.114, rel=0.01)
        assert job.slack_s == pytest.approx(0.0135, abs=decision.slot_s)
    assert decision.statement.endswith("every job keeps the iteration time it has alone")


def test_time_shift_is_the_published_one() -> None:
    decision = decide("l", [square("a", 0.040, 0.030), square("b", 0.060, 0.050)], RATE_BPS)
    for job in decision.jobs:
        published = time_shift_s(math.radians(job.rotation_deg), decision.perimeter_s, job.quantised_s)
        assert job.time_shift_s == pytest.approx(published, abs=1e-12)
        assert job.time_shift_s < job.quantised_s


def test_jobs_that_cannot_interleave_are_said_to_take_longer() -> None:
    decision = decide("l", [square("a", 0.1, 0.02), square("b", 0.1, 0.02)], RATE_BPS)
    assert decision.score == pytest.approx(0.4)  # 80 + 80 ms of traffic in 100 ms, wherever it is put
    assert decision.excess_bytes == pytest.approx(0.06 * RATE_BPS / 8)
    assert decision.jobs[0].iteration_s == pytest.approx(0.16)
    assert "more than the link can carry" in decision.statement


def test_a_job_that_turns_more_often_bears_its_share_each_time() -> None:
    decision = decide("l", [square("a", 0.1, 0.02), square("b", 0.2, 0.04)], RATE_BPS)
    [a, b] = decision.jobs
    assert (a.turns, b.turns) == (2, 1)
    assert a.iteration_s - a.period_s == pytest.approx((b.iteration_s - b.period_s) / 2)


def test_as_json_it_comes_back_the_same() -> None:
    decision = decide("tor1->agg1", VGG16, RATE_BPS)
    assert Decision.from_dict(json.loads(json.dumps(decision.to_dict()))) == decision


def test_demand_before_and_after_is_what_the_score_says() -> None:
    decision = decide("l", VGG16, RATE_BPS)
    for shifted, score in ((False, decision.score_unshifted), (True, decision.score)):
        demand = decision.demand_bps(shifted=shifted)
        assert demand.shape == (2, decision.slots)
        assert 1 - np.maximum(0, demand.sum(axis=0) - RATE_BPS).mean() / RATE_BPS == pytest.approx(score)


def test_rescore_with_other_shifts() -> None:
    decision = decide("l", VGG16, RATE_BPS)
    assert rescore(decision, {"a": 0.0, "b": 0.0}) == pytest.approx(decision.score_unshifted)
    assert rescore(decision, decision.shifts_s) == pytest.approx(decision.score)
    assert rescore(decision, {"a": 0.03, "b": decision.shifts_s["b"] + 0.03}) == pytest.approx(decision.score, abs=0.02)


def test_the_order_of_the_profiles_does_not_matter() -> None:
    one, two = decide("l", VGG16, RATE_BPS), decide("l", VGG16[::-1], RATE_BPS)
    assert one.shifts_s == two.shifts_s
    assert one.score == two.score
