"""Text workloads of AICB, which SimAI simulates: ASTRA-sim's columns under a longer first line.

That line has the sizes of the groups of workers: tensor (`model_parallel_NPU_group`), expert (`ep`) and pipeline
(`pp`), the pipeline's stages per worker (`vpp`) and bytes (`pp_comm`), gradient accumulation (`ga`) and all workers
(`all_gpus`); older files have only the first. A collective runs among the tensor group in the forward pass and for
gradients of inputs, among the data-parallel group for gradients of weights, unless its word ends in _EP or _DP_EP
(aliyun/SimAI, Workload.cc; aliyun/aicb). The rest is in `layerwise`, what becomes of it in `layers`.

Times are nanoseconds as far as can be told: the files do not say so. `clock_hz` is how many of their units make a
second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workloads.traces.layers import plan_of
from workloads.traces.layerwise import Dialect, LayerWorkload, read_file
from workloads.training.plan import JobPlan

CLOCK_HZ = 1e9
AICB = Dialect(
    title="AICB",
    settings={
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD": ("model_parallel_NPU_group",),
        "HYBRID_TRANSFORMER": ("model_parallel_NPU_group",),
        "DATA": (),
        "MICRO": (),
    },
    optional=("ep", "pp", "vpp", "ga", "all_gpus", "checkpoints", "checkpoint_initiates", "pp_comm"),
    lists=("checkpoints", "checkpoint_initiates"),
    unnamed=(),
    collectives=("NONE", "ALLREDUCE", "ALLTOALL", "ALLREDUCEALLTOALL", "ALLGATHER", "REDUCESCATTER", "BROADCAST"),
    groups=("EP", "DP_EP"),
)


def read(path: Path) -> LayerWorkload:
    """The workload in `path`, times in ns. Raises InputError with the line and column of what is wrong."""
    return read_file(path, AICB)


def job_plan(
    path: Path,
    *,
    name: str,
    hosts: Sequence[str],
    fabric_ips: Sequence[str],
    dscp: int,
    iterations: int,
    congestion_control: str = "dctcp",
    scale: float = 1.0,
    clock_hz: float = CLOCK_HZ,
) -> JobPlan:
    """The job of the workload in `path` on `hosts` (rank order), as many as make whole tensor and expert groups.

    Its bytes are divided by `scale`, its times unchanged. Raises InputError if it cannot be read or replayed.
    """
    return plan_of(
        read(path), path, "AICB", "ns", clock_hz, scale,
        name=name, hosts=hosts, fabric_ips=fabric_ips, dscp=dscp, iterations=iterations,
        congestion_control=congestion_control, gathers_parts=False,
    )  # fmt: skip
