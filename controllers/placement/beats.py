"""From time-shifts to beats: when exactly each job ticks, so that as few running jobs as possible have to wait.

Time-shifts are relative to a reference in each connected component of jobs, so each component may be laid anywhere in
time. It is laid where most of its running jobs tick already: a job that keeps its beat loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from controllers.placement.orders import Beat, Shift

SAME_S = 1e-6  # beats closer than this are the same


def lay(shifts: Mapping[str, Shift], now_s: float, running: Mapping[str, Beat | None]) -> dict[str, Beat]:
    """Return the beat of every job with a shift, its tick 0 at `now_s` or long ago.

    running: the beats of the jobs that go on running where they are, None for one without a beat. Tick 0 stays where it
    is as long as anybody keeps a beat: periods have nothing in common but their perimeter, and any other moment would
    change the distances of all.
    """
    found: dict[str, Beat] = {}
    for reference in sorted({shift.reference for shift in shifts.values()}):
        part = {job: shift for job, shift in shifts.items() if shift.reference == reference}
        zeros_s = [now_s, *(beat.start_s - part[job].time_shift_s for job, beat in _known(part, running).items())]
        zero_s = max(zeros_s, key=lambda at: (_kept(part, running, at), -zeros_s.index(at)))
        for job, shift in part.items():
            found[job] = Beat(zero_s + shift.time_shift_s, shift.period_s)
    return found


def same(one: Beat | None, other: Beat | None) -> bool:
    """Return whether two beats tick at the same moments, or are none both."""
    if one is None or other is None:
        return one is other
    return abs(one.period_s - other.period_s) < SAME_S and one.off_s(other) < SAME_S


def _known(part: Mapping[str, Shift], running: Mapping[str, Beat | None]) -> dict[str, Beat]:
    """Return the running jobs of a component that have a beat of the period they are to have."""
    beats = {job: beat for job in sorted(part) if (beat := running.get(job)) is not None}
    return {job: beat for job, beat in beats.items() if abs(beat.period_s - part[job].period_s) < SAME_S}


def _kept(part: Mapping[str, Shift], running: Mapping[str, Beat | None], zero_s: float) -> int:
    """Return how many running jobs keep their beats if the component's zero is laid there."""
    beats = {job: Beat(zero_s + shift.time_shift_s, shift.period_s) for job, shift in part.items()}
    return sum(same(beats[job], beat) for job, beat in _known(part, running).items())
