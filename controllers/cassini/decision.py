"""What is decided for one link, and what that predicts: to be held against what the network then does.

Predicted are the compatibility score before and after the time-shifts, the bytes demanded beyond what the link can
carry (*excess bytes*, per perimeter), and iteration times. Where there is no excess every job keeps the iteration
time it has alone. Where there is, and as long as the jobs stay in step, what came too much is sent later: each
iteration ends later by at most its share of the time the link needs for the excess bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from controllers.cassini import search
from controllers.cassini.circle import ANGLES, LONGEST_S, QUANTUM_S, UnifiedCircle, unify
from controllers.cassini.compatibility import Rotation, best_rotation, excess_bps, score
from controllers.cassini.profile import Floats, Profile

TIE = 1e-3  # scores closer than this are equal: no profile is measured better


@dataclass(frozen=True)
class JobDecision:
    """What is decided for one job of a link.

    `period_s` is the iteration time of the job alone, as measured, `quantised_s` that on the circle, `turns` how
    often it turns on one round (r_j). The rotation in degrees of the unified circle is a delay of `time_shift_s`, which
    may err by `slack_s` either way. `iteration_s` and `iteration_unshifted_s` are the predicted iteration times.
    `demand_bps` is the demand in each slot of one iteration, not rotated.
    """

    job: str
    period_s: float
    quantised_s: float
    turns: int
    rotation_slots: int
    rotation_deg: float
    time_shift_s: float
    slack_s: float
    iteration_s: float
    iteration_unshifted_s: float
    demand_bps: tuple[float, ...]


@dataclass(frozen=True)
class Decision:
    """The time-shifts of the jobs of one directed link, and what they are expected to do there.

    `score` belongs to the rotations chosen, `score_unshifted` to none at all; `score_bound` is the highest score there
    can be as far as is known, `proved` whether `score` is known to be as close to it as was asked for (always so for
    up to three jobs). `slots` of `slot_s` seconds make the perimeter; iteration times are multiples of `quantum_s`.
    """

    link: str
    capacity_bps: float
    perimeter_s: float
    quantum_s: float
    slot_s: float
    slots: int
    score: float
    score_unshifted: float
    score_bound: float
    proved: bool
    excess_bytes: float
    excess_bytes_unshifted: float
    statement: str
    jobs: tuple[JobDecision, ...]

    @property
    def shifts_s(self) -> dict[str, float]:
        """Return the time-shift of each job by its name."""
        return {job.job: job.time_shift_s for job in self.jobs}

    def demand_bps(self, *, shifted: bool) -> Floats:
        """Return the demand of each job round the unified circle in bit/s, shape (jobs, slots)."""
        return _circle_of(self).rotated([job.rotation_slots if shifted else 0 for job in self.jobs])

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as JSON has it; `from_dict` reads it back unchanged."""
        raw = asdict(self)
        raw["jobs"] = [{**job, "demand_bps": list(job["demand_bps"])} for job in raw["jobs"]]
        return raw

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Decision:
        """Read what `to_dict` wrote. Raises TypeError for a missing or an unknown key."""
        jobs = tuple(JobDecision(**{**job, "demand_bps": tuple(job["demand_bps"])}) for job in raw["jobs"])
        return cls(**{**raw, "jobs": jobs})


def decide(
    link: str,
    profiles: Sequence[Profile],
    capacity_bps: float,
    *,
    angles: int = ANGLES,
    quantum_s: float = QUANTUM_S,
    longest_s: float = LONGEST_S,
    tie: float = TIE,
    gap: float = 0.01,
    budget: int | None = search.BUDGET,
) -> Decision:
    """Decide the time-shifts of the jobs that share one directed link, from their profiles on it.

    angles: how many an iteration has at least (`profile.angles_of`). quantum_s, longest_s: see `circle.quantise`.
    tie, gap, budget: see `compatibility.best_rotation`. The first job by name is never delayed. Raises ValueError
    for profiles that fit on no circle and for a capacity that is not positive.
    """
    circle = unify(profiles, angles=angles, quantum_s=quantum_s, longest_s=longest_s)
    chosen = best_rotation(circle, capacity_bps, tie=tie, gap=gap, budget=budget)
    return describe(link, profiles, circle, chosen, capacity_bps, tie=tie)


def describe(
    link: str, profiles: Sequence[Profile], circle: UnifiedCircle, chosen: Rotation, capacity_bps: float, *, tie: float
) -> Decision:
    """Return the decision that rotations of a circle amount to. profiles: those the circle was made of, in order."""
    still = [0] * len(profiles)
    before, after = (_excess_bytes(circle, rotations, capacity_bps) for rotations in (still, chosen.rotations))
    jobs = tuple(
        JobDecision(
            job=profile.job,
            period_s=profile.period_s,
            quantised_s=circle.quantised_s(index),
            turns=circle.turns[index],
            rotation_slots=chosen.rotations[index],
            rotation_deg=360 * chosen.rotations[index] / circle.slots,
            time_shift_s=chosen.rotations[index] * circle.slot_s,
            slack_s=chosen.slack[index] * circle.slot_s,
            iteration_s=_iteration_s(profile.period_s, circle.turns[index], after, chosen.score, capacity_bps, tie),
            iteration_unshifted_s=_iteration_s(
                profile.period_s, circle.turns[index], before, score(circle, still, capacity_bps), capacity_bps, tie
            ),
            demand_bps=tuple(circle.demands[index].tolist()),
        )
        for index, profile in enumerate(profiles)
    )
    return Decision(
        link=link,
        capacity_bps=capacity_bps,
        perimeter_s=circle.perimeter_s,
        quantum_s=circle.quantum_s,
        slot_s=circle.slot_s,
        slots=circle.slots,
        score=chosen.score,
        score_unshifted=score(circle, still, capacity_bps),
        score_bound=chosen.bound,
        proved=chosen.proved,
        excess_bytes=after,
        excess_bytes_unshifted=before,
        statement=_statement(jobs, circle.perimeter_s, chosen.score, after, tie),
        jobs=jobs,
    )


def rescore(decision: Decision, shifts_s: Mapping[str, float]) -> float:
    """Return the score the link has when its jobs are delayed by other time-shifts, to the nearest slot."""
    circle = _circle_of(decision)
    rotations = [round(shifts_s[job.job] / decision.slot_s) for job in decision.jobs]
    return score(circle, rotations, decision.capacity_bps)


def moved(decision: Decision, shifts_s: Mapping[str, float], tie: float = TIE) -> Decision:
    """Return what the decision would say had it these time-shifts, to the nearest slot; no slack is known for them."""
    circle, capacity_bps = _circle_of(decision), decision.capacity_bps
    rotations = [round(shifts_s[job.job] / decision.slot_s) for job in decision.jobs]
    reached, excess = score(circle, rotations, capacity_bps), _excess_bytes(circle, rotations, capacity_bps)
    jobs = tuple(
        replace(
            job,
            rotation_slots=rotation,
            rotation_deg=360 * rotation / decision.slots,
            time_shift_s=rotation * decision.slot_s,
            slack_s=0.0,
            iteration_s=_iteration_s(job.period_s, job.turns, excess, reached, capacity_bps, tie),
        )
        for job, rotation in zip(decision.jobs, rotations, strict=True)
    )
    said = _statement(jobs, decision.perimeter_s, reached, excess, tie)
    return replace(decision, score=reached, excess_bytes=excess, statement=said, jobs=jobs)


def _circle_of(decision: Decision) -> UnifiedCircle:
    return UnifiedCircle(
        jobs=tuple(job.job for job in decision.jobs),
        quantum_s=decision.quantum_s,
        slot_s=decision.slot_s,
        slots=decision.slots,
        lengths=tuple(len(job.demand_bps) for job in decision.jobs),
        demands=tuple(np.array(job.demand_bps) for job in decision.jobs),
    )


def _excess_bytes(circle: UnifiedCircle, rotations: Sequence[int], capacity_bps: float) -> float:
    excess = excess_bps(circle.rotated(rotations).sum(axis=0), capacity_bps)
    return float(excess.sum()) * circle.slot_s / 8


def _iteration_s(
    period_s: float, turns: int, excess_bytes: float, reached: float, capacity_bps: float, tie: float
) -> float:
    if reached >= 1 - tie:
        return period_s
    return period_s + 8 * excess_bytes / capacity_bps / turns


def _statement(jobs: Sequence[JobDecision], perimeter_s: float, reached: float, excess: float, tie: float) -> str:
    if reached >= 1 - tie:
        return f"score {reached:.3f}: every job keeps the iteration time it has alone"
    times = ", ".join(f"{job.job} {job.iteration_s * 1e3:.1f} ms" for job in jobs)
    return (
        f"score {reached:.3f}: {excess / 1e6:.3g} MB in every {perimeter_s * 1e3:.0f} ms are more than the link can "
        f"carry; if the jobs stay in step an iteration takes up to {times}"
    )
