"""From one arm to the time-shifts of the next: profiles from the counters of `alone`, decisions from profiles for
`cassini`, and refined ones for `refined` from what the links still marked in `cassini`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from controllers.cassini.affinity import SharedLink, merge
from controllers.cassini.decision import TIE, Decision
from controllers.cassini.module import Placement, Settings, choose, decisions
from controllers.cassini.profile import Floats, Profile, angles_of, fold, rising
from controllers.cassini.refine import Marks, Refined, refine
from controllers.sdn.paths import Routes
from testbed.errors import NotValid
from testbed.experiment import Experiment, pairs
from testbed.loops import along_a_tree
from testbed.telemetry.tables import ITERATIONS, QUEUES, Records

Profiles = dict[str, list[Profile]]
"""The profiles of the jobs of each directed link."""


def measured_profiles(experiment: Experiment, alone: Path) -> Profiles:
    """Return each shared link's profiles: what every job sent over it while it had the network to itself.

    The bytes are those of the link's own counter. Raises NotValid when a job left no whole iteration to measure.
    """
    if not experiment.shared:  # then no queue was watched
        return {}
    queues, rows = QUEUES.read(alone / QUEUES.file), ITERATIONS.read(alone / ITERATIONS.file).where(rank=0)
    trial_of = {next(iter(starts.starts_s)): str(n) for n, starts in enumerate(experiment.trials("alone", {}))}
    profiles: dict[str, list[Profile]] = defaultdict(list)
    for link, jobs in experiment.shared.items():
        counter = queues.where(link=link)
        for job in jobs:
            own = rows.where(job=job, trial=trial_of[job])
            iterations = list(zip(own.numbers("begin_s"), own.numbers("end_s"), strict=True))
            try:
                profile = fold(
                    job, counter.numbers("t_s"), counter.numbers("tx_bytes"), iterations,
                    angles=angles_of(experiment.scenario.measure.precision_deg),
                    interval_s=experiment.scenario.telemetry.queue_interval,
                    limit_bps=experiment.topology.direction(*link.split("->")).rate_bps,
                )  # fmt: skip
            except ValueError as error:
                raise NotValid(f"the arm alone gives no profile of {job} on {link}: {error}") from error
            profiles[link].append(profile)
    return profiles


def link_decisions(experiment: Experiment, profiles: Profiles) -> list[Decision]:
    """Return one decision for every set of jobs that share links: that of its tightest link.

    All links are decided together, along the affinity graph (CASSINI's module for the one placement there is), so that
    a job has the same time-shift on each of them.
    """
    if not profiles:
        return []
    capacity_bps = {link: experiment.topology.direction(*link.split("->")).rate_bps for link in experiment.shared}
    links = tuple(SharedLink(link, capacity_bps[link], tuple(profiles[link])) for link in experiment.shared)
    placement = Placement(experiment.scenario.name, links)
    settings = Settings(angles=angles_of(experiment.scenario.measure.precision_deg))
    equal: dict[str, tuple[str, ...]]
    if experiment.scenario.measure.loops == "tree":
        decided = along_a_tree(links, settings.angles)
        equal = {vertex.name: vertex.links for vertex in merge(links)}
        return _by_jobs(experiment, decided, equal)
    best = choose([placement], settings=settings).best
    equal = {link.links[0]: link.links for link in best.links}  # links with the same circles were decided as one
    return _by_jobs(experiment, decisions(placement, best, settings=settings), equal)


def _by_jobs(
    experiment: Experiment, decided: Sequence[Decision], equal: Mapping[str, tuple[str, ...]]
) -> list[Decision]:
    candidates: dict[tuple[str, ...], list[Decision]] = defaultdict(list)
    for decision in decided:
        of_the_same = candidates[tuple(experiment.shared[decision.link])]
        of_the_same += [replace(decision, link=link) for link in equal[decision.link]]
    return [_tightest(experiment, of_the_same) for of_the_same in candidates.values()]


def _tightest(experiment: Experiment, of_the_same: list[Decision]) -> Decision:
    """Return the decision with the lowest score; among equals that of the link packets meet first, where they queue."""
    lowest = min(decision.score for decision in of_the_same)
    routes = Routes(experiment.topology)
    paths = [routes.route(*pair) for job in experiment.jobs for pair in pairs(job)]

    def hops(decision: Decision) -> int:
        return min(path.index(decision.link) for path in paths if decision.link in path)

    return min((decision for decision in of_the_same if decision.score <= lowest + TIE), key=hops)


@dataclass(frozen=True)
class TimeShifts:
    """What the workers of each job are told, in seconds: when to start, and the iteration time on the circle to keep.

    Jobs that share no link start at once, and have no iteration time to keep.
    """

    starts_s: dict[str, float]
    periods_s: dict[str, float]


def time_shifts(experiment: Experiment, decided: list[Decision]) -> TimeShifts:
    """Return the time-shifts that decisions amount to.

    A job that by the prediction needs longer than its iteration on the circle (score below 1) is not held to it: late
    at every tick it would wait for the next one, and take two iterations' time for one. `hold = "always"` does so.
    """
    shifts = TimeShifts({job.name: 0.0 for job in experiment.jobs}, {})
    late: set[str] = set()
    for decision in decided:
        shifts.starts_s.update(decision.shifts_s)
        shifts.periods_s.update({job.job: job.quantised_s for job in decision.jobs})
        late |= {job.job for job in decision.jobs if job.iteration_s > job.quantised_s}
    if experiment.scenario.measure.hold != "always":
        for job in late:
            del shifts.periods_s[job]
    return shifts


def refined_decisions(experiment: Experiment, decided: list[Decision], cassini: Path) -> Refined:
    """Return the decisions with the time-shifts that the marks of the arm `cassini` ask for.

    Marks of jobs that were not all held to the circle tell nothing of its angles, and change nothing.
    """
    held = time_shifts(experiment, decided).periods_s
    if not decided:
        return Refined((), 0.0, 0.0)
    queues, rows = QUEUES.read(cassini / QUEUES.file), ITERATIONS.read(cassini / ITERATIONS.file).where(rank=0)
    interval_s = experiment.scenario.telemetry.queue_interval
    counters = {}
    for link in experiment.shared:
        counter = queues.where(link=link)
        counters[link] = rising(counter.numbers("t_s"), counter.numbers("marked_packets"), interval_s)
    marks = {}
    for decision in decided:
        if not decision.shifts_s.keys() <= held.keys():
            continue
        alike = [link for link, jobs in experiment.shared.items() if set(jobs) == set(decision.shifts_s)]
        marks[decision.link] = _marks(decision, rows, [counters[link] for link in alike])
    packet_bytes = experiment.topology.mtu_bytes
    return refine(decided, marks, packet_bytes, experiment.scenario.measure.tolerance)


def _marks(decision: Decision, rows: Records, counters: list[tuple[Floats, Floats]]) -> Marks:
    """Return what links of the same jobs marked, by slot of their circle, while all jobs were there.

    The first iterations are left out: connections still open their windows there.
    """
    packets, watched_s = np.zeros(decision.slots), np.zeros(decision.slots)
    for trial in sorted(set(rows.text("trial"))):
        own = [rows.where(trial=trial, job=job.job) for job in decision.jobs]
        begins_s = [of.numbers("begin_s") for of in own]
        zero_s = min(of[0] - job.time_shift_s for of, job in zip(begins_s, decision.jobs, strict=True))
        begin_s, end_s = max(of[1] for of in begins_s), min(max(of.numbers("end_s")) for of in own)
        first, last = (round((at_s - zero_s) / decision.slot_s) for at_s in (begin_s, end_s))
        slots = np.arange(first, last) % decision.slots
        edges_s = zero_s + decision.slot_s * np.arange(first, last + 1)
        for knots_s, marked in counters:
            np.add.at(packets, slots, np.diff(np.interp(edges_s, knots_s, marked)))
        np.add.at(watched_s, slots, decision.slot_s)
    return Marks(packets, watched_s)
