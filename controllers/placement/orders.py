"""What the life of a cluster is made of: the orders it gives to those who run the jobs, and the plug-in it may ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from controllers.placement.state import Candidate, Placement


@dataclass(frozen=True)
class Beat:
    """A job starts iterations no earlier than `start_s` + k × `period_s`: its time-shift and quantised iteration."""

    start_s: float
    period_s: float

    def after(self, now_s: float) -> Beat:
        """Return the same beat, counted from its first tick that is not before `now_s`."""
        ticks = -int((self.start_s - now_s) // self.period_s)
        return Beat(self.start_s + ticks * self.period_s, self.period_s)

    def off_s(self, other: Beat) -> float:
        """Return how far the ticks of another beat of the same period lie from these, at most half a period."""
        distance = (other.start_s - self.start_s) % self.period_s
        return min(distance, self.period_s - distance)


@dataclass(frozen=True)
class Stop:
    """End a job at its next iteration boundary, and tell when it has."""

    job: str


@dataclass(frozen=True)
class Start:
    """Start a job on free accelerators, not before `at_s`; `iterations` are left to do with so many workers.

    `first_iteration` is how many it has done before, on whatever accelerators. `beat` is None where it shares no link.
    """

    job: str
    placement: Placement
    at_s: float
    iterations: int
    first_iteration: int = 0
    beat: Beat | None = None


@dataclass(frozen=True)
class Retime:
    """Give a running job another beat, or none, from its next iteration on."""

    job: str
    beat: Beat | None


Order = Stop | Start | Retime


@dataclass(frozen=True)
class Shift:
    """The time-shift of a job relative to the `reference` of its component, and its quantised iteration time."""

    time_shift_s: float
    period_s: float
    reference: str


@dataclass(frozen=True)
class Chosen:
    """Which candidate a plug-in takes, the shifts of its jobs (those that are to keep one), what it expects."""

    index: int
    shifts: Mapping[str, Shift] = field(default_factory=dict)
    expects: Mapping[str, Any] = field(default_factory=dict)


class Plugin(Protocol):
    """Whoever chooses among placements of equal merit: CASSINI (`interleave`), on top of any scheduler."""

    @property
    def name(self) -> str:
        """What the plug-in is called in files."""
        ...

    def choose(self, candidates: Sequence[Candidate]) -> Chosen:
        """Return the best candidate and the shifts of its jobs; of equally good ones the first."""
        ...


@dataclass(frozen=True)
class Round:
    """One round of scheduling: what was decided at `now_s`, and why.

    `merit` is the scheduler's, by job; `candidates` were of equal merit and number `chosen` was taken. `placements` are
    those of all jobs that are to run, `moved` the running jobs that must leave their accelerators for it.
    """

    now_s: float
    scheduler: str
    candidates: int
    chosen: int
    merit_name: str
    merit: Mapping[str, float]
    placements: Mapping[str, Placement]
    moved: tuple[str, ...]
    waiting: tuple[str, ...]
    shifts: Mapping[str, Shift]
    expects: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the round as JSON has it."""
        raw = dict(vars(self))
        raw["placements"] = {job: list(placement) for job, placement in self.placements.items()}
        raw["shifts"] = {job: asdict(shift) for job, shift in self.shifts.items()}
        return {
            key: dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
            for key, value in raw.items()
        }
