"""A data-parallel job from a text workload: the all-reduces of its gradients of weights.

The rules are those of ASTRA-sim's data-parallel loop (Workload.cc, iterate_data_parallel), in words:

- The *forward pass* computes layer after layer. The *backward pass* goes from the last layer to the first: gradient of
  weights, whose all-reduce starts at once and is not waited for, then gradient of inputs, but not for the first layer.
- Every all-reduce is a bucket; they run one after another in that order. Each ends before the next iteration begins,
  whereas ASTRA-sim lets a layer's forward pass wait for its own gradients alone.
- The delay of updates (the last column) is left out.

Whatever else moves data needs workers that are not all alike, and is refused with the layer: all-to-all, all-gather
and reduce-scatter, any collective within the forward pass or among gradients of inputs, groups of experts, pipelines.
So are recomputation and gradient accumulation, which change the order of computing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from workloads.traces.layerwise import Communication, LayerWorkload, TraceLayer
from workloads.training.plan import Bucket, JobPlan, data_parallel

MEND = "only data-parallel jobs, all-reduces of gradients of weights, can be replayed yet"
WITHOUT_GRADIENTS = ("MODEL", "DISTRIBUTED_INFERENCE")
# The largest value of a setting with which all workers are alike, and what more would be.
NEUTRAL = {
    "ep": (1, "groups of experts"),
    "pp": (1, "a pipeline"),
    "ga": (1, "gradient accumulation"),
    "checkpoints": (0, "recomputed layers"),
    "checkpoint_initiates": (0, "recomputed layers"),
}


def plan_of(
    workload: LayerWorkload, path: Path, title: str, unit: str, clock_hz: float, scale: float, *, name: str, **rest: Any
) -> JobPlan:
    """The job `name` of `workload`, read from `path`; its times are divided by `clock_hz`, its bytes by `scale`.

    `title` and `unit` are for the note, `rest` is what else `data_parallel` takes. Raises InputError, with the line
    of the layer, for what cannot be replayed, and for anything JobPlan refuses.
    """
    for key, value in (("scale", scale), ("clock_hz", clock_hz)):
        if not 0 < value < math.inf:
            raise InputError(f"job {name}, {key}", f"{value!r}", "give a number above 0")
    _check_settings(workload, path)
    for layer in workload.layers:
        _check_layer(layer, path)
    clock, total_bytes, buckets = 0, 0, list[Bucket]()
    for index, layer in reversed(list(enumerate(workload.layers))):
        clock += layer.weight_gradient.compute
        if _moves(layer.weight_gradient.communication):
            size_bytes = layer.weight_gradient.communication.size_bytes
            after = (len(buckets) - 1,) if buckets else ()
            buckets.append(Bucket(max(1, round(size_bytes / scale)), clock / clock_hz, after))
            total_bytes += size_bytes
        clock += layer.input_gradient.compute if index else 0
    if not buckets:
        raise InputError(str(path), "no layer all-reduces gradients of weights", MEND)
    note = (
        f"{title} workload {path.name}: {len(buckets)} all-reduces of {total_bytes} B in all from"
        f" {len(workload.layers)} layers; {clock_hz:g} {unit} are a second. Bytes are divided by {scale:g}."
    )
    forward_s = sum(layer.forward.compute for layer in workload.layers) / clock_hz
    return data_parallel(
        name=name, forward_s=forward_s, backward_s=clock / clock_hz, buckets=buckets, note=note, **rest
    )


def _check_settings(workload: LayerWorkload, path: Path) -> None:
    where = f"{path}, line 1"
    if workload.parallelism in WITHOUT_GRADIENTS:
        raise InputError(where, f"{workload.parallelism} exchanges no gradients of weights", MEND)
    for setting, numbers in workload.settings:
        most, what = NEUTRAL.get(setting, (numbers[0], ""))
        if numbers[0] > most:
            raise InputError(where, f"{setting} is {numbers[0]}: {what} cannot be replayed yet", MEND)


def _check_layer(layer: TraceLayer, path: Path) -> None:
    for what in _refused(layer):
        raise InputError(f"{path}, line {layer.line}", f"layer {layer.name}: {what} cannot be replayed yet", MEND)


def _refused(layer: TraceLayer) -> Iterator[str]:
    if layer.parallelism not in ("", "DATA"):
        yield f"its own parallelism {layer.parallelism}"
    if _moves(layer.forward.communication):
        yield f"{_said(layer.forward.communication)} in the forward pass (not data parallelism)"
    if _moves(layer.input_gradient.communication):
        yield f"{_said(layer.input_gradient.communication)} of gradients of inputs (not data parallelism)"
    gradients = layer.weight_gradient.communication
    if _moves(gradients) and (gradients.kind != "ALLREDUCE" or gradients.group):
        yield f"{_said(gradients)} of gradients of weights (not an all-reduce among all workers)"


def _moves(communication: Communication) -> bool:
    return communication.kind != "NONE" and communication.size_bytes > 0


def _said(communication: Communication) -> str:
    return f"{communication.word} of {communication.size_bytes} B"
