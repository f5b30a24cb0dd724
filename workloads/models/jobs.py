"""The job of a model on given hosts. Model-parallel ones are `parallel`'s; a data-parallel one has one of two sizings.

`"published-up"` (VGG16 alone, and its default where no batch, communication or factor is given): Down is the published
141 ms, and all of DDP's buckets are resized by one factor until Up lasts the published 114 ms at line rate on an empty
network of 50 Gbit/s. Those 114 ms do not follow from the model's bytes; the plan's note says by how much the sizes
differ. It is the simplest job whose iteration is the paper's, and demands full line rate.

`"parameters"` (the default of all others): sizes are the model's own gradients, never inflated. Where a communication
time is published, or given, Up lasts that long and demand is below line rate (`pace`); else buckets leave at line
rate as soon as DDP has them. Compute follows the rule of `compute` for the batch given; for VGG16 without a batch
Down and Up are the published ones.

With a scale the network has 1/scale of 50 Gbit/s and scale times its delays; bytes are divided so that times remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from testbed.errors import InputError
from workloads.models import parallel
from workloads.models.buckets import STEP_LATENCY_S, ddp_buckets, goodput_bps, resized, sized_for, up_alone_s
from workloads.models.catalogue import MODELS, Iteration, Model, Volume
from workloads.models.compute import EFFECTIVE_FLOPS, compute_s
from workloads.models.pace import paced_for
from workloads.strategies.alone import Wire, fitted
from workloads.training.plan import Bucket, JobPlan, data_parallel

SIZING_RATE_BPS = 50e9
Sizing = Literal["published-up", "parameters"]


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
    sizing: Sizing | None = None,
    batch: int | None = None,
    communication_s: float | None = None,
    compute_factor: float = 1.0,
    volume: Volume = "published",
    strategy: str | None = None,
) -> JobPlan:
    """The job of `model` on `hosts` (rank order).

    `strategy` is how workers share the work (`parallel`; None: as the paper's), `sizing` is explained above. What
    follows belongs to `"parameters"`: `batch` samples per worker, or per replica of a model-parallel job;
    `communication_s` how long Up lasts on an empty network (None: as long as the bytes take), `compute_factor`
    multiplies the compute times of the rule, `volume` says whether gradients are the paper's or the architecture's.

    Raises InputError for an unknown model, a strategy it cannot have, arguments that do not fit together, a
    communication time that the bytes exceed at line rate, or anything JobPlan refuses.
    """
    known = MODELS.get(model)
    if known is None:
        raise InputError(f"job {name}, model", f"{model!r} is not known", f"known are {', '.join(sorted(MODELS))}")
    if not scale > 0:
        raise InputError(f"job {name}, scale", f"{scale!r}", "give a number above 0")
    make = partial(
        data_parallel, name, hosts, fabric_ips, dscp, iterations=iterations, congestion_control=congestion_control
    )
    # Refuses the places before anything is computed for them.
    workers = make(forward_s=0.0, backward_s=0.0, buckets=(Bucket(1, 0.0),)).workers
    network = goodput_bps(SIZING_RATE_BPS / scale, mtu_bytes), STEP_LATENCY_S * scale
    settled = (batch, communication_s) == (None, None) and compute_factor == 1
    sizing = sizing or ("published-up" if known.published and settled else "parameters")
    try:
        run = parallel.settle(known, strategy or parallel.usual(known, workers), workers, batch, compute_factor)
        if sizing == "published-up":
            if batch is not None or communication_s is not None or compute_factor != 1.0 or volume != "published":
                raise InputError("sizing", "published-up has one size and one time", 'give sizing = "parameters"')
            return _published_up(known, make, workers, scale, mtu_bytes)
        if sizing != "parameters":
            raise InputError("sizing", f"{sizing!r}", 'give "published-up" or "parameters"')
        if volume not in ("published", "architecture"):
            raise InputError("volume", f"{volume!r}", 'give "published" or "architecture"')
        if run is None:
            return _of_parameters(known, make, workers, scale, network, batch, communication_s, compute_factor, volume)
        if run.strategy == "data":
            factor = _fitted(known, run, workers, scale, network)
            plan = _of_parameters(known, make, workers, scale, network, run.batch, communication_s, factor, volume)
            return replace(plan, note=f"{plan.note} {run.said}")
        if communication_s is not None or volume != "published":
            key = "communication" if communication_s is not None else "volume"
            raise InputError(key, f"belongs to data parallelism, not to {run.strategy}", "leave it out")
        (groups, programs), note = parallel.made(known, run, scale, Wire(*network))
        return JobPlan(
            name, tuple(hosts), tuple(fabric_ips), dscp, iterations, congestion_control, groups, programs, note=note
        )
    except InputError as error:
        where = error.where if error.where.startswith(f"job {name}") else f"job {name}, {error.where}"
        raise InputError(where, error.what, error.mend) from None


def _fitted(model: Model, run: parallel.Run, workers: int, scale: float, network: tuple[float, float]) -> float:
    """The factor on compute with which a data-parallel run has its published iteration time, if there is one."""
    if run.published_s is None:
        return run.factor
    down_s, backward_s = compute_s(model, run.batch, run.factor)
    buckets = resized(ddp_buckets(model.sample_layers, backward_s), 1 / scale)

    def lasts_s(factor: float) -> float:
        ready = [replace(bucket, ready_s=bucket.ready_s * factor) for bucket in buckets]
        return factor * down_s + up_alone_s(ready, factor * backward_s, workers, *network)

    return run.factor * fitted(lasts_s, run.published_s, "strategy")


def _published_up(model: Model, make: partial[JobPlan], workers: int, scale: float, mtu_bytes: int) -> JobPlan:
    published = model.published
    if published is None:
        raise InputError("sizing", f"no iteration of {model.name} is published", 'give sizing = "parameters"')
    sized = sized_for(
        ddp_buckets(model.layers, published.backward_s),
        published.backward_s,
        published.up_s,
        SIZING_RATE_BPS / scale,
        workers,
        mtu_bytes=mtu_bytes,
        step_latency_s=STEP_LATENCY_S * scale,
    )
    plan = make(forward_s=published.down_s, backward_s=published.backward_s, buckets=sized)
    return replace(plan, note=" ".join(_published_note(model, published, plan, scale)))


def _published_note(model: Model, published: Iteration, plan: JobPlan, scale: float) -> Iterator[str]:
    n = plan.workers
    own = 2 * (n - 1) / n * model.gradient_bytes
    sent = plan.sent_bytes(0)
    ratio = sent * scale / own
    yield f"{model.name}, {n} workers: each sends {sent} B per iteration"
    yield f"({sent * scale:.0f} B unscaled),"
    yield f"sized so that Up alone lasts {1e3 * published.up_s:g} ms at 50 Gbit/s;"
    yield f"the model's own gradients are {model.gradient_bytes} B ({model.gradient_bytes / 2**20:.0f} MiB),"
    yield f"of which a ring would send 2(n-1)/n = {own:.0f} B:"
    yield f"this is {ratio:.3f} times as much."
    yield f"Compute of the backward pass: {1e3 * published.backward_s:g} ms, an assumption."


def _of_parameters(
    model: Model,
    make: partial[JobPlan],
    workers: int,
    scale: float,
    network: tuple[float, float],
    batch: int | None,
    communication_s: float | None,
    factor: float,
    volume: Volume,
) -> JobPlan:
    down_s, backward_s, published_up_s = _times(model, batch, factor)
    up_s = published_up_s if communication_s is None else communication_s
    total_bytes = model.gradient_bytes if volume == "published" else model.architecture_bytes
    layers = model.layers if batch is None else model.sample_layers
    buckets = resized(ddp_buckets(layers, backward_s), total_bytes / model.architecture_bytes / scale)
    if up_s is not None:
        before_s, buckets = paced_for(buckets, up_s, workers, *network, scale)
        # A published Down already holds the compute before the first byte.
        down_s += before_s if batch is not None else 0.0
        backward_s = buckets[-1].ready_s
    plan = make(forward_s=down_s, backward_s=backward_s, buckets=buckets)
    alone_s = up_alone_s(buckets, backward_s, workers, *network)
    return replace(plan, note=" ".join(_note(model, plan, scale, batch, factor, total_bytes, alone_s, up_s, down_s)))


def _times(model: Model, batch: int | None, factor: float) -> tuple[float, float, float | None]:
    """(compute before the backward pass or the published Down, compute of the backward pass, published Up)."""
    if batch is not None:
        return *compute_s(model, batch, factor), None
    low, high = model.batches
    if model.published is None:
        raise InputError("batch", f"{model.name} needs one", f"give {low} to {high} samples per worker")
    if factor != 1.0:
        mend = f"give a batch of {low} to {high} samples"
        raise InputError("compute_factor", f"{factor!r}, but without a batch times are the published ones", mend)
    published = model.published
    return published.down_s, published.backward_s, published.up_s


def _note(
    model: Model,
    plan: JobPlan,
    scale: float,
    batch: int | None,
    factor: float,
    total_bytes: int,
    alone_s: float,
    up_s: float | None,
    down_s: float,
) -> Iterator[str]:
    n, sent = plan.workers, plan.sent_bytes(0)
    yield f"{model.name}, {n} workers: each sends {sent} B per iteration ({sent * scale:.0f} B unscaled),"
    yield f"2(n-1)/n of its {total_bytes} B of gradients ({total_bytes / model.architecture_bytes:.3f} times the"
    yield f"architecture's {model.parameters} parameters in fp32)."
    demand_bps = sent * 8 * scale / alone_s
    paced = "paced evenly to last" if up_s is not None else "at line rate as soon as DDP has them, which lasts"
    yield f"They leave {paced} {1e3 * alone_s:.3f} ms alone, {demand_bps / 1e9:.1f} Gbit/s on average unscaled."
    if batch is None:
        yield f"Down is the published {1e3 * down_s:g} ms."
    else:
        yield f"Down, {1e3 * down_s:.3f} ms, follows from {batch} samples at {EFFECTIVE_FLOPS / 1e12:g} TFLOP/s"
        yield f"times {factor:g}, an assumption."
