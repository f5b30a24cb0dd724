"""From the arm `alone` to the time-shifts of the arm `cassini`: profiles from counters, decisions from profiles."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from controllers.cassini.affinity import SharedLink
from controllers.cassini.decision import TIE, Decision
from controllers.cassini.module import Placement, Settings, choose, decisions
from controllers.cassini.profile import Profile, angles_of, fold
from controllers.sdn.paths import Routes
from testbed.errors import NotValid
from testbed.experiment import Experiment, pairs
from testbed.telemetry.tables import ITERATIONS, QUEUES


def measured_profiles(experiment: Experiment, alone: Path) -> dict[str, list[Profile]]:
    """Return each shared link's profiles: what every job sent over it while it had the network to itself.

    The bytes are those of the link's own counter. Raises NotValid when a job left no whole iteration to measure.
    """
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


def link_decisions(experiment: Experiment, profiles: dict[str, list[Profile]]) -> list[Decision]:
    """Return one decision for every set of jobs that share links: that of its tightest link.

    All links are decided together, along the affinity graph (CASSINI's module for the one placement there is), so that
    a job has the same time-shift on each of them.
    """
    capacity_bps = {link: experiment.topology.direction(*link.split("->")).rate_bps for link in experiment.shared}
    links = tuple(SharedLink(link, capacity_bps[link], tuple(profiles[link])) for link in experiment.shared)
    placement = Placement(experiment.scenario.name, links)
    settings = Settings(angles=angles_of(experiment.scenario.measure.precision_deg))
    best = choose([placement], settings=settings).best
    equal = {link.links[0]: link.links for link in best.links}  # links with the same circles were decided as one
    candidates: dict[tuple[str, ...], list[Decision]] = defaultdict(list)
    for decision in decisions(placement, best, settings=settings):
        of_the_same = candidates[tuple(experiment.shared[decision.link])]
        of_the_same += [replace(decision, link=link) for link in equal[decision.link]]
    return [_tightest(experiment, decided) for decided in candidates.values()]


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
    """Return the time-shifts that decisions amount to."""
    shifts = TimeShifts({job.name: 0.0 for job in experiment.jobs}, {})
    for decision in decided:
        shifts.starts_s.update(decision.shifts_s)
        shifts.periods_s.update({job.job: job.quantised_s for job in decision.jobs})
    return shifts
