"""Random: whoever comes gets as many accelerators as it asked for, wherever, and keeps them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.placement.layout import Counts, Layout
from controllers.placement.state import CANDIDATES, Candidate, ClusterState, Proposal


@dataclass(frozen=True)
class Random:
    """The scheduler: in order of arrival; a job that does not fit waits, and lets later ones go first."""

    name: str = "random"

    def propose(self, state: ClusterState, *, candidates: int = CANDIDATES, seed: int = 0) -> Proposal:
        """Return independent draws that place the same jobs; the first is the choice of the scheduler."""
        layout = Layout(state.servers)
        running = {job.name: job.placement for job in state.jobs if job.placement}
        free = layout.capacity - sum(map(layout.counts, running.values()), np.zeros_like(layout.capacity))
        left, waiting = int(free.sum()), []
        for job in sorted(state.jobs, key=lambda job: (job.arrival_s, job.name)):
            if job.name not in running and job.workers <= left:
                waiting.append(job)
                left -= job.workers
        random = np.random.default_rng(seed)
        found: dict[tuple[bytes, ...], dict[str, Counts]] = {}
        for _ in range(4 * candidates):
            slots = random.permutation(np.repeat(np.arange(len(free)), free))
            drawn = {}
            for job in waiting:
                drawn[job.name] = np.bincount(slots[: job.workers], minlength=len(free))
                slots = slots[job.workers :]
            if len(found) < candidates:
                found.setdefault(tuple(counts.tobytes() for counts in drawn.values()), drawn)
        return Proposal(
            scheduler=self.name,
            now_s=state.now_s,
            candidates=tuple(
                Candidate(dict(sorted((running | {job: layout.placement(row) for job, row in one.items()}).items())))
                for one in found.values()
            ),
            lease_end_s={job.name: job.lease_end_s for job in state.jobs if job.name in running},
        )
