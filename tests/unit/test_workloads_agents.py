"""Coordinator and agents, as real processes on loopback addresses: whole runs, and every way to fail."""

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from testbed.errors import NotValid
from workloads.training.agent import parse
from workloads.training.coordinator import Coordinator, Done, Slot, start_agents
from workloads.training.pace import compute_factor
from workloads.training.plan import Bucket, Conduct, JobPlan, Op, data_parallel
from workloads.training.records import AgentSocket, Hold, IterationRecord, SocketTerms
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


def test_two_jobs_run_from_their_start_times_to_their_ends() -> None:
    jobs = plan("a", workers=3, block=1), plan("b", workers=2, block=2, iterations=2)
    with stage(*jobs) as made:
        spawner = made.start()
        found = made.gather()
        starts = {"a": soon(), "b": soon() + 0.05}
        records = made.coordinator.run(starts)
        made.coordinator.close()
        assert spawner.wait(timeout=30) == 0
    assert Counter((each.job, each.rank, each.host, each.direction) for each in found) == Counter(
        (job.name, rank, f"{job.name}{rank + 1}", direction)
        for job in jobs
        for rank in range(job.workers)
        for direction in (f"to rank {(rank + 1) % job.workers}", f"from rank {(rank - 1) % job.workers}")
    )
    assert len(records) == 3 * 3 + 2 * 2
    for job in jobs:
        for rank in range(job.workers):
            own = of(records, job.name, rank)
            assert [record.iteration for record in own] == list(range(job.iterations))
            assert own[0].begin_s == starts[job.name]
            assert all(later.begin_s == earlier.end_s for earlier, later in pairwise(own))
            for record in own:
                assert record.host == f"{job.name}{rank + 1}"
                assert record.up_begin_s >= record.begin_s + job.down_s
                assert record.end_s >= record.begin_s + job.compute_s
                assert record.ce_packets >= 0
    rank_0 = [(r.job, r.iteration, r.end_s) for r in records if r.rank == 0]
    assert made.calls == rank_0


def test_agents_stay_for_more_trials_and_jobs_may_rest() -> None:
    with stage(plan("a", block=1), plan("b", block=2)) as made:
        made.start()
        made.gather()
        alone = made.coordinator.run({"b": soon()}, iterations=1)
        both = made.coordinator.run({"a": soon(), "b": soon()})
        with pytest.raises(ValueError, match="no such jobs: c"):
            made.coordinator.run({"a": soon(), "c": soon()})
    assert [(record.job, record.iteration) for record in alone] == [("b", 0)] * 2
    assert Counter(record.job for record in both) == {"a": 6, "b": 6}


def sockets_of(pid: int) -> set[str]:
    names = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    return {name for name in names if name.startswith("socket:")}


def test_gathering_again_replaces_the_connections_and_keeps_the_agents() -> None:
    with stage(plan()) as made:
        agent = made.start_alone("a1")
        made.start("a2")
        first = made.gather()
        made.coordinator.run({"a": soon()})
        before = sockets_of(agent.pid)
        again = made.gather()
        after = sockets_of(agent.pid)
        records = made.coordinator.run({"a": soon()})
    assert len(before) == len(after) == 3  # to the coordinator, to the peer, from the peer
    assert len(before & after) == 1
    assert [found.host for found in again] == [found.host for found in first]
    assert len(records) == 2 * 3


def test_no_worker_ends_an_iteration_before_all_have_begun_to_send() -> None:
    """An all-reduce needs everybody, so the slowest paces all."""
    with stage(plan("a", workers=5)) as made:
        made.start()
        made.gather()
        records = made.coordinator.run({"a": soon()})
    for iteration in range(3):
        own = [record for record in records if record.iteration == iteration]
        assert min(record.end_s for record in own) >= max(record.up_begin_s for record in own)


def test_an_agent_started_by_its_command_line_works() -> None:
    with stage(plan()) as made:
        agents = [made.start_alone(host) for host in ("a1", "a2")]
        made.gather()
        made.coordinator.run({"a": soon()})
        made.coordinator.close()
        assert [agent.wait(timeout=30) for agent in agents] == [0, 0]


# Jobs that come and go


STAGES = (
    # Rank 0 and 1 share a host; they send rank 2 something, get something back, and all exchange at the end.
    (
        Op("compute", 0.01),
        Op("send", size_bytes=100_000, peer=2, after=(0,)),
        Op("receive", size_bytes=30_000, peer=2),
        Op("all-to-all", size_bytes=90_001, group=0, after=(2,)),
    ),
    (
        Op("compute", 0.02),
        Op("send", size_bytes=200_000, peer=2, after=(0,)),
        Op("receive", size_bytes=40_000, peer=2),
        Op("all-to-all", size_bytes=90_001, group=0),
    ),
    (
        Op("receive", size_bytes=100_000, peer=0),
        Op("receive", size_bytes=200_000, peer=1),
        Op("compute", 0.01, after=(0, 1)),
        Op("send", size_bytes=30_000, peer=0, after=(2,)),
        Op("send", size_bytes=40_000, peer=1),
        Op("all-to-all", size_bytes=90_001, group=0),
    ),
)


def staged(iterations: int = 3) -> JobPlan:
    made = plan("s", workers=3, block=3, iterations=iterations)
    ips = made.fabric_ips
    return replace(
        made, hosts=("s1", "s1", "s2"), fabric_ips=(ips[0], ips[0], ips[1]), groups=((0, 1, 2),), programs=STAGES
    )


def test_workers_of_one_host_and_of_different_programs_run() -> None:
    job = staged()
    with stage(job) as made:
        assert made.slots == [Slot("s1", 0), Slot("s1", 1), Slot("s2", 0)]
        made.start()
        found = made.gather()
        records = made.coordinator.run({"s": soon()})
        assert made.coordinator.free("s1") == []
        made.coordinator.release("s")
        assert made.coordinator.free("s1") == [Slot("s1", 0), Slot("s1", 1)]
    assert len(found) == 2 * len(job.connections()) == 12
    assert Counter(record.rank for record in records) == {0: 3, 1: 3, 2: 3}
    assert job.compute_s == pytest.approx(0.03)
    # Rank 2 needs what rank 1 has after 20 ms, and computes for 10 ms; nobody ends before it has sent its share.
    assert all(record.end_s - record.begin_s >= 0.029 for record in records)


def test_slots_serve_one_job_after_another() -> None:
    first, second = plan("a", workers=3), replace(plan("b", workers=2), hosts=("a3", "a1"))
    second = replace(second, fabric_ips=(first.fabric_ips[2], first.fabric_ips[0]))
    with stage(first) as made:
        made.start()
        conductor = made.coordinator
        conductor.gather([first])
        with pytest.raises(ValueError, match="job b, rank 0: a3 has no free accelerator"):
            conductor.gather([second])
        conductor.start("a", soon())
        with pytest.raises(ValueError, match="job a runs"):
            conductor.release("a")
        done = conductor.wait()
        conductor.release("a")
        conductor.gather([second])
        again = conductor.run({"b": soon()}, iterations=1)
        with pytest.raises(ValueError, match="no such jobs: a"):
            conductor.start("a", soon())
    assert done == Done("a", 3, max(record.end_s for record in conductor.records if record.job == "a"))
    assert sorted((record.job, record.rank, record.host) for record in again) == [("b", 0, "a3"), ("b", 1, "a1")]


def test_waiting_ends_when_it_was_to_end() -> None:
    with stage(plan("a", iterations=1000)) as made:
        made.start()
        made.gather()
        until_s = time.time() + 0.1
        assert made.coordinator.wait(until_s) is None
        assert time.time() >= until_s
        assert made.coordinator.wait() is None  # nothing runs
        made.coordinator.start("a", soon())
        assert made.coordinator.wait(soon() + 0.3) is None
        assert made.calls


@pytest.mark.parametrize("when", ["before it begins", "while it runs"])
def test_a_job_is_stopped_after_an_iteration_that_all_its_workers_did(when: str) -> None:
    with stage(plan("a", workers=4, iterations=10_000)) as made:
        made.start()
        made.gather()
        made.coordinator.start("a", soon(), first_iteration=7)
        if when == "while it runs":
            assert made.coordinator.wait(soon() + 0.3) is None
            assert made.coordinator.records
        made.coordinator.stop("a")
        done = made.coordinator.wait()
        assert done is not None
        seen = list(made.coordinator.records)
        again = made.coordinator.run({"a": soon()}, iterations=2)
    assert {max(record.iteration for record in of(seen, "a", rank)) for rank in range(4)} == {6 + done.iterations}
    assert seen[0].iteration == 7
    assert [record.iteration for record in of(again, "a", 3)] == [0, 1]


def test_a_job_keeps_to_its_ticks_and_says_what_it_waited() -> None:
    with stage(plan("a", iterations=4)) as made:
        made.start()
        made.gather()
        start_s = soon()
        records = made.coordinator.run({"a": start_s}, holds={"a": Hold(start_s, 0.25, 0.1)})
    for rank in range(2):
        own = of(records, "a", rank)
        for record in own:
            turns = (record.begin_s - start_s) / 0.25
            assert turns - math.floor(turns + 1e-6) <= 0.1 + 1e-6
        for earlier, later in pairwise(own):
            assert later.begin_s == pytest.approx(earlier.end_s + later.held_s + later.lost_s, abs=1e-6)
    assert any(record.held_s > 0 for record in records)


def test_a_job_that_is_too_slow_for_its_ticks_adjusts_and_loses_time() -> None:
    with stage(plan("a", iterations=4)) as made:
        made.start()
        made.gather()
        start_s = soon()
        records = made.coordinator.run({"a": start_s}, holds={"a": Hold(start_s, 0.04, 0.05)})  # it computes for 50 ms
    own = of(records, "a", 0)
    assert own[0].adjusted == 0
    for record in own[1:]:
        assert record.adjusted == 1
        assert 0 < record.lost_s <= 0.04
        turns = (record.begin_s - start_s) / 0.04
        assert turns == pytest.approx(round(turns), abs=1e-3)


def test_a_running_job_can_be_given_another_time_shift() -> None:
    with stage(plan("a", iterations=10_000)) as made:
        made.start()
        made.gather()
        start_s = soon()
        made.coordinator.start("a", start_s)
        made.coordinator.wait(start_s + 0.2)
        made.coordinator.hold("a", Hold(start_s + 0.11, 0.3, 0.2))
        made.coordinator.wait(start_s + 2.0)
        made.coordinator.stop("a")
        assert made.coordinator.wait() is not None
    last = of(made.coordinator.records, "a", 0)[-1]
    turns = (last.begin_s - start_s - 0.11) / 0.3
    assert turns - math.floor(turns + 1e-6) <= 0.2 + 1e-6
    assert any(record.held_s > 0.1 for record in made.coordinator.records)


def test_workers_can_be_late_slow_and_unsteady() -> None:
    conduct = (Conduct(), Conduct(jitter=0.1, slow=2.0, late_s=0.2))
    job = replace(plan("a", iterations=6), conduct=conduct, seed=3)
    with stage(job) as made:
        made.start()
        made.gather()
        start_s = soon()
        records = made.coordinator.run({"a": start_s})
    late = of(records, "a", 1)
    assert late[0].begin_s == pytest.approx(start_s + 0.2)
    for record in late:
        factor = compute_factor(0.1, 2.0, 3, "a", 1, record.iteration)
        assert record.up_begin_s - record.begin_s >= job.down_s * factor - 1e-6
        assert record.end_s - record.begin_s >= job.compute_s * factor - 1e-6
    assert all(record.end_s >= late[0].up_begin_s for record in of(records, "a", 0))


# Failures


def test_an_agent_that_never_comes_is_named() -> None:
    with stage(plan(), timeout_s=2.0) as made:
        made.start("a1")
        with pytest.raises(NotValid, match="missing: job a, rank 1 on a2; the agents:") as told:
            made.gather()
    assert "job a, rank 0 on a1: said hello\n  job a, rank 1 on a2: did not come" in str(told.value)


def test_a_killed_agent_is_named_and_so_is_what_the_others_saw() -> None:
    with stage(plan(workers=3, iterations=1000)) as made:
        made.start("a1", "a3")
        victim = made.start_alone("a2")
        made.gather()
        made.at_first_iteration = victim.kill
        with pytest.raises(NotValid) as told:
            made.coordinator.run({"a": soon()})
    lines = str(told.value).splitlines()
    assert lines[0] == "job a, rank 1 on a2 went away; the agents:"
    assert lines[2].startswith("  job a, rank 1 on a2: went away (")
    assert "failed: rank 1 (a2, 127." in lines[1] + lines[3]


def test_a_silent_agent_is_named_by_its_neighbour() -> None:
    with stage(plan(iterations=1000), timeout_s=2.0) as made:
        made.start("a1")
        victim = made.start_alone("a2")
        made.gather()
        made.at_first_iteration = lambda: victim.send_signal(signal.SIGSTOP)
        with pytest.raises(NotValid, match=r"failed: rank 1 \(a2, 127.* was silent for too long"):
            made.coordinator.run({"a": soon()})
        victim.kill()


def test_a_congestion_control_that_the_kernel_refuses_is_found() -> None:
    wanted = replace(plan(), congestion_control="no-such-cc")
    with stage(wanted) as made:
        made.start()
        with pytest.raises(NotValid) as told:
            made.gather()
    lines = str(told.value).splitlines()
    used = default_congestion_control()
    whose = "  job a, rank 0 on a1, socket to rank 1"
    assert lines[1] == f"{whose}: congestion_control is {used!r}, must be 'no-such-cc'"
    assert len(lines) == 5  # two agents with two sockets each


def test_buffers_that_are_too_small_are_found() -> None:
    with stage(plan(), terms=SocketTerms(ecn=False, least_buffer_bytes=1 << 40)) as made:
        made.start()
        with pytest.raises(NotValid) as told:
            made.gather()
    for key in ("send_buffer_bytes", "receive_buffer_bytes"):
        assert f"socket to rank 1: {key} is " in str(told.value)
        assert str(told.value).count(f"{key} is ") == 4  # two agents with two sockets each
    assert "must be at least 1099511627776" in str(told.value)


SOCKET = AgentSocket("a", 0, "h1", "to rank 1", "dctcp", True, True, 10, 100, 100, 8948, 0.2)


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
        made.start()
        with pytest.raises(
            NotValid, match=r"rank 1 on a2 failed: cannot listen on 192[.]0[.]2[.]1:5840: Cannot assign"
        ):
            made.gather()


def test_a_start_that_is_over_is_not_run_late() -> None:
    with stage(plan()) as made:
        made.start()
        made.gather()
        with pytest.raises(NotValid, match=r"failed: was told to start 9\.[0-9]+ s ago"):
            made.coordinator.run({"a": time.time() - 9})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b'{"say": "hello", "host": "a7", "slot": 0}\n', "came as slot 0 of a7, which nobody knows"),
        (b"GET / HTTP/1.1\n", "a stranger said what nobody understands: b'GET / HTTP/1.1'"),
        (b'{"say": "done"}\n', "a stranger said done before hello"),
        (b'{"say": "hello", "host": "a1"}\n', "nobody understands"),
        (b"[1]\n", "nobody understands"),
        (b"x" * (1 << 20), "a stranger said a line that never ends"),
        (b'{"say": "hello", "host": "a1", "slot": 0}\n{"say": "done"}\n', "said 'done', awaited was None"),
        (b'{"say": "hello", "host": "a1", "slot": 0}\n{"say": "iteration", "x": 1}\n', "nobody understands"),
    ],
)
def test_what_no_agent_says_ends_the_run(said: bytes, told: str) -> None:
    with stage(plan()) as made, socket.create_connection(made.coordinator.address) as stranger:
        stranger.sendall(said)
        with pytest.raises(NotValid, match=told):
            made.gather()


def test_the_same_slot_cannot_be_taken_twice() -> None:
    with stage(plan()) as made:
        made.start("a1")
        made.start("a1")
        with pytest.raises(NotValid, match="came as slot 0 of a1, which is there already"):
            made.gather()


@pytest.mark.parametrize("module", ["agent", "spawn"])
def test_a_wrong_command_line_is_answered_with_the_right_one(module: str) -> None:
    command = [sys.executable, "-m", f"workloads.training.{module}", "--coordinator"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert f"python -m workloads.training.{module} --coordinator IP:PORT" in run.stderr


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("--coordinator 10.255.0.1:7000 --host h1 --slot 3", (("10.255.0.1", 7000), "h1", 3)),
        ("--slot 3 --host h1 --coordinator 10.255.0.1:7000", (("10.255.0.1", 7000), "h1", 3)),
        ("--coordinator 10.255.0.1 --host h1 --slot 3", None),
        ("--coordinator 10.255.0.1:x --host h1 --slot 3", None),
        ("--coordinator 10.255.0.1:7000 --host h1 --slot -1", None),
        ("--coordinator 10.255.0.1:7000 --host h1 --slot", None),
        ("--coordinator 10.255.0.1:7000 --host h1 --slot 1 --slot 2", None),
        ("", None),
    ],
)
def test_command_lines(line: str, command: object) -> None:
    assert parse(line.split()) == command


def test_a_job_that_loses_a_worker_fails_alone_and_can_begin_again() -> None:
    jobs = plan("a"), plan("b", block=2)
    slots = [Slot(host, 0) for job in jobs for host in job.hosts]
    spawners = []
    with Coordinator(("127.0.0.1", 0), slots, lambda *_: None, NO_ECN, contain=True) as coordinator:
        spawners.append(start_agents(coordinator.address, [(slot.host, slot.index, None) for slot in slots]))
        coordinator.gather(jobs)
        assert coordinator.send_signal("b2", signal.SIGSTOP) == 1
        start_s = time.time() + 0.2
        killer = threading.Timer(0.4, coordinator.send_signal, ("b2", signal.SIGKILL))
        killer.start()
        records = coordinator.run({"a": start_s, "b": start_s})
        (done,) = coordinator.failures
        said = ("rank 1 on b2 went away", "closed the connection")  # who speaks first
        assert done.job == "b"
        assert done.failed.endswith(said)
        assert coordinator.failures[0].iterations == 0
        assert Counter(record.job for record in records)["a"] == 6
        # The other worker of b was killed with it; both slots are given new agents.
        assert coordinator.send_signal("b1", signal.SIGCONT) == 0
        lost = coordinator.lost()
        assert (sorted(slot.host for slot in lost), coordinator.lost()) == (["b1", "b2"], [])
        spawners.append(start_agents(coordinator.address, [(slot.host, slot.index, None) for slot in lost]))
        coordinator.gather(jobs)
        start_s = time.time() + 0.2
        assert len(coordinator.run({"a": start_s, "b": start_s})) == 12
        assert coordinator.failures == []
    assert [spawner.wait(timeout=10) for spawner in spawners] == [1, 0]


def test_a_silent_job_fails_alone() -> None:
    job = plan("a")
    slots = [Slot(host, 0) for host in job.hosts]
    with Coordinator(("127.0.0.1", 0), slots, lambda *_: None, NO_ECN, timeout_s=1.0, contain=True) as coordinator:
        spawner = start_agents(coordinator.address, [(slot.host, slot.index, None) for slot in slots])
        coordinator.gather([job])
        for host in job.hosts:
            assert coordinator.send_signal(host, signal.SIGSTOP) == 1
        coordinator.run({"a": time.time() + 0.2})
        (done,) = coordinator.failures
        assert "nobody said anything for 1.2 s; missing: job a, rank 0 on a1, job a, rank 1 on a2" in done.failed
    assert spawner.wait(timeout=10) == 1
