"""How long CASSINI's decisions take: for one link, for a cluster, for a thousand jobs, and by precision."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks import placements
from controllers.cassini import search
from controllers.cassini.circle import unify
from controllers.cassini.compatibility import score
from controllers.cassini.decision import decide
from controllers.cassini.module import Evaluation, Placement, choose, rotations
from controllers.cassini.profile import Profile, angles_of

JOB_COUNTS = (2, 3, 8)
GROWTH = (125, 250, 500, 1000)
"""So many jobs, on twice as many links."""
CANDIDATES, CLUSTER_JOBS, WORKERS = 10, 8, 3
PRECISIONS_DEG = (1, 2, 4, 5, 8, 16, 32, 64, 128)
PRECISION_LINKS = 12
FINE = 720
CROWDED_LINKS, LONGER = 12, 8
CAPACITY_BPS = placements.CAPACITY_BPS
DUTY = 0.45
ANGLES = placements.ANGLES


@dataclass(frozen=True)
class Timed:
    """Wall seconds of one decision, and whether its score is proved to be as close to the best as was asked for.

    `bound` is the highest score there can be as far as is known.
    """

    wall_s: float
    score: float
    bound: float
    proved: bool


@dataclass(frozen=True)
class Ranked:
    """One run of the module: wall and processor seconds, peak memory, the mean score without and with time-shifts.

    `best` is the mean of what each link could have by itself.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    jobs: int
    links: int
    unshifted: float
    score: float
    best: float


@dataclass(frozen=True)
class Precise:
    """Links decided at one precision: mean wall seconds of a decision, and the mean score of its time-shifts.

    The score is that on circles of half a degree, so that what coarse angles do not see is counted.
    """

    precision_deg: float
    wall_s: float
    score: float


@dataclass(frozen=True)
class Crowded:
    """A link of four to eight jobs: its decision's score, the highest there can be as far as is known, and more work.

    `longer` is the score found with `LONGER` times the usual budget: how near the usual one comes where nothing is
    proved.
    """

    jobs: int
    wall_s: float
    score: float
    bound: float
    proved: bool
    longer: float


def profiles(count: int) -> list[Profile]:
    """Return so many jobs: each is silent, then sends for `DUTY` of its iteration; all fill the link between them."""
    sending = round(ANGLES * DUTY)
    rate_bps = CAPACITY_BPS if count == 2 else 2 * CAPACITY_BPS / count
    demand_bps = (0.0,) * (ANGLES - sending) + (rate_bps,) * sending
    return [Profile(f"job{number}", placements.PERIODS_S[number], demand_bps) for number in range(count)]


def decide_for(count: int) -> Timed:
    """Time one decision for `count` jobs."""
    jobs = profiles(count)
    began_s = time.perf_counter()
    decision = decide("tor1->agg1", jobs, CAPACITY_BPS)
    return Timed(time.perf_counter() - began_s, decision.score, decision.score_bound, decision.proved)


def cluster() -> Ranked:
    """Time the module for 24 servers: ten candidate placements, at most three jobs a link."""
    return _apart(_cluster)


def grown(jobs: int) -> Ranked:
    """Time the module for one placement of so many jobs on twice as many links."""
    return _apart(_grown, jobs)


def precision(precision_deg: float) -> Precise:
    """Decide links of three jobs at a precision in degrees of a job's own iteration."""
    wall_s, reached = 0.0, 0.0
    for link in map(placements.three_on_a_link, range(PRECISION_LINKS)):
        began_s = time.perf_counter()
        decision = decide(link.link, link.profiles, CAPACITY_BPS, angles=angles_of(precision_deg))
        wall_s += time.perf_counter() - began_s
        fine = unify(link.profiles, angles=FINE)
        reached += score(fine, rotations(fine, decision.shifts_s), CAPACITY_BPS)
    return Precise(precision_deg, wall_s / PRECISION_LINKS, reached / PRECISION_LINKS)


def crowded(seed: int) -> Crowded:
    """Decide a random link of four to eight jobs, every third with iterations that are all equal."""
    link = placements.crowded_link(seed)
    began_s = time.perf_counter()
    usual = decide(link.link, link.profiles, CAPACITY_BPS, budget=search.BUDGET)
    wall_s = time.perf_counter() - began_s
    longer = decide(link.link, link.profiles, CAPACITY_BPS, budget=LONGER * search.BUDGET)
    return Crowded(len(link.profiles), wall_s, usual.score, usual.score_bound, usual.proved, longer.score)


def _cluster() -> Ranked:
    return _ranked(placements.candidates(CANDIDATES, CLUSTER_JOBS, WORKERS, seed=1))


def _grown(jobs: int) -> Ranked:
    return _ranked([placements.scattered(jobs)])


def _ranked(given: list[Placement]) -> Ranked:
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    best: Evaluation = choose(given).best
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    links = sum(len(link.links) for link in best.links)
    return Ranked(
        wall_s, cpu_s, _peak_bytes(), len(best.jobs), links, best.score_unshifted, best.score, best.score_best
    )


def _peak_bytes() -> int:
    """Return the most memory this process ever had (the kernel's VmHWM; getrusage would show its parent's too)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _apart(of: Callable[..., Ranked], *arguments: int) -> Ranked:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(of, *arguments).result()
