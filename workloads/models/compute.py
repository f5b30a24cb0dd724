"""How long a worker computes: one rule for all models, and it is an assumption.

CASSINI publishes one iteration time of a data-parallel model (VGG16: 255 ms, 141 of them without traffic) and no
batch with it. Everywhere else this rule holds:

    time = factor × 2 × multiply-accumulates per sample × batch ÷ (UTILISATION × PEAK_FLOPS)

with the backward pass at twice the forward pass (less the gradient of the first layer's inputs). Assumed are:

- *The accelerator*: an A100 computes with TF32, PyTorch's default for fp32 convolutions; 156 TFLOP/s is NVIDIA's
  figure for it (A100 data sheet, dense).
- *The sample*: images of 64 × 64 pixels, sequences of 512 tokens, of 256 for GPTs. The images must be small [derived]:
  VGG16 at 224 × 224 takes 93 GFLOP per image, so that even the smallest batch of the paper, 512, would need 0.30 s at
  the accelerator's peak, more than the published iteration. So must the sequences of GPTs: a tensor-parallel GPT-3 of
  1.3 billion parameters with 16 samples of 2048 tokens would all-reduce 13 GB, 2 s at 50 Gbit/s; published are 0.5 s.
- *The utilisation*, a quarter. It is fitted to the one published figure: then VGG16 in the middle of its range of
  batches, 1156, computes 245 ms; the published 141 ms and the 100 ms assumed for its backward pass are 241 ms.

A figure that rests on this must be reported over ±20 % of it: `factor` 0.8, 1 and 1.2.
"""

from __future__ import annotations

import math

from testbed.errors import InputError
from workloads.models.catalogue import Model
from workloads.models.layers import backward_macs, forward_macs

PEAK_FLOPS = 156e12
UTILISATION = 0.25
EFFECTIVE_FLOPS = UTILISATION * PEAK_FLOPS
FACTORS = (0.8, 1.0, 1.2)
"""What scores and gains are to be reported over."""


def compute_s(model: Model, batch: int, factor: float = 1.0) -> tuple[float, float]:
    """Seconds that the forward and the backward pass of `batch` samples take if one worker computes all layers.

    Raises InputError for a batch outside the range that the paper gives, or a factor that is not above 0.
    """
    check(model, batch, factor)
    return seconds(forward_macs(model.sample_layers) * batch, factor), seconds(
        sum(backward_macs(model.sample_layers)) * batch, factor
    )


def seconds(macs: float, factor: float = 1.0) -> float:
    """How long so many multiply-accumulates take one worker by the rule."""
    return factor * 2 * macs / EFFECTIVE_FLOPS


def check(model: Model, batch: int, factor: float) -> None:
    """Raises InputError for a batch that no run of the paper has, or a factor that is not above 0."""
    low, high = model.batches
    low = min([low, *(case.batch for case in model.cases if case.batch)])
    if isinstance(batch, bool) or not isinstance(batch, int) or not low <= batch <= high:
        mend = f"the paper trains {model.name} with {low} to {high} samples per worker"
        raise InputError(f"model {model.name}, batch", f"{batch!r}", mend)
    if not 0 < factor < math.inf:
        raise InputError(f"model {model.name}, compute_factor", f"{factor!r}", "give a number above 0, such as 1")
