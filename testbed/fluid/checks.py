"""May an arm of the fluid engine be believed? Bytes are kept, no link carries more than it can, all was done."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controllers.sdn.paths import Routes
from testbed.fidelity import Check, check_of
from testbed.fluid.traces import Traces
from testbed.net.topology import Topology
from testbed.telemetry.tables import ITERATIONS
from workloads.models.buckets import FRAME_BYTES, HEADER_BYTES
from workloads.training.plan import JobPlan

CLOSE = 1e-6


def check_arm(folder: Path, traces: Traces) -> list[Check]:
    """Return every check on an arm, from its files and what its links carried."""
    plan: dict[str, Any] = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    jobs = {job["name"]: JobPlan.from_dict(job) for job in plan["jobs"]}
    topology = Topology.from_dict(plan["topology"])
    return [
        check_of("every worker did all its iterations", list(_undone(folder, plan, jobs)), f"{len(jobs)} jobs"),
        check_of(
            "no link's data came to more than its rate",
            [f"{traces.fullest:.9f} of it"] if traces.fullest > 1 + CLOSE else [],
            f"{traces.fullest:.6f} of it at most",
        ),
        check_of(
            "watched links carried the bytes that were planned, to a millionth and 2 B of every operation",
            list(_lost(plan, jobs, topology, traces)), f"{len(traces.of_job)} jobs on links",
        ),
    ]  # fmt: skip


def _undone(folder: Path, plan: dict[str, Any], jobs: dict[str, JobPlan]) -> Iterator[str]:
    rows = ITERATIONS.read(folder / ITERATIONS.file)
    seen = Counter(zip(rows.text("trial"), rows.text("job"), rows.text("rank"), strict=True))
    for trial, starts_s in enumerate(plan["trials"]):
        for job in starts_s:
            for rank in range(jobs[job].workers):
                done = seen[str(trial), job, str(rank)]
                if done != jobs[job].iterations:
                    yield f"{job}, rank {rank}, trial {trial}: {done} of {jobs[job].iterations}"


def _lost(plan: dict[str, Any], jobs: dict[str, JobPlan], topology: Topology, traces: Traces) -> Iterator[str]:
    """Yield where a job's bytes on a watched link are not those of its plan, headers included."""
    routes = Routes(topology)
    runs = Counter(job for starts_s in plan["trials"] for job in starts_s)
    frames = (topology.mtu_bytes + FRAME_BYTES) / (topology.mtu_bytes - HEADER_BYTES)
    for name, job in jobs.items():
        planned: dict[str, float] = defaultdict(float)
        for (source, destination), size in job.traffic().items():
            if job.hosts[source] != job.hosts[destination]:
                for link in routes.route(job.hosts[source], job.hosts[destination]):
                    planned[link] += size * frames * runs[name] * job.iterations
        for link in traces.links:
            seen = traces.of_job[link, name].counters["bytes"] if (link, name) in traces.of_job else [0.0]
            # Chunks of a ring differ by a byte, which its one rate does not know.
            slack = CLOSE * planned[link] + 2.0 * job.workers * _operations(job) * runs[name] * job.iterations
            if abs(seen[-1] - planned[link]) > slack:
                yield f"{name} on {link}: {seen[-1]:.0f} of {planned[link]:.0f} B"


def _operations(job: JobPlan) -> int:
    return sum(op.kind != "compute" for op in job.program(0))
