"""Transformers in pipelines, tensor groups and replicas, as Megatron-LM trains them (Narayanan et al. 2021).

- *Pipeline*: stages of consecutive layers. The batch of a replica is cut into microbatches; a stage sends the
  activations of each on as soon as it has them, and the gradients of activations back: first all microbatches forward,
  then all backward, in the same order (GPipe's flush). The first stage loads each microbatch before it computes.
- *Tensor*: a group shares the matrices of every layer. Behind each attention and each perceptron its outputs are
  all-reduced in the forward pass, and the gradients of their inputs in the backward pass: each of them waits for the
  compute before it, and the compute after it waits for it.
- *Data*: replicas all-reduce the gradients of their parameters once the backward pass is over, in pieces.
- The first and the last stage both have the embeddings, which they share: they all-reduce their gradients.
- At last the members and stages of a replica add up the norm of the gradients, by which these are clipped: nobody
  updates its parameters, and begins the next iteration, before all have their gradients.

Ranks are numbered as Megatron's: tensor groups first, then replicas, then stages. Every member of a tensor group sends
the whole activations to its like in the next stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from workloads.strategies.steps import Steps, scaled
from workloads.training.operations import Op

PIECE_BYTES = 256 << 20
"""Gradients are all-reduced in pieces of at most so many bytes."""

NORM_BYTES = 4
"""A worker's share of the norm. It is the same at every scale: a packet is a packet."""

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Split:
    """Workers as stages of a pipeline, members of tensor groups, and replicas."""

    pipeline: int = 1
    tensor: int = 1
    data: int = 1

    @property
    def workers(self) -> int:
        """How many there are."""
        return self.pipeline * self.tensor * self.data

    def rank(self, stage: int, replica: int, lane: int) -> int:
        """The rank of a worker."""
        return (stage * self.data + replica) * self.tensor + lane

    def __str__(self) -> str:
        parts = (
            (self.pipeline, "pipeline stages"),
            (self.tensor, "tensor-parallel workers"),
            (self.data, "data-parallel replicas"),
        )
        return " x ".join(f"{count} {what}" for count, what in parts if count > 1)


@dataclass(frozen=True)
class Stage:
    """What one worker of a stage does and has.

    `pieces_s`: forward compute of each part that is followed by the tensor group's all-reduce, seconds per sample;
    `head_s`: forward compute behind the last one. `gradient_bytes`: gradients of this worker's parameters.
    """

    pieces_s: tuple[float, ...]
    head_s: float
    gradient_bytes: int


@dataclass(frozen=True)
class Iteration:
    """What all workers do. `samples` of each microbatch; per sample `load_s` and `activation_bytes`.

    `tied_bytes`: gradients that a worker of the first and of the last stage have in common. All bytes are unscaled.
    """

    stages: tuple[Stage, ...]
    samples: tuple[int, ...]
    load_s: float
    activation_bytes: int
    tied_bytes: int


def programs(
    split: Split, iteration: Iteration, factor: float = 1.0, scale: float = 1.0
) -> tuple[Groups, tuple[tuple[Op, ...], ...]]:
    """(groups, the program of every rank): compute times `factor`, bytes divided by `scale`."""
    groups = list[tuple[int, ...]]()
    places = product(range(split.pipeline), range(split.data), range(split.tensor))
    made = [_Worker(split, iteration, place, factor, scale, groups).program() for place in places]
    return tuple(groups), tuple(made)


class _Worker:
    def __init__(
        self, split: Split, iteration: Iteration, place: tuple[int, int, int], factor: float, scale: float,
        groups: list[tuple[int, ...]],
    ) -> None:  # fmt: skip
        self._split, self._iteration, self._factor, self._scale = split, iteration, factor, scale
        self._stage, self._replica, self._lane = place
        self._work = iteration.stages[self._stage]
        self._groups = groups
        self._steps = Steps()

    def program(self) -> tuple[Op, ...]:
        """All microbatches forward, all backward, then the gradients."""
        for samples in self._iteration.samples:
            self._forward(samples)
        for samples in self._iteration.samples:
            last = self._backward(samples)
        split, stage = self._split, self._stage
        replicas = [split.rank(stage, replica, self._lane) for replica in range(split.data)]
        self._reduce(self._work.gradient_bytes, replicas, last)
        if stage in (0, split.pipeline - 1):
            ends = [split.rank(each, self._replica, self._lane) for each in sorted({0, split.pipeline - 1})]
            self._reduce(self._iteration.tied_bytes, ends, last)
        model = [
            split.rank(other, self._replica, lane) for other in range(split.pipeline) for lane in range(split.tensor)
        ]
        if len(model) > 1:
            self._steps.collective("all-reduce", NORM_BYTES * len(model), self._group(tuple(model)), last)
        return tuple(self._steps.ops)

    def _forward(self, samples: int) -> None:
        if self._stage == 0:
            last = self._steps.compute(self._iteration.load_s * samples * self._factor)
        else:
            last = self._steps.receive(self._activation_bytes(samples), self._neighbour(-1))
        last = self._pieces(samples, 1, self._work.pieces_s, last)
        if self._stage < self._split.pipeline - 1:
            self._steps.send(self._activation_bytes(samples), self._neighbour(1), last)
        else:
            self._steps.compute(self._work.head_s * samples * self._factor, last)

    def _backward(self, samples: int) -> int:
        """Its last operation."""
        if self._stage == self._split.pipeline - 1:
            last = self._steps.compute(2 * self._work.head_s * samples * self._factor)
        else:
            last = self._steps.receive(self._activation_bytes(samples), self._neighbour(1))
        last = self._pieces(samples, 2, self._work.pieces_s[::-1], last)
        if self._stage:
            last = self._steps.send(self._activation_bytes(samples), self._neighbour(-1), last)
        return last

    def _pieces(self, samples: int, passes: int, pieces_s: Sequence[float], last: int) -> int:
        times = samples * passes * self._factor
        if self._split.tensor == 1:
            return self._steps.compute(times * sum(pieces_s), last)
        lanes = tuple(self._split.rank(self._stage, self._replica, lane) for lane in range(self._split.tensor))
        for piece_s in pieces_s:
            last = self._steps.compute(times * piece_s, last)
            last = self._steps.collective("all-reduce", self._activation_bytes(samples), self._group(lanes), last)
        return last

    def _reduce(self, size_bytes: int, ranks: Sequence[int], last: int) -> None:
        if len(ranks) < 2:
            return
        for piece in _cut(size_bytes):
            self._steps.collective("all-reduce", scaled(piece, self._scale), self._group(tuple(ranks)), last)

    def _activation_bytes(self, samples: int) -> int:
        return scaled(samples * self._iteration.activation_bytes, self._scale)

    def _neighbour(self, step: int) -> int:
        return self._split.rank(self._stage + step, self._replica, self._lane)

    def _group(self, ranks: tuple[int, ...]) -> int:
        if ranks not in self._groups:
            self._groups.append(ranks)
        return self._groups.index(ranks)


def _cut(size_bytes: int) -> Iterator[int]:
    """`size_bytes` as the fewest pieces of at most PIECE_BYTES, equal to a byte."""
    count = -(-size_bytes // PIECE_BYTES)
    for index in range(count):
        yield size_bytes * (index + 1) // count - size_bytes * index // count
