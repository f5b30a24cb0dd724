"""A worker's operations as steps of the fluid engine.

What is sent in one go becomes one step: a bucket that is ready before the one in front of it can have left, even on an
empty network, always follows it at once, however busy links are. So both are one flow of all their bytes. Nothing is
lost by it: a fluid has no pieces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.fluid.flows import Key, connection_bytes, key_of, steps_of
from workloads.training.operations import COMPUTE
from workloads.training.plan import JobPlan
from workloads.training.schedule import RECEIVE, SEND

CALCULATE, COLLECTIVE, HAND, AWAIT = range(4)


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `amount` is seconds of compute, or payload bytes on each connection of the flow `key`; `wait_s` what
    the steps of a collective take beside their bytes. `after` are indices of earlier steps that must have ended."""

    kind: int
    amount: float
    after: tuple[int, ...] = ()
    key: Key = ("", 0, 0)
    wait_s: float = 0.0


def steps(plan: JobPlan, rank: int, waits_s: Mapping[Key, float]) -> tuple[Step, ...]:
    """Return the steps of a rank, one for each operation; waits_s: what one step of a flow's collective waits."""
    found = []
    for op in plan.program(rank):
        if op.kind == COMPUTE:
            found.append(Step(CALCULATE, op.duration_s, op.after))
            continue
        key = key_of(op, rank)
        kind = HAND if op.kind == SEND else AWAIT if op.kind == RECEIVE else COLLECTIVE
        wait_s = steps_of(op, plan.groups) * waits_s.get(key, 0.0)
        found.append(Step(kind, connection_bytes(op, plan.groups), op.after, key, wait_s))
    return tuple(found)


def joined(program: Sequence[Step], fastest: Mapping[Key, float], factor: float = 1.0) -> tuple[Step, ...]:
    """Return a program with buckets joined that can only follow one another; one like it where there are none.

    fastest: payload bytes/s of each flow on empty links; factor: on compute. Only programs that compute first and wait
    for nothing that was sent are changed: for them it is known when a bucket is ready.
    """
    if not _plain(program):
        return tuple(program)
    made: list[Step] = []
    ends: list[float] = []
    computed_s = free_s = 0.0
    last = -1
    where: list[int] = []  # of every old step the new one
    for step in program:
        ready_s = max((ends[at] for at in step.after), default=0.0)
        after = tuple(sorted({where[at] for at in step.after}))
        if step.kind == CALCULATE:
            computed_s = max(computed_s, ready_s) + step.amount * factor
            ends.append(computed_s)
            where.append(len(made))
            made.append(Step(CALCULATE, step.amount, after))
            continue
        lasts_s = step.amount / fastest[step.key] + step.wait_s if math.isfinite(fastest[step.key]) else 0.0
        if last >= 0 and made[last].key == step.key and ready_s <= free_s:
            made[last] = Step(
                COLLECTIVE, made[last].amount + step.amount, made[last].after, step.key, made[last].wait_s + step.wait_s
            )
            where.append(last)
            free_s += lasts_s
        else:
            free_s = max(free_s, ready_s) + lasts_s
            last = len(made)
            where.append(last)
            made.append(Step(COLLECTIVE, step.amount, after, step.key, step.wait_s))
        ends.append(free_s)
    return tuple(made)


def _plain(program: Sequence[Step]) -> bool:
    """Return whether a program has collectives alone, compute never waits for one, and one only for those before it.

    Collectives follow one another anyway, so a bucket that waits for an earlier one waits for nothing more.
    """
    return all(
        step.kind in (CALCULATE, COLLECTIVE)
        and (step.kind == COLLECTIVE or all(program[at].kind == CALCULATE for at in step.after))
        for step in program
    )


def in_step(plan: JobPlan) -> bool:
    """Return whether all workers of a job do the same at the same time, so that one stands for all."""
    alike = len(set(plan.conduct)) <= 1 and all(each.jitter == 0 for each in plan.conduct)
    return len(plan.programs) == 1 and alike
