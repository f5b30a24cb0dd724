"""Gradients that are made and added up for real: small whole numbers in fp32, whose sums are exact in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from workloads.paramsync.plan import SyncPlan

Array = NDArray[np.float32]
LARGEST = 8
"""Gradients go from -8 to 8: the sums of two million nodes are still exact in fp32."""


def gradient(seed: int, node: int, round_: int, chunk: int, elements: int) -> Array:
    """What the worker of a node pushes of a chunk in a round."""
    generator = np.random.Generator(np.random.PCG64([seed, node, round_, chunk]))
    return generator.integers(-LARGEST, LARGEST + 1, elements, dtype=np.int8).astype(np.float32)


def contribution(plan: SyncPlan, node: int, round_: int, chunk: int) -> Array:
    """What a node has to add in a round, in full precision, where no model is trained."""
    if node in plan.silent:
        return np.zeros(plan.chunks[chunk], dtype=np.float32)
    return gradient(plan.seed, node, round_, chunk, plan.chunks[chunk])


def digest(values: Array) -> bytes:
    """The digest of a chunk's bytes."""
    return hashlib.blake2b(values.tobytes(), digest_size=16).digest()


def together(digests: Iterable[bytes]) -> str:
    """The digest of all chunks, from theirs in order."""
    return hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()


def direct(plan: SyncPlan, round_: int) -> str:
    """The digest of a round's sums, added up here and sent nowhere: what every node has to come to."""
    digests = []
    for chunk, elements in enumerate(plan.chunks):
        total = np.zeros(elements, dtype=np.float32)
        for node in range(len(plan.sites)):
            total += contribution(plan, node, round_, chunk)
        digests.append(digest(total))
    return together(digests)
