"""The one interface of all schedulers: the state of a cluster in, a proposal of equally good placements out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

from controllers.placement.goodput import Batch, Goodput

Span = Literal["server", "rack", "cluster"]
SPANS: tuple[Span, ...] = ("server", "rack", "cluster")  # from tight to wide
CANDIDATES = 10  # how many placements CASSINI chooses among (its paper, section 4.2)

Placement = tuple[str, ...]  # the server of each worker, in rank order; a server stands there once per accelerator


@dataclass(frozen=True)
class Server:
    """A server, the rack it stands in, and how many accelerators it has."""

    name: str
    rack: str
    accelerators: int = 1


@dataclass(frozen=True)
class Timing:
    """How long an iteration takes, measured or profiled, with so many workers so far apart."""

    workers: int
    span: Span
    iteration_s: float


@dataclass(frozen=True)
class Job:
    """A training job as a scheduler sees it.

    `workers` is the number asked for; `iterations` are in all and `remaining_iterations` still to be done with that
    many. The batch per worker is fixed, so an iteration with n workers does n/workers of the work of one of these.
    `timings` says what was profiled: a job bids for nothing else. `placement` is empty while it waits; its workers are
    its own until `lease_end_s`. `contention` is the mean number of jobs that shared the cluster during its life (N_avg
    of Themis, section 5.2). `restarts` counts how often it was moved. `goodput` is what Pollux needs to know of it.
    """

    name: str
    model: str
    arrival_s: float
    workers: int
    iterations: float
    remaining_iterations: float
    timings: tuple[Timing, ...] = ()
    placement: Placement = ()
    lease_end_s: float = 0.0
    contention: float = 1.0
    restarts: int = 0
    goodput: Goodput | None = None

    def __post_init__(self) -> None:
        """Raise ValueError where a job cannot be one."""
        if self.workers < 1 or not 0 <= self.remaining_iterations <= self.iterations or self.iterations <= 0:
            raise ValueError(f"{self.name}: needs a worker, and from 0 to all of its iterations remaining")
        if self.contention < 1:
            raise ValueError(f"{self.name}: a contention of {self.contention} is less than the job itself")
        if any(one.workers < 1 or not 0 < one.iteration_s < math.inf for one in self.timings):
            raise ValueError(f"{self.name}: timings must be of one worker or more and take a positive time")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of workers it was profiled with, ascending."""
        return tuple(sorted({one.workers for one in self.timings}))

    def iteration_s(self, workers: int, span: Span) -> float | None:
        """Return the iteration time with workers no further apart than `span`; None where nothing was profiled.

        A span that was not profiled takes the time of the next wider one. A wider span that was measured to be
        faster is noise: whoever is promised that span may get a tighter one, so the slower time holds.
        """
        known = {one.span: one.iteration_s for one in self.timings if one.workers == workers}
        reach = SPANS.index(span)
        here = next((known[wide] for wide in SPANS[reach:] if wide in known), None)
        return None if here is None else max([here, *(known[tight] for tight in SPANS[:reach] if tight in known)])

    def remaining_s(self, workers: int, span: Span) -> float | None:
        """Return how long the remaining iterations take in such a placement; None where it was not profiled."""
        one = self.iteration_s(workers, span)
        return None if one is None else self.remaining_iterations * self.workers / workers * one

    def leased(self, now_s: float) -> bool:
        """Return whether its workers may not be taken away."""
        return bool(self.placement) and self.lease_end_s > now_s


@dataclass(frozen=True)
class ClusterState:
    """Servers, and the jobs that run or wait, at one moment."""

    now_s: float
    servers: tuple[Server, ...]
    jobs: tuple[Job, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for names given twice, servers that do not exist and accelerators used twice."""
        for what, names in (("server", [one.name for one in self.servers]), ("job", [one.name for one in self.jobs])):
            twice = [name for name, times in Counter(names).items() if times > 1]
            if twice:
                raise ValueError(f"{what} {twice[0]} is there twice")
        room = {one.name: one.accelerators for one in self.servers}
        used = Counter(server for job in self.jobs for server in job.placement)
        for server, count in used.items():
            if count > room.get(server, 0):
                raise ValueError(
                    f"{count} workers are placed on {server}, which has {room.get(server, 0)} accelerators"
                )

    @property
    def accelerators(self) -> int:
        """How many accelerators the cluster has."""
        return sum(server.accelerators for server in self.servers)

    def apply(self, proposal: Proposal, choice: int = 0) -> ClusterState:
        """Return the state once a candidate of the proposal is carried out: jobs it does not name wait."""
        placements = proposal.candidates[choice].placements
        jobs = []
        for job in self.jobs:
            placement = placements.get(job.name, ())
            moved = bool(job.placement) and Counter(placement) != Counter(job.placement)
            lease_end_s = proposal.lease_end_s.get(job.name, 0.0) if placement else 0.0
            jobs.append(replace(job, placement=placement, lease_end_s=lease_end_s, restarts=job.restarts + moved))
        return replace(self, jobs=tuple(jobs))

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON has it; `from_dict` reads it back unchanged."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ClusterState:
        """Read what `to_dict` wrote. Raises TypeError for a missing or an unknown key."""
        jobs = []
        for job in raw["jobs"]:
            goodput = None if job["goodput"] is None else Goodput(**job["goodput"])
            timings = tuple(Timing(**one) for one in job["timings"])
            jobs.append(Job(**{**job, "timings": timings, "placement": tuple(job["placement"]), "goodput": goodput}))
        return cls(raw["now_s"], tuple(Server(**server) for server in raw["servers"]), tuple(jobs))


@dataclass(frozen=True)
class Candidate:
    """One way to place the jobs: the workers of each job that runs; whoever is missing waits."""

    placements: Mapping[str, Placement]

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate as JSON has it."""
        return {"placements": {job: list(workers) for job, workers in self.placements.items()}}


@dataclass(frozen=True)
class Proposal:
    """What a scheduler proposes: candidates of equal merit that differ in workers, its own choice first.

    `merit` is of each job and the same in all candidates; `merit_name` says what it is: `rho` (finish-time fairness,
    less is better), `speedup` (goodput relative to a fair share), or nothing. `objective` is what was maximised,
    `bound` the most it can be as far as is known, `exact` whether `objective` is known to be the most. `lease_end_s` is
    until when the workers are a job's own. `batches` is the batch size Pollux sets. With `copies` every job has the
    cluster to itself, and placements may overlap.
    """

    scheduler: str
    now_s: float
    candidates: tuple[Candidate, ...]
    merit_name: str = ""
    merit: Mapping[str, float] = field(default_factory=dict)
    lease_end_s: Mapping[str, float] = field(default_factory=dict)
    batches: Mapping[str, Batch] = field(default_factory=dict)
    payments: Mapping[str, float] = field(default_factory=dict)
    objective: float | None = None
    bound: float | None = None
    exact: bool = True
    copies: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the proposal as JSON has it."""
        raw = {name: value for name, value in vars(self).items() if name not in ("candidates", "batches")}
        return {
            **{name: dict(value) if isinstance(value, Mapping) else value for name, value in raw.items()},
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "batches": {job: asdict(batch) for job, batch in self.batches.items()},
        }


class Scheduler(Protocol):
    """Whoever proposes placements. The same state and seed give the same proposal."""

    @property
    def name(self) -> str:
        """What the scheduler is called in files."""
        ...

    def propose(self, state: ClusterState, *, candidates: int = CANDIDATES, seed: int = 0) -> Proposal:
        """Return up to so many candidates of equal merit."""
        ...
