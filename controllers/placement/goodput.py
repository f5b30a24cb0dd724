"""Goodput: how much a job learns in a second, which is throughput times statistical efficiency (Pollux, section 3).

Throughput grows with the batch, for the same all-reduce then serves more samples. What a sample teaches shrinks with
it, the less the noisier the gradients are. In between lies the batch that makes most of the accelerators at hand, and
as training goes on and gradients get noisier, it grows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BATCHES = 50  # total batch sizes tried between the limits, at equal ratios


@dataclass(frozen=True)
class Batch:
    """Samples per worker in one pass, passes added up before each all-reduce, and what that gives in goodput."""

    local: int
    passes: int
    total: int
    goodput: float


@dataclass(frozen=True)
class Goodput:
    """The parameters of one job (Pollux, equations 4 and 8 to 11), fitted or given. Times in s, batches in samples.

    A pass over m samples computes for `alpha_grad_s` + `beta_grad_s` m. The all-reduce of k workers takes nothing for
    k = 1, `alpha_local_s` + `beta_local_s` (k - 2) on one server and `alpha_node_s` + `beta_node_s` (k - 2) on several.
    `gamma` says how far the two overlap: 1 not at all, towards infinity entirely. `noise_scale` is that of the
    gradient. The total batch may be adapted from `initial_batch`, what the user chose, to `max_batch`, with no more
    than `max_local_batch` per worker and pass.
    """

    alpha_grad_s: float
    beta_grad_s: float
    alpha_local_s: float
    beta_local_s: float
    alpha_node_s: float
    beta_node_s: float
    gamma: float
    noise_scale: float
    initial_batch: int
    max_batch: int
    max_local_batch: int

    def __post_init__(self) -> None:
        """Raise ValueError for parameters that describe no job."""
        times = (self.alpha_grad_s, self.beta_grad_s, self.alpha_local_s)
        more = (self.beta_local_s, self.alpha_node_s, self.beta_node_s, self.noise_scale)
        if min(*times, *more) < 0 or self.alpha_grad_s + self.beta_grad_s <= 0:
            raise ValueError("times and the noise scale are not negative, and computing takes a time")
        if self.gamma < 1:
            raise ValueError(f"gamma is {self.gamma}: at least 1")
        if not 1 <= self.initial_batch <= self.max_batch or self.max_local_batch < 1:
            raise ValueError("batches: 1 <= initial_batch <= max_batch, and 1 <= max_local_batch")

    def iteration_s(self, workers: int, servers: int, local: int, passes: int = 1) -> float:
        """Return the time of an iteration of `passes` passes over `local` samples at each worker."""
        return float(self._iterations_s(workers, servers, np.array([local]), np.array([passes]))[0])

    def throughput(self, workers: int, servers: int, local: int, passes: int = 1) -> float:
        """Return the samples per second."""
        return workers * local * passes / self.iteration_s(workers, servers, local, passes)

    def efficiency(self, batch: int) -> float:
        """Return what a sample in a total batch of that size teaches, relative to one in the initial batch: 0 to 1."""
        return float(self._efficiencies(np.array([batch]))[0])

    def best(self, workers: int, servers: int) -> Batch | None:
        """Return the batch of highest goodput for that many workers; None if none lies within the limits.

        Total batches at equal ratios are tried, rounded so that all workers have the same number of samples; of two
        with the same goodput the smaller is taken.
        """
        local, passes = self._splits(workers)
        total = workers * local * passes
        fits = (local >= 1) & (local <= self.max_local_batch)
        fits &= (total >= self.initial_batch) & (total <= self.max_batch)
        if not fits.any():
            return None
        local, passes, total = local[fits], passes[fits], total[fits]
        goodput = total / self._iterations_s(workers, servers, local, passes) * self._efficiencies(total)
        best = int(np.lexsort((passes, total, -goodput))[0])
        return Batch(int(local[best]), int(passes[best]), int(total[best]), float(goodput[best]))

    def _iterations_s(self, workers: int, servers: int, local: Ints, passes: Ints) -> Floats:
        compute_s = self.alpha_grad_s + self.beta_grad_s * local
        if workers == 1:
            reduce_s = 0.0
        elif servers == 1:
            reduce_s = self.alpha_local_s + self.beta_local_s * (workers - 2)
        else:
            reduce_s = self.alpha_node_s + self.beta_node_s * (workers - 2)
        longer = np.maximum(compute_s, reduce_s)  # taken out of the sum, or a large gamma runs out of numbers
        powers = (compute_s / longer) ** self.gamma + (reduce_s / longer) ** self.gamma
        return np.asarray((passes - 1) * compute_s + longer * powers ** (1 / self.gamma))

    def _efficiencies(self, batches: Ints) -> Floats:
        return np.asarray((self.noise_scale + self.initial_batch) / (self.noise_scale + batches))

    def _splits(self, workers: int) -> tuple[Ints, Ints]:
        """Return samples per worker and pass, and passes, of batches between the limits, each rounded down and up."""
        totals = np.geomspace(max(self.initial_batch, workers), max(self.max_batch, workers), BATCHES)
        passes = np.maximum(1, np.ceil(totals / workers / self.max_local_batch - 1e-9)).astype(np.int64)
        local = totals / workers / passes
        both = np.concatenate([np.floor(local + 1e-9), np.ceil(local - 1e-9)]).astype(np.int64)
        return both, np.tile(passes, 2)
