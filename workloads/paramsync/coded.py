"""A chunk on the wire: fp32, or fewer bits per element, as the largest magnitude (fp32) and packed numbers of steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controllers.netstorm.quantise import levels, values
from workloads.paramsync.plan import FULL_BITS, SyncPlan
from workloads.paramsync.tensors import FP32_BYTES

Array = NDArray[np.float32]


def size_bytes(elements: int, bits: int) -> int:
    """How long a chunk is on the wire."""
    return FP32_BYTES * elements if bits >= FULL_BITS else FP32_BYTES + -(-elements * bits // 8)


def coded(plan: SyncPlan, node: int, round_: int, chunk: int, total: Array) -> memoryview:
    """What a node pushes of a chunk: itself, or with as few bits as the plan says."""
    bits = plan.bits_of(node)
    if bits >= FULL_BITS:
        return total.data.cast("B")
    largest, steps = levels(total, bits, _random(plan, node, round_, chunk))
    planes = ((steps[:, None] >> np.arange(bits, dtype=np.uint32)) & 1).astype(np.uint8)
    return memoryview(np.float32(largest).tobytes() + np.packbits(planes).tobytes())


def decoded(payload: bytearray | memoryview, elements: int, bits: int) -> Array:
    """What was pushed, in full precision again."""
    if bits >= FULL_BITS:
        return np.frombuffer(payload, dtype=np.float32)
    largest = float(np.frombuffer(payload, dtype=np.float32, count=1)[0])
    planes = np.unpackbits(np.frombuffer(payload, dtype=np.uint8, offset=FP32_BYTES), count=elements * bits)
    steps = planes.reshape(elements, bits).astype(np.uint32) @ (1 << np.arange(bits, dtype=np.uint32))
    return values(largest, steps.astype(np.uint32), bits)


def received(plan: SyncPlan, node: int, round_: int, chunk: int, own: Array) -> Array:
    """What the parent of a leaf has of its gradient: the same to the bit as what comes out at the other end."""
    return decoded(coded(plan, node, round_, chunk, own), len(own), plan.bits_of(node))


def _random(plan: SyncPlan, node: int, round_: int, chunk: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([plan.seed, node, round_, chunk, 1]))
