"""The CASSINI module: candidate placements in, the best one and a time-shift for every job out (paper, section 4).

Each candidate is scored by what its links *reach* once every job has a single time-shift, and the candidates are
ranked by the mean over links, or by the mean over the worst tenth of them (the tail). The paper scores each link by
its own optimum, which a graph without loops reaches, and drops the candidates with loops. Here they stay: the links of
a knot (see `affinity`) are decided together, by the same search that decides a single link, so what a loop costs is
seen in the score. Of candidates that are equally good the first is taken: schedulers list the fairest first.

All jobs of a connected component are quantised together, since a job has one iteration time on all its links.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from controllers.cassini import search
from controllers.cassini.affinity import (
    SharedLink,
    Vertex,
    affinity_graph,
    components,
    knots,
    merge,
    time_shifts,
)
from controllers.cassini.circle import ANGLES, LONGEST_S, QUANTUM_S, UnifiedCircle, lay, quantise, slot_of
from controllers.cassini.compatibility import Rotation, least, settle
from controllers.cassini.decision import TIE, Decision, describe
from controllers.cassini.search import Outcome
from controllers.cassini.system import Load, System

Aggregate = Literal["mean", "tail"]
Key = tuple[object, ...]
COMMON_CELLS = 2**24  # a knot whose links would need more on slots of one length keeps slots that suit each link


@dataclass(frozen=True)
class Settings:
    """How finely circles are cut and how long is searched: see `circle.unify` and `compatibility.best_rotation`.

    `knot_budget` is that of links that are decided together, `starts` how many descents they are given.
    """

    angles: int = ANGLES
    quantum_s: float = QUANTUM_S
    longest_s: float = LONGEST_S
    tie: float = TIE
    gap: float = 0.01
    budget: int | None = search.BUDGET
    knot_budget: int | None = search.BUDGET // 4
    starts: int = search.STARTS


DEFAULTS = Settings()


@dataclass(frozen=True)
class Placement:
    """One candidate: the links its jobs load. Links with one job, or none, do no harm."""

    name: str
    links: tuple[SharedLink, ...]


@dataclass(frozen=True)
class LinkScore:
    """The score that equal links reach, beside that without shifts and the best this link could have by itself.

    `bound` is the highest score there can be as far as is known; for up to three jobs it is `best`. `knot` is the
    first link of those decided together with it.
    """

    links: tuple[str, ...]
    jobs: tuple[str, ...]
    knot: str
    score: float
    score_unshifted: float
    best: float
    bound: float


@dataclass(frozen=True)
class JobShift:
    """The time-shift of a job relative to the reference of its component, and how far it may err either way."""

    job: str
    reference: str
    period_s: float
    quantised_s: float
    time_shift_s: float
    slack_s: float


@dataclass(frozen=True)
class Evaluation:
    """What a placement reaches. `score_best` aggregates what each link could have by itself: the score without loops.

    A placement without a shared link scores 1. `jobs` have their final time-shifts in the placement that is chosen
    and are left out in others; links and jobs that share nothing are not listed.
    """

    placement: str
    score: float
    score_unshifted: float
    score_best: float
    looped: bool
    links: tuple[LinkScore, ...]
    jobs: tuple[JobShift, ...]

    @property
    def shifts_s(self) -> dict[str, float]:
        """Return the time-shift of each job that shares a link."""
        return {job.job: job.time_shift_s for job in self.jobs}

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Choice:
    """All candidates in the order of their rank; the first one is chosen."""

    aggregate: Aggregate
    ranking: tuple[Evaluation, ...]

    @property
    def best(self) -> Evaluation:
        """The candidate that is chosen."""
        return self.ranking[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as JSON has it."""
        return {"aggregate": self.aggregate, "ranking": [evaluation.to_dict() for evaluation in self.ranking]}


@dataclass(frozen=True)
class _Knot:
    """Link vertices decided together: their circles, and the whole as a system of `jobs`."""

    vertices: tuple[Vertex, ...]
    circles: tuple[UnifiedCircle, ...]
    jobs: tuple[str, ...]
    iterations_s: Mapping[str, float]
    system: System

    @property
    def name(self) -> str:
        return self.vertices[0].name

    @cached_property
    def alone(self) -> list[System]:
        """Each link as a system of its own."""
        return [
            System.of_link([demand / vertex.capacity_bps for demand in circle.demands])
            for vertex, circle in zip(self.vertices, self.circles, strict=True)
        ]

    @cached_property
    def slot_s(self) -> dict[str, float]:
        """The length of one step of each job's rotation in the system."""
        steps = zip(self.jobs, self.system.lengths, strict=True)
        return {job: self.iterations_s[job] / length for job, length in steps}

    def delays_s(self, turned: Sequence[int]) -> dict[str, float]:
        """Return the delay of each job for its rotation; none where the nearest slots made that worse than none."""
        delays = {job: at * self.slot_s[job] for job, at in zip(self.jobs, turned, strict=True)}
        worse = self.system.mean(self.scores(delays)) < self.system.mean(self.unshifted)
        return dict.fromkeys(self.jobs, 0.0) if worse else delays

    @cached_property
    def unshifted(self) -> list[float]:
        """Return the score of each link vertex without time-shifts."""
        return self.scores(dict.fromkeys(self.jobs, 0.0))

    def scores(self, shifts_s: Mapping[str, float]) -> list[float]:
        """Return the score of each link vertex, shifts to the nearest slot from the first job on."""
        return [
            1 - alone.excess(dict(enumerate(rotations(circle, shifts_s))))
            for alone, circle in zip(self.alone, self.circles, strict=True)
        ]


def choose(
    placements: Sequence[Placement],
    *,
    settings: Settings = DEFAULTS,
    aggregate: Aggregate = "mean",
    executor: Executor | None = None,
) -> Choice:
    """Rank candidate placements and decide the time-shifts of each.

    executor: where link problems are solved, by default one after another right here. Each distinct problem is solved
    once, however many links and candidates have it; the result is the same wherever it is solved. Raises ValueError
    for no candidate, and for profiles that fit on no circle.
    """
    if not placements:
        raise ValueError("there is no placement to choose from")
    planned = {at: _plan(placement, settings) for at, placement in enumerate(placements)}
    every = [knot for knots_ in planned.values() for knot in knots_]
    found = _solved([(system, 0.0) for knot in every for system in knot.alone], settings, settings.budget, executor)
    tied = [
        (knot.system, knot.system.mean([found[system.key].lower for system in knot.alone]))
        for knot in every
        if len(knot.vertices) > 1
    ]
    found |= _solved(tied, settings, settings.knot_budget, executor)
    reached = {}
    for at, knots_ in planned.items():
        shifts, _ = _shifts(knots_, [found[knot.system.key].rotations for knot in knots_])
        reached[at] = _evaluate(placements[at].name, knots_, found, shifts, aggregate)
    top = max(evaluation.score for evaluation in reached.values())
    best = min(at for at, evaluation in reached.items() if evaluation.score >= top - settings.tie)
    chosen = _settled(placements[best].name, planned[best], found, aggregate, settings.tie)
    del reached[best]
    return Choice(aggregate, (chosen, *sorted(reached.values(), key=lambda evaluation: -evaluation.score)))


def decisions(placement: Placement, evaluation: Evaluation, *, settings: Settings = DEFAULTS) -> list[Decision]:
    """Return the decision for every link vertex of a placement, named after its first link, with the jobs' shifts.

    Rotations are to the nearest slot, and time-shifts those of the evaluation.
    """
    found = []
    jobs = {job.job: job for job in evaluation.jobs}
    links = {link.links[0]: link for link in evaluation.links}
    for knot in _plan(placement, settings):
        for vertex, circle in zip(knot.vertices, knot.circles, strict=True):
            link = links[vertex.name]
            chosen = Rotation(
                rotations=rotations(circle, evaluation.shifts_s),
                slack=tuple(int(jobs[job].slack_s / circle.slot_s + 1e-6) for job in circle.jobs),
                score=link.score,
                best=link.best,
                bound=link.bound,
                proved=link.bound - link.score <= settings.gap,
            )
            decided = describe(vertex.name, vertex.profiles, circle, chosen, vertex.capacity_bps, tie=settings.tie)
            shifted = tuple(replace(job, time_shift_s=jobs[job.job].time_shift_s) for job in decided.jobs)
            found.append(replace(decided, jobs=shifted))
    return found


def rotations(circle: UnifiedCircle, shifts_s: Mapping[str, float]) -> tuple[int, ...]:
    """Return the rotation in slots of every job of a circle: its distance from the first job to the nearest slot."""
    first = shifts_s[circle.jobs[0]]
    turned = round(first / circle.slot_s)
    return tuple(
        (round((shifts_s[job] - first) / circle.slot_s) + turned) % length
        for job, length in zip(circle.jobs, circle.lengths, strict=True)
    )


def _plan(placement: Placement, settings: Settings) -> list[_Knot]:
    """Return the knots of a placement, each on circles whose iteration times suit its whole component."""
    vertices = {vertex.name: vertex for vertex in merge(placement.links)}
    planned = []
    for part in components(affinity_graph({name: vertex.jobs for name, vertex in vertices.items()})):
        tied = [[vertices[name] for name in knot] for knot in knots(part)]
        periods: dict[str, float] = {}
        for profile in (profile for knot in tied for vertex in knot for profile in vertex.profiles):
            periods[profile.job] = max(periods.get(profile.job, 0.0), profile.period_s)
        jobs = sorted(periods)
        lengths = quantise(tuple(periods[job] for job in jobs), settings.quantum_s, settings.longest_s)
        quanta = dict(zip(jobs, lengths, strict=True))
        planned += [_knot(knot, quanta, settings) for knot in tied]
    return planned


def _knot(vertices: Sequence[Vertex], quanta: Mapping[str, int], settings: Settings) -> _Knot:
    jobs = tuple(sorted({job for vertex in vertices for job in vertex.jobs}))
    one = slot_of([quanta[job] for job in jobs], settings.angles)
    suited = [slot_of([quanta[job] for job in vertex.jobs], settings.angles) for vertex in vertices]
    cells = sum(math.prod(int(quanta[job] / one) for job in vertex.jobs[:3]) for vertex in vertices)
    slots: Iterable[Fraction] = [one] * len(vertices) if cells <= COMMON_CELLS else suited
    circles = tuple(
        lay(vertex.profiles, [quanta[job] for job in vertex.jobs], settings.quantum_s, slot)
        for vertex, slot in zip(vertices, slots, strict=True)
    )
    index = {job: at for at, job in enumerate(jobs)}
    lengths = [0] * len(jobs)
    loads = []
    for vertex, circle in zip(vertices, circles, strict=True):
        for job, length in zip(vertex.jobs, circle.lengths, strict=True):
            lengths[index[job]] = max(lengths[index[job]], length)
        demands = tuple(demand / vertex.capacity_bps for demand in circle.demands)
        loads.append(Load(tuple(index[job] for job in vertex.jobs), demands, len(vertex.links)))
    if len(loads) == 1:
        loads = [replace(loads[0], weight=1)]  # a link alone is the same problem whatever it stands for
    iterations_s = {job: quanta[job] * settings.quantum_s for job in jobs}
    return _Knot(tuple(vertices), circles, jobs, iterations_s, System(tuple(lengths), tuple(loads)))


def _solved(
    problems: Iterable[tuple[System, float]], settings: Settings, budget: int | None, executor: Executor | None
) -> dict[Key, Outcome]:
    """Return the least excess of each distinct system by its key; beside each system a lower bound on it."""
    distinct = {system.key: (system, floor) for system, floor in problems}
    solver = _Solver(settings.gap, budget, settings.starts)
    solve = executor.map if executor else map
    return dict(zip(distinct, solve(solver, distinct.values()), strict=True))


@dataclass(frozen=True)
class _Solver:
    gap: float
    budget: int | None
    starts: int

    def __call__(self, problem: tuple[System, float]) -> Outcome:
        system, floor = problem
        return least(system, gap=self.gap, budget=self.budget, starts=self.starts, floor=floor)


def _shifts(planned: Sequence[_Knot], found: Sequence[tuple[int, ...]]) -> tuple[dict[str, float], dict[str, str]]:
    """Return the time-shift and the reference of every job, from the rotations of each knot."""
    delays_s = {knot.name: knot.delays_s(turned) for knot, turned in zip(planned, found, strict=True)}
    return time_shifts(delays_s, {job: length for knot in planned for job, length in knot.iterations_s.items()})


def _evaluate(
    name: str,
    planned: Sequence[_Knot],
    found: Mapping[Key, Outcome],
    shifts_s: Mapping[str, float],
    aggregate: Aggregate,
) -> Evaluation:
    links = []
    for knot in planned:
        reached = knot.scores(shifts_s)
        for vertex, system, now, before in zip(knot.vertices, knot.alone, reached, knot.unshifted, strict=True):
            best, bound = 1 - found[system.key].excess, 1 - found[system.key].lower
            links.append(LinkScore(vertex.links, vertex.jobs, knot.name, now, before, max(best, now), max(bound, now)))
    return Evaluation(
        placement=name,
        score=_aggregate(aggregate, links, lambda link: link.score),
        score_unshifted=_aggregate(aggregate, links, lambda link: link.score_unshifted),
        score_best=_aggregate(aggregate, links, lambda link: link.best),
        looped=any(len(knot.vertices) > 1 for knot in planned),
        links=tuple(links),
        jobs=(),
    )


def _settled(
    name: str, planned: Sequence[_Knot], found: Mapping[Key, Outcome], aggregate: Aggregate, tie: float
) -> Evaluation:
    """Return the evaluation with the time-shifts of its jobs, of equally good ones those with the most slack."""
    settled = [settle(knot.system, found[knot.system.key], tie=tie) for knot in planned]
    shifts, references = _shifts(planned, [rotations for rotations, _ in settled])
    slack_s: dict[str, float] = {}
    periods_s: dict[str, float] = {}
    iterations_s: dict[str, float] = {}
    for knot, (_, free) in zip(planned, settled, strict=True):
        periods_s |= {profile.job: profile.period_s for vertex in knot.vertices for profile in vertex.profiles}
        iterations_s |= knot.iterations_s
        for job, slots in zip(knot.jobs, free, strict=True):
            slack_s[job] = min(slack_s.get(job, math.inf), slots * knot.slot_s[job])
    jobs = (
        JobShift(job, references[job], periods_s[job], iterations_s[job], shifts[job], slack_s[job])
        for job in sorted(shifts)
    )
    return replace(_evaluate(name, planned, found, shifts, aggregate), jobs=tuple(jobs))


def _aggregate(aggregate: Aggregate, links: Sequence[LinkScore], value: Callable[[LinkScore], float]) -> float:
    values = sorted(value(link) for link in links for _ in link.links)
    if not values:
        return 1.0
    if aggregate == "tail":
        values = values[: math.ceil(len(values) / 10)]
    return math.fsum(values) / len(values)
