"""Every way in which agents fail, and what becomes of their jobs; agents are real processes on loopback addresses."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
from training_stage import NO_ECN, default_congestion_control, plan, soon, stage

from testbed.errors import NotValid
from workloads.training.agent import parse
from workloads.training.coordinator import Coordinator, Slot, start_agents
from workloads.training.records import AgentSocket, SocketTerms
from workloads.training.slots import ROOT


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
