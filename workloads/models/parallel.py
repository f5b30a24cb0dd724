"""Jobs of model-parallel models: which strategy on how many workers, what it computes and sends, and what is assumed.

A strategy is written by its name, or with the numbers of its parts: `"pipeline(4)"` has four stages, `"tensor(4)"`
groups of four, `"hybrid(2, 2)"` two stages of groups of two. Workers beyond those are data-parallel replicas. `"data"`
is data parallelism alone, `"embeddings"` DLRM's. A name of one of the paper's runs (`catalogue.Case`) means its sizes
too: GPT-2's `"A"` and `"B"` are pipelines of another width.

*Bytes* follow from samples, tokens, width and parameters: activations of 2 bytes, gradients of 4, as in Megatron's
mixed precision. *Compute* follows from the rule of `compute` if a batch is given. Without a batch, a run whose
iteration time is published has that time: compute is multiplied by what it takes, and the note says by how much, since
the rule alone would give another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from testbed.errors import InputError
from workloads.models.catalogue import GPT_TOKENS, Assumed, Case, Model
from workloads.models.compute import check, seconds
from workloads.models.layers import FP32_BYTES, Layer, parameters
from workloads.models.recommendation import PRODUCTS, TABLES, VECTOR
from workloads.models.transformers import Decoder
from workloads.strategies import recommendation, transformers
from workloads.strategies.alone import Wire, fitted, iteration_s
from workloads.strategies.steps import shares
from workloads.strategies.transformers import Split, Stage
from workloads.training.operations import Op

MIXED_BYTES = 2
LOADING = 0.2
"""Data are loaded for so much of a microbatch's compute on the first stage, before it: an assumption."""
MICROBATCHES = 3
TWO = {"pipeline": Split(pipeline=2), "tensor": Split(tensor=2), "hybrid": Split(pipeline=2, tensor=2)}
_WRITTEN = re.compile(r"([a-zA-Z]+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")

Made = tuple[tuple[tuple[int, ...], ...], tuple[tuple[Op, ...], ...]]


@dataclass(frozen=True)
class Run:
    """A strategy settled: the split of the workers, the run of the paper it follows, samples per replica.

    `published_s` is the length the iteration must have, None where it follows from the rule.
    """

    strategy: str
    split: Split
    case: Case
    batch: int
    factor: float
    published_s: float | None = None

    @property
    def said(self) -> str:
        """What the manifest says of a batch and a time that the paper, or nobody, gave."""
        if self.published_s is None:
            return ""
        return (
            f"{self.batch} samples per replica are an assumption; compute is multiplied so that an iteration alone"
            f" lasts the published {1e3 * self.published_s:g} ms."
        )

    @property
    def microbatches(self) -> int:
        """Into how many the batch is cut."""
        return min(self.batch, self.case.microbatches or (MICROBATCHES if self.split.pipeline > 1 else 1))


def usual(model: Model, workers: int) -> str:
    """The strategy of a model on so many workers if none is asked for: that of the paper's run that fits."""
    if model.strategy == "data parallel":
        return "data"
    fitting = [case for case in model.cases if case.servers == workers] or [
        case for case in reversed(model.cases) if workers % (case.pipeline * case.tensor) == 0 and case.servers
    ]
    return (fitting or model.cases)[0].name


def settle(model: Model, strategy: str, workers: int, batch: int | None, factor: float) -> Run | None:
    """The run that a strategy as written means, None for a data-parallel model's own.

    Raises InputError for one that the model or the workers do not allow.
    """
    if model.strategy == "data parallel":
        if strategy != "data":
            raise InputError("strategy", f"{strategy!r}", f"{model.name} is trained data parallel")
        return None
    written = _WRITTEN.fullmatch(strategy.strip())
    name = written[1] if written else ""
    case = next((case for case in model.cases if case.name == name), None)
    possible = ["embeddings"] if model.decoder is None else ["data", *TWO]
    if written is None or (case is None and name not in possible):
        names = dict.fromkeys([*possible, *(case.name for case in model.cases)])
        mend = f"{model.name} can be trained by {', '.join(names)}"
        raise InputError("strategy", f"{strategy!r} is not known", f'{mend}; as in "pipeline(4)"')
    case = case or Case(name, "not in the paper")
    kind = name if name in ("data", "embeddings", *TWO) else "pipeline"
    split = _split(kind, [int(part) for part in written.groups()[1:] if part], workers)
    if model.decoder and split.pipeline > decoder_of(model, case).depth:
        mend = f"{model.name} has {decoder_of(model, case).depth} blocks"
        raise InputError("strategy", f"{split.pipeline} stages", mend)
    if batch is not None or case.batch is not None:
        samples = batch if batch is not None else case.batch or 0
        check(model, samples, factor)
        return Run(kind, split, case, samples, factor)
    if case.assumed is None:
        low, high = model.batches
        raise InputError("batch", f"{model.name} needs one for {name}", f"give {low} to {high} samples per replica")
    check(model, case.assumed.batch, factor)
    if split != Split(case.pipeline, case.tensor, case.data):
        return Run(kind, split, case, case.assumed.batch, factor)
    if factor != 1.0:
        mend = "give a batch too: without one the iteration is as long as published"
        raise InputError("compute_factor", f"{factor!r}, but without a batch", mend)
    return Run(kind, split, case, case.assumed.batch, factor, case.iteration_s)


def _split(kind: str, parts: list[int], workers: int) -> Split:
    if kind in ("data", "embeddings"):
        if parts:
            raise InputError("strategy", f"{kind} has no parts", f'write "{kind}"')
        return Split(data=workers)
    split = TWO[kind]
    if parts and len(parts) != (2 if kind == "hybrid" else 1):
        raise InputError("strategy", f"{kind} with {len(parts)} numbers", 'as in "pipeline(4)" or "hybrid(2, 2)"')
    if parts:
        split = Split(*parts) if kind == "hybrid" else replace(split, **{kind: parts[0]})
    inner = split.pipeline * split.tensor
    if min(split.pipeline, split.tensor) < 1 or inner < 2:
        raise InputError("strategy", f"{kind} of {inner}", "its parts are two workers or more")
    if workers % inner:
        mend = (
            f'give a multiple of {inner} workers, or other parts, as in "{kind}({", ".join(map(str, parts or [2]))})"'
        )
        raise InputError("strategy", f"{workers} workers do not divide into {split}", mend)
    return replace(split, data=workers // inner)


def made(model: Model, run: Run, scale: float, wire: Wire) -> tuple[Made, str]:
    """(groups and programs of the run, what the manifest says of it); `wire` is that of the network at `scale`.

    Raises InputError if the published iteration cannot be reached.
    """
    if run.strategy == "embeddings":
        return _recommendation(model, run, scale)
    decoder = decoder_of(model, run.case)
    iteration = _iteration(decoder, run)
    factor = 1.0
    if run.published_s is not None:

        def lasts_s(factor: float) -> float:
            return iteration_s(*transformers.programs(run.split, iteration, factor, scale), wire)

        factor = fitted(lasts_s, run.published_s, "strategy")
    programs = transformers.programs(run.split, iteration, factor, scale)
    return programs, " ".join(_note(model, run, decoder, iteration, factor, iteration_s(*programs, wire)))


def decoder_of(model: Model, case: Case) -> Decoder:
    """The GPT that a run of the paper is taken to have trained."""
    assert model.decoder is not None
    sizes = case.assumed or Assumed(0)
    hidden, depth = sizes.hidden or case.hidden or model.decoder.hidden, sizes.depth or model.decoder.depth
    return replace(model.decoder, hidden=hidden, depth=depth)


def _iteration(decoder: Decoder, run: Run) -> transformers.Iteration:
    layers = decoder.layers(GPT_TOKENS)
    blocks, tables, head = layers[1:-1], layers[0], layers[-1]
    split, stages, block = run.split, list[Stage](), 0
    for number, depth in enumerate(shares(decoder.depth, split.pipeline)):
        own = blocks[2 * block : 2 * (block + depth)]
        block += depth
        extra = [tables] if number == 0 else []
        extra += [head] if number == split.pipeline - 1 else []
        # The head's weights are the embeddings': the last stage has a copy of them.
        copied = tables.tensors[0] if 0 < number == split.pipeline - 1 else 0
        stages.append(
            Stage(
                tuple(_forward_s(layer, run) for layer in own),
                _forward_s(head, run) if head in extra else 0.0,
                FP32_BYTES * (parameters([*own, *extra]) + copied) // split.tensor,
            )
        )
    compute_s = 3 * (sum(stages[0].pieces_s) + stages[0].head_s)
    return transformers.Iteration(
        stages=tuple(stages),
        samples=tuple(shares(run.batch, run.microbatches)),
        load_s=LOADING * compute_s,
        activation_bytes=MIXED_BYTES * GPT_TOKENS * decoder.hidden,
        tied_bytes=FP32_BYTES * tables.tensors[0] // split.tensor if split.pipeline > 1 else 0,
    )


def _forward_s(layer: Layer, run: Run) -> float:
    return seconds(layer.macs / run.split.tensor, run.factor)


def _note(
    model: Model, run: Run, decoder: Decoder, iteration: transformers.Iteration, factor: float, alone_s: float
) -> Iterator[str]:
    count = parameters(decoder.layers(GPT_TOKENS))
    yield f"{model.name}, {run.strategy} parallel: {run.split}; {decoder.depth} blocks of width {decoder.hidden}"
    yield f"({count} parameters), {run.batch} samples of {GPT_TOKENS} tokens per replica"
    yield f"in {run.microbatches} microbatches." if run.microbatches > 1 else "at once."
    yield f"Unscaled, and following from these sizes: activations of {iteration.activation_bytes} B per sample;"
    if run.split.data > 1:
        sizes = ", ".join(str(stage.gradient_bytes) for stage in iteration.stages)
        yield f"gradients of {sizes} B per worker of each stage;"
    if iteration.tied_bytes:
        yield f"gradients of {iteration.tied_bytes} B of the embeddings that the first and the last stage share."
    yield "Batch, tokens, and sizes where the paper is silent, are assumptions."
    if run.published_s is None:
        yield f"Compute follows the rule times {run.factor:g}: {1e3 * alone_s:.1f} ms per iteration alone."
    else:
        yield f"Compute is {factor:.3f} times that of the rule, so that an iteration alone lasts the published"
        yield f"{1e3 * run.published_s:g} ms."


def _recommendation(model: Model, run: Run, scale: float) -> tuple[Made, str]:
    workers = run.split.data
    if workers > TABLES * VECTOR:
        mend = f"its {TABLES} tables have {TABLES * VECTOR} columns, at least one for each worker"
        raise InputError("workers", f"{workers} for {model.name}", mend)
    dense = [layer for layer in model.layers if not layer.name.startswith("table")]
    at = next(index for index, layer in enumerate(dense) if layer.name == PRODUCTS)
    lower, upper = dense[:at], dense[at:]
    lower_s, upper_s = (seconds(sum(layer.macs for layer in part) * run.batch, run.factor) for part in (lower, upper))
    iteration = recommendation.Iteration(
        lower_s=lower_s,
        upper_s=upper_s,
        exchange_bytes=run.batch * TABLES * VECTOR * FP32_BYTES,
        lower_bytes=FP32_BYTES * parameters(lower),
        upper_bytes=FP32_BYTES * parameters(upper),
    )
    note = (
        f"{model.name}, {workers} workers: tables spread by columns; {run.batch} samples per worker, vectors of"
        f" {iteration.exchange_bytes} B in all each way, perceptrons of {iteration.lower_bytes} and"
        f" {iteration.upper_bytes} B; compute follows the rule times {run.factor:g}, looking rows up takes none."
    )
    return ((tuple(range(workers)),), (recommendation.program(iteration, scale),)), note
