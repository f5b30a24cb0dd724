"""A data-parallel job read back from its operations, for tests that look at its passes and buckets."""

from typing import NamedTuple

from workloads.training.plan import Bucket, JobPlan


class Shape(NamedTuple):
    """The passes of a data-parallel job in seconds, its buckets (each after the one before), and their bytes."""

    forward_s: float
    backward_s: float
    buckets: tuple[Bucket, ...]
    total_bytes: int


def shape(plan: JobPlan) -> Shape:
    """The job as `data_parallel` was given it, times to the picosecond; `after` is the order on the wire."""
    forward, *ops = plan.program(0)
    clock_s, buckets = 0.0, list[Bucket]()
    for op in ops:
        if op.kind == "compute":
            clock_s += op.duration_s
            continue
        assert op.kind == "all-reduce"
        buckets.append(Bucket(op.size_bytes, round(clock_s, 12), (len(buckets) - 1,) if buckets else ()))
    total_bytes = sum(bucket.size_bytes for bucket in buckets)
    return Shape(forward.duration_s, round(clock_s, 12), tuple(buckets), total_bytes)
