"""Text workloads of ASTRA-sim 1.0, whose times are clock cycles.

The first line is the parallelism, with `model_parallel_NPU_group: N` for transformers (and two lists of layers that
are recomputed, for HYBRID_TRANSFORMER_FWD_IN_BCKWD), or the number of a layer for DLRM (astra-sim/astra-sim, branch
ASTRA-sim-1.0, Workload.cc, initialize_workload). The rest is in `layerwise`, what becomes of it in `layers`.

How long a cycle lasts the file does not say: give the clock. Without one it is a nanosecond, ASTRA-sim's own default
(CLOCK_PERIOD 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workloads.traces.layers import plan_of
from workloads.traces.layerwise import CUSTOMIZED, Dialect, LayerWorkload, read_file
from workloads.training.plan import JobPlan

CLOCK_HZ = 1e9
_GROUP, _LISTS = ("model_parallel_NPU_group",), ("checkpoints", "checkpoint_initiates")
ASTRASIM = Dialect(
    title="ASTRA-sim 1.0",
    settings={
        "DATA": (),
        "MODEL": (),
        "HYBRID_DATA_MODEL": (),
        "HYBRID_MODEL_DATA": (),
        "HYBRID_TRANSFORMER": _GROUP,
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD": (*_GROUP, *_LISTS),
        "HYBRID_DLRM": (),
        "HYBRID_DLRM_ENHANCED": (),
        CUSTOMIZED: (),
        "MICRO": (),
        "DISTRIBUTED_INFERENCE": (),
    },
    optional=(),
    lists=_LISTS,
    unnamed=("HYBRID_DLRM", "HYBRID_DLRM_ENHANCED"),
    collectives=("NONE", "ALLREDUCE", "ALLTOALL", "ALLREDUCEALLTOALL", "ALLGATHER", "REDUCESCATTER"),
)


def read(path: Path) -> LayerWorkload:
    """The workload in `path`, times in cycles. Raises InputError with the line and column of what is wrong."""
    return read_file(path, ASTRASIM)


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
    """The job of the workload in `path` on `hosts` (rank order), at `clock_hz` cycles per second.

    Its bytes are divided by `scale`, its times unchanged. Raises InputError if it cannot be read or replayed.
    """
    return plan_of(
        read(path), path, "ASTRA-sim", "cycles", clock_hz, scale,
        name=name, hosts=hosts, fabric_ips=fabric_ips, dscp=dscp, iterations=iterations,
        congestion_control=congestion_control, gathers_parts=True,
    )  # fmt: skip
