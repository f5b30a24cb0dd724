"""Sums that are not exact, held against direct ones: those of quantised gradients, and of a model that is trained.

The first node keeps its sums; all nodes must have the same, by digest. A direct sum in double precision is made here of
what the nodes must have pushed, at the parameters to which the sums before had led, and every element must be within
TOLERANCE of the sum of its parts' magnitudes: fp32 adds up n numbers with an error below n / 2^24 of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.errors import NotValid
from workloads.paramsync import coded, gradients
from workloads.paramsync.learner import Learner
from workloads.paramsync.plan import SyncPlan
from workloads.paramsync.records import RoundRecord

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Checked:
    """A round: the largest error of an element relative to its parts' magnitudes; loss and accuracy on what nobody
    learns from after it, None where nothing is trained."""

    round: int
    error: float
    loss: float | None = None
    accuracy: float | None = None


def path(plan: SyncPlan, round_: int) -> Path:
    """Where the first node keeps the sums of a round."""
    return Path(plan.held) / f"{round_}.npy"


def check(plan: SyncPlan, records: Sequence[RoundRecord]) -> list[Checked]:
    """Hold every round against a direct sum. Raises NotValid."""
    learner = Learner(plan.seed, plan.chunks) if plan.trained else None
    edges = np.cumsum(plan.chunks)[:-1]
    found = []
    for round_ in range(plan.rounds):
        sums = np.load(path(plan, round_))
        held = gradients.together(gradients.digest(one) for one in np.split(sums, edges))
        for record in records:
            if record.round == round_ and record.digest != held:
                raise NotValid(
                    f"round {round_}: {plan.sites[record.node]} holds sums {record.digest}, {plan.sites[0]} {held}"
                )
        direct, magnitude = np.zeros(len(sums)), np.zeros(len(sums))
        for node in range(len(plan.sites)):
            own = np.concatenate(_pushed(plan, learner, node, round_)).astype(np.float64)
            direct += own
            magnitude += np.abs(own)
        error = float((np.abs(sums - direct) / np.maximum(magnitude, np.finfo(np.float32).tiny)).max())
        if not error <= TOLERANCE:
            raise NotValid(f"round {round_}: sums are beside direct ones by {error:.2g} of their parts")
        if learner is not None:
            learner.step(sums, len(plan.sites) - len(plan.silent))
        found.append(Checked(round_, error, *(learner.tested() if learner is not None else ())))
    return found


def _pushed(plan: SyncPlan, learner: Learner | None, node: int, round_: int) -> list[gradients.Array]:
    if learner is None or node in plan.silent:
        own = [gradients.contribution(plan, node, round_, chunk) for chunk in range(len(plan.chunks))]
    else:
        own = learner.chunks(learner.gradient(node, round_))
    return [coded.received(plan, node, round_, chunk, one) for chunk, one in enumerate(own)]
