"""What schedulers made of the same trace: summary.json of a run with a cluster.

    {"scenario", "kind": "cluster", "shortened", "confidence", "resamples", "rate_bps", "links": [...],
     "arms": {arm: {
         "trials", "iterations",                    traces played; iterations of all jobs in all of them
         "iteration_s": {"mean", "p50", "p99", "worst"}, "trial_mean_s": [...],
         "ce_packets_per_iteration",                CE packets at the receivers per iteration of a job
         "marked_packets_per_iteration",            marks by all queues per iteration of a job
         "relative", "completion_s", "slowdown", "rho": {"mean", "worst"},      of jobs, each with the same weight
         "makespan_s",                              when the last job was done, mean of the trials
         "rounds", "moves",                         rounds of scheduling; running jobs that had to leave
         "waited_share", "adjusted",                time spent waiting for ticks, of all; how often a worker had drifted
         "models": {model: {"jobs", "iterations", "iteration_s", "ce_packets_per_iteration", "completion_s"}},
         "jobs": {"TRIAL/JOB": {"model", "workers", "iterations", "iteration_s": {"mean", "p50", "p99", "worst"},
                                "ce_packets_per_iteration", "arrival_s", "completed_s", "completion_s", "slowdown",
                                "rho", "stays"}}}},
     "ratios": {"themis/themis+cassini": {"mean", "p50", "p99", "worst", "ce_packets_per_iteration",
                                          "marked_packets_per_iteration", "relative", "completion_s",
                                          "models": {model: {"mean", "p99", "ce_packets_per_iteration"}}}}}

Means, medians, marks and their ratios are {"value", "low", "high"}, an interval over trials (none with fewer than
three); a ratio also has "above" and "below", and the value null where below is 0. p99 is null below 200 iterations.
`jobs` has plain numbers. The arm `ideal` is not played: see `load.ideal_trials`; it has no rounds and no queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import InputError
from testbed.report import stats
from testbed.report.cluster.load import IDEAL, ClusterTrial, Life, asked_of, ideal_trials, trials_of
from testbed.report.load import Floats
from testbed.report.summary import P99_FROM

ORDER = ("themis", "themis+cassini", "pollux", "pollux+cassini", "random", "random+cassini", IDEAL)
ACROSS = (("themis", "pollux"), ("random", "themis"), ("random", "themis+cassini"))
Trials = list[ClusterTrial]


def cluster_arms(run_dir: Path, setting: Mapping[str, Any]) -> dict[str, Trials]:
    """Return the trials of every arm of a run, in order. Raises InputError for missing files.

    setting: keys name, shortened, rate_bps, links (those between switches), arms.
    """
    asked = asked_of(run_dir)
    found = {
        name: ideal_trials(run_dir / "alone", asked) if name == IDEAL else trials_of(run_dir / name, asked)
        for name in ordered(setting["arms"])
    }
    if not found:
        raise InputError(str(run_dir), "has no arm with a scheduler", "give results/SCENARIO")
    return found


def ordered(arms: Iterable[str]) -> list[str]:
    """Return arms in the order of ORDER, schedulers of the user's before the arm `ideal`."""
    last = ORDER.index(IDEAL)
    return sorted(arms, key=lambda name: ORDER.index(name) if name in ORDER else last - 0.5)


def summarise(setting: Mapping[str, Any], arms: Mapping[str, Trials]) -> dict[str, Any]:
    """Return the summary of the arms of a run, as the top of this module has it."""
    plugged = [(name, f"{name}+cassini") for name in arms if f"{name}+cassini" in arms]
    own = [("themis", name) for name in arms if name not in ORDER]
    pairs = [*plugged, *ACROSS, *own, *((name, IDEAL) for name in arms if name != IDEAL)]
    return {
        "scenario": setting["name"],
        "kind": "cluster",
        "shortened": setting["shortened"],
        "confidence": stats.CONFIDENCE,
        "resamples": stats.RESAMPLES,
        "rate_bps": setting["rate_bps"],
        "links": list(setting["links"]),
        "arms": {name: _arm(trials) for name, trials in arms.items()},
        "ratios": {
            f"{above}/{below}": _ratios(arms[above], arms[below])
            for above, below in pairs
            if above in arms and below in arms
        },
    }


def lives(trials: Sequence[ClusterTrial], model: str | None = None) -> list[Life]:
    """Return all jobs of all trials, or those of a model."""
    return [life for one in trials for life in one.jobs.values() if model in (None, life.asked.model)]


def iteration_s(trials: Sequence[ClusterTrial], model: str | None = None) -> Floats:
    """Return the times of all iterations, or of those of a model."""
    return np.concatenate([life.iteration_s for life in lives(trials, model)])


def ce_packets(trials: Sequence[ClusterTrial], model: str | None = None) -> float:
    """Return CE packets at the receivers per iteration of a job, or of a job of a model."""
    of = lives(trials, model)
    return float(sum(life.ce_packets.sum() for life in of)) / sum(len(life.iteration_s) for life in of)


def of_model(trials: Sequence[ClusterTrial], model: str) -> list[ClusterTrial]:
    """Return the trials in which a job of a model came: drawn again, others would leave its figures without any."""
    return [one for one in trials if lives([one], model)]


def models_of(trials: Sequence[ClusterTrial]) -> list[str]:
    """Return the models there are, sorted."""
    return sorted({life.asked.model for life in lives(trials)})


def _mean_s(model: str | None = None) -> Callable[[Trials], float]:
    return lambda trials: float(iteration_s(trials, model).mean())


def _p50_s(trials: Trials) -> float:
    return float(np.median(iteration_s(trials)))


def _p99_s(model: str | None = None) -> Callable[[Trials], float]:
    return lambda trials: float(np.quantile(iteration_s(trials, model), 0.99))


def _worst_s(trials: Trials) -> float:
    return float(iteration_s(trials).max())


def _ce(model: str | None = None) -> Callable[[Trials], float]:
    return lambda trials: ce_packets(trials, model)


def _marked(trials: Trials) -> float:
    return sum(one.marked_packets for one in trials) / len(iteration_s(trials))


def _relative(trials: Trials) -> float:
    """Return the mean iteration time of a job over that alone: jobs with short iterations count as much as others."""
    return float(np.mean([life.relative for life in lives(trials)]))


def _completion_s(model: str | None = None) -> Callable[[Trials], float]:
    return lambda trials: float(np.mean([life.completion_s for life in lives(trials, model)]))


def _times(trials: Trials, model: str | None = None) -> dict[str, Any]:
    pooled = iteration_s(trials, model)
    return {
        "mean": stats.estimate([trials], _mean_s(model)),
        "p50": {"value": float(np.median(pooled))},
        "p99": {"value": float(np.quantile(pooled, 0.99)) if len(pooled) >= P99_FROM else None},
        "worst": {"value": float(pooled.max())},
    }


def _arm(trials: Trials) -> dict[str, Any]:
    every = lives(trials)
    spent_s = sum(float(life.iteration_s.sum()) for life in every)
    played = bool(trials[0].rounds)
    return {
        "trials": len(trials),
        "iterations": len(iteration_s(trials)),
        "iteration_s": _times(trials),
        "trial_mean_s": [_mean_s()([one]) for one in trials],
        "ce_packets_per_iteration": stats.estimate([trials], _ce()),
        "marked_packets_per_iteration": stats.estimate([trials], _marked) if played else {"value": None},
        "relative": _of_jobs(trials, lambda life: life.relative),
        "completion_s": _of_jobs(trials, lambda life: life.completion_s),
        "slowdown": _of_jobs(trials, lambda life: life.slowdown),
        "rho": _of_jobs(trials, lambda life: life.rho),
        "makespan_s": float(np.mean([one.makespan_s for one in trials])),
        "rounds": sum(len(one.rounds) for one in trials),
        "moves": sum(one.moves for one in trials),
        "waited_share": sum(life.waited_s for life in every) / spent_s,
        "adjusted": sum(life.adjusted for life in every),
        "models": {
            model: {
                "jobs": len(lives(trials, model)),
                "iterations": len(iteration_s(trials, model)),
                "iteration_s": _times(of_model(trials, model), model),
                "ce_packets_per_iteration": {"value": ce_packets(trials, model)},
                "completion_s": {"value": _completion_s(model)(trials)},
            }
            for model in models_of(trials)
        },
        "jobs": {f"{one.name}/{name}": _job(life) for one in trials for name, life in one.jobs.items()},
    }


def _of_jobs(trials: Trials, value: Callable[[Life], float]) -> dict[str, Any]:
    mean = stats.estimate([trials], lambda some: float(np.mean([value(life) for life in lives(some)])))
    return {"mean": mean, "worst": {"value": max(value(life) for life in lives(trials))}}


def _job(life: Life) -> dict[str, Any]:
    times, asked = life.iteration_s, life.asked
    return {
        "model": asked.model,
        "workers": asked.workers,
        "iterations": len(times),
        "iteration_s": {
            "mean": float(times.mean()),
            "p50": float(np.median(times)),
            "p99": float(np.quantile(times, 0.99)) if len(times) >= P99_FROM else None,
            "worst": float(times.max()),
        },
        "ce_packets_per_iteration": float(life.ce_packets.sum()) / len(times),
        "arrival_s": asked.arrival_s,
        "completed_s": life.completed_s,
        "completion_s": life.completion_s,
        "slowdown": life.slowdown,
        "rho": life.rho,
        "stays": len(life.stays),
    }


def _ratios(above: Trials, below: Trials) -> dict[str, Any]:
    return {
        "mean": stats.ratio([above], [below], _mean_s()),
        "p50": stats.ratio([above], [below], _p50_s),
        "p99": _p99_ratio(above, below),
        "worst": stats.ratio([above], [below], _worst_s),
        "ce_packets_per_iteration": stats.ratio([above], [below], _ce()),
        "marked_packets_per_iteration": stats.ratio([above], [below], _marked),
        "relative": stats.ratio([above], [below], _relative),
        "completion_s": stats.ratio([above], [below], _completion_s()),
        "models": {
            model: _ratios_of(of_model(above, model), of_model(below, model), model)
            for model in models_of(above)
            if model in models_of(below)
        },
    }


def _ratios_of(above: Trials, below: Trials, model: str) -> dict[str, Any]:
    return {
        "mean": stats.ratio([above], [below], _mean_s(model)),
        "p99": _p99_ratio(above, below, model),
        "ce_packets_per_iteration": stats.ratio([above], [below], _ce(model)),
    }


def _p99_ratio(above: Trials, below: Trials, model: str | None = None) -> dict[str, Any]:
    """Return the ratio of the 99th percentiles; no value where one arm has too few iterations to have one."""
    if min(len(iteration_s(trials, model)) for trials in (above, below)) < P99_FROM:
        return {"value": None, "low": None, "high": None, "above": None, "below": None}
    return stats.ratio([above], [below], _p99_s(model))
