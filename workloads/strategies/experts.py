"""Disaggregated inference of a mixture of experts: attention workers dispatch tokens, expert workers combine them back.

In every layer an attention worker computes the attention of its tokens, sends each token to the workers that have one
of its experts, and waits until all have sent their results back; an expert worker waits for the tokens of all attention
workers, computes its experts, and returns. With several microbatches the workers of one side compute for one while
another is on its way (MegaScale-Infer, Zhu et al. 2025, calls it ping-pong). One iteration is one token for every
sequence: its length is the token latency. Tokens choose their experts evenly; a token goes to a worker once, however
many of its experts are there. Tokens are sent with 1 byte per element and come back with 2, as DeepSeek-V3's do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from testbed.errors import InputError
from workloads.strategies.steps import Steps, scaled, shares
from workloads.training.operations import Op

DISPATCH_BYTES, COMBINE_BYTES = 1, 2


@dataclass(frozen=True)
class Inference:
    """A model and its workers. `tokens` of one attention worker per iteration, each with `top` of `experts`.

    `attention_s` and `expert_s`: compute of one layer for all tokens, on each worker of that side.
    """

    experts: int = 256
    top: int = 8
    tokens: int = 128
    hidden: int = 7168
    layers: int = 58
    attention_s: float = 400e-6
    expert_s: float = 300e-6
    attention_workers: int = 1
    expert_workers: int = 1
    microbatches: int = 1

    def __post_init__(self) -> None:
        for key in ("experts", "top", "tokens", "hidden", "layers", "attention_workers", "expert_workers"):
            if getattr(self, key) < 1:
                raise InputError(key, f"{getattr(self, key)!r}", "give a whole number from 1 on")
        if self.top > self.experts:
            raise InputError("top", f"{self.top} of {self.experts} experts", "give at most as many as there are")
        if self.expert_workers > self.experts:
            mend = f"give at most {self.experts} expert workers"
            raise InputError("expert_workers", f"{self.experts} experts on {self.expert_workers} workers", mend)
        if not 1 <= self.microbatches <= self.tokens:
            raise InputError("microbatches", f"{self.microbatches!r}", f"give 1 to {self.tokens}, the tokens there are")
        for key in ("attention_s", "expert_s"):
            if getattr(self, key) < 0:
                raise InputError(key, f"{getattr(self, key)!r}", "give a time from 0 on")

    def reach(self, worker: int) -> float:
        """The share of tokens that need an expert of expert worker `worker`."""
        here = shares(self.experts, self.expert_workers)[worker]
        return 1 - comb(self.experts - here, self.top) / comb(self.experts, self.top)

    def transfer_bytes(self, tokens: int, worker: int, element_bytes: int, scale: float) -> int:
        """What one attention worker and expert worker `worker` exchange in one direction for so many tokens."""
        return scaled(tokens * self.reach(worker) * self.hidden * element_bytes, scale)


def programs(inference: Inference, scale: float = 1.0) -> tuple[tuple[Op, ...], ...]:
    """The program of every rank: attention workers first, then expert workers."""
    attention = [_attention(inference, scale) for _ in range(inference.attention_workers)]
    return (*attention, *(_expert(inference, worker, scale) for worker in range(inference.expert_workers)))


def _attention(inference: Inference, scale: float) -> tuple[Op, ...]:
    steps = Steps()
    parts = shares(inference.tokens, inference.microbatches)
    first = inference.attention_workers
    ready: list[tuple[int, ...]] = [() for _ in parts]
    for layer in range(inference.layers + 1):
        for number, tokens in enumerate(parts):
            if layer:
                ready[number] = tuple(
                    steps.receive(inference.transfer_bytes(tokens, worker, COMBINE_BYTES, scale), first + worker)
                    for worker in range(inference.expert_workers)
                )
            if layer < inference.layers:
                done = steps.compute(inference.attention_s * tokens / inference.tokens, *ready[number])
                for worker in range(inference.expert_workers):
                    size_bytes = inference.transfer_bytes(tokens, worker, DISPATCH_BYTES, scale)
                    steps.send(size_bytes, first + worker, done)
    return tuple(steps.ops)


def _expert(inference: Inference, worker: int, scale: float) -> tuple[Op, ...]:
    steps = Steps()
    for _ in range(inference.layers):
        for tokens in shares(inference.tokens, inference.microbatches):
            there, back = (
                inference.transfer_bytes(tokens, worker, element_bytes, scale)
                for element_bytes in (DISPATCH_BYTES, COMBINE_BYTES)
            )
            came = tuple(steps.receive(there, rank) for rank in range(inference.attention_workers))
            done = steps.compute(inference.expert_s * tokens / inference.tokens, *came)
            for rank in range(inference.attention_workers):
                steps.send(back, rank, done)
    return tuple(steps.ops)
