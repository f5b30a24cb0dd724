"""Did the events of an arm happen as asked for, and did those jobs fail that were expected to? From its files alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from testbed.events.plan import Event
from testbed.fidelity import Check, check_of
from testbed.telemetry.tables import EVENTS

LATE_S, START_S = 1e-3, 10e-3
"""An event happens when it was asked for, to within this; starting a program takes some milliseconds, all else some
microseconds."""
RESTART = "controller-restart"
FAILED = "job-failed"


def check_events(folder: Path, events: Sequence[Event], trials: Sequence[Collection[str]]) -> list[Check]:
    """Return the checks of an arm with `events`; `trials` has the jobs of each of its trials.

    Raises InputError when events.csv is missing or not what it should be.
    """
    records = EVENTS.read(folder / EVENTS.file)
    happened: dict[str, list[tuple[str, str, float, float]]] = defaultdict(list)
    failed: dict[str, dict[str, str]] = defaultdict(dict)
    names = (records.text("trial"), records.text("kind"), records.text("target"), records.text("found"))
    times = records.numbers("asked_s"), records.numbers("done_s")
    for trial, kind, target, found, asked_s, done_s in zip(*names, *times, strict=True):
        if kind == FAILED:
            failed[trial][target] = found
        elif asked_s == asked_s:  # else it was put back
            happened[trial].append((kind, target, asked_s, done_s))
    return [
        _happened(events, len(trials), happened),
        _failed(trials, {job for event in events for job in event.expect}, failed),
    ]


def _happened(events: Sequence[Event], trials: int, happened: dict[str, list[tuple[str, str, float, float]]]) -> Check:
    wanted, faults, latest_s = [(event.kind, event.target) for event in events], [], 0.0
    for trial in map(str, range(trials)):
        found = happened.get(trial, [])
        if [(kind, target) for kind, target, _, _ in found] != wanted:
            faults.append(f"trial {trial}: {len(found)} of {len(wanted)} are on file")
        for kind, target, asked_s, done_s in found:
            what = f"{kind} of {target} at {asked_s:.6f} s, trial {trial}"
            if done_s != done_s:
                faults.append(f"{what}: the trial had ended")
            elif not 0 <= done_s - asked_s <= (START_S if kind == RESTART else LATE_S):
                faults.append(f"{what}: done at {done_s:.6f} s")
            else:
                latest_s = max(latest_s, 0.0 if kind == RESTART else done_s - asked_s)
    good = f"{trials * len(wanted)} events, {1e6 * latest_s:.0f} us late at most"
    return check_of("events happened when they were asked for", faults, good)


def _failed(trials: Sequence[Collection[str]], expected: set[str], failed: dict[str, dict[str, str]]) -> Check:
    faults, count = [], 0
    for trial, jobs in enumerate(trials):
        of_trial = failed.get(str(trial), {})
        faults += [f"{job} failed, trial {trial}: {why}" for job, why in of_trial.items() if job not in expected]
        faults += [f"{job} did not fail, trial {trial}" for job in sorted(expected & set(jobs) - set(of_trial))]
        count += len(of_trial)
    good = f"{count} failed as expected: {', '.join(sorted(expected))}" if count else "none failed"
    return check_of("jobs failed where that was expected, and only there", faults, good)
