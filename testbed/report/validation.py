"""What CASSINI predicted, beside what the network did: validation.json.

    {"scenario", "held", "of", "verdict",
     "predictions": [{"what", "arm", "link", "job", "unit", "predicted", "measured", "difference", "tolerance",
                      "held", "verdict"}],
     "links": [...], "ranks": [...]}                testbed.report.links, testbed.report.correlation

difference is measured less predicted; held is null where nothing can be said; job is null for what concerns a link.
Five things are predicted from the profiles of the jobs alone:

- *time-shift*: how much later than without it a job runs, told by how long after the first job's Up phase its own
  begins, modulo what is common to their iteration times (two jobs stand in no other relation for longer). Measured
  as the circular mean over all iterations; the worst trial must be within 5 % of the iteration time.
- *score*: that of the offsets the jobs really had, on the same circle.
- *iteration time*: with the shifts (arm cassini) and with none (arm together). Where there is excess, the prediction
  is for jobs that stay in step, and anything from the time alone up to it holds.
- *excess bytes*: demanded beyond the capacity per iteration of a job, beside the bytes that were marked. They are
  different things: whether there are any is compared, not how many.
- *peak queue*: below the marking threshold where there is no excess, above it where there is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from controllers.cassini.decision import TIE, Decision, JobDecision, rescore
from testbed.report.correlation import correlations
from testbed.report.links import rows
from testbed.report.load import Arm, JobRun, Setting, Trial, arms_of

DRIFT = 0.05  # of the iteration time: the paper's own threshold, beyond which a worker adjusts its shift
SCORE = 0.02
FEW_MARKS = 0.01  # of the packets of the link


def validate(run_dir: Path, scenario: Mapping[str, Any], decisions: Sequence[Decision]) -> dict[str, Any]:
    """Return each prediction of the decisions beside its measurement, as the top of this module has it.

    scenario: keys as in `testbed.report.load.Setting`. An arm that did not run is left out. Raises InputError for
    missing files.
    """
    setting, arms = Setting.of(scenario), arms_of(run_dir)
    found: list[dict[str, Any]] = []
    for decision in decisions:
        if "cassini" in arms:
            found += _offsets(decision, arms["cassini"], arms.get("alone"))
        for name, shifted in (("cassini", True), ("together", False)):
            if name in arms:
                found += _iterations(decision, arms[name], held_s(run_dir / name), shifted=shifted)
                found += _link(decision, arms[name], setting, shifted=shifted)
    every = rows(run_dir, setting.rate_bps, arms)
    said = [one for one in found if one["held"] is not None]
    held = sum(one["held"] for one in said)
    return {
        "scenario": setting.name,
        "held": held,
        "of": len(said),
        "verdict": f"{held} of {len(said)} predictions held",
        "predictions": found,
        "links": every,
        "ranks": correlations(every),
    }


def held_s(arm_dir: Path) -> dict[str, float]:
    """Return the iteration times in s that an arm's workers were told to keep, of the jobs that were told one."""
    plan = arm_dir / "plan.json"
    holds = json.loads(plan.read_text(encoding="utf-8")).get("holds", {}) if plan.is_file() else {}
    return {job: float(hold["period_s"]) for job, hold in holds.items()}


def offset_s(lead: JobRun, other: JobRun, common_s: float) -> tuple[float, float]:
    """Return how long after the Up phases of `lead` those of `other` begin, modulo `common_s`, and the spread of it.

    Both in seconds: the circular mean and the circular standard deviation over all iterations of `other` that begin
    while `lead` runs.
    """
    at = np.searchsorted(lead.up_begin_s, other.up_begin_s, side="right") - 1
    inside = (at >= 0) & (other.up_begin_s <= lead.end_s[-1])
    turn = 2 * np.pi * (other.up_begin_s[inside] - lead.up_begin_s[at[inside]]) / common_s
    mean = np.exp(1j * turn).mean() if inside.any() else 0j
    spread = float(np.sqrt(-2 * np.log(min(1.0, max(abs(mean), 1e-12)))))
    return float(np.angle(mean)) % (2 * np.pi) / (2 * np.pi) * common_s, spread / (2 * np.pi) * common_s


def _offsets(decision: Decision, cassini: Arm, alone: Arm | None) -> list[dict[str, Any]]:
    """Return the predictions of time-shift, one for each job but the first, and of the score they lead to."""
    trials = [trial for trial in cassini.trials if all(job.job in trial.jobs for job in decision.jobs)]
    if not trials or len(decision.jobs) < 2:
        return []
    lead = min(decision.jobs, key=lambda job: job.job)
    found, realised = [], [dict(decision.shifts_s) for _ in trials]
    for job in decision.jobs:
        if job == lead:
            continue
        common_s = float(np.gcd(len(job.demand_bps), len(lead.demand_bps))) * decision.slot_s
        downs = _down_s(job, alone or cassini) - _down_s(lead, alone or cassini)
        predicted = (job.time_shift_s - lead.time_shift_s + downs) % common_s
        measured = [_measured_offset(trial, lead, job, common_s) for trial in trials]
        for shifts, (offset, _) in zip(realised, measured, strict=True):
            shifts[job.job] += _wrapped(offset - predicted, common_s)
        found.append(_time_shift(decision, lead, job, predicted, common_s, measured))
    if all(one["held"] is not None for one in found):
        found.append(_score(decision, [rescore(decision, shifts) for shifts in realised]))
    return found


def _measured_offset(trial: Trial, lead: JobDecision, job: JobDecision, common_s: float) -> tuple[float, float]:
    """Return offset and spread on the circle of the decision: the jobs' real pace is not quite the quantised one."""
    pace = float(trial.jobs[lead.job].iteration_s.mean()) / lead.quantised_s
    offset, spread = offset_s(trial.jobs[lead.job], trial.jobs[job.job], common_s * pace)
    return offset / pace, spread / pace


def _down_s(job: JobDecision, arm: Arm) -> float:
    runs = [trial.jobs[job.job] for trial in arm.trials if job.job in trial.jobs]
    return float(np.mean(np.concatenate([run.up_begin_s - run.begin_s for run in runs])))


def _wrapped(difference_s: float, common_s: float) -> float:
    return (difference_s + common_s / 2) % common_s - common_s / 2


def _time_shift(
    decision: Decision,
    lead: JobDecision,
    job: JobDecision,
    predicted: float,
    common_s: float,
    measured: Sequence[tuple[float, float]],
) -> dict[str, Any]:
    differences = np.array([_wrapped(offset - predicted, common_s) for offset, _ in measured])
    mean, tolerance = float(differences.mean()), DRIFT * min(job.period_s, lead.period_s)
    held: bool | None = bool(np.abs(differences).max() <= tolerance)
    verdict = (
        f"{job.job}'s Up phase began {1e3 * (predicted + mean):.1f} ms after {lead.job}'s, predicted "
        f"{1e3 * predicted:.1f} ms; over a trial it spread by {1e3 * max(spread for _, spread in measured):.1f} ms"
    )
    if tolerance >= common_s / 2:
        held = None
        verdict = (
            f"iteration times of {1e3 * lead.period_s:.1f} and {1e3 * job.period_s:.1f} ms fix the offset of "
            f"{job.job} to {lead.job} only modulo {1e3 * common_s:.1f} ms: nothing to compare"
        )
    seen = _Seen("time-shift", "s", job.time_shift_s, job.time_shift_s + mean, tolerance, held, verdict)
    return seen.entry(decision, "cassini", job.job)


def _score(decision: Decision, scores: Sequence[float]) -> dict[str, Any]:
    measured = float(np.mean(scores))
    held = abs(measured - decision.score) <= SCORE
    verdict = f"at the offsets the jobs really had the score is {measured:.3f}, predicted {decision.score:.3f}"
    return _Seen("score", "1", decision.score, measured, SCORE, held, verdict).entry(decision, "cassini")


def _iterations(decision: Decision, arm: Arm, held: Mapping[str, float], *, shifted: bool) -> list[dict[str, Any]]:
    """Return the predictions of iteration times; no job that is `held` to the circle (in s) is faster than that."""
    found = []
    for job in decision.jobs:
        times = [trial.jobs[job.job].iteration_s for trial in arm.trials if job.job in trial.jobs]
        if not times:
            continue
        predicted = job.iteration_s if shifted else job.iteration_unshifted_s
        least = max(job.period_s, held.get(job.job, 0.0))
        predicted = max(predicted, least)
        measured, tolerance = float(np.mean(np.concatenate(times))), DRIFT * job.period_s
        most = "" if predicted == least else "at most "
        verdict = (
            f"an iteration of {job.job} took {1e3 * measured:.1f} ms in the mean, predicted {most}"
            f"{1e3 * predicted:.1f} ms ({1e3 * job.period_s:.1f} ms alone)"
        )
        within = job.period_s - tolerance <= measured <= predicted + tolerance
        if most and measured > predicted + tolerance:
            verdict += f": contention cost {1e3 * (measured - predicted):.1f} ms more than the excess bytes account for"
        seen = _Seen("iteration time", "s", predicted, measured, tolerance, within, verdict)
        found.append(seen.entry(decision, arm.name, job.job))
    return found


def _link(decision: Decision, arm: Arm, setting: Setting, *, shifted: bool) -> list[dict[str, Any]]:
    """Return the predictions of excess bytes and of the peak queue at the decision's link."""
    queue = arm.queues.get(decision.link)
    if queue is None:
        return []
    spans = [trial.whole_s for trial in arm.trials]
    iterations = sum(len(run.begin_s) for trial in arm.trials for run in trial.jobs.values())
    packets, sent = (sum(queue.between(column, *span) for span in spans) for column in ("tx_packets", "tx_bytes"))
    marked = sum(arm.marks.get((trial.name, decision.link), 0.0) for trial in arm.trials)
    score = decision.score if shifted else decision.score_unshifted
    excess = decision.excess_bytes if shifted else decision.excess_bytes_unshifted
    none = score >= 1 - TIE
    predicted = excess / sum(job.turns for job in decision.jobs)
    few = bool(marked <= FEW_MARKS * packets)
    size = sent / packets if packets else 0.0
    verdict = (
        f"{_amount(predicted)} beyond the capacity were predicted per iteration of a job; "
        f"{marked:,.0f} of {packets:,.0f} packets were marked"
    )
    tolerance = FEW_MARKS * sent / iterations
    seen = _Seen("excess bytes", "B", predicted, marked * size / iterations, tolerance, few == none, verdict)
    found = [seen.entry(decision, arm.name)]
    if setting.red_min_bytes is not None:
        peak, least = max(queue.peak_bytes(*span) for span in spans), float(setting.red_min_bytes)
        verdict = (
            f"the queue reached {_amount(peak)}, predicted to {'stay below' if none else 'rise above'} the "
            f"{_amount(least)} from which packets are marked"
        )
        seen = _Seen("peak queue", "B", least, peak, 0.0, bool(peak < least) == none, verdict)
        found.append(seen.entry(decision, arm.name))
    return found


def _amount(size_bytes: float) -> str:
    if size_bytes >= 1e6:
        return f"{size_bytes / 1e6:.3g} MB"
    return f"{size_bytes / 1e3:.3g} kB" if size_bytes >= 1e3 else f"{size_bytes:.0f} B"


@dataclass(frozen=True)
class _Seen:
    """One prediction beside its measurement."""

    what: str
    unit: str
    predicted: float
    measured: float
    tolerance: float
    held: bool | None
    verdict: str

    def entry(self, decision: Decision, arm: str, job: str | None = None) -> dict[str, Any]:
        """Return it as validation.json has it."""
        mark = {True: "held", False: "did not hold", None: "open"}[self.held]
        return {
            "what": self.what,
            "arm": arm,
            "link": decision.link,
            "job": job,
            "unit": self.unit,
            "predicted": self.predicted,
            "measured": self.measured,
            "difference": self.measured - self.predicted,
            "tolerance": self.tolerance,
            "held": self.held,
            "verdict": f"{mark}: {self.verdict}",
        }
