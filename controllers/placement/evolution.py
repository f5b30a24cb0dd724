"""How the best allocation matrix is found: by trying all of them, or by a genetic search (Pollux, section 4.2.1).

A matrix has a row for each job and a column for each server, and says how many accelerators it gets there. It is
legal if no server gives more than it has and serves no more than one job that is spread over several servers
(interference avoidance). The genetic search starts from what runs now, from equal shares, and from nothing, each
improved greedily; it mixes rows of two parents, changes elements at random, repairs what is not legal, and keeps the
best; at last single accelerators are moved as long as that helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from controllers.placement.layout import Counts

Matrices = NDArray[np.int64]  # shape (..., jobs, servers)
Fitness = Callable[[Matrices], NDArray[np.float64]]  # of each matrix, shape (...)
BETTER = 1e-9


def legal(matrices: Matrices, capacity: Counts) -> NDArray[np.bool_]:
    """Return which matrices are legal, shape (...)."""
    spread = ((matrices > 0).sum(axis=-1, keepdims=True) > 1) & (matrices > 0)
    within = (matrices.sum(axis=-2) <= capacity).all(axis=-1)
    return np.asarray(within & (spread.sum(axis=-2) <= 1).all(axis=-1))


def exhaustive(now: Matrices, capacity: Counts, fitness: Fitness) -> Matrices:
    """Return the best of all legal matrices; of equals the one that changes least. now: shape (jobs, servers)."""
    rows = [*_every(len(now), capacity)]
    every = np.array(rows, dtype=np.int64).reshape(len(rows), *now.shape)
    every = every[legal(every, capacity)]
    values, changes = fitness(every), np.abs(every - now).sum(axis=(-1, -2))
    return np.asarray(every[np.lexsort((changes, -np.round(values, 9)))[0]])


def _every(jobs: int, capacity: Counts) -> Iterator[list[Counts]]:
    """Yield all matrices within the capacity, row by row."""
    if jobs == 0:
        yield []
        return
    for flat in np.ndindex(*(capacity + 1)):
        row = np.array(flat, dtype=np.int64)
        for rest in _every(jobs - 1, capacity - row):
            yield [row, *rest]


def size(jobs: int, capacity: Counts) -> float:
    """Return how many matrices there are within the capacity of the servers, legal or not."""
    ways = 1.0
    for room in capacity.tolist():
        for step in range(1, room + 1):
            ways *= (jobs + step) / step
    return ways


def genetic(
    now: Matrices, capacity: Counts, fitness: Fitness, *, population: int, generations: int, random: Generator
) -> Matrices:
    """Return a good legal matrix, shape (jobs, servers). now: that of the jobs that run."""
    starts = [now, _fair(len(now), capacity), np.zeros_like(now)]
    starts = [one for one in starts if legal(one, capacity)]
    seeds = [*starts[:1], *(_climb(one, capacity, fitness) for one in starts)]
    people = np.stack([seeds[index % len(seeds)] for index in range(population)])
    people[len(seeds) :] = _repair(_mutate(people[len(seeds) :], capacity, random), capacity, random)
    values = fitness(people)
    for _ in range(generations):
        pairs = random.integers(population, size=(2, population, 2))  # two tournaments of two for each child
        parents = np.where(values[pairs[..., 0]] >= values[pairs[..., 1]], pairs[..., 0], pairs[..., 1])
        mixed = random.random((population, len(now), 1)) < 0.5
        children = np.where(mixed, people[parents[0]], people[parents[1]])
        children = _repair(_mutate(children, capacity, random), capacity, random)
        people, values = np.concatenate([people, children]), np.concatenate([values, fitness(children)])
        kept = np.argsort(-values, kind="stable")[:population]
        people, values = people[kept], values[kept]
    return _climb(people[0], capacity, fitness)


def _mutate(people: Matrices, capacity: Counts, random: Generator) -> Matrices:
    """Change each element with a probability of one in the number of servers to a random count."""
    drawn = random.integers(0, capacity + 1, size=people.shape)
    return np.where(random.random(people.shape) < 1 / len(capacity), drawn, people)


def _repair(people: Matrices, capacity: Counts, random: Generator) -> Matrices:
    """Take away at random what is too much: of jobs spread over servers all but one per server, then accelerators."""
    spread = ((people > 0).sum(axis=-1, keepdims=True) > 1) & (people > 0)
    draw = np.where(spread, random.random(people.shape), -1.0)
    people = np.where(spread & (draw < draw.max(axis=-2, keepdims=True)), 0, people)
    order = random.permuted(np.broadcast_to(np.arange(people.shape[1])[:, None], people.shape), axis=1)
    shuffled = np.take_along_axis(people, order, axis=1)
    before = np.cumsum(shuffled, axis=1) - shuffled
    shuffled = np.clip(capacity - before, 0, shuffled)
    repaired = np.empty_like(people)
    np.put_along_axis(repaired, order, shuffled, axis=1)
    return repaired


def _climb(matrix: Matrices, capacity: Counts, fitness: Fitness) -> Matrices:
    """Give a free accelerator to a job, else that of one job to another, whichever helps most, until nothing helps."""
    value = float(fitness(matrix[None])[0])
    while True:
        for steps in (_takes(matrix, capacity), _moves(matrix)):
            tried = steps[legal(steps, capacity)]
            values = fitness(tried)
            if len(values) and values.max() > value + BETTER:
                value, matrix = float(values.max()), tried[int(values.argmax())]
                break
        else:
            return matrix


def _takes(matrix: Matrices, capacity: Counts) -> Matrices:
    """Return every matrix with one free accelerator given away; of alike places only the first is tried."""
    used = matrix.sum(axis=0)
    places = [
        (server, (room, taken)) for server, (room, taken) in enumerate(zip(capacity - used, used, strict=True)) if room
    ]
    found = []
    for job, row in enumerate(matrix.tolist()):
        alike = {(server,) if row[server] else kind: server for server, kind in reversed(places)}
        found += [(job, server) for server in sorted(alike.values())]
    steps = np.repeat(matrix[None], len(found), axis=0)
    for index, (job, server) in enumerate(found):
        steps[index, job, server] += 1
    return steps


def _moves(matrix: Matrices) -> Matrices:
    """Return every matrix with one accelerator of one job given to another: that on its last server."""
    jobs = range(len(matrix))
    last = [(job, int(np.flatnonzero(matrix[job])[-1])) for job in jobs if matrix[job].any()]
    found = [(giver, taker, server) for giver, server in last for taker in jobs if giver != taker]
    steps = np.repeat(matrix[None], len(found), axis=0)
    for index, (giver, taker, server) in enumerate(found):
        steps[index, giver, server] -= 1
        steps[index, taker, server] += 1
    return steps


def _fair(jobs: int, capacity: Counts) -> Matrices:
    """Return a legal matrix of equal shares: on one server where one has room, else on servers of the job's own."""
    share, free = max(1, int(capacity.sum()) // max(1, jobs)), capacity.copy()
    matrix = np.zeros((jobs, len(capacity)), dtype=np.int64)
    for row in matrix:
        fits = np.flatnonzero(free >= share)
        if len(fits):
            row[fits[np.argmin(free[fits])]] = share
        elif share > capacity.max():
            own = np.flatnonzero(free == capacity)
            row[own] = np.clip(share - (np.cumsum(free[own]) - free[own]), 0, free[own])
        free = free - row
    return matrix
