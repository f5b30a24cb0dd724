"""CASSINI as a plug-in on top of any scheduler: of placements of equal merit the one whose jobs interleave best.

What a job will send where is known before it is placed. Its *traffic* was measured alone, once for its kind: the
bandwidth of every worker over one iteration, at the uplink of its host. A worker sends to others in proportion to the
bytes planned for them; so a link's demand is the sum over all pairs of workers whose path crosses it. Workers on one
server exchange over its own interconnect, which is on no path.

The links that several jobs of a candidate load go to `controllers.cassini.module`, which ranks the candidates.

Where links are compatible, jobs are held to the ticks of their time-shifts. Where they are not, that does harm: what
comes too much is sent later, by up to 1 - score of an iteration, every time, so that before long a worker misses its
tick and waits for the next one. So all periods of a connected component are stretched by what its worst link lacks,
which leaves distances as they are, and a component that lacks more than `MOST_LACKING` runs free. The paper does not
say what it does there; it says that below a score of 0.6 nothing is gained, and that such placements are avoided.

A job with iterations many times shorter than those of another (`SHORT`; DLRM beside GPT-2: 4 ms and 2.4 s) cannot be
shifted out of its way, and a circle long enough for the one and fine enough for the other has too many slots. It counts
with its mean bandwidth, and is not shifted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from controllers.cassini import module
from controllers.cassini.affinity import SharedLink
from controllers.cassini.profile import Floats, Profile
from controllers.placement.orders import Chosen, Shift
from controllers.placement.state import Candidate, Placement

MOST_LACKING = 0.05  # of a score of 1: as much as workers may be late without waiting for another tick
SHORT = 16  # times that a job's iteration goes into the longest one from which on it is a constant load for all others
Pair = tuple[int, int]  # the ranks of two workers, the one that sends first
Route = Callable[[str, str], Sequence[str]]  # the directed links from one server to another


@dataclass(frozen=True)
class Traffic:
    """What a job of some kind sends with so many workers.

    `period_s` is its iteration time alone. `demand_bps[r]` is the mean bandwidth of worker r in every angle of an
    iteration, to all others together; `planned_bytes` what a pair exchanges in one iteration.
    """

    period_s: float
    demand_bps: tuple[tuple[float, ...], ...]
    planned_bytes: Mapping[Pair, int]

    def __post_init__(self) -> None:
        """Raise ValueError where ranks or numbers of angles do not agree."""
        ranks, angles = len(self.demand_bps), {len(demand) for demand in self.demand_bps}
        if not ranks or len(angles) != 1 or not self.period_s > 0:
            raise ValueError("traffic needs a positive period, and the same number of angles for each worker")
        if any(not (0 <= a < ranks and 0 <= b < ranks) or a == b for a, b in self.planned_bytes):
            raise ValueError(f"planned bytes are between different workers from 0 to {ranks - 1}")

    @classmethod
    def measured(cls, hosts: Placement, uplinks: Mapping[str, Profile], planned_bytes: Mapping[Pair, int]) -> Traffic:
        """Return the traffic of a job that ran alone, its worker r on `hosts[r]`, from the profiles of host uplinks.

        A host's bandwidth is shared out among its workers by their planned bytes. Of a worker with planned traffic on
        whose host nothing was measured, the shape is that of all others. Raises ValueError for no profile at all.
        """
        if not uplinks:
            raise ValueError("no host's uplink was measured")
        period_s = max(profile.period_s for profile in uplinks.values())
        away = {pair: size for pair, size in planned_bytes.items() if hosts[pair[0]] != hosts[pair[1]]}
        crossing: dict[str, int] = defaultdict(int)
        for (source, _), size in away.items():
            crossing[hosts[source]] += size
        seen = {host: np.array(profile.demand_bps) for host, profile in uplinks.items() if crossing[host]}
        if not seen and any(planned_bytes.values()):
            raise ValueError("the uplinks that were measured carried nothing of the job")
        mean = sum(seen[host] / crossing[host] for host in seen) / max(1, len(seen)) if seen else np.zeros(1)
        demands = []
        for rank, host in enumerate(hosts):
            sends = sum(size for (source, _), size in planned_bytes.items() if source == rank)
            per_byte = seen[host] / crossing[host] if host in seen else np.asarray(mean)
            demands.append(tuple((per_byte * sends).tolist()))
        return cls(period_s, tuple(demands), dict(planned_bytes))

    def to_dict(self) -> dict[str, Any]:
        """Return the traffic as JSON has it; `from_dict` reads it back unchanged."""
        return {
            "period_s": self.period_s,
            "demand_bps": [list(demand) for demand in self.demand_bps],
            "planned_bytes": [[source, target, size] for (source, target), size in self.planned_bytes.items()],
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Traffic:
        """Read what `to_dict` wrote. Raises KeyError for a missing key, ValueError for an impossible value."""
        planned = {(int(source), int(target)): int(size) for source, target, size in raw["planned_bytes"]}
        return cls(float(raw["period_s"]), tuple(tuple(map(float, one)) for one in raw["demand_bps"]), planned)


def demands_bps(traffic: Traffic, placement: Placement, route: Route) -> dict[str, Floats]:
    """Return what a job so placed sends over every directed link, in bit/s, shape (angles,)."""
    sends: dict[int, int] = defaultdict(int)
    for (source, _), size in traffic.planned_bytes.items():
        sends[source] += size
    weights: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (source, target), size in traffic.planned_bytes.items():
        if size and placement[source] != placement[target]:
            for link in route(placement[source], placement[target]):
                weights[link][source] += size / sends[source]
    bandwidth = np.array(traffic.demand_bps)
    return {
        link: np.asarray(sum(weight * bandwidth[rank] for rank, weight in ranks.items()))
        for link, ranks in weights.items()
    }


@dataclass
class Cassini:
    """The plug-in. `traffic(job, placement)` says what a job sends if so placed; capacities are of directed links.

    executor: where candidates and links are solved, by default one after another right here.
    """

    traffic: Callable[[str, Placement], Traffic]
    route: Route
    capacity_bps: Mapping[str, float]
    settings: module.Settings = module.DEFAULTS
    aggregate: module.Aggregate = "mean"
    executor: Executor | None = None
    name: str = "cassini"
    _profiles: Callable[[str, Placement], dict[str, Profile]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._profiles = lru_cache(maxsize=10_000)(self._profiles_of)

    def choose(self, candidates: Sequence[Candidate]) -> Chosen:
        """Return the candidate of the highest score, and the shifts of its jobs; of equally good ones the first.

        Jobs of components that lack too much have none.
        """
        placements = [self._placement(str(index), candidate) for index, candidate in enumerate(candidates)]
        best = module.choose(placements, settings=self.settings, aggregate=self.aggregate, executor=self.executor).best
        lacks: dict[str, float] = defaultdict(float)
        reference = {job.job: job.reference for job in best.jobs}
        for link in best.links:
            lacks[reference[link.jobs[0]]] = max(lacks[reference[link.jobs[0]]], 1 - link.score)
        shifts = {
            job.job: Shift(job.time_shift_s * stretch, job.quantised_s * stretch, job.reference)
            for job in best.jobs
            if (stretch := 1 + lacks[job.reference]) <= 1 + MOST_LACKING
            and job.period_s == self._period_s(job.job, candidates[int(best.placement)].placements[job.job])
        }
        return Chosen(int(best.placement), shifts, best.to_dict())

    def _placement(self, name: str, candidate: Candidate) -> module.Placement:
        """Return the links that several jobs of a candidate load."""
        loads: dict[str, list[Profile]] = defaultdict(list)
        for job, placement in sorted(candidate.placements.items()):
            for link, profile in self._profiles(job, placement).items():
                loads[link].append(profile)
        longest_s = max((profile.period_s for of_link in loads.values() for profile in of_link), default=0.0)
        loads = {
            link: [_constant(one, longest_s) if one.period_s * SHORT < longest_s else one for one in of_link]
            for link, of_link in loads.items()
        }
        return module.Placement(
            name,
            tuple(
                SharedLink(link, self.capacity_bps[link], tuple(profiles))
                for link, profiles in sorted(loads.items())
                if len(profiles) > 1
            ),
        )

    def _period_s(self, job: str, placement: Placement) -> float:
        return max((profile.period_s for profile in self._profiles(job, placement).values()), default=0.0)

    def _profiles_of(self, job: str, placement: Placement) -> dict[str, Profile]:
        traffic = self.traffic(job, placement)
        return {
            link: Profile(job, traffic.period_s, tuple(demand.tolist()))
            for link, demand in demands_bps(traffic, placement, self.route).items()
        }


def _constant(profile: Profile, period_s: float) -> Profile:
    """Return a profile of the same mean bandwidth at all times, with the period of another job."""
    return Profile(profile.job, period_s, (sum(profile.demand_bps) / len(profile.demand_bps),) * 2)
