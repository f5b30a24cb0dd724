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


def quantised(gradient: NDArray[np.float32], bits: int, random: Generator) -> NDArray[np.float32]:
    """Return the gradient as the server has it: 2^bits - 1 equal steps from minus to plus the largest magnitude.

    Raises ValueError for less than one bit. With 32 bits nothing is lost.
    """
    largest, steps = levels(gradient, bits, random)
    return gradient if bits >= FULL_BITS or largest == 0 else values(largest, steps, bits)


def levels(gradient: NDArray[np.float32], bits: int, random: Generator) -> tuple[float, NDArray[np.uint32]]:
    """Return the largest magnitude, and how many steps each element lies above minus that. Raises ValueError."""
    if bits < 1:
        raise ValueError(f"a gradient needs a bit per element, not {bits}")
    largest = float(np.abs(gradient).max(initial=0.0))
    if bits >= FULL_BITS or largest == 0:
        return largest, np.zeros(gradient.shape, np.uint32)
    exact = (gradient.astype(np.float64) + largest) / (2 * largest / (2**bits - 1))
    low = np.floor(exact)
    return largest, np.clip(low + (random.random(gradient.shape) < exact - low), 0, 2**bits - 1).astype(np.uint32)


def values(largest: float, steps: NDArray[np.uint32], bits: int) -> NDArray[np.float32]:
    """Return what so many steps stand for."""
    step = 2 * largest / (2**bits - 1)
    return np.asarray(np.clip(steps * step - largest, -largest, largest), dtype=np.float32)
