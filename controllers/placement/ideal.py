"""Ideal: each job alone on its own copy of the cluster, as close together as it gets. What sharing costs shows here."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.placement.layout import Layout
from controllers.placement.state import CANDIDATES, Candidate, ClusterState, Proposal


@dataclass(frozen=True)
class Ideal:
    """The scheduler. Placements overlap (`Proposal.copies`): they fit no one state to `apply` them to."""

    name: str = "ideal"

    def propose(self, state: ClusterState, *, candidates: int = CANDIDATES, seed: int = 0) -> Proposal:  # noqa: ARG002
        """Return one candidate. Raises ValueError for a job larger than the cluster."""
        layout = Layout(state.servers)
        alone = {
            job.name: layout.placement(layout.pack(layout.capacity, job.workers))
            for job in sorted(state.jobs, key=lambda job: job.name)
        }
        return Proposal(scheduler=self.name, now_s=state.now_s, candidates=(Candidate(alone),), copies=True)
