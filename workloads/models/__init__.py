"""From the description of a network to the job it makes: gradients in buckets, and when each is ready.

A model is a list of layers (`vision`, `transformers`, `recommendation`): how many parameters each has and how
much arithmetic it takes for one sample. Three things follow. The *bytes*: every parameter has a gradient, which
is all-reduced, in PyTorch's buckets (`buckets`). The *compute time*: arithmetic times batch over what an
accelerator achieves (`compute`). And the *pace*: where a communication time is published that is longer than
the bytes take at line rate, the bytes leave slower (`pace`); they are never inflated. `catalogue` has the
thirteen models of CASSINI (NSDI 2024, arXiv 2308.00852, Table 3), `jobs.job_plan` makes jobs of them: data parallel,
or by the strategies of `workloads.strategies` (`parallel`).
"""

from workloads.models.buckets import STEP_LATENCY_S, ddp_buckets, goodput_bps, sized_for, up_alone_s
from workloads.models.catalogue import MODELS, SNAPSHOTS, VGG16, Case, Iteration, Model, SnapshotJob
from workloads.models.compute import compute_s
from workloads.models.jobs import job_plan
from workloads.models.layers import Layer
from workloads.models.pace import paced_for

__all__ = [
    "MODELS",
    "SNAPSHOTS",
    "STEP_LATENCY_S",
    "VGG16",
    "Case",
    "Iteration",
    "Layer",
    "Model",
    "SnapshotJob",
    "compute_s",
    "ddp_buckets",
    "goodput_bps",
    "job_plan",
    "paced_for",
    "sized_for",
    "up_alone_s",
]
