"""A coordinator and its agents as real processes on loopback addresses, and small jobs for them."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from workloads.training.coordinator import Coordinator, Slot, start_agents
from workloads.training.plan import Bucket, JobPlan, data_parallel
from workloads.training.records import AgentSocket, IterationRecord, SocketTerms
from workloads.training.slots import ROOT

NO_ECN = SocketTerms(ecn=False)


def default_congestion_control() -> str:
    with socket.socket() as plain:
        name: bytes = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.split(b"\0")[0].decode()


def plan(name: str = "a", workers: int = 2, block: int = 1, iterations: int = 3) -> JobPlan:
    """A small job on loopback addresses of this process's own."""
    net = f"127.{1 + os.getpid() % 250}.{os.getpid() // 250 % 50 + 50 * block}"
    return data_parallel(
        name=name,
        hosts=tuple(f"{name}{rank + 1}" for rank in range(workers)),
        fabric_ips=tuple(f"{net}.{rank + 1}" for rank in range(workers)),
        dscp=10,
        forward_s=0.02,
        backward_s=0.03,
        buckets=(Bucket(100_001, 0.01), Bucket(200_003, 0.02, (0,)), Bucket(1, 0.03, (1,))),
        iterations=iterations,
        congestion_control=default_congestion_control(),
    )


class Stage:
    """A coordinator, the agents started for it, and what it was told."""

    def __init__(self, jobs: Sequence[JobPlan], terms: SocketTerms, timeout_s: float) -> None:
        self.calls: list[tuple[str, int, float]] = []
        self.at_first_iteration: Callable[[], None] | None = None
        self.started: list[subprocess.Popen[bytes]] = []
        self.jobs = jobs
        hosts = dict.fromkeys(host for job in jobs for host in job.hosts)
        self.slots = [Slot(host, index) for host in hosts for index in range(max(j.hosts.count(host) for j in jobs))]
        self.coordinator = Coordinator(("127.0.0.1", 0), self.slots, self._note, terms, timeout_s)

    def _note(self, job: str, iteration: int, t_s: float) -> None:
        if not self.calls and self.at_first_iteration is not None:
            self.at_first_iteration()
        self.calls.append((job, iteration, t_s))

    def start(self, *hosts: str) -> subprocess.Popen[bytes]:
        """Through the spawner, as the testbed does; without names on all hosts."""
        places = [(slot.host, slot.index, None) for slot in self.slots if slot.host in hosts or not hosts]
        spawner = start_agents(self.coordinator.address, places)
        self.started.append(spawner)
        return spawner

    def start_alone(self, host: str) -> subprocess.Popen[bytes]:
        """By its documented command line."""
        ip, port = self.coordinator.address
        command = [sys.executable, "-m", "workloads.training.agent", "--coordinator", f"{ip}:{port}"]
        agent = subprocess.Popen([*command, "--host", host, "--slot", "0"], cwd=ROOT)
        self.started.append(agent)
        return agent

    def gather(self) -> list[AgentSocket]:
        """All jobs."""
        return self.coordinator.gather(self.jobs)


@contextlib.contextmanager
def stage(*jobs: JobPlan, terms: SocketTerms = NO_ECN, timeout_s: float = 30.0) -> Iterator[Stage]:
    made = Stage(jobs, terms, timeout_s)
    try:
        yield made
    finally:
        made.coordinator.close()
        for process in made.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()


def soon() -> float:
    return time.time() + 0.2


def of(records: Sequence[IterationRecord], job: str, rank: int) -> list[IterationRecord]:
    return [record for record in records if (record.job, record.rank) == (job, rank)]
