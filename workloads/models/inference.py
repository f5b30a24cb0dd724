"""The workload `moe-dispatch-combine`: disaggregated inference of a mixture of experts (strategies.experts)."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.errors import InputError
from workloads.strategies.experts import Inference, programs
from workloads.training.plan import JobPlan

NAME = "moe-dispatch-combine"


def job_plan(
    inference: Inference,
    *,
    name: str,
    hosts: Sequence[str],
    fabric_ips: Sequence[str],
    dscp: int,
    iterations: int,
    congestion_control: str = "dctcp",
    scale: float = 1.0,
) -> JobPlan:
    """The job of `inference` on `hosts`: attention workers first, then expert workers.

    Its bytes are divided by `scale`. An iteration is a token of every sequence. Raises InputError if the workers are
    not as many as the hosts, and for anything JobPlan refuses.
    """
    if not scale > 0:
        raise InputError(f"job {name}, scale", f"{scale!r}", "give a number above 0")
    if inference.attention_workers + inference.expert_workers != len(hosts):
        what = f"{inference.attention_workers} attention and {inference.expert_workers} expert workers on {len(hosts)}"
        raise InputError(f"job {name}, workers", what, "they must add up")
    made = programs(inference, scale)
    return JobPlan(
        name, tuple(hosts), tuple(fabric_ips), dscp, iterations, congestion_control, (), made, note=_note(inference)
    )


def _note(inference: Inference) -> str:
    return (
        f"Inference of {inference.layers} layers of {inference.experts} experts, {inference.top} per token, width"
        f" {inference.hidden}: {inference.attention_workers} attention workers of {inference.tokens} tokens each,"
        f" {inference.expert_workers} expert workers, {inference.microbatches} microbatches; per layer"
        f" {1e6 * inference.attention_s:g} us of attention and {1e6 * inference.expert_s:g} us of experts. A token goes"
        f" to {100 * inference.reach(0):.1f} % of expert workers. Iteration time is token latency."
    )
