"""The lives of jobs, out of an arm's files; those of the arm `ideal` out of what was measured alone.

An iteration lasts until the next one of the same stay begins, the last of a stay until its own end: where a job is made
to wait for its tick, the wait counts. What lies between two stays counts for the completion time only.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import InputError
from testbed.report.load import Floats
from testbed.telemetry import tables

JOBS_FILE = "jobs.json"
HISTORIES_FILE = "iterations.npz"
"""Of the fluid engine: arrays of all jobs (TRIAL/JOB), one after another, with `counts` iterations each."""
IDEAL = "ideal"
SKIP = 1  # the first iteration alone, in which connections still open their windows


@dataclass(frozen=True)
class Asked:
    """One job of a trace: `ideal_s` is the time of an iteration alone with the workers asked for, packed closely.

    `measured_as` is the job of the arm alone that this was measured with.
    """

    trial: str
    job: str
    model: str
    arrival_s: float
    workers: int
    iterations: int
    ideal_s: float
    measured_as: str


@dataclass(frozen=True)
class Stay:
    """One stay of a job on servers, times in s after the trial's beginning."""

    placement: tuple[str, ...]
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Life:
    """A job from its arrival to its completion (times in s after the trial's beginning).

    `iteration_s` and `ce_packets` (those of all its workers' hosts) are of every iteration, shape (n,); `waited_s` is
    what its workers spent on average waiting for ticks, and `adjusted` how often one had drifted.
    """

    asked: Asked
    completed_s: float
    contention: float
    stays: tuple[Stay, ...]
    iteration_s: Floats
    ce_packets: Floats
    waited_s: float
    adjusted: int

    @property
    def completion_s(self) -> float:
        """From arrival to completion."""
        return self.completed_s - self.asked.arrival_s

    @property
    def relative(self) -> float:
        """Mean iteration time over that alone."""
        return float(self.iteration_s.mean()) / self.asked.ideal_s

    @property
    def slowdown(self) -> float:
        """Completion time over what all iterations take alone."""
        return self.completion_s / (self.asked.iterations * self.asked.ideal_s)

    @property
    def rho(self) -> float:
        """Finish-time fairness (Themis): the slowdown over the mean number of jobs there were."""
        return self.slowdown / self.contention


@dataclass(frozen=True)
class ClusterTrial:
    """One trace played: the jobs' lives by name, packets marked by all queues, rounds held and jobs moved."""

    name: str
    jobs: dict[str, Life]
    marked_packets: float
    rounds: tuple[dict[str, Any], ...]

    @property
    def moves(self) -> int:
        """How often a running job had to leave its accelerators."""
        return sum(len(one["moved"]) for one in self.rounds)

    @property
    def makespan_s(self) -> float:
        """When the last job was done."""
        return max(life.completed_s for life in self.jobs.values())


def asked_of(run_dir: Path) -> dict[str, dict[str, Asked]]:
    """Return the jobs of every trial by name. Raises InputError when the file is missing or foreign."""
    path = run_dir / JOBS_FILE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        found: dict[str, dict[str, Asked]] = defaultdict(dict)
        for one in raw:
            found[one["trial"]][one["job"]] = Asked(**one)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(str(path), f"is not the jobs of a run: {error}", "run the scenario again") from error
    return dict(found)


def trials_of(folder: Path, asked: Mapping[str, Mapping[str, Asked]]) -> list[ClusterTrial]:
    """Return the trials of an arm. Raises InputError for missing files, and for a job that did not come to its end."""
    if (folder / HISTORIES_FILE).is_file():
        return list(_histories(folder, asked))
    rows = tables.ITERATIONS.read(folder / tables.ITERATIONS.file)
    columns = {name: np.array(rows.numbers(name)) for name in ("rank", "iteration", "begin_s", "end_s", "ce_packets")}
    columns |= {name: np.array(rows.numbers(name)) for name in ("held_s", "lost_s", "adjusted")}
    trial, job = np.array(rows.text("trial")), np.array(rows.text("job"))
    events = _events(folder)
    marks = _marked(folder)
    found = []
    for name, jobs in asked.items():
        zero_s = next(event["t_s"] for event in events[name] if event["event"] == "trial")
        lives = {
            one: _life(
                folder,
                jobs[one],
                [event for event in events[name] if event.get("job") == one],
                {column: values[(trial == name) & (job == one)] for column, values in columns.items()},
                zero_s,
            )
            for one in jobs
        }
        rounds = tuple(event for event in events[name] if event["event"] == "round")
        found.append(ClusterTrial(name, lives, marks.get(name, 0.0), rounds))
    return found


def _events(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the events of every trial."""
    events: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with (folder / "events.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if "trial" in event:
                events[event["trial"]].append(event)
    return events


def _histories(folder: Path, asked: Mapping[str, Mapping[str, Asked]]) -> Iterator[ClusterTrial]:
    """Yield the trials of an arm of the fluid engine."""
    with np.load(folder / HISTORIES_FILE) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    ends = np.cumsum(found["counts"])
    at = {str(job): index for index, job in enumerate(found["jobs"])}
    for name, events in _events(folder).items():
        zero_s = next(event["t_s"] for event in events if event["event"] == "trial")
        of_job: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for event in events:
            if event["event"] in ("start", "left"):
                of_job[event["job"]].append(event)
        lives = {}
        for job, one in asked[name].items():
            left = of_job[job][-1] if of_job[job] else {}
            if left.get("event") != "left" or not left["complete"]:
                where = f"{folder / 'events.jsonl'}: trial {name}"
                raise InputError(where, f"{job} did not come to its end", "run the arm again")
            index = at[f"{name}/{job}"]
            own = slice(int(ends[index] - found["counts"][index]), int(ends[index]))
            starts = [event for event in of_job[job] if event["event"] == "start"]
            ended = [event for event in of_job[job] if event["event"] == "left"]
            stays = tuple(
                Stay(tuple(begin["placement"]), begin["t_s"] - zero_s, end["t_s"] - zero_s)
                for begin, end in zip(starts, ended, strict=True)
            )
            lives[job] = Life(
                one, left["t_s"] - zero_s, max(1.0, left["contention"]), stays, found["times_s"][own],
                found["marked"][own].astype(np.float64), float(found["waited_s"][index]), int(found["adjusted"][index]),
            )  # fmt: skip
        rounds = tuple(event for event in events if event["event"] == "round")
        marked = float(sum(life.ce_packets.sum() for life in lives.values()))
        yield ClusterTrial(name, lives, marked, rounds)


def _life(folder: Path, asked: Asked, events: list[dict[str, Any]], rows: dict[str, Floats], zero_s: float) -> Life:
    stays, times, last = [], list[Floats](), None
    first = rows["rank"] == 0
    order = np.argsort(rows["iteration"][first], kind="stable")
    begins, ends, numbers = (rows[column][first][order] for column in ("begin_s", "end_s", "iteration"))
    for event in events:
        if event["event"] == "start":
            last = event
        if event["event"] == "left" and last is not None:
            mine = (numbers >= last["first_iteration"]) & (numbers < last["first_iteration"] + event["iterations"])
            if mine.any():
                times.append(np.diff(begins[mine], append=ends[mine][-1]))
            stays.append(Stay(tuple(last["placement"]), last["t_s"] - zero_s, event["t_s"] - zero_s))
    left = events[-1] if events else {}
    if left.get("event") != "left" or not left["complete"] or not times:
        where = f"{folder / 'events.jsonl'}: trial {asked.trial}"
        raise InputError(where, f"{asked.job} did not come to its end", "run the arm again")
    marked = np.nan_to_num(rows["ce_packets"])
    ce_packets: Floats = np.bincount(rows["iteration"].astype(np.int64), weights=marked).astype(np.float64)
    return Life(
        asked, left["t_s"] - zero_s, max(1.0, left["contention"]), tuple(stays), np.concatenate(times), ce_packets,
        float((rows["held_s"] + rows["lost_s"]).sum()) / max(1, len(set(rows["rank"].tolist()))),
        int(rows["adjusted"].sum()),
    )  # fmt: skip


def ideal_trials(alone: Path, asked: Mapping[str, Mapping[str, Asked]]) -> list[ClusterTrial]:
    """Return what the arm `ideal` is: each job alone on its own copy of the cluster, as it was measured.

    The iterations that were measured stand for all, one after the other and again from the beginning.
    """
    rows = tables.ITERATIONS.read(alone / tables.ITERATIONS.file)
    times: dict[str, Floats] = {}
    marks: dict[str, Floats] = {}
    for name in {one.measured_as for jobs in asked.values() for one in jobs.values()}:
        own = rows.where(job=name)
        first = own.where(rank=0)
        times[name] = (np.array(first.numbers("end_s")) - np.array(first.numbers("begin_s")))[SKIP:]
        numbers = np.array(own.numbers("iteration")).astype(np.int64)
        marked = np.bincount(numbers, weights=np.nan_to_num(np.array(own.numbers("ce_packets"))))
        marks[name] = marked.astype(np.float64)[SKIP:]
    found = []
    for trial, jobs in asked.items():
        lives = {}
        for name, one in jobs.items():
            lasts, ce_packets = (np.resize(of[one.measured_as], one.iterations) for of in (times, marks))
            end_s = one.arrival_s + float(lasts.sum())
            lives[name] = Life(one, end_s, 1.0, (Stay((), one.arrival_s, end_s),), lasts, ce_packets, 0.0, 0)
        found.append(ClusterTrial(trial, lives, 0.0, ()))
    return found


def _marked(folder: Path) -> dict[str, float]:
    """Return the packets that all queues marked in each trial, together (counters.csv)."""
    rows = tables.COUNTERS.read(folder / tables.COUNTERS.file)
    found: dict[str, float] = defaultdict(float)
    for trial, label, marked in zip(
        rows.text("trial"), rows.text("label"), rows.numbers("marked_packets"), strict=True
    ):
        found[trial] += np.nan_to_num(marked) * (1 if label == "end" else -1)
    return dict(found)
