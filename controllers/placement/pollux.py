"""Pollux: all jobs are re-allocated so that their goodput is highest (Qiao et al., OSDI 2021, section 4.2).

The *speedup* of a job is its goodput with what it gets, at its best batch, over that with a fair share of the cluster.
The fitness of an allocation is the power mean of all speedups; its exponent p = -1 weighs jobs that are badly off more.
A job that runs and is moved must restart: its speedup then counts (T - R d) / (T + d) of it, with T its age, R the
number of its restarts and d what a restart costs. Whenever a job becomes able to use a larger batch, or a job ends, a
new allocation may be worth the restarts it costs.

Documented simplifications. The parameters of the goodput are given, not fitted while the job runs. A job that gets
nothing has a speedup of `UNSERVED_SPEEDUP`, for with p = -1 one zero makes the mean zero. Nothing limits how fast a job
grows (in the paper to twice the most it has had). It matters whether a job is on one server or on several, not in how
many racks, as published. Pollux knows no leases: any job may be moved at any time. A job that was profiled (`timings`)
runs with those numbers of workers alone: with more accelerators than the next lower one, it leaves some unused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from controllers.placement.evolution import Matrices, exhaustive, genetic, legal, size
from controllers.placement.goodput import Batch, Goodput
from controllers.placement.layout import Counts, Layout
from controllers.placement.state import CANDIDATES, Candidate, ClusterState, Job, Proposal
from controllers.placement.variants import variants

UNSERVED_SPEEDUP = 0.01
INTERVAL_S = 60.0  # between two re-allocations (section 5.1)

best_batch: Callable[[Goodput, int, int], Batch | None] = lru_cache(maxsize=100_000)(Goodput.best)


@dataclass(frozen=True)
class Pollux:
    """The scheduler: `power` is p, `restart_s` is d. Up to `exact_size` allocations all are tried, else bred."""

    power: float = -1.0
    restart_s: float = 30.0
    population: int = 40
    generations: int = 60
    exact_size: int = 20_000
    name: str = "pollux"

    def propose(self, state: ClusterState, *, candidates: int = CANDIDATES, seed: int = 0) -> Proposal:
        """Search the allocation of highest fitness and return it, and others that cost and give the same.

        Raises ValueError for a job without goodput parameters, or whose batch limits leave it nothing to run with.
        """
        layout = Layout(state.servers)
        problem = Problem(state, layout, self.power, self.restart_s)
        exact = size(len(state.jobs), layout.capacity) <= self.exact_size
        if exact:
            matrix = exhaustive(problem.now, layout.capacity, problem.fitness)
        else:
            random = np.random.default_rng(seed)
            matrix = genetic(
                problem.now,
                layout.capacity,
                problem.fitness,
                population=self.population,
                generations=self.generations,
                random=random,
            )
        placed = {
            job.name: used
            for job, row in zip(state.jobs, matrix, strict=True)
            if (used := _used(row, _size(job, int(row.sum())))).any()
        }
        value = float(problem.fitness(matrix[None])[0])
        return Proposal(
            scheduler=self.name,
            now_s=state.now_s,
            candidates=candidates_of(layout, state, placed, candidates, seed),
            merit_name="speedup",
            merit={
                job.name: float(one) for job, one in zip(state.jobs, problem.speedups(matrix[None])[0], strict=True)
            },
            batches={name: batch for name, row in placed.items() if (batch := problem.batch(name, row)) is not None},
            objective=value,
            bound=value if exact else None,
            exact=exact,
        )


class Problem:
    """The fitness of allocations of one state. `now` is the present one, shape (jobs, servers)."""

    def __init__(self, state: ClusterState, layout: Layout, power: float, restart_s: float) -> None:
        """Raise ValueError for p = 0, a job without goodput parameters, or one that can run with nothing."""
        if power == 0:
            raise ValueError("the exponent of the power mean is 0")
        self.power, self.layout = power, layout
        rows = [layout.counts(job.placement) for job in state.jobs]
        self.now: Matrices = np.array(rows, dtype=np.int64).reshape(-1, len(layout.servers))
        self.goodputs = {job.name: goodput_of(job) for job in state.jobs}
        self.table = np.stack([self._speedups_of(job, len(state.jobs)) for job in state.jobs]) if state.jobs else None
        ages = np.array([state.now_s - job.arrival_s for job in state.jobs])
        restarts = np.array([job.restarts for job in state.jobs])
        factor = np.clip((ages - restarts * restart_s) / np.maximum(ages + restart_s, 1e-9), 0, 1)
        self.restarted: NDArray[np.float64] = np.where(self.now.any(axis=1), factor, 1.0)

    def speedups(self, matrices: Matrices) -> NDArray[np.float64]:
        """Return the speedups after restarts, shape (..., jobs) for matrices of shape (..., jobs, servers)."""
        if self.table is None:
            return np.zeros(matrices.shape[:-1])
        spread = ((matrices > 0).sum(axis=-1) > 1).astype(np.int64)
        workers = np.minimum(matrices.sum(axis=-1), self.table.shape[1] - 1)
        raw: NDArray[np.float64] = self.table[np.arange(len(self.now)), workers, spread]
        moved = (matrices != self.now).any(axis=-1)
        return np.asarray(np.maximum(raw * np.where(moved, self.restarted, 1.0), UNSERVED_SPEEDUP))

    def fitness(self, matrices: Matrices) -> NDArray[np.float64]:
        """Return the power mean of the speedups, shape (...); of no jobs it is 0."""
        if self.table is None:
            return np.zeros(matrices.shape[:-2])
        return np.asarray((self.speedups(matrices) ** self.power).mean(axis=-1) ** (1 / self.power))

    def batch(self, job: str, counts: Counts) -> Batch | None:
        """Return the batch the job goes on with; None where no batch within its limits can be split so."""
        return best_batch(self.goodputs[job], int(counts.sum()), min(int(np.count_nonzero(counts)), 2))

    def _speedups_of(self, job: Job, jobs: int) -> NDArray[np.float64]:
        """Return the speedups of a job, shape (workers + 1, 2): on one server, and on several."""
        total, largest = int(self.layout.capacity.sum()), int(self.layout.capacity.max())
        found = np.zeros((total + 1, 2))
        for workers in range(1, total + 1):
            for spread in (0, 1):
                possible = workers <= largest if spread == 0 else workers > 1
                used = _size(job, workers)
                batch = best_batch(self.goodputs[job.name], used, 1 + spread) if possible and used else None
                found[workers, spread] = batch.goodput if batch else 0.0
        share = max(1, total // jobs)
        fair = max((found[workers, int(workers > largest)] for workers in range(1, share + 1)), default=0.0)
        fair = fair or float(found.max())
        if fair <= 0:
            raise ValueError(f"{job.name}: no number of workers here can share a batch within its limits")
        return found / fair


def _size(job: Job, workers: int) -> int:
    """Return how many of so many workers a job can run with: all, or the next number it was profiled with."""
    return max((size for size in job.sizes if size <= workers), default=0) if job.timings else workers


def _used(row: Counts, workers: int) -> Counts:
    """Return so many of the accelerators of a row: those of the servers that have most, so that few are used."""
    used = np.zeros_like(row)
    for server in np.argsort(-row, kind="stable"):
        used[server] = min(int(row[server]), workers - int(used.sum()))
    return used


def goodput_of(job: Job) -> Goodput:
    """Return the parameters of a job. Raises ValueError where it has none."""
    if job.goodput is None:
        raise ValueError(f"{job.name}: Pollux needs its goodput parameters")
    return job.goodput


def candidates_of(
    layout: Layout, state: ClusterState, placed: dict[str, Counts], count: int, seed: int
) -> tuple[Candidate, ...]:
    """Return allocations of equal merit: who stays stays, who is moved is moved elsewhere, just as close together."""
    now = {job.name: layout.counts(job.placement) for job in state.jobs if job.placement}
    moving = {name: row for name, row in placed.items() if name not in now or (row != now[name]).any()}
    staying = {name: row for name, row in placed.items() if name not in moving}
    fixed = np.array([*staying.values()], dtype=np.int64).reshape(-1, len(layout.servers))
    free = layout.capacity - sum(placed.values(), np.zeros_like(layout.capacity))

    def signature(name: str, row: Counts) -> tuple[int, bool, bool]:
        return int(row.sum()), bool((row > 0).sum() > 1), name in now and bool((row == now[name]).all())

    found = variants(
        layout,
        moving,
        free,
        signature,
        count=count,
        seed=seed,
        allowed=lambda rows: bool(legal(np.concatenate([fixed, rows]), layout.capacity)),
    )
    return tuple(
        Candidate({job: layout.placement(counts) for job, counts in sorted({**staying, **one}.items())})
        for one in found
    )
