"""DLRM on several workers: tables spread over all, perceptrons on each (Naumov et al. 2019, section 4).

Each worker looks the vectors of all samples up in its share of the tables, and all exchange: after an all-to-all each
worker has all vectors of its own samples. Meanwhile it computes its lower perceptron. In the backward pass the upper
perceptron's gradients are all-reduced first, then the vectors' gradients go back in an all-to-all, then the lower
perceptron's are all-reduced while nothing is left to compute. Tables are cut by columns, so that any number of workers
up to that of all columns has equal shares.
"""

from __future__ import annotations

from dataclasses import dataclass

from workloads.strategies.steps import Steps, scaled
from workloads.training.operations import Op


@dataclass(frozen=True)
class Iteration:
    """What one worker does: forward compute in seconds, and unscaled bytes.

    `exchange_bytes` are the vectors of all its samples. Backward passes compute twice as long.
    """

    lower_s: float
    upper_s: float
    exchange_bytes: int
    lower_bytes: int
    upper_bytes: int


def program(iteration: Iteration, scale: float = 1.0) -> tuple[Op, ...]:
    """The program that all workers follow; their group is the first."""
    steps = Steps()
    exchange_bytes = scaled(iteration.exchange_bytes, scale)
    came = steps.collective("all-to-all", exchange_bytes, 0)
    steps.compute(iteration.lower_s)
    forward = steps.compute(iteration.upper_s, came)
    upper = steps.compute(2 * iteration.upper_s, forward)
    steps.collective("all-reduce", scaled(iteration.upper_bytes, scale), 0, upper)
    steps.collective("all-to-all", exchange_bytes, 0, upper)
    lower = steps.compute(2 * iteration.lower_s, upper)
    steps.collective("all-reduce", scaled(iteration.lower_bytes, scale), 0, lower)
    return tuple(steps.ops)
