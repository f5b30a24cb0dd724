"""Coordinator and agents, as real processes on loopback addresses: whole runs, and every way to fail."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from testbed.errors import NotValid
from workloads.training.agent import parse
from workloads.training.coordinator import ROOT, Coordinator, start_agents
from workloads.training.plan import Bucket, JobPlan, data_parallel
from workloads.training.records import AgentSocket, IterationRecord, SocketTerms

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
        hosts=tuple(f"h{rank + 1}" for rank in range(workers)),
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
        self.coordinator = Coordinator(("127.0.0.1", 0), jobs, self._note, terms, timeout_s)

    def _note(self, job: str, iteration: int, t_s: float) -> None:
        if not self.calls and self.at_first_iteration is not None:
            self.at_first_iteration()
        self.calls.append((job, iteration, t_s))

    def start(self, *agents: tuple[str, int]) -> subprocess.Popen[bytes]:
        """Through the spawner, as the testbed does."""
        spawner = start_agents(self.coordinator.address, [(job, rank, None) for job, rank in agents])
        self.started.append(spawner)
        return spawner

    def start_alone(self, job: str, rank: int) -> subprocess.Popen[bytes]:
        """By its documented command line."""
        ip, port = self.coordinator.address
        command = [sys.executable, "-m", "workloads.training.agent", "--coordinator", f"{ip}:{port}"]
        agent = subprocess.Popen([*command, "--job", job, "--rank", str(rank)], cwd=ROOT)
        self.started.append(agent)
        return agent


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


def test_two_jobs_run_from_their_start_times_to_their_ends() -> None:
    jobs = plan("a", workers=3, block=1), plan("b", workers=2, block=2, iterations=2)
    with stage(*jobs) as made:
        spawner = made.start(("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1))
        found = made.coordinator.gather()
        starts = {"a": soon(), "b": soon() + 0.05}
        records = made.coordinator.run(starts)
        made.coordinator.close()
        assert spawner.wait(timeout=30) == 0
    assert Counter((each.job, each.rank, each.host, each.direction) for each in found) == Counter(
        (job.name, rank, f"h{rank + 1}", direction)
        for job in jobs
        for rank in range(job.workers)
        for direction in ("to the next worker", "from the previous worker")
    )
    assert len(records) == 3 * 3 + 2 * 2
    for job in jobs:
        for rank in range(job.workers):
            own = of(records, job.name, rank)
            assert [record.iteration for record in own] == list(range(job.iterations))
            assert own[0].begin_s == starts[job.name]
            assert all(later.begin_s == earlier.end_s for earlier, later in pairwise(own))
            for record in own:
                assert record.host == f"h{rank + 1}"
                assert record.up_begin_s >= record.begin_s + job.down_s
                assert record.end_s >= record.begin_s + job.compute_s
                assert record.ce_packets >= 0
    rank_0 = [(r.job, r.iteration, r.end_s) for r in records if r.rank == 0]
    assert made.calls == rank_0


def test_agents_stay_for_more_trials_and_jobs_may_rest() -> None:
    with stage(plan("a", block=1), plan("b", block=2)) as made:
        made.start(("a", 0), ("a", 1), ("b", 0), ("b", 1))
        made.coordinator.gather()
        alone = made.coordinator.run({"b": soon()}, iterations=1)
        both = made.coordinator.run({"a": soon(), "b": soon()})
        with pytest.raises(ValueError, match="no such jobs: c"):
            made.coordinator.run({"a": soon(), "c": soon()})
    assert [(record.job, record.iteration) for record in alone] == [("b", 0)] * 2
    assert Counter(record.job for record in both) == {"a": 6, "b": 6}


def sockets_of(pid: int) -> set[str]:
    names = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    return {name for name in names if name.startswith("socket:")}


def test_gathering_again_replaces_the_rings_and_keeps_the_agents() -> None:
    with stage(plan()) as made:
        agent = made.start_alone("a", 0)
        made.start(("a", 1))
        first = made.coordinator.gather()
        made.coordinator.run({"a": soon()})
        before = sockets_of(agent.pid)
        again = made.coordinator.gather()
        after = sockets_of(agent.pid)
        records = made.coordinator.run({"a": soon()})
    assert len(before) == len(after) == 3  # to the coordinator, to the next worker, from the previous one
    assert len(before & after) == 1
    assert [found.host for found in again] == [found.host for found in first]
    assert len(records) == 2 * 3


def test_no_worker_ends_an_iteration_before_all_have_begun_to_send() -> None:
    """An all-reduce needs everybody, so the slowest paces all."""
    with stage(plan("a", workers=5)) as made:
        made.start(*[("a", rank) for rank in range(5)])
        made.coordinator.gather()
        records = made.coordinator.run({"a": soon()})
    for iteration in range(3):
        own = [record for record in records if record.iteration == iteration]
        assert min(record.end_s for record in own) >= max(record.up_begin_s for record in own)


def test_an_agent_started_by_its_command_line_works() -> None:
    with stage(plan()) as made:
        agents = [made.start_alone("a", rank) for rank in range(2)]
        made.coordinator.gather()
        made.coordinator.run({"a": soon()})
        made.coordinator.close()
        assert [agent.wait(timeout=30) for agent in agents] == [0, 0]


def test_an_agent_that_never_comes_is_named() -> None:
    with stage(plan(), timeout_s=2.0) as made:
        made.start(("a", 0))
        with pytest.raises(NotValid, match="missing: job a, rank 1 on h2; the agents:") as told:
            made.coordinator.gather()
    assert "job a, rank 0 on h1: said hello\n  job a, rank 1 on h2: did not come" in str(told.value)


def test_a_killed_agent_is_named_and_so_is_what_the_others_saw() -> None:
    with stage(plan(workers=3, iterations=1000)) as made:
        made.start(("a", 0), ("a", 2))
        victim = made.start_alone("a", 1)
        made.coordinator.gather()
        made.at_first_iteration = victim.kill
        with pytest.raises(NotValid) as told:
            made.coordinator.run({"a": soon()})
    lines = str(told.value).splitlines()
    assert lines[0] == "job a, rank 1 on h2 went away; the agents:"
    assert lines[2].startswith("  job a, rank 1 on h2: went away (")
    assert "failed: rank 1 (h2, 127." in lines[1] + lines[3]


def test_a_silent_agent_is_named_by_its_neighbour() -> None:
    with stage(plan(iterations=1000), timeout_s=2.0) as made:
        made.start(("a", 0))
        victim = made.start_alone("a", 1)
        made.coordinator.gather()
        made.at_first_iteration = lambda: victim.send_signal(signal.SIGSTOP)
        with pytest.raises(NotValid, match=r"failed: rank 1 \(h2, 127.* was silent for too long"):
            made.coordinator.run({"a": soon()})
        victim.kill()


def test_a_congestion_control_that_the_kernel_refuses_is_found() -> None:
    wanted = replace(plan(), congestion_control="no-such-cc")
    with stage(wanted) as made:
        made.start(("a", 0), ("a", 1))
        with pytest.raises(NotValid) as told:
            made.coordinator.gather()
    lines = str(told.value).splitlines()
    used = default_congestion_control()
    whose = "  job a, rank 0 on h1, socket to the next worker"
    assert lines[1] == f"{whose}: congestion_control is {used!r}, must be 'no-such-cc'"
    assert len(lines) == 5  # two agents with two sockets each


def test_buffers_that_are_too_small_are_found() -> None:
    with stage(plan(), terms=SocketTerms(ecn=False, least_buffer_bytes=1 << 40)) as made:
        made.start(("a", 0), ("a", 1))
        with pytest.raises(NotValid) as told:
            made.coordinator.gather()
    for key in ("send_buffer_bytes", "receive_buffer_bytes"):
        assert f"socket to the next worker: {key} is " in str(told.value)
        assert str(told.value).count(f"{key} is ") == 4  # two agents with two sockets each
    assert "must be at least 1099511627776" in str(told.value)


SOCKET = AgentSocket("a", 0, "h1", "to the next worker", "dctcp", True, True, 10, 100, 100, 8948, 0.2)


@pytest.mark.parametrize(
    ("found", "differences"),
    [
        (SOCKET, []),
        (replace(SOCKET, ecn=False), ["ecn is False, must be True"]),
        (replace(SOCKET, nodelay=False), ["nodelay is False, must be True"]),
        (replace(SOCKET, dscp=0), ["dscp is 0, must be 10"]),
        (replace(SOCKET, congestion_control="reno"), ["congestion_control is 'reno', must be 'dctcp'"]),
        (replace(SOCKET, send_buffer_bytes=99), ["send_buffer_bytes is 99, must be at least 100"]),
        (replace(SOCKET, receive_buffer_bytes=9), ["receive_buffer_bytes is 9, must be at least 100"]),
    ],
)
def test_every_difference_of_a_socket_is_told(found: AgentSocket, differences: list[str]) -> None:
    wanted = replace(plan(), congestion_control="dctcp")
    assert found.differences(wanted, SocketTerms(ecn=True, least_buffer_bytes=100)) == differences


def test_a_host_that_lacks_the_fabric_address_is_named() -> None:
    elsewhere = replace(plan(), fabric_ips=("127.0.0.1", "192.0.2.1"))
    with stage(elsewhere) as made:
        made.start(("a", 0), ("a", 1))
        with pytest.raises(
            NotValid, match=r"rank 1 on h2 failed: cannot listen on 192[.]0[.]2[.]1:5200: Cannot assign"
        ):
            made.coordinator.gather()


def test_a_start_that_is_over_is_not_run_late() -> None:
    with stage(plan()) as made:
        made.start(("a", 0), ("a", 1))
        made.coordinator.gather()
        with pytest.raises(NotValid, match=r"failed: was told to start 9\.[0-9]+ s ago"):
            made.coordinator.run({"a": time.time() - 9})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b'{"say": "hello", "job": "a", "rank": 7}\n', "came as job a, rank 7, which no plan has"),
        (b"GET / HTTP/1.1\n", "a stranger said what nobody understands: b'GET / HTTP/1.1'"),
        (b'{"say": "done"}\n', "a stranger said done before hello"),
        (b'{"say": "hello", "job": "a"}\n', "nobody understands"),
        (b"[1]\n", "nobody understands"),
        (b"x" * (1 << 18), "a stranger said a line that never ends"),
        (b'{"say": "hello", "job": "a", "rank": 0}\n{"say": "done"}\n', "said 'done', awaited was None"),
        (b'{"say": "hello", "job": "a", "rank": 0}\n{"say": "iteration", "x": 1}\n', "nobody understands"),
    ],
)
def test_what_no_agent_says_ends_the_run(said: bytes, told: str) -> None:
    with stage(plan()) as made, socket.create_connection(made.coordinator.address) as stranger:
        stranger.sendall(said)
        with pytest.raises(NotValid, match=told):
            made.coordinator.gather()


def test_the_same_rank_cannot_come_twice() -> None:
    with stage(plan()) as made:
        made.start(("a", 0), ("a", 0))
        with pytest.raises(NotValid, match="came as job a, rank 0, which is there already"):
            made.coordinator.gather()


@pytest.mark.parametrize("module", ["agent", "spawn"])
def test_a_wrong_command_line_is_answered_with_the_right_one(module: str) -> None:
    command = [sys.executable, "-m", f"workloads.training.{module}", "--coordinator"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert f"python -m workloads.training.{module} --coordinator IP:PORT" in run.stderr


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("--coordinator 10.255.0.1:7000 --job a --rank 3", (("10.255.0.1", 7000), "a", 3)),
        ("--rank 3 --job a --coordinator 10.255.0.1:7000", (("10.255.0.1", 7000), "a", 3)),
        ("--coordinator 10.255.0.1 --job a --rank 3", None),
        ("--coordinator 10.255.0.1:x --job a --rank 3", None),
        ("--coordinator 10.255.0.1:7000 --job a --rank -1", None),
        ("--coordinator 10.255.0.1:7000 --job a --rank", None),
        ("--coordinator 10.255.0.1:7000 --job a --rank 1 --rank 2", None),
        ("", None),
    ],
)
def test_command_lines(line: str, command: object) -> None:
    assert parse(line.split()) == command
