"""A job from a text workload: what every worker computes and exchanges, layer after layer.

The rules are those of ASTRA-sim's loops over layers (Workload.cc, iterate_...), in words:

- *Forward pass*: layer after layer computes, then runs its collective, and the next layer waits for it.
- *Backward pass*, from the last layer to the first: the gradient of inputs is computed and its collective begins; the
  gradient of weights is computed meanwhile, and its collective begins, which nobody waits for; the next layer waits for
  the gradient of inputs. In DATA, MICRO and DLRM, where no gradients of inputs are exchanged layer by layer, those of
  weights come first. The first layer needs no gradient of inputs, but transformers exchange it all the same.
- *DLRM*: the all-to-all of the first layer's vectors begins when that layer has computed; the layer that the first line
  names, the last of the lower perceptron, ends when the vectors are there. Their gradients go back once the layer above
  it has its gradient of inputs.
- *Recomputed layers* (`checkpoint_initiates`): before the gradient of such a layer, the forward pass is done again from
  the nearest layer of `checkpoints` before it.
- *Inference* has a forward pass alone.

Collectives of a worker run one after another in the order in which they begin, whereas ASTRA-sim lets a gradient of
inputs overtake. All end before the next iteration begins, whereas ASTRA-sim lets a layer's forward pass wait for its
own gradients alone. The delay of updates (the last column) is left out. With gradient accumulation AICB lists the
layers of all microbatches: all forward, then all backward, as SimAI does. Who communicates with whom says `groups`.

Refused, with the layer, are pipelines, since a file has the layers of one stage alone, and ALLREDUCEALLTOALL, which
names dimensions of a simulated network.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from workloads.strategies.steps import Steps, scaled
from workloads.traces import groups
from workloads.traces.layerwise import CUSTOMIZED, Communication, LayerWorkload, TraceLayer
from workloads.training.operations import Op
from workloads.training.plan import JobPlan

MOST_OPERATIONS = 100_000
BROADCAST = "BROADCAST"
COLLECTIVES = {
    "ALLREDUCE": "all-reduce",
    "ALLGATHER": "all-gather",
    "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all",
}
WEIGHTS_FIRST = ("DATA", "MICRO", *groups.RECOMMENDATION)


def plan_of(
    workload: LayerWorkload, path: Path, title: str, unit: str, clock_hz: float, scale: float, *, name: str,
    hosts: Sequence[str], gathers_parts: bool, **rest: Any,
) -> JobPlan:  # fmt: skip
    """The job `name` of `workload`, read from `path`; its times are divided by `clock_hz`, its bytes by `scale`.

    `title` and `unit` are for the note. The bytes of an all-gather are each worker's part if `gathers_parts`, else the
    whole. `rest` is what else JobPlan takes. Raises InputError, with the line of the layer, for what cannot be
    replayed, and for anything JobPlan refuses.
    """
    for key, value in (("scale", scale), ("clock_hz", clock_hz)):
        if not 0 < value < math.inf:
            raise InputError(f"job {name}, {key}", f"{value!r}", "give a number above 0")
    _check(workload, path, name, len(hosts))
    known: dict[groups.Ranks, int] = {}
    made = [_Worker(workload, rank, hosts, path, clock_hz, scale, gathers_parts, known) for rank in range(len(hosts))]
    programs = tuple(worker.program() for worker in made)
    if not known:
        raise InputError(str(path), f"nothing is exchanged among {len(hosts)} workers", "give a job with traffic")
    note = (
        f"{title} workload {path.name}: {made[0].told()} in all from {len(workload.layers)} layers;"
        f" {clock_hz:g} {unit} are a second. Bytes are divided by {scale:g}."
    )
    return JobPlan(
        name=name, hosts=tuple(hosts), fabric_ips=tuple(rest.pop("fabric_ips")), groups=tuple(known),
        programs=programs[:1] if len(set(programs)) == 1 else programs, note=note, **rest,
    )  # fmt: skip


def _check(workload: LayerWorkload, path: Path, name: str, workers: int) -> None:
    where, last = f"{path}, line 1", len(workload.layers) - 1
    if (stages := (workload.setting("pp") or (1,))[0]) > 1:
        what = f"pp is {stages}: of a pipeline's stages the file has the layers of one"
        raise InputError(where, what, "give a workload made without a pipeline (pp 1)")
    if workload.parallelism in groups.RECOMMENDATION and not (workload.setting("") or (0,))[0] < last:
        raise InputError(where, "the lower perceptron has all layers", f"name one of the layers 0 to {last - 1}")
    for layer in workload.layers:
        for phase in (layer.forward, layer.input_gradient, layer.weight_gradient):
            kind = phase.communication.kind
            if _moves(phase.communication) and kind != BROADCAST and kind not in COLLECTIVES:
                what = f"layer {layer.name}: {kind} names dimensions of a simulated network"
                raise InputError(f"{path}, line {layer.line}", what, "give collectives of one kind")
    points, operations = _list(workload, "checkpoints"), 6 * len(workload.layers)
    for again in _list(workload, "checkpoint_initiates"):
        before = [point for point in points if point <= again]
        if again > last or not before:
            what = f"checkpoint_initiates has layer {again}, which has no layer of checkpoints before it"
            raise InputError(where, what, f"name layers from 0 to {last}")
        operations += 2 * (again - max(before))
    if operations * workers > MOST_OPERATIONS:
        what = f"{len(workload.layers)} layers are up to {operations} operations on each of {workers} workers"
        raise InputError(f"job {name}", what, f"at most {MOST_OPERATIONS} in all: give fewer workers, or fewer layers")


def _list(workload: LayerWorkload, setting: str) -> tuple[int, ...]:
    """The layers that a setting lists behind their number."""
    return (workload.setting(setting) or (0,))[1:]


class _Worker:
    """One worker's program while it grows.

    `_after` is what the next operation waits for, `_units` what is to be computed before it. `known` has the number of
    every group that any worker communicates in.
    """

    def __init__(
        self, workload: LayerWorkload, rank: int, hosts: Sequence[str], path: Path, clock_hz: float, scale: float,
        gathers_parts: bool, known: dict[groups.Ranks, int],
    ) -> None:  # fmt: skip
        self._workload, self._layers, self._rank = workload, workload.layers, rank
        self._clock_hz, self._scale, self._gathers_parts = clock_hz, scale, gathers_parts
        self._known, self._groups = known, dict[str, groups.Groups]()
        for layer in workload.layers:
            if (kind := self._kind(layer)) not in self._groups:
                where = f"{path}, line {layer.line if layer.parallelism else 1}"
                self._groups[kind] = groups.groups_of(workload, kind, rank, hosts, where)
        self._steps, self._units, self._after = Steps(), 0, tuple[int, ...]()
        self._counted, self._bytes = Counter[str](), 0

    def program(self) -> tuple[Op, ...]:
        """All operations of an iteration."""
        self._forward(range(len(self._layers)))
        self._flush()
        if self._workload.parallelism != groups.INFERENCE:
            for index in reversed(range(len(self._layers))):
                self._backward(index)
        self._flush()
        return tuple(self._steps.ops)

    def told(self) -> str:
        """What it exchanges: how many of which collective, and their bytes before scaling."""
        counted = (f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in self._counted.items())
        return f"{', '.join(counted)} of {self._bytes} B"

    def _kind(self, layer: TraceLayer) -> str:
        return layer.parallelism if self._workload.parallelism == CUSTOMIZED else self._workload.parallelism

    def _forward(self, order: range) -> None:
        vectors = None
        for index in order:
            layer = self._layers[index]
            self._units += layer.forward.compute
            begun = self._communicate(layer.forward.communication, self._of(layer).model, self._of(layer))
            if self._workload.parallelism not in groups.RECOMMENDATION:
                self._await(begun)
            elif index == 0:
                vectors = begun
            if (index,) == self._workload.setting(""):
                self._await(vectors)

    def _backward(self, index: int) -> None:
        layer = self._layers[index]
        if index in _list(self._workload, "checkpoint_initiates"):
            points = _list(self._workload, "checkpoints")
            self._forward(range(max(point for point in points if point <= index), index))
        if self._kind(layer) in WEIGHTS_FIRST:
            self._weights(layer)
            self._units += layer.input_gradient.compute if index else 0
            if self._workload.parallelism in groups.RECOMMENDATION and (index - 1,) == self._workload.setting(""):
                first = self._layers[0]
                self._communicate(first.input_gradient.communication, self._of(first).model, self._of(first))
            return
        self._units += layer.input_gradient.compute
        exchanged = index > 0 or self._kind(layer) in groups.TRANSFORMERS
        inputs = layer.input_gradient.communication if exchanged else Communication("NONE", 0)
        begun = self._communicate(inputs, self._of(layer).model, self._of(layer))
        self._weights(layer)
        self._await(begun)

    def _weights(self, layer: TraceLayer) -> None:
        self._units += layer.weight_gradient.compute
        self._communicate(layer.weight_gradient.communication, self._of(layer).data, self._of(layer))

    def _of(self, layer: TraceLayer) -> groups.Groups:
        return self._groups[self._kind(layer)]

    def _flush(self) -> tuple[int, ...]:
        if self._units:
            self._after = (self._steps.compute(self._units / self._clock_hz, *self._after),)
            self._units = 0
        return self._after

    def _await(self, begun: int | None) -> None:
        """Let what comes wait for an operation, but not the compute that is there already."""
        if begun is not None:
            self._after = (begun, *(other for other in self._flush() if other > begun))

    def _communicate(self, what: Communication, usual: groups.Ranks, own: groups.Groups) -> int | None:
        """Begin a collective once everything before has been computed; None if nothing moves."""
        group = {"EP": own.experts, "DP_EP": own.replicas}.get(what.group, usual)
        if not _moves(what) or len(group) < 2:
            return None
        parts = len(group) if what.kind == "ALLGATHER" and self._gathers_parts else 1
        size_bytes, after = scaled(parts * what.size_bytes, self._scale), self._flush()
        self._counted[COLLECTIVES.get(what.kind, "broadcast")] += 1
        self._bytes += parts * what.size_bytes
        number = self._known.setdefault(group, len(self._known))
        if what.kind != BROADCAST:
            return self._steps.collective(COLLECTIVES[what.kind], size_bytes, number, *after)
        return self._pass_on(size_bytes, group, after)

    def _pass_on(self, size_bytes: int, group: groups.Ranks, after: tuple[int, ...]) -> int:
        """A broadcast: every member has the whole of the one before, the first of itself."""
        at = group.index(self._rank)
        begun = self._steps.receive(size_bytes, group[at - 1], *after) if at else None
        if at + 1 == len(group) and begun is not None:
            return begun
        return self._steps.send(size_bytes, group[at + 1], *((begun,) if begun is not None else after))


def _moves(communication: Communication) -> bool:
    return communication.kind != "NONE" and communication.size_bytes > 0
