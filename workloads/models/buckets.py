"""Gradients in buckets, as PyTorch's DistributedDataParallel makes them, and how long a ring needs for them.

PyTorch does not all-reduce gradients one by one: it fills buckets in the order in which gradients appear, the last
layer's first, closes a bucket as soon as it holds at least its cap (1 MiB for the first, 25 MiB for the others), and
all-reduces it while the layers before are still computed. The rule is PyTorch's (torch/csrc/distributed/c10d/
reducer.cpp, compute_bucket_assignment_by_size); on ResNet-50 it gives exactly the five buckets of a recorded run. A
tensor is never split, so VGG16's largest layer makes a bucket of 392 MiB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from testbed.errors import InputError
from workloads.models.layers import FP32_BYTES, Layer, backward_macs
from workloads.training.plan import Bucket

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20

# Beside its payload a frame carries Ethernet 14; IPv4 20, TCP 20, timestamps 12 (MTU 9000: 8948 of 9014).
FRAME_BYTES, HEADER_BYTES = 14, 52
# The ring's traffic in the other direction: one acknowledgement for every frame (transport.quick_ack).
ACKNOWLEDGEMENT_BYTES = 66
# By how much a ring step lasts longer than its bytes at 50 Gbit/s: 4 µs of delay on host links, less what the
# burst of two packets saves at a token bucket. From single jobs on an empty network; it grows with the scale.
STEP_LATENCY_S = 1.0e-6


def ddp_buckets(layers: Sequence[Layer], backward_s: float) -> tuple[Bucket, ...]:
    """The gradients of `layers` as DDP's buckets, with their true sizes, each after the one before.

    A bucket is ready when the backward pass has left the layer of its last gradient. The pass lasts
    `backward_s`, divided among layers by their arithmetic: twice the forward pass (gradients of weights and
    of inputs), once for the first layer, whose inputs need none.
    """
    arithmetic = backward_macs(layers)
    total = sum(arithmetic)
    buckets: list[Bucket] = []
    size_bytes, done, cap_bytes = 0, 0, FIRST_BUCKET_BYTES
    for layer, work in zip(reversed(layers), reversed(arithmetic), strict=True):
        done += work
        for elements in reversed(layer.tensors):
            size_bytes += FP32_BYTES * elements
            if size_bytes >= cap_bytes:
                # Rounding must not put the last bucket behind the end of the pass.
                ready_s = min(backward_s * done / total, backward_s)
                buckets.append(Bucket(size_bytes, ready_s, _last(buckets)))
                size_bytes, cap_bytes = 0, BUCKET_BYTES
    if size_bytes:
        buckets.append(Bucket(size_bytes, backward_s, _last(buckets)))
    return tuple(buckets)


def _last(buckets: Sequence[Bucket]) -> tuple[int, ...]:
    return (len(buckets) - 1,) if buckets else ()


def resized(buckets: Sequence[Bucket], factor: float) -> tuple[Bucket, ...]:
    """`buckets` with `factor` times their bytes, each at least 1, rounded so that the sum is right to a byte."""
    sized, before, total = list[Bucket](), 0, 0
    for bucket in buckets:
        total += bucket.size_bytes
        after = round(total * factor)
        sized.append(replace(bucket, size_bytes=max(1, after - before)))
        before = after
    return tuple(sized)


def goodput_bps(rate_bps: float, mtu_bytes: int) -> float:
    """What a link of `rate_bps` carries of a worker's own bytes, beside headers and acknowledgements."""
    return rate_bps * (mtu_bytes - HEADER_BYTES) / (mtu_bytes + FRAME_BYTES + ACKNOWLEDGEMENT_BYTES)


def up_alone_s(
    buckets: Sequence[Bucket], backward_s: float, workers: int, goodput_bps: float, step_latency_s: float
) -> float:
    """How long Up lasts on an empty network: buckets one after another, none before it is ready.

    A bucket takes 2(n-1) steps, each as long as a chunk at `goodput_bps` and `step_latency_s` more.
    """
    end_s = 0.0
    for bucket in buckets:
        end_s = max(end_s, bucket.ready_s) + ring_s(bucket.size_bytes, workers, goodput_bps, step_latency_s)
    return max(end_s, backward_s)


def ring_s(size_bytes: int, workers: int, goodput_bps: float, step_latency_s: float) -> float:
    """How long `size_bytes` take to be all-reduced on an empty network."""
    return 2 * (workers - 1) * (size_bytes / workers * 8 / goodput_bps + step_latency_s)


def sized_for(
    buckets: Sequence[Bucket],
    backward_s: float,
    up_s: float,
    rate_bps: float,
    workers: int,
    *,
    mtu_bytes: int = 9000,
    step_latency_s: float = STEP_LATENCY_S,
) -> tuple[Bucket, ...]:
    """`buckets`, all resized by one factor, so that Up lasts `up_s` on an empty network of `rate_bps`.

    Each is rounded to whole bytes. Raises InputError if no factor does it: Up cannot be shorter than the
    compute of the backward pass, nor than the waiting of the steps.
    """
    goodput = goodput_bps(rate_bps, mtu_bytes)

    def lasts_s(factor: float) -> float:
        # Buckets that are larger by a factor last as long as the true ones on a network that is slower by it.
        slower_bps = goodput / factor if factor > 0 else math.inf
        return up_alone_s(buckets, backward_s, workers, slower_bps, step_latency_s)

    shortest_s = lasts_s(0.0)
    if up_s <= shortest_s:
        mend = f"with this backward pass and {workers} workers it lasts longer than {1e3 * shortest_s:.3f} ms"
        raise InputError("up_s", f"{1e3 * up_s:g} ms cannot be reached", mend)
    low, high = 0.0, 2 * up_s * goodput / 8 / sum(bucket.size_bytes for bucket in buckets)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if lasts_s(middle) < up_s else (low, middle)
    return tuple(replace(bucket, size_bytes=max(1, round(bucket.size_bytes * high))) for bucket in buckets)
