"""CASSINI's plug-in for many jobs: each group of jobs that share links is decided once, and remembered.

Groups that share no link do not concern each other, so what was decided for one holds as long as the same jobs send the
same over the same links: from round to round, and in most candidates of a round, nearly all groups stay as they are.
The score of a candidate is the mean over the links of all its groups, as in `controllers.cassini.module`. The one
difference: there only the candidate that is chosen has its shifts centred, here every group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from controllers.cassini import module
from controllers.cassini.affinity import SharedLink, merge
from controllers.placement.interleave import MOST_LACKING, Cassini
from controllers.placement.orders import Chosen, Shift
from controllers.placement.state import Candidate
from testbed.fluid.flows import parts

Key = tuple[object, ...]
MOST_REMEMBERED = 20_000


@dataclass
class GroupedCassini(Cassini):
    """The plug-in, by groups. It knows what it decided before."""

    _known: dict[Key, module.Evaluation] = field(default_factory=dict, repr=False)

    def choose(self, candidates: Sequence[Candidate]) -> Chosen:
        """Return the candidate of the highest score and its shifts; of equally good ones the first."""
        found = [self._evaluated(self._placement(str(at), one)) for at, one in enumerate(candidates)]
        scores = [_mean([link.score for one in of for link in one.links for _ in link.links]) for of in found]
        top = max(scores)
        index = next(at for at, score in enumerate(scores) if score >= top - self.settings.tie)
        shifts: dict[str, Shift] = {}
        for one in found[index]:
            lacks = max((1 - link.score for link in one.links), default=0.0)
            stretch = 1 + max(0.0, lacks)
            for job in one.jobs:
                placed = candidates[index].placements[job.job]
                if stretch <= 1 + MOST_LACKING and job.period_s == self._period_s(job.job, placed):
                    shifts[job.job] = Shift(job.time_shift_s * stretch, job.quantised_s * stretch, job.reference)
        links = [link for one in found[index] for link in one.links for _ in link.links]
        expects = {
            "score": scores[index],
            "score_unshifted": _mean([link.score_unshifted for link in links]),
            "score_best": _mean([link.best for link in links]),
        }
        return Chosen(index, shifts, expects)

    def _evaluated(self, placement: module.Placement) -> list[module.Evaluation]:
        """Return the evaluation of every group of a candidate."""
        links = {vertex.name: vertex for vertex in merge(placement.links)}
        by_link = {link.link: link for link in placement.links}
        users: dict[str, list[str]] = {}
        for vertex in links.values():
            for job in vertex.jobs:
                users.setdefault(job, []).append(vertex.name)
        evaluations = []
        for jobs in parts(users):
            names = sorted({name for job in jobs for name in users[job]})
            group = [by_link[link] for name in names for link in links[name].links]
            evaluations.append(self._decided(group))
        return evaluations

    def _decided(self, links: Sequence[SharedLink]) -> module.Evaluation:
        key = tuple(
            (link.link, tuple((at.job, at.period_s, id(at.demand_bps)) for at in link.profiles)) for link in links
        )
        if key not in self._known:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
                self._kept.clear()
            self._kept += [profile.demand_bps for link in links for profile in link.profiles]
            placement = module.Placement("", tuple(links))
            choice = module.choose([placement], settings=self.settings, executor=self.executor)
            self._known[key] = choice.best
        return self._known[key]

    def __post_init__(self) -> None:
        """Begin with nothing known; demands that were seen are kept, so that they can be told apart by identity."""
        super().__post_init__()
        self._kept: list[tuple[float, ...]] = []


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 1.0
