"""What a run showed, arm by arm: summary.json.

    {"scenario", "confidence": 0.95, "resamples": 2000, "rate_bps", "shared_links": [...],
     "arms": {arm: {
         "trials", "iterations",                    trials; iterations of all jobs in all trials
         "iteration_s": {"mean", "p50", "worst", "p99"},
         "trial_mean_s": [...],                     mean iteration time of each trial: what another start may give
         "ce_packets_per_iteration",                CE packets at the receivers per iteration of a job
         "marked_packets_per_iteration",            marks by the queues of all shared links per iteration of a job
         "utilisation",                             mean over the shared links, while all jobs were there
         "jobs":  {job: {"iterations", "iteration_s", "ce_packets_per_iteration",
                         "up_s",                    communication time: from the first byte to the iteration's end
                         "padding_s", "lost_s",     per iteration: waited for its tick, and for the next one after drift
                         "adjustments"}},           iterations before which a worker had drifted
         "links": {link: {"utilisation", "marked_packets_per_iteration", "peak_backlog_bytes", "dropped_packets"}}}},
     "ratios": {"together/cassini": {"mean", "p50", "worst", "ce_packets_per_iteration",
                                     "marked_packets_per_iteration"}}}

A mean over several jobs is the mean of their means: each counts the same, however many iterations it did.
mean, p50, marks and utilisation are {"value", "low", "high"}, an interval over trials (low and high are null with fewer
than three). worst is {"value"}, the longest iteration of all; p99 likewise, null below 200 iterations. A ratio has
"above" and "below" as well, and the value null where nothing can be divided: below is 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testbed.report import stats
from testbed.report.load import Arm, Floats, JobRun, Setting, Trial, arms_of

P99_FROM = 200
PAIRS = (
    ("together", "cassini"),
    ("random", "cassini"),
    ("random", "priority"),
    ("priority", "cassini"),
    ("together", "alone"),
    ("random", "alone"),
    ("cassini", "refined"),
    ("cassini", "alone"),
    ("refined", "alone"),
)
Strata = Sequence[Sequence["Seen"]]


@dataclass(frozen=True)
class LinkSeen:
    """One directed link in one trial: bytes sent while all jobs were there, and the whole trial's marks and drops."""

    sent_bytes: float
    window_s: float
    marked_packets: float
    dropped_packets: float
    peak_bytes: float


@dataclass(frozen=True)
class Seen:
    """What is drawn again by the bootstrap: one trial."""

    jobs: tuple[str, ...]
    iteration_s: Floats
    job_iteration_s: tuple[Floats, ...]
    ce_packets: float
    links: dict[str, LinkSeen]


def summarise(run_dir: Path, scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of a run folder, as the top of this module has it. Raises InputError for missing files.

    scenario: keys as in `testbed.report.load.Setting`.
    """
    setting = Setting.of(scenario)
    seen = {
        name: [(trial, _see(arm, trial, setting)) for trial in arm.trials] for name, arm in arms_of(run_dir).items()
    }
    strata = {name: _strata([one for _, one in both]) for name, both in seen.items()}
    return {
        "scenario": setting.name,
        "confidence": stats.CONFIDENCE,
        "resamples": stats.RESAMPLES,
        "rate_bps": setting.rate_bps,
        "shared_links": list(setting.shared_links),
        "arms": {name: _arm(both, strata[name], setting) for name, both in seen.items()},
        "ratios": {
            f"{above}/{below}": _ratios(strata[above], strata[below])
            for above, below in PAIRS
            if above in strata and below in strata
        },
    }


def _see(arm: Arm, trial: Trial, setting: Setting) -> Seen:
    begin_s, end_s = trial.window_s
    first_s, last_s = trial.whole_s
    links = {}
    for link in setting.shared_links:
        queue = arm.queues.get(link)
        if queue is not None:
            links[link] = LinkSeen(
                sent_bytes=queue.between("tx_bytes", begin_s, end_s),
                window_s=end_s - begin_s,
                marked_packets=arm.marks.get((trial.name, link), 0.0),
                dropped_packets=queue.between("dropped_packets", first_s, last_s),
                peak_bytes=queue.peak_bytes(first_s, last_s),
            )
    runs = trial.jobs.values()
    return Seen(
        jobs=tuple(sorted(trial.jobs)),
        iteration_s=np.concatenate([run.iteration_s for run in runs]),
        job_iteration_s=tuple(trial.jobs[job].iteration_s for job in sorted(trial.jobs)),
        ce_packets=float(sum(run.ce_packets.sum() for run in runs)),
        links=links,
    )


def _only(trial: Trial, job: str) -> Seen:
    """Return what was seen of one job of a trial, without the links."""
    run = trial.jobs[job]
    return Seen((job,), run.iteration_s, (run.iteration_s,), float(run.ce_packets.sum()), {})


def _strata(trials: Sequence[Seen]) -> list[list[Seen]]:
    """Return the trials by the jobs they hold: in the arm `alone` each trial may hold one job of its own."""
    return [[one for one in trials if one.jobs == jobs] for jobs in sorted({one.jobs for one in trials})]


def mean_s(trials: list[Seen]) -> float:
    """Return the mean over jobs of the mean time of all their iterations in the trials."""
    of_job: dict[str, list[Floats]] = defaultdict(list)
    for one in trials:
        for job, times in zip(one.jobs, one.job_iteration_s, strict=True):
            of_job[job].append(times)
    return float(np.mean([np.concatenate(times).mean() for times in of_job.values()]))


def p50_s(trials: list[Seen]) -> float:
    """Return the median iteration time of all iterations of the trials."""
    return float(np.median(np.concatenate([one.iteration_s for one in trials])))


def up_s(runs: list[JobRun]) -> float:
    """Return the mean communication time of the iterations of a job, from its first byte to the iteration's end."""
    return float(np.concatenate([run.end_s - run.up_begin_s for run in runs]).mean())


def ce_packets(trials: list[Seen]) -> float:
    """Return CE packets at the receivers per iteration of a job."""
    return sum(one.ce_packets for one in trials) / _iterations(trials)


def marked_packets(trials: list[Seen], link: str | None = None) -> float:
    """Return packets marked by the queue of a link, or of all shared links, per iteration of a job."""
    marked = sum(at.marked_packets for one in trials for name, at in one.links.items() if link in (None, name))
    return marked / _iterations(trials)


def _iterations(trials: list[Seen]) -> int:
    return sum(len(one.iteration_s) for one in trials)


def _utilisation(rate_bps: float, links: Sequence[str]) -> Callable[[list[Seen]], float]:
    def of(trials: list[Seen]) -> float:
        at = [one.links[link] for one in trials for link in links if link in one.links]
        window_s = sum(link.window_s for link in at)
        return 8 * sum(link.sent_bytes for link in at) / (rate_bps * window_s) if window_s > 0 else 0.0

    return of


def _times(strata: Strata) -> dict[str, Any]:
    pooled = np.concatenate([one.iteration_s for stratum in strata for one in stratum])
    return {
        "mean": stats.estimate(strata, mean_s),
        "p50": stats.estimate(strata, p50_s),
        "worst": {"value": float(pooled.max())},
        "p99": {"value": float(np.quantile(pooled, 0.99)) if len(pooled) >= P99_FROM else None},
    }


def _arm(seen: Sequence[tuple[Trial, Seen]], strata: Strata, setting: Setting) -> dict[str, Any]:
    trials = [one for _, one in seen]
    watched = [link for link in setting.shared_links if any(link in one.links for one in trials)]
    jobs = {}
    for job in sorted({job for one in trials for job in one.jobs}):
        mine = [[_only(trial, job) for trial, one in seen if job in one.jobs]]
        runs = [trial.jobs[job] for trial, one in seen if job in one.jobs]
        jobs[job] = {
            "iterations": _iterations(mine[0]),
            "iteration_s": _times(mine),
            "ce_packets_per_iteration": stats.estimate(mine, ce_packets),
            "up_s": stats.estimate([runs], up_s),
            "padding_s": sum(float(run.held_s.sum()) for run in runs) / _iterations(mine[0]),
            "lost_s": sum(float(run.lost_s.sum()) for run in runs) / _iterations(mine[0]),
            "adjustments": sum(int(run.adjusted.sum()) for run in runs),
        }
    return {
        "trials": len(trials),
        "iterations": _iterations(trials),
        "iteration_s": _times(strata),
        "trial_mean_s": [mean_s([one]) for one in trials],
        "ce_packets_per_iteration": stats.estimate(strata, ce_packets),
        "marked_packets_per_iteration": stats.estimate(strata, marked_packets),
        "utilisation": stats.estimate(strata, _utilisation(setting.rate_bps, watched)),
        "jobs": jobs,
        "links": {link: _link(link, strata, setting) for link in watched},
    }


def _link(link: str, strata: Strata, setting: Setting) -> dict[str, Any]:
    at = [one.links[link] for stratum in strata for one in stratum if link in one.links]
    return {
        "utilisation": stats.estimate(strata, _utilisation(setting.rate_bps, [link])),
        "marked_packets_per_iteration": stats.estimate(strata, lambda trials: marked_packets(trials, link)),
        "peak_backlog_bytes": max(seen.peak_bytes for seen in at),
        "dropped_packets": sum(seen.dropped_packets for seen in at),
    }


def _ratios(above: Strata, below: Strata) -> dict[str, Any]:
    worst = [max(float(one.iteration_s.max()) for stratum in strata for one in stratum) for strata in (above, below)]
    return {
        "mean": stats.ratio(above, below, mean_s),
        "p50": stats.ratio(above, below, p50_s),
        "worst": {"value": worst[0] / worst[1], "low": None, "high": None, "above": worst[0], "below": worst[1]},
        "ce_packets_per_iteration": stats.ratio(above, below, ce_packets),
        "marked_packets_per_iteration": stats.ratio(above, below, marked_packets),
    }
