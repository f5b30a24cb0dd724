"""How fast the fluid engine is, how that grows, and what skipping costs in accuracy.

Times are of one process, as always of the whole: measuring alone, deciding and playing. Processor time stands beside
wall time, since a busy machine has less of the one for the other. The error is that of one hour of cluster time,
against a run that skips nothing.
"""

from __future__ import annotations

import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.table import rows
from testbed.cluster import ClusterExperiment
from testbed.fluid.arm import run_arm
from testbed.fluid.cluster import Remembering, run_cluster_arm
from testbed.report.cluster.load import HISTORIES_FILE
from testbed.scenario import ClusterArm
from testbed.study import points
from testbed.study.work import prepared

SIZES = {24: "leaf-spine(6, 2, 4)", 256: "leaf-spine(64, 2, 4)", 1024: "leaf-spine(256, 2, 4)", 4096: "fat-tree(26)"}
"""Accelerators (of the fat tree as many of its 4394 hosts as there are) and fabrics."""
DAY, GROWTH = "cluster-day", "cluster-growth"
HOUR_JOBS = 45
"""Of cluster-day: so many come in an hour."""


@dataclass(frozen=True)
class Played:
    """One arm: cluster time, wall and processor time in s, peak memory of the process in bytes, iterations by how."""

    accelerators: int
    jobs: int
    cluster_s: float
    wall_s: float
    cpu_s: float
    memory_bytes: int
    events: int
    played: int
    proven: int
    sampled: int


@dataclass(frozen=True)
class Error:
    """Mean iteration time of every job with skipping, relative to that without: the mean and the largest difference."""

    arm: str
    skipping: str
    jobs: int
    mean: float
    worst: float
    share_skipped: float
    cpu_s: float


def play(name: str, settings: tuple[str, ...], arm: ClusterArm = "themis") -> tuple[Played, dict[str, float]]:
    """Run one arm of a scenario of the fluid engine; what it took, and each job's mean iteration time in s."""
    wall_s, cpu_s = time.monotonic(), time.process_time()
    made = prepared(points.load(name, settings).points[0])
    assert isinstance(made, ClusterExperiment)
    with tempfile.TemporaryDirectory() as folder:
        alone, out = Path(folder) / "alone", Path(folder) / "arm"
        alone.mkdir()
        out.mkdir()
        run_arm(made.alone.arm_plan("alone", made.alone.trials("alone", {})), alone)
        said = run_cluster_arm(made.arm_plan(arm, made.measure(alone)), out, Remembering())
        with np.load(out / HISTORIES_FILE) as arrays:
            ends = np.cumsum(arrays["counts"])
            of_job = np.split(arrays["times_s"], ends[:-1])
            means = {str(job): float(times.mean()) for job, times in zip(arrays["jobs"], of_job, strict=True)}
    memory_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = time.monotonic() - wall_s, time.process_time() - cpu_s
    count = sum(server.accelerators for server in made.servers)
    iterations = said["iterations"]
    played = Played(count, len(means), said["virtual_s"], *took, memory_bytes, said["events"], **iterations)
    return played, means


def day(jobs: int = 1000) -> Played:
    """Return what a day of 1024 accelerators takes."""
    return apart(DAY, (f"cluster.jobs={jobs}",))


def growth(sizes: tuple[int, ...] = tuple(SIZES)) -> list[Played]:
    """Return what clusters of several sizes take, with as many jobs as accelerators, 1000 at most."""
    jobs = {size: f"cluster.jobs={min(1000, size)}" for size in sizes}
    return [apart(GROWTH, (f"fabric.topology={SIZES[size]}", jobs[size], "cluster.seeds=[1]")) for size in sizes]


def apart(name: str, settings: tuple[str, ...]) -> Played:
    """Play in a process of its own: its peak of memory is that of this run alone."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
        return one.submit(play, name, settings).result()[0]


def errors(jobs: int = HOUR_JOBS, arms: tuple[ClusterArm, ...] = ("themis", "themis+cassini")) -> list[Error]:
    """Return what is lost by skipping, over one hour of arrivals, where nobody is held to ticks and where jobs are."""
    return [error for arm in arms for error in _errors(arm, (f"cluster.jobs={jobs}", f'cluster.arms=["{arm}"]'), jobs)]


def _errors(arm: ClusterArm, settings: tuple[str, ...], jobs: int) -> list[Error]:
    whole, exact = play(DAY, (*settings, "cluster.skipping=none"), arm)
    found = [Error(arm, "none", jobs, 0.0, 0.0, 0.0, whole.cpu_s)]
    for skipping in ("periodic", "sampled"):
        played, means = play(DAY, (*settings, f"cluster.skipping={skipping}"), arm)
        off = np.array([means[job] / exact[job] - 1 for job in exact])
        share = (played.proven + played.sampled) / (played.played + played.proven + played.sampled)
        found.append(Error(arm, skipping, jobs, float(off.mean()), float(np.abs(off).max()), share, played.cpu_s))
    return found


def table(whole: Played, sizes: list[Played], lost: list[Error]) -> str:
    """Return all of it as Markdown."""
    head = ["fluid engine, Themis", "cluster time (s)", "wall (s)", "CPU (s)", "memory (MB)", "iterations", "played"]
    body = [_row("a day", whole), *(_row("growth", one) for one in sizes)]
    errors_head = [
        "an hour of cluster-day",
        "skipping",
        "jobs",
        "mean, signed",
        "largest of a job",
        "skipped",
        "CPU (s)",
    ]
    errors_body = [
        [
            one.arm,
            one.skipping,
            str(one.jobs),
            *map(_share, (one.mean, one.worst, one.share_skipped)),
            f"{one.cpu_s:.1f}",
        ]
        for one in lost
    ]
    return rows(head, body) + "\n" + rows(errors_head, errors_body)


def _share(value: float) -> str:
    return f"{value:.2%}"


def _row(what: str, one: Played) -> list[str]:
    every = one.played + one.proven + one.sampled
    name = f"{what}: {one.accelerators} accelerators, {one.jobs} jobs"
    times = [f"{one.cluster_s:.0f}", f"{one.wall_s:.1f}", f"{one.cpu_s:.1f}", f"{one.memory_bytes / 1e6:.0f}"]
    return [name, *times, str(every), f"{one.played / every:.2%}"]
