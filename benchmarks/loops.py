"""What to do where the affinity graph has a loop: five rules on the same random placements.

    nothing        no time-shifts at all
    drop           the paper's rule: a placement with a loop is no candidate; where all have one, no time-shifts
    break          of every loop leave out the link with the most slack, and walk over the rest
    least squares  shifts whose distances differ least from those the links ask for, over all loops
    together       the module's: links that are tied by loops are decided together by the search

Every rule's time-shifts are scored alike: the mean over the links of a placement, on circles of one degree.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks import placements
from controllers.cassini.affinity import affinity_graph, has_loop, knots, merge, time_shifts
from controllers.cassini.circle import QUANTUM_S, UnifiedCircle, unify
from controllers.cassini.compatibility import score
from controllers.cassini.decision import Decision, decide
from controllers.cassini.module import Placement, choose, rotations

DECISIONS, CANDIDATES, JOBS, WORKERS = 12, 5, 6, 2
FINE = 360
_STEPS = 20

Shifts = Mapping[str, float]


@dataclass(frozen=True)
class Reached:
    """The mean score of each rule over single placements that have a loop, and over decisions between candidates.

    `looped` of `placements` have a loop; in `hopeless` of `decisions` every candidate has one. `best` is the mean of
    what each link could have by itself: out of reach where loops contradict.
    """

    placements: int
    looped: int
    decisions: int
    hopeless: int
    best: float
    single: dict[str, float]
    chosen: dict[str, float]


class Case:
    """A placement, what each of its links asks for by itself, and the score of any time-shifts there."""

    def __init__(self, placement: Placement) -> None:
        """Decide every link alone."""
        self.placement = placement
        self.vertices = {vertex.name: vertex for vertex in merge(placement.links)}
        self.asked: dict[str, Decision] = {
            name: decide(name, vertex.profiles, vertex.capacity_bps) for name, vertex in self.vertices.items()
        }
        self._circles: dict[str, UnifiedCircle] = {
            name: unify(vertex.profiles, angles=FINE) for name, vertex in self.vertices.items()
        }
        self.periods_s = {job.job: job.quantised_s for asked in self.asked.values() for job in asked.jobs}

    @cached_property
    def looped(self) -> bool:
        """Whether the affinity graph has a loop, equal links merged."""
        return has_loop(affinity_graph({name: vertex.jobs for name, vertex in self.vertices.items()}))

    @cached_property
    def best(self) -> float:
        """The mean score of links that each have the time-shifts they ask for."""
        return self._mean(lambda name: self.asked[name].shifts_s)

    def score(self, shifts_s: Shifts) -> float:
        """Return the mean score over links; jobs without a time-shift begin at once."""
        every = dict.fromkeys(self.periods_s, 0.0) | dict(shifts_s)
        return self._mean(lambda _: every)

    def _mean(self, shifts_of: Callable[[str], Shifts]) -> float:
        total, weight = 0.0, 0
        for name, vertex in self.vertices.items():
            circle = self._circles[name]
            total += len(vertex.links) * score(circle, rotations(circle, shifts_of(name)), vertex.capacity_bps)
            weight += len(vertex.links)
        return total / weight if weight else 1.0


def nothing(_: Case) -> Shifts:
    """Return no time-shift."""
    return {}


def drop(case: Case) -> Shifts:
    """Return the shifts of the paper's traversal, none where there is a loop."""
    return {} if case.looped else broken(case)


def broken(case: Case) -> Shifts:
    """Return the shifts of the traversal after the link with the most slack is left out of every loop in turn."""
    asked = dict(case.asked)
    while tied := [knot for knot in knots(_graph(asked)) if len(knot) > 1]:
        del asked[max(tied[0], key=lambda name: (min(job.slack_s for job in asked[name].jobs), name))]
    shifts, _ = time_shifts({name: decision.shifts_s for name, decision in asked.items()}, case.periods_s)
    return shifts


def least_squares(case: Case) -> Shifts:
    """Return the shifts whose pairwise distances differ least from those asked for, modulo the common divisor.

    Whole turns are taken off each difference and the rest is solved, again and again, beginning with `broken`.
    """
    jobs = sorted(case.periods_s)
    at = {job: number for number, job in enumerate(jobs)}
    shifts = np.array([{**dict.fromkeys(jobs, 0.0), **broken(case)}[job] for job in jobs])
    rows, wanted, turns = [], [], []
    for decision in case.asked.values():
        for one, other in itertools.combinations(decision.jobs, 2):
            row = np.zeros(len(jobs))
            row[at[one.job]], row[at[other.job]] = 1.0, -1.0
            rows.append(row)
            wanted.append(one.time_shift_s - other.time_shift_s)
            quanta = (round(job.quantised_s / QUANTUM_S) for job in (one, other))
            turns.append(math.gcd(*quanta) * QUANTUM_S)
    if not rows:
        return {}
    distances, asked, turn = np.array(rows), np.array(wanted), np.array(turns)
    for _ in range(_STEPS):
        error = distances @ shifts - asked
        error -= np.round(error / turn) * turn
        step = np.linalg.lstsq(distances, error, rcond=None)[0]
        shifts = shifts - step
        if np.abs(step).max() < QUANTUM_S / 1000:
            break
    return {job: float(shifts[at[job]]) % case.periods_s[job] for job in jobs}


def together(case: Case) -> Shifts:
    """Return the module's shifts."""
    return choose([case.placement]).best.shifts_s


RULES: dict[str, Callable[[Case], Shifts]] = {
    "nothing": nothing,
    "drop": drop,
    "break": broken,
    "least squares": least_squares,
    "together": together,
}


def measure(decisions: int = DECISIONS) -> Reached:
    """Return what every rule reaches on `decisions` times `CANDIDATES` random placements on 24 servers."""
    drawn = [
        [
            Case(placement)
            for placement in placements.candidates(
                CANDIDATES, JOBS, WORKERS, seed, most=JOBS, periods_s=placements.EVEN_S
            )
        ]
        for seed in range(decisions)
    ]
    scores = {rule: [[case.score(shifts(case)) for case in cases] for cases in drawn] for rule, shifts in RULES.items()}
    looped = [[case.looped for case in cases] for cases in drawn]
    tied = [case for cases in drawn for case in cases if case.looped]
    return Reached(
        placements=decisions * CANDIDATES,
        looped=len(tied),
        decisions=decisions,
        hopeless=sum(map(all, looped)),
        best=statistics.fmean(case.best for case in tied),
        single={rule: _mean_where(found, looped) for rule, found in scores.items()},
        chosen={
            rule: statistics.fmean(_chosen(rule, *of) for of in zip(found, looped, strict=True))
            for rule, found in scores.items()
        },
    )


def _graph(asked: Mapping[str, Decision]) -> object:
    return affinity_graph({name: [job.job for job in decision.jobs] for name, decision in asked.items()})


def _mean_where(found: list[list[float]], wanted: list[list[bool]]) -> float:
    both = zip(itertools.chain(*found), itertools.chain(*wanted), strict=True)
    return statistics.fmean(value for value, counts in both if counts)


def _chosen(rule: str, scores: list[float], looped: list[bool]) -> float:
    """Return the score of the candidate that a rule takes: without time-shifts the scheduler's first."""
    if rule == "nothing":
        return scores[0]
    if rule == "drop":
        return max((score for score, loop in zip(scores, looped, strict=True) if not loop), default=scores[0])
    return max(scores)
