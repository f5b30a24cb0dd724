"""How long CASSINI's decision for one link takes, for two, three and eight jobs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from controllers.cassini.decision import decide
from controllers.cassini.profile import Profile

JOB_COUNTS = (2, 3, 8)
CAPACITY_BPS = 50e9
PERIODS_S = (0.255, 0.285, 0.200, 0.300, 0.240, 0.150, 0.180, 0.360)
"""Iteration times of different models: the first is VGG16's of the paper, and no two are equal."""
DUTY = 0.45
ANGLES = 72


@dataclass(frozen=True)
class Timed:
    """Wall seconds of one decision, and whether its score is proved to be as close to the best as was asked for."""

    wall_s: float
    score: float
    proved: bool


def profiles(count: int) -> list[Profile]:
    """Return so many jobs: each is silent, then sends for `DUTY` of its iteration; all fill the link between them."""
    sending = round(ANGLES * DUTY)
    rate_bps = CAPACITY_BPS if count == 2 else 2 * CAPACITY_BPS / count
    demand_bps = (0.0,) * (ANGLES - sending) + (rate_bps,) * sending
    return [Profile(f"job{number}", PERIODS_S[number], demand_bps) for number in range(count)]


def decide_for(count: int) -> Timed:
    """Time one decision for `count` jobs."""
    jobs = profiles(count)
    began_s = time.perf_counter()
    decision = decide("tor1->agg1", jobs, CAPACITY_BPS)
    return Timed(time.perf_counter() - began_s, decision.score, decision.proved)
