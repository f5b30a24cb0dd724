"""Gradients with fewer bits per element where there is less bandwidth, and what that loses.

Bits are chosen so that nobody's push takes longer than that of the node with the median bandwidth at full precision,
as far as the fewest bits allow. Rounding is stochastic, so that its mean error is zero; its largest error is one step,
twice the chunk's largest magnitude over 2^bits - 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

FULL_BITS = 32
BITS = (FULL_BITS, 16, 8, 4, 2)


def bits_by_bandwidth(bandwidth_bps: Mapping[str, float]) -> dict[str, int]:
    """Return the bits per element of each node: the most with which it keeps up with the median node."""
    median_bps = float(np.median(list(bandwidth_bps.values())))
    return {
        node: next((bits for bits in BITS if bits * median_bps <= FULL_BITS * rate_bps), BITS[-1])
        for node, rate_bps in bandwidth_bps.items()
    }


def push_shares(bits: Mapping[str, int]) -> dict[str, float]:
    """Return the part of the bytes at full precision that each node sends."""
    return {node: one / FULL_BITS for node, one in bits.items()}


def levels(gradient: NDArray[np.float32], bits: int, random: Generator) -> tuple[float, NDArray[np.uint32]]:
    """Return the largest magnitude, and how many of 2^bits - 1 equal steps from minus to plus that each element lies
    above minus it. Raises ValueError unless there are 1 to 31 bits."""
    if not 1 <= bits < FULL_BITS:
        raise ValueError(f"a gradient is quantised to 1 to {FULL_BITS - 1} bits per element, not {bits}")
    largest = float(np.abs(gradient).max(initial=0.0))
    if largest == 0:
        return largest, np.zeros(gradient.shape, np.uint32)
    exact = (gradient.astype(np.float64) + largest) / (2 * largest / (2**bits - 1))
    low = np.floor(exact)
    return largest, np.clip(low + (random.random(gradient.shape) < exact - low), 0, 2**bits - 1).astype(np.uint32)


def values(largest: float, steps: NDArray[np.uint32], bits: int) -> NDArray[np.float32]:
    """Return what so many steps stand for."""
    step = 2 * largest / (2**bits - 1)
    return np.asarray(np.clip(steps * step - largest, -largest, largest), dtype=np.float32)
