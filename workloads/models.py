"""From the description of a network to the job it makes: gradients in buckets, and when each is ready.

PyTorch's DistributedDataParallel does not all-reduce gradients one by one: it fills buckets in the order in
which gradients appear, the last layer's first, closes a bucket as soon as it holds at least its cap (1 MiB
for the first, 25 MiB for the others), and all-reduces it while the layers before are still computed. The
rule is PyTorch's (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size); on ResNet-50
it gives exactly the five buckets of a recorded run. A tensor is never split, so VGG16's largest layer makes
a bucket of 392 MiB.

The paper of CASSINI (NSDI 2024, arXiv 2308.00852) gives VGG16 255 ms per iteration, 141 ms of them without
traffic (Down) and 114 ms with (Up), but not how long the backward pass computes: 100 ms is assumed here. Nor
do 114 ms at 50 Gbit/s follow from the model's bytes; so `sized_for` scales all buckets by one factor until
they last that long on an otherwise empty network, and the plan's note says by how much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from testbed.errors import InputError
from workloads.training.plan import Bucket, JobPlan

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
FP32_BYTES = 4

SIZING_RATE_BPS = 50e9
# Beside its payload a frame carries Ethernet 14; IPv4 20, TCP 20, timestamps 12 (MTU 9000: 8948 of 9014).
FRAME_BYTES, HEADER_BYTES = 14, 52
# The ring's traffic in the other direction: one acknowledgement of 66 bytes for every two frames.
ACKNOWLEDGEMENT_BYTES = 33
# By how much a ring step lasts longer than its bytes at 50 Gbit/s: 4 µs of delay on host links, less what the
# burst of two packets saves at a token bucket. From single jobs on an empty network; it grows with the scale.
STEP_LATENCY_S = 1.0e-6


@dataclass(frozen=True)
class Layer:
    """A layer with parameters. `tensors`: elements of each, in order of registration (weight, bias).

    `macs`: multiply-accumulates of its forward pass for one sample.
    """

    name: str
    tensors: tuple[int, ...]
    macs: int


@dataclass(frozen=True)
class Model:
    """A network, and how long Down, the compute of the backward pass, and Up on an empty network last."""

    name: str
    layers: tuple[Layer, ...]
    forward_s: float
    backward_s: float
    up_s: float

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients in fp32."""
        return FP32_BYTES * sum(sum(layer.tensors) for layer in self.layers)


def _convolution(name: str, inputs: int, outputs: int, side: int) -> Layer:
    weights = inputs * outputs * 3 * 3
    return Layer(name, (weights, outputs), weights * side * side)


def _linear(name: str, inputs: int, outputs: int) -> Layer:
    return Layer(name, (inputs * outputs, outputs), inputs * outputs)


VGG16 = Model(
    "vgg16",
    (
        _convolution("conv1_1", 3, 64, 224),
        _convolution("conv1_2", 64, 64, 224),
        _convolution("conv2_1", 64, 128, 112),
        _convolution("conv2_2", 128, 128, 112),
        _convolution("conv3_1", 128, 256, 56),
        _convolution("conv3_2", 256, 256, 56),
        _convolution("conv3_3", 256, 256, 56),
        _convolution("conv4_1", 256, 512, 28),
        _convolution("conv4_2", 512, 512, 28),
        _convolution("conv4_3", 512, 512, 28),
        _convolution("conv5_1", 512, 512, 14),
        _convolution("conv5_2", 512, 512, 14),
        _convolution("conv5_3", 512, 512, 14),
        _linear("fc6", 512 * 7 * 7, 4096),
        _linear("fc7", 4096, 4096),
        _linear("fc8", 4096, 1000),
    ),
    forward_s=0.141,
    backward_s=0.100,
    up_s=0.114,
)
MODELS = {model.name: model for model in (VGG16,)}


def ddp_buckets(model: Model, backward_s: float) -> tuple[Bucket, ...]:
    """The model's gradients as DDP's buckets, with their true sizes, each after the one before.

    A bucket is ready when the backward pass has left the layer of its last gradient. The pass lasts
    `backward_s`, divided among layers by their arithmetic: twice the forward pass (gradients of weights and
    of inputs), once for the first layer, whose inputs need none.
    """
    arithmetic = [layer.macs * (1 if index == 0 else 2) for index, layer in enumerate(model.layers)]
    total = sum(arithmetic)
    buckets: list[Bucket] = []
    size_bytes, done, cap_bytes = 0, 0, FIRST_BUCKET_BYTES
    for layer, work in zip(reversed(model.layers), reversed(arithmetic), strict=True):
        done += work
        for elements in reversed(layer.tensors):
            size_bytes += FP32_BYTES * elements
            if size_bytes >= cap_bytes:
                buckets.append(Bucket(size_bytes, backward_s * done / total, _last(buckets)))
                size_bytes, cap_bytes = 0, BUCKET_BYTES
    if size_bytes:
        buckets.append(Bucket(size_bytes, backward_s, _last(buckets)))
    return tuple(buckets)


def _last(buckets: Sequence[Bucket]) -> tuple[int, ...]:
    return (len(buckets) - 1,) if buckets else ()


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
        step_s = bucket.size_bytes / workers * 8 / goodput_bps + step_latency_s
        end_s = max(end_s, bucket.ready_s) + 2 * (workers - 1) * step_s
    return max(end_s, backward_s)


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


def job_plan(
    model: str,
    *,
    name: str,
    hosts: Sequence[str],
    fabric_ips: Sequence[str],
    dscp: int,
    iterations: int,
    congestion_control: str = "dctcp",
    scale: float = 1.0,
    mtu_bytes: int = 9000,
) -> JobPlan:
    """The job of `model` on `hosts` (rank order), sized so that Up alone lasts as long as the model says.

    With `scale` the network has 1/scale of 50 Gbit/s and scale times its delays; bytes are divided so that
    times remain. Raises InputError for an unknown model, or for anything JobPlan refuses.
    """
    known = MODELS.get(model)
    if known is None:
        raise InputError(f"job {name}, model", f"{model!r} is not known", f"known are {', '.join(sorted(MODELS))}")
    if not scale > 0:
        raise InputError(f"job {name}, scale", f"{scale!r}", "give a number above 0")
    true = ddp_buckets(known, known.backward_s)
    plan = JobPlan(
        name,
        tuple(hosts),
        tuple(fabric_ips),
        dscp,
        known.forward_s,
        known.backward_s,
        true,
        iterations,
        congestion_control,
    )
    latency_s = STEP_LATENCY_S * scale
    sized = sized_for(
        true,
        known.backward_s,
        known.up_s,
        SIZING_RATE_BPS / scale,
        plan.workers,
        mtu_bytes=mtu_bytes,
        step_latency_s=latency_s,
    )
    plan = replace(plan, buckets=sized)
    return replace(plan, note=" ".join(_note(known, plan, scale)))


def _note(model: Model, plan: JobPlan, scale: float) -> Iterator[str]:
    n = plan.workers
    own = 2 * (n - 1) / n * model.gradient_bytes
    sent = plan.sent_bytes(0)
    ratio = sent * scale / own
    yield f"{model.name}, {n} workers: each sends {sent} B per iteration"
    yield f"({sent * scale:.0f} B unscaled),"
    yield f"sized so that Up alone lasts {1e3 * model.up_s:g} ms at 50 Gbit/s;"
    yield f"the model's own gradients are {model.gradient_bytes} B ({model.gradient_bytes / 2**20:.0f} MiB),"
    yield f"of which a ring would send 2(n-1)/n = {own:.0f} B:"
    yield f"this is {ratio:.3f} times as much."
    yield f"Compute of the backward pass: {1e3 * model.backward_s:g} ms, an assumption."
