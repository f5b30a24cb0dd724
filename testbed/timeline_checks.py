"""Did jobs that come and go run as they were told? The verdict on one arm of a cluster, beside `testbed.fidelity`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.fidelity import Check, check_of
from testbed.telemetry.tables import ITERATIONS

LATE_S = 1e-3
"""A job begins when it was told to: the worker's own clock says so, to within this."""
ROUNDING = 1e-6


def check_timeline(folder: Path, jobs: Sequence[Mapping[str, Any]], accelerators: Mapping[str, int]) -> list[Check]:
    """Return the checks of an arm: jobs as in jobs.json, accelerators by server. InputError for missing files."""
    rows = ITERATIONS.read(folder / ITERATIONS.file).where(rank=0)
    begun: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    columns = (rows.text("trial"), rows.text("job"), rows.counts("iteration"), rows.numbers("begin_s"))
    for trial, job, iteration, begin_s in zip(*columns, strict=True):
        begun[trial, job][iteration or 0] = begin_s
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    zeros_s = {event["trial"]: event["t_s"] for event in events if event["event"] == "trial"}
    stays = _stays(events)
    return [
        check_of(
            "every job came to its end, and did all its iterations", _undone(jobs, stays, begun), f"{len(jobs)} jobs"
        ),
        check_of("no job began before it came", _early(jobs, stays, zeros_s), f"{len(jobs)} jobs"),
        check_of("jobs began when they were told to", _late(stays, begun), f"{len(stays)} starts"),
        check_of("no accelerator had two jobs at once", _doubled(stays, accelerators), f"{len(stays)} stays"),
    ]


def check_stays(
    folder: Path,
    jobs: Sequence[Mapping[str, Any]],
    accelerators: Mapping[str, int],
    seen: Mapping[tuple[str, str], int],
) -> list[Check]:
    """Return the checks that need no times of single iterations; seen: how many were written down, by (trial, job)."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    zeros_s = {event["trial"]: event["t_s"] for event in events if event["event"] == "trial"}
    stays = _stays(events)
    begun = {key: dict.fromkeys(range(count), 0.0) for key, count in seen.items()}
    return [
        check_of(
            "every job came to its end, and did all its iterations", _undone(jobs, stays, begun), f"{len(jobs)} jobs"
        ),
        check_of("no job began before it came", _early(jobs, stays, zeros_s), f"{len(jobs)} jobs"),
        check_of("no accelerator had two jobs at once", _doubled(stays, accelerators), f"{len(stays)} stays"),
    ]


def _stays(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every start with its end (`left_s`, `done`; None where there is none), in the order of the starts."""
    found, running = [], dict[tuple[str, str], dict[str, Any]]()
    for event in events:
        if event["event"] == "start":
            stay = {**event, "left_s": None, "done": None}
            running[event["trial"], event["job"]] = stay
            found.append(stay)
        elif event["event"] == "left":
            running.pop((event["trial"], event["job"])).update(left_s=event["t_s"], done=event["iterations"])
    return found


def _undone(
    jobs: Sequence[Mapping[str, Any]],
    stays: Sequence[Mapping[str, Any]],
    begun: Mapping[tuple[str, str], dict[int, float]],
) -> list[str]:
    faults = []
    by_job: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for stay in stays:
        by_job[stay["trial"], stay["job"]].append(stay)
    for job in jobs:
        own = by_job[job["trial"], job["job"]]
        done = sum((stay["done"] or 0) * len(stay["placement"]) / job["workers"] for stay in own)
        ran = sum(stay["done"] or 0 for stay in own)
        seen = len(begun.get((job["trial"], job["job"]), {}))
        if done < job["iterations"] - ROUNDING or seen != ran:
            faults.append(
                f"{job['job']}, trial {job['trial']}: {done:g} of {job['iterations']}, {seen} of {ran} written down"
            )
    return faults


def _early(
    jobs: Sequence[Mapping[str, Any]], stays: Sequence[Mapping[str, Any]], zeros_s: Mapping[str, float]
) -> list[str]:
    came_s = {(job["trial"], job["job"]): zeros_s.get(job["trial"], 0.0) + job["arrival_s"] for job in jobs}
    return [
        f"{stay['job']}, trial {stay['trial']}: began at {stay['t_s']:.3f} s"
        for stay in stays
        if stay["t_s"] < came_s[stay["trial"], stay["job"]]
    ]


def _late(stays: Sequence[Mapping[str, Any]], begun: Mapping[tuple[str, str], dict[int, float]]) -> list[str]:
    faults = []
    for stay in stays:
        at_s = begun.get((stay["trial"], stay["job"]), {}).get(stay["first_iteration"])
        if stay["done"] and (at_s is None or abs(at_s - stay["t_s"]) > LATE_S):
            faults.append(f"{stay['job']}, trial {stay['trial']}: told to begin at {stay['t_s']:.6f} s, did at {at_s}")
    return faults


def _doubled(stays: Sequence[Mapping[str, Any]], accelerators: Mapping[str, int]) -> list[str]:
    changes: dict[tuple[str, str], list[tuple[float, int, str]]] = defaultdict(list)
    for stay in stays:
        for server in stay["placement"]:
            changes[stay["trial"], server] += [(stay["t_s"], 1, stay["job"])]
            changes[stay["trial"], server] += [(stay["left_s"], -1, stay["job"])] if stay["left_s"] is not None else []
    faults = []
    for (trial, server), of_server in changes.items():
        busy = 0
        for t_s, change, job in sorted(of_server):
            busy += change
            if busy > accelerators.get(server, 0):
                faults.append(f"{server}, trial {trial}: {busy} workers when {job} came at {t_s:.3f} s")
    return faults
