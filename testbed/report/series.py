"""Bandwidth of each job over time on a shared link, and the stretch of time that plots show.

What a link sent is known to the sampler's interval, but not whose it was; whose it was is known to the switch's flow
counters, which follow the packets by up to half a second. So what was sent in a bin is divided among the jobs that
were in their Up phase then, in proportion to what each sends there on average (its bytes by the flow counters over
the time it spent in Up phases). Where one job sends, which is all there is to see once they interleave, this is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from testbed.report.load import Arm, Floats, JobRun, Setting, Trial

OTHER = ""


def window_s(trial: Trial, length_s: float) -> tuple[float, float]:
    """Return the stretch of a trial to show: at most `length_s`, from the begin of an iteration near its middle."""
    first_s, last_s = trial.window_s
    lead = next(iter(trial.jobs.values()))
    starts = lead.begin_s[(lead.begin_s >= first_s) & (lead.begin_s <= max(first_s, last_s - length_s))]
    middle = (first_s + max(first_s, last_s - length_s)) / 2
    begin_s = float(starts[np.argmin(np.abs(starts - middle))]) if len(starts) else first_s
    return begin_s, min(begin_s + length_s, last_s)


def shown_s(arms: Mapping[str, Arm], iterations: float = 6) -> float:
    """Return how many seconds plots show: some iterations of the slowest job where it is fastest."""
    means = [
        max(float(run.iteration_s.mean()) for run in trial.jobs.values())
        for arm in arms.values()
        for trial in arm.trials
    ]
    return iterations * min(means)


def busiest(arms: Mapping[str, Arm], setting: Setting) -> str:
    """Return the shared link that marked most, and of several the one that sent most (the first by name)."""

    def load(link: str) -> tuple[float, float]:
        queues = [arm.queues[link] for arm in arms.values() if link in arm.queues]
        return sum(float(of.marked_packets[-1]) for of in queues), sum(float(of.tx_bytes[-1]) for of in queues)

    return max(sorted(setting.shared_links), key=load)


def up_share(run: JobRun, edges_s: Floats) -> Floats:
    """Return which share of each bin a job spent in its Up phase; edges: shape (n + 1,), result: shape (n,)."""
    knots = np.column_stack([run.up_begin_s, run.end_s]).reshape(-1)
    in_up = np.concatenate([[0.0], np.repeat(np.cumsum(run.end_s - run.up_begin_s), 2)[:-1]])
    return np.asarray(np.diff(np.interp(edges_s, knots, in_up)) / np.diff(edges_s))


def overlap(runs: Sequence[JobRun], begin_s: float, end_s: float) -> list[tuple[float, float]]:
    """Return the spans in which more than one job is in its Up phase."""
    edges = [(at, 1) for run in runs for at in run.up_begin_s] + [(at, -1) for run in runs for at in run.end_s]
    spans, busy, since = [], 0, begin_s
    for at, change in sorted((min(max(float(at), begin_s), end_s), change) for at, change in edges):
        if busy > 1 and at > since:
            spans.append((since, at))
        busy, since = busy + change, at
    return spans


def job_rates(arm: Arm, trial: Trial, link: str, edges_s: Floats) -> dict[str, Floats]:
    """Return bit/s in each bin by job, and OTHER for what was sent outside all Up phases; edges: shape (n + 1,)."""
    queue = arm.queues[link]
    total = 8 * np.diff(np.interp(edges_s, queue.t_s, queue.tx_bytes)) / np.diff(edges_s)
    parts = {job: up_share(run, edges_s) * _pace(arm, trial, link, job) for job, run in trial.jobs.items()}
    lone = np.sum(list(parts.values()), axis=0) == 0  # the bin beside an Up phase: a reading is late by up to a bin
    parts = {job: part + lone * np.convolve(part, [1, 0, 1])[1:-1] for job, part in parts.items()}
    whole = np.sum(list(parts.values()), axis=0)
    scale = np.divide(total, whole, out=np.zeros_like(total), where=whole > 0)
    rates = {job: part * scale for job, part in parts.items()}
    rates[OTHER] = np.where(whole > 0, 0.0, total)
    return rates


def _pace(arm: Arm, trial: Trial, link: str, job: str) -> float:
    """Return what a job sends on a link per second of Up phase, 1 for every job where no counter says."""
    run = trial.jobs[job]
    times_s, counted = arm.flow_bytes.get((link, job), (np.zeros(1), np.zeros(1)))
    sent = float(np.diff(np.interp([run.begin_s[0], run.end_s[-1]], times_s, counted))[0])
    return sent / float((run.end_s - run.up_begin_s).sum()) if sent > 0 else 1.0
