"""Pollux where every server has one accelerator, for clusters of any size.

There a job is spread over as many servers as it has workers, wherever they are, so its speedup follows from its number
of workers alone. With p = -1 the fitness is highest where the sum of 1 / speedup is least, and of that sum every job
has a part of its own. So no matrices need be bred: accelerators go one profiled size at a time to whoever gains most
by them for each, which is best but for what does not fit at the end. Who keeps its number of workers stays where it
is, others are packed closely, and interference cannot occur.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from controllers.placement.layout import Counts, Layout
from controllers.placement.pollux import UNSERVED_SPEEDUP, Pollux, best_batch, candidates_of, goodput_of
from controllers.placement.state import CANDIDATES, ClusterState, Job, Proposal


@dataclass(frozen=True)
class PoolPollux(Pollux):
    """The scheduler; `power` must be -1, and jobs must have been profiled."""

    def propose(self, state: ClusterState, *, candidates: int = CANDIDATES, seed: int = 0) -> Proposal:
        """Return the allocation, and others of equal merit. Raises ValueError for servers with several accelerators."""
        if any(server.accelerators != 1 for server in state.servers) or self.power != -1:
            raise ValueError("a pool has servers of one accelerator each, and p = -1")
        layout = Layout(state.servers)
        costs = {job.name: self._costs(job, state, int(layout.capacity.sum())) for job in state.jobs}
        sizes = _shared_out(costs, int(layout.capacity.sum()))
        placed: dict[str, Counts] = {}
        free = layout.capacity.copy()
        staying = [job for job in state.jobs if job.placement and sizes[job.name] == len(job.placement)]
        for job in staying:
            placed[job.name] = layout.counts(job.placement)
            free -= placed[job.name]
        for job in state.jobs:
            if sizes[job.name] and job.name not in placed:
                near = layout.counts(job.placement) if job.placement else None
                placed[job.name] = layout.pack(free, sizes[job.name], near=near)
                free -= placed[job.name]
        speedups = {job.name: 1 / costs[job.name][sizes[job.name]] for job in state.jobs}
        value = len(speedups) / sum(1 / one for one in speedups.values()) if speedups else 0.0
        return Proposal(
            scheduler=self.name,
            now_s=state.now_s,
            candidates=candidates_of(layout, state, placed, candidates, seed),
            merit_name="speedup",
            merit=speedups,
            objective=value,
            exact=False,
        )

    def _costs(self, job: Job, state: ClusterState, room: int) -> dict[int, float]:
        """Return 1 / speedup of a job with each number of workers it was profiled with, and with none."""
        share = max(1, room // len(state.jobs))
        goodput = {
            workers: batch.goodput
            for workers in job.sizes
            if workers <= room and (batch := best_batch(goodput_of(job), workers, 1 + (workers > 1))) is not None
        }
        if not goodput:
            raise ValueError(f"{job.name}: no number of workers here can share a batch within its limits")
        fair = max((value for workers, value in goodput.items() if workers <= share), default=max(goodput.values()))
        age_s = state.now_s - job.arrival_s
        restarted = float(np.clip((age_s - job.restarts * self.restart_s) / max(age_s + self.restart_s, 1e-9), 0, 1))
        now = len(job.placement)
        found = {0: 1 / UNSERVED_SPEEDUP}
        for workers, value in goodput.items():
            factor = restarted if now and workers != now else 1.0
            found[workers] = 1 / max(UNSERVED_SPEEDUP, value / fair * factor)
        return found


def _shared_out(costs: dict[str, dict[int, float]], room: int) -> dict[str, int]:
    """Return each job's number of workers: the step that lowers the sum most for every accelerator goes first."""
    sizes = dict.fromkeys(costs, 0)
    heap: list[tuple[float, str, int, int]] = []

    def offer(job: str) -> None:
        here = sizes[job]
        for size, cost in costs[job].items():
            if size > here and cost < costs[job][here]:
                heapq.heappush(heap, ((cost - costs[job][here]) / (size - here), job, here, size))

    for job in costs:
        offer(job)
    while heap:
        _, job, here, size = heapq.heappop(heap)
        if sizes[job] == here and size - here <= room:
            room -= size - here
            sizes[job] = size
            offer(job)
    return sizes
