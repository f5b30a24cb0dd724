"""Where points run: on a Dask cluster, one of this machine's own by default.

The own cluster has a process for each CPU, pinned to it, and listens on the loopback interface alone, with
certificates made for it: others who use the machine cannot hand it work. Its processes end when their parent does.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, Worker, WorkerPlugin
from distributed.scheduler import KilledWorker

from testbed.errors import EnvironmentLacks, InputError

LOOPBACK = "127.0.0.1"
ANSWERS_WITHIN_S = 20
LOSSES = 2
"""So many workers may die under a point before it is given up: it may be what kills them."""
Pool = Callable[[int], AbstractContextManager[Client]]
"""What makes a cluster for so many points."""
SETTINGS = {
    "distributed.scheduler.allowed-failures": LOSSES,
    "distributed.scheduler.worker-saturation": 1.0,  # a worker holds the point that it runs and no other
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.diagnostics.nvml": False,
    "distributed.comm.timeouts.connect": "60s",
    # A worker that takes long to come back, on a busy machine, would be given up for ever.
    "distributed.deploy.lost-worker-timeout": "1h",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}


class Pinned(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    """Keeps every worker of a local cluster, by its number, to its own CPUs, and so all guests that it starts."""

    name = "orrery-pinned"

    def __init__(self, shares: Sequence[Sequence[int]]) -> None:
        self.shares = [list(share) for share in shares]

    def setup(self, worker: Worker) -> None:
        """Pin the process that `worker` is."""
        share = self.shares[int(worker.name) % len(self.shares)]
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), share)
        for descriptor in Path("/proc/self/fd").iterdir():  # a guest inherits nothing but its own
            if int(descriptor.name) > 2 and descriptor.exists():
                os.set_inheritable(int(descriptor.name), False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's is for the sweep, which then ends the workers


def shares(cpus: Sequence[int], count: int) -> list[list[int]]:
    """Return the CPUs of each of `count` workers: one each, or several where there are fewer workers than CPUs."""
    return [list(cpus[number::count]) or [cpus[number % len(cpus)]] for number in range(count)]


def local(workers: int | None = None) -> Pool:
    """Return what makes a cluster of this machine: a worker per CPU, or `workers`, but no more than points.

    Raises InputError for fewer workers than one or more than CPUs.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if workers is not None and not 1 <= workers <= len(cpus):
        raise InputError("--workers", f"{workers} of {len(cpus)} CPUs", "give 1 to as many as there are CPUs")

    @contextmanager
    def make(points: int) -> Iterator[Client]:
        count = max(1, min(workers or len(cpus), points))
        kwargs: dict[str, Any] = {"dashboard": False, "dashboard_address": f"{LOOPBACK}:0"}
        with dask.config.set(SETTINGS):
            cluster = LocalCluster(
                n_workers=count, threads_per_worker=1, processes=True, host=LOOPBACK, security=True,
                dashboard_address=None, scheduler_kwargs=kwargs, memory_limit=0,
                silence_logs=logging.CRITICAL,
            )  # fmt: skip
            with cluster, Client(cluster) as client:
                client.register_plugin(Pinned(shares(cpus, count)))
                yield client

    return make


def existing(address: str) -> Pool:
    """Return what connects to the scheduler at `address`. Raises InputError when it is called and none answers."""

    @contextmanager
    def make(_: int) -> Iterator[Client]:
        try:
            client = Client(address, timeout=ANSWERS_WITHIN_S)
        except (OSError, ValueError, TypeError) as error:
            what = f"no scheduler answers at {address}: {str(error) or type(error).__name__}"
            raise InputError("--scheduler", what, "as in tcp://node1:8786") from error
        with client:
            yield client

    return make


def reason(error: BaseException) -> str:
    """Return what ended a point that no worker could say anything of."""
    if isinstance(error, KilledWorker):
        return f"{error.allowed_failures + 1} workers died while they ran it"
    if isinstance(error, EnvironmentLacks | InputError):
        return str(error)
    return f"{type(error).__name__}: {error}"
