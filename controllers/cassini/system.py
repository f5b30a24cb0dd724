"""Jobs and the links they share, as numbers: what one more job costs, for each of its rotations.

A system is one link, or several whose jobs are entangled. Demands are in units of each link's capacity, excess is a
mean over slots and, where there are several links, the mean over them. Rotations are in slots of the job's iteration.

The links of a system have slots of one length as a rule. Where they have not (see `common`), a rotation is taken to
the nearest slot of each link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from controllers.cassini.profile import Floats

Integers = NDArray[np.int64]
_CHUNK_CELLS = 2**16  # what the cache holds
_CALL_CELLS = 8192  # what one call of the kernel costs beside its cells


@dataclass(frozen=True)
class Load:
    """What jobs send over one link: `jobs` as indices into the system, `demands[i]` of shape (slots of job i,).

    `weight` is the number of equal links it stands for.
    """

    jobs: tuple[int, ...]
    demands: tuple[Floats, ...]
    weight: int = 1

    @property
    def key(self) -> tuple[object, ...]:
        """The content: equal for loads that are the same problem."""
        return self.jobs, self.weight, tuple(demand.tobytes() for demand in self.demands)


@dataclass(frozen=True)
class System:
    """Jobs with `lengths[j]` rotations each, and the links they load."""

    lengths: tuple[int, ...]
    loads: tuple[Load, ...]

    @classmethod
    def of_link(cls, demands: Sequence[Floats]) -> System:
        """Return the system of a single link that all jobs use."""
        return cls(tuple(map(len, demands)), (Load(tuple(range(len(demands))), tuple(demands)),))

    @cached_property
    def key(self) -> tuple[object, ...]:
        """The content: equal for systems that have the same solution."""
        return self.lengths, tuple(load.key for load in self.loads)

    @cached_property
    def common(self) -> bool:
        """Whether all links have slots of one length, so that turning all jobs alike changes nothing."""
        return all(len(demand) == self.lengths[job] for job, _, demand in self._entries)

    @cached_property
    def neighbours(self) -> tuple[frozenset[int], ...]:
        """For each job the jobs it shares a link with."""
        return tuple(
            frozenset(other for load in self.loads if job in load.jobs for other in load.jobs if other != job)
            for job in range(len(self.lengths))
        )

    @cached_property
    def volumes(self) -> tuple[float, ...]:
        """How much of the links each job takes in the mean."""
        found = [0.0] * len(self.lengths)
        for job, load, demand in self._entries:
            found[job] += load.weight * float(demand.mean()) / self._weight
        return tuple(found)

    def choices(self, placed: Mapping[int, int], job: int) -> int:
        """Return how many rotations of a job make a difference once others are placed: all others are turns of these.

        Turning everything by the common multiple of the placed jobs' iterations leaves those where they are.
        """
        if not self.common:
            return self.lengths[job]
        return math.gcd(math.lcm(*(self.lengths[other] for other in placed)), self.lengths[job])

    def excess(self, placed: Mapping[int, int]) -> float:
        """Return the mean excess of the jobs that are placed, the mean over links."""
        return self.mean([_excess(self._stack(load, placed, None)) for load in self.loads])

    def mean(self, values: Sequence[float]) -> float:
        """Return the mean over all links of one value for each load."""
        return sum(load.weight * value for load, value in zip(self.loads, values, strict=True)) / self._weight

    def costs(self, placed: Mapping[int, int], job: int) -> Floats:
        """Return what the job adds to the excess of those placed, for each of its rotations; itself is left out.

        Shape (lengths[job],).
        """
        total = np.zeros(self.lengths[job])
        for load, demand in self._of_job[job]:
            partial = self._stack(load, placed, job)
            total += self._spread(excess_by_rotation(partial, demand) - _excess(partial), load, demand, job)
        return total

    def edges(self, placed: Mapping[int, int], job: int) -> Floats:
        """Return how much the links' summed demand rises and falls, for each rotation of the job."""
        total = np.zeros(self.lengths[job])
        for load, demand in self._of_job[job]:
            partial = self._stack(load, placed, job)
            jumps = _by_rotation(_jumps(partial), _jumps(demand), np.abs)
            total += self._spread(jumps, load, demand, job)
        return total

    def cells(self, placed: Mapping[int, int], job: int) -> int:
        """Return the work of one call of `costs`, in additions or about as much time."""
        found = 0
        for load, demand in self._of_job[job]:
            others = (len(at) for other, at in zip(load.jobs, load.demands, strict=True) if other in placed)
            found += math.lcm(*others) * len(demand) + _CALL_CELLS
        return found

    def exhaust(self) -> Floats:
        """Return the mean excess of every rotation, one axis for each job but the first.

        Each axis has the rotations that matter (see `choices`): shape () for one job, (c2,) for two, (c2, c3) for
        three. The links' slots must be of one length.
        """
        *others, last = range(len(self.lengths))
        counts = [self.choices(dict.fromkeys(range(job), 0), job) for job in (*others, last)]
        table = np.zeros(counts)
        for load in self.loads:
            demands = dict(zip(load.jobs, load.demands, strict=True))
            partial = np.zeros([1] * len(counts))  # one axis for each job but the last, and the slots
            for job in (job for job in others if job in demands):
                slots = math.lcm(partial.shape[-1], self.lengths[job])
                turned = np.array([np.resize(rolled(demands[job], at), slots) for at in range(counts[job])])
                turned = turned.reshape([counts[job] if axis == job else 1 for axis in others] + [slots])
                partial = np.tile(partial, slots // partial.shape[-1]) + turned
            excess = excess_by_rotation(partial, demands.get(last, np.zeros(1)))
            table += np.tile(excess, counts[last] // excess.shape[-1]) * (load.weight / self._weight)
        return table[0] if others else table.reshape(())

    @cached_property
    def _entries(self) -> list[tuple[int, Load, Floats]]:
        return [(job, load, demand) for load in self.loads for job, demand in zip(load.jobs, load.demands, strict=True)]

    @cached_property
    def _of_job(self) -> tuple[tuple[tuple[Load, Floats], ...], ...]:
        found: list[list[tuple[Load, Floats]]] = [[] for _ in self.lengths]
        for job, load, demand in self._entries:
            found[job].append((load, demand))
        return tuple(map(tuple, found))

    @cached_property
    def _weight(self) -> int:
        return sum(load.weight for load in self.loads)

    def _stack(self, load: Load, placed: Mapping[int, int], without: int | None) -> Floats:
        there = [
            (demand, nearest(placed[job], self.lengths[job], len(demand)))
            for job, demand in zip(load.jobs, load.demands, strict=True)
            if job in placed and job != without
        ]
        return stacked([demand for demand, _ in there], [at for _, at in there]) if there else np.zeros(1)

    def _spread(self, costs: Floats, load: Load, demand: Floats, job: int) -> Floats:
        length = self.lengths[job]
        scaled = costs * (load.weight / self._weight)
        if len(demand) == length:
            return np.tile(scaled, length // len(costs))
        return scaled[nearest(np.arange(length), length, len(demand)) % len(costs)]


Rotations = TypeVar("Rotations", int, Integers)


def nearest(rotation: Rotations, length: int, slots: int) -> Rotations:
    """Return the slot out of `slots` that is nearest to a rotation out of `length`."""
    return (2 * rotation * slots + length) // (2 * length) % slots


def canonical(rotations: Sequence[Integers] | Sequence[int], lengths: Sequence[int]) -> list[Integers]:
    """Turn everything so that the first job has no rotation, the next the smallest it can have, and so on.

    Each rotation may be an array (all of one shape): one entry per case. The result describes the same circle.
    """
    turned = [
        np.asarray(rotation, dtype=np.int64) % length for rotation, length in zip(rotations, lengths, strict=True)
    ]
    step = 1  # turning by multiples of this leaves the jobs done so far where they are
    for index, length in enumerate(lengths):
        common = math.gcd(step, length)
        inverse = pow(step // common, -1, length // common) if length > common else 0
        times = (turned[index] % common - turned[index]) // common * inverse % (length // common)
        turned = [(rotation + step * times) % other for rotation, other in zip(turned, lengths, strict=True)]
        step = math.lcm(step, length)
    return turned


def rolled(demand: Floats, rotation: int) -> Floats:
    """Return a demand delayed by a rotation."""
    first = len(demand) - rotation % len(demand)
    return np.concatenate([demand[first:], demand[:first]])


def stacked(demands: Sequence[Floats], rotations: Sequence[int]) -> Floats:
    """Return the summed demand over the common multiple of the lengths."""
    slots = math.lcm(*map(len, demands))
    total = np.zeros(slots)
    for demand, rotation in zip(demands, rotations, strict=True):
        total.reshape(-1, len(demand))[:] += rolled(demand, rotation)
    return total


def excess_by_rotation(partial: Floats, demand: Floats) -> Floats:
    """Return the mean excess of partly filled links with one more job, for each rotation of that job that matters.

    partial: shape (..., m), demand: shape (n,); result: shape (..., gcd(m, n)), for rotations modulo that.
    """
    return _by_rotation(partial - 1, demand, _positive)


def _by_rotation(partial: Floats, demand: Floats, of: Callable[[Floats], Floats]) -> Floats:
    """Return the mean of `of(partial + delayed demand)` in place, for each delay that makes a difference."""
    length, cases = len(demand), partial.shape[:-1]
    count, slots = math.gcd(partial.shape[-1], length), math.lcm(partial.shape[-1], length)
    whole = partial if slots == partial.shape[-1] else np.tile(partial, slots // partial.shape[-1])
    base = whole.reshape(*cases, 1, slots // length, length)
    twice = np.concatenate([demand, demand])
    delayed = as_strided(twice[length:], (count, 1, length), (-twice.strides[0], 0, twice.strides[0]), writeable=False)
    result = np.empty((*cases, count))
    chunk = max(1, _CHUNK_CELLS // (slots * math.prod(cases)))
    for first in range(0, count, chunk):
        np.add.reduce(of(base + delayed[first : first + chunk]), axis=(-2, -1), out=result[..., first : first + chunk])
    return result / slots


def _positive(values: Floats) -> Floats:
    return np.maximum(values, 0.0, out=values)


def _excess(total: Floats) -> float:
    return float(np.maximum(0.0, total - 1).mean())


def _jumps(total: Floats) -> Floats:
    return np.diff(total, append=total[0])
