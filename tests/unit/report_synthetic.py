"""A run folder of plausible data: jobs on one link by processor sharing, marks while more than one of them sends.

The numbers are made up, the files are those of a run. Used by the tests of the report.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from controllers.cassini.decision import Decision, decide
from controllers.cassini.profile import Profile, fold
from testbed.report.load import Arm
from testbed.telemetry import tables

LINK, BACK = "tor1->agg1", "agg1->tor1"
RATE_BPS = 1e9
PACKET_BYTES = 9014
STEP_S = 0.5e-3
SAMPLE_S = 5e-3


@dataclass(frozen=True)
class Job:
    """A made-up job: compute, then send `volume_bytes`."""

    name: str
    hosts: tuple[str, str]
    down_s: float
    volume_bytes: float


JOBS = (
    Job("vgg16-a", ("h1", "h5"), 0.141, 0.114 * RATE_BPS / 8),
    Job("vgg16-b", ("h2", "h6"), 0.141, 0.114 * RATE_BPS / 8),
)
LOPSIDED = (
    Job("vgg19", ("h1", "h5"), 0.190, 0.066 * RATE_BPS / 8),
    Job("resnet50", ("h2", "h6"), 0.105, 0.023 * RATE_BPS / 8),
    Job("bert", ("h3", "h7"), 0.170, 0.086 * RATE_BPS / 8),
)


def scenario(jobs: tuple[Job, ...] = JOBS) -> dict[str, Any]:
    """Return the keys that the report asks for."""
    return {
        "name": "synthetic",
        "rate_bps": RATE_BPS,
        "red": {"min_bytes": 80_000, "max_bytes": 160_000},
        "shared_links": [LINK, BACK],
        "jobs": {job.name: list(job.hosts) for job in jobs},
    }


@dataclass
class _State:
    job: Job
    start_s: float
    iteration: int = 0
    left_bytes: float = 0.0
    compute_until_s: float = 0.0
    begin_s: float = 0.0
    sending: bool = False
    ce: float = 0.0
    done: list[tuple[float, float, float, int]] = field(default_factory=list)


class World:
    """The link of one arm: time goes on from trial to trial, as do the counters."""

    def __init__(self, folder: Path, rng: np.random.Generator) -> None:
        folder.mkdir(parents=True)
        self.rng, self.t_s = rng, 0.0
        self.tx = self.marked = self.queue = 0.0
        self.writers = {
            table.file: table.writer(folder / table.file)
            for table in (tables.ITERATIONS, tables.QUEUES, tables.FLOWS, tables.MARKS)
        }
        self.next_sample_s = 0.0
        self.sent: dict[str, float] = {}

    def close(self) -> None:
        """Write everything to disk."""
        for writer in self.writers.values():
            writer.close()

    def trial(self, name: str, jobs: tuple[Job, ...], offsets_s: tuple[float, ...], iterations: int) -> None:
        """Run one trial of the given jobs, each later by its offset."""
        begin_s = self.t_s + 0.1
        states = [_State(job, begin_s + offset) for job, offset in zip(jobs, offsets_s, strict=True)]
        weights = self.rng.normal(1, 0.012, len(jobs))
        for state in states:
            state.begin_s, state.compute_until_s = state.start_s, state.start_s + self._down(state)
            self._mark(name, state, -1)
        while any(state.iteration < iterations for state in states):
            self._step(name, states, weights, iterations)
        self.t_s += 0.3
        self._sample()

    def _down(self, state: _State) -> float:
        return state.job.down_s * (1 + 0.002 * self.rng.standard_normal())

    def _step(self, name: str, states: list[_State], weights: np.ndarray, iterations: int) -> None:
        self.t_s += STEP_S
        for state in states:
            if state.iteration < iterations and not state.sending and self.t_s >= state.compute_until_s:
                state.sending, state.left_bytes = True, state.job.volume_bytes
        busy = [index for index, state in enumerate(states) if state.sending]
        capacity = RATE_BPS / 8 * STEP_S
        target = {0: 0.0, 1: 12_000.0}.get(len(busy), 118_000 + 42_000 * np.sin(self.t_s * 900))
        self.queue = 0.75 * self.queue + 0.25 * max(0.0, target * (1 + 0.1 * self.rng.standard_normal()))
        packets = (capacity if busy else 0) / PACKET_BYTES
        marks = packets * min(1.0, max(0.0, (self.queue - 80_000) / 80_000)) if len(busy) > 1 else 0.0
        self.marked += marks
        self.tx += capacity if busy else 0
        for index in busy:
            share = weights[index] / weights[busy].sum()
            state = states[index]
            state.left_bytes -= capacity * share
            self.sent[state.job.name] = self.sent.get(state.job.name, 0.0) + capacity * share
            state.ce += marks * share
            if state.left_bytes <= 0:
                self._finish(name, state)
        if self.t_s >= self.next_sample_s:
            self.next_sample_s += SAMPLE_S
            self._sample()
            for state in states:
                for link in (LINK, BACK):
                    self.writers["flows.csv"].row(
                        self.t_s, link, state.job.name, 0, int(self.sent.get(state.job.name, 0)), 0, 0
                    )

    def _finish(self, name: str, state: _State) -> None:
        writer = self.writers["iterations.csv"]
        for rank, host in enumerate(state.job.hosts):
            ce = round(state.ce) if rank == 0 else 0
            row = (state.begin_s, state.compute_until_s, self.t_s, ce, 0.0, 0.0, 0)
            writer.row(name, state.job.name, rank, host, state.iteration, *row)
        self._mark(name, state, state.iteration)
        state.iteration, state.sending, state.ce = state.iteration + 1, False, 0.0
        state.begin_s, state.compute_until_s = self.t_s, self.t_s + self._down(state)

    def _mark(self, name: str, state: _State, iteration: int) -> None:
        for link in (LINK, BACK):
            self.writers["marks.csv"].row(name, state.job.name, iteration, self.t_s, link, int(self.marked))

    def _sample(self) -> None:
        for link in (LINK, BACK):
            self.writers["queues.csv"].row(
                self.t_s,
                link,
                int(self.queue),
                int(self.queue / PACKET_BYTES),
                int(self.tx),
                int(self.tx / PACKET_BYTES),
                int(self.marked),
                0,
            )


def profiles(arm: Arm, link: str = LINK) -> list[Profile]:
    """Return the profile of each job, folded from the arm `alone`."""
    queue = arm.queues[link]
    return [
        fold(
            run.job,
            queue.t_s,
            queue.tx_bytes,
            list(zip(run.begin_s.tolist(), run.end_s.tolist(), strict=True)),
            interval_s=SAMPLE_S,
            limit_bps=RATE_BPS,
        )
        for trial in arm.trials
        for run in trial.jobs.values()
    ]


def make(
    run_dir: Path,
    *,
    jobs: tuple[Job, ...] = JOBS,
    iterations: int = 30,
    trials: int = 3,
    arms: tuple[str, ...] = ("alone", "together", "random", "cassini"),
) -> Decision:
    """Write a run folder: every arm, and decision.json. Return the decision."""
    rng = np.random.default_rng(7)
    alone = World(run_dir / "alone", rng)
    for index, job in enumerate(jobs):
        alone.trial(f"{index}", (job,), (0.0,), iterations)
    alone.close()
    measured = profiles(Arm(run_dir / "alone"))
    (run_dir / "profiles.json").write_text(json.dumps({LINK: [profile.to_dict() for profile in measured]}))
    decision = decide(LINK, measured, RATE_BPS)
    (run_dir / "decision.json").write_text(json.dumps(decision.to_dict()))
    for name in arms:
        if name == "alone":
            continue
        world = World(run_dir / name, rng)
        starts = []
        for index in range(trials):
            offsets = {
                "together": tuple(0.0 for _ in jobs),
                "random": tuple(float(rng.uniform(0, 0.25)) for _ in jobs),
                "cassini": tuple(decision.shifts_s[job.name] for job in jobs),
            }[name]
            world.trial(f"{index}", jobs, offsets, iterations)
            starts.append({job.name: offset for job, offset in zip(jobs, offsets, strict=True)})
        world.close()
        (run_dir / name / "plan.json").write_text(json.dumps({"trials": starts}))
    return decision
