"""The sampler: what it writes, and how it ends. A host's counters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from socket import if_nametoindex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError, NotValid
from testbed.telemetry import netstat, sampler
from testbed.telemetry.qdisc import Qdisc
from testbed.telemetry.sampler import ENDING, Port, Sample, Steps
from testbed.telemetry.tables import QUEUES

ROOT = Path(__file__).parents[2]


class FakeReader:
    """Queues that a test fills: each reading of 3: takes the next backlog."""

    def __init__(self, backlogs: list[int]) -> None:
        self._backlogs, self.asked = iter(backlogs), 0

    def read(self, ifindex: int, handle: str) -> Qdisc:
        if handle == "2:":
            return Qdisc(ifindex, "tbf", "2:", "root", {}, 1000, 10, 77, 7, 3, 0)
        self.asked += 1
        backlog = next(self._backlogs, 0)
        return Qdisc(ifindex, "red", "3:", "2:1", {}, 5, 5, backlog, backlog // 100, 9, 4)


def test_a_sample_takes_the_queue_from_3_and_what_was_sent_or_dropped_from_2() -> None:
    assert sampler.sample(FakeReader([500]), Port("a->b", "x", 7)) == Sample(500, 5, 1000, 10, 4, 3)


@given(st.lists(st.sampled_from([0, 1, 2]), max_size=30))
def test_the_line_through_the_rows_is_the_line_through_the_samples(
    tmp_path_factory: pytest.TempPathFactory, backlogs: list[int]
) -> None:
    path = tmp_path_factory.mktemp("steps") / "queues.csv"
    with QUEUES.writer(path) as writer:
        steps = Steps(writer)
        for t, backlog in enumerate(backlogs):
            steps.add(float(t), "a->b", Sample(backlog, 0, 0, 0, 0, 0))
            steps.add(float(t), "b->a", Sample(0, 0, 0, 0, 0, 0))
        steps.finish()
    rows = QUEUES.read(path).where(link="a->b")
    times, values = rows.numbers("t_s"), rows.numbers("backlog_bytes")
    for t, backlog in enumerate(backlogs):
        left = max(row for row, at in enumerate(times) if at <= t)
        right = min(row for row, at in enumerate(times) if at >= t)
        # A time without a row of its own lies between two equal ones.
        assert values[left] == values[right] == backlog
    idle = QUEUES.read(path).where(link="b->a").numbers("t_s")
    assert idle == sorted({0.0, len(backlogs) - 1.0} if backlogs else set())


def test_watching_ends_with_a_signal_and_keeps_the_last_sample(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        reader = FakeReader([100, 100, 200])
        killer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
        killer.start()
        with QUEUES.writer(tmp_path / "q.csv") as writer:
            sampler.watch(reader, [Port("a->b", "lo", 1)], writer, time.time(), 0.001)
        killer.join()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    records = QUEUES.read(tmp_path / "q.csv")
    assert records.counts("backlog_bytes")[:3] == [100, 100, 200]
    assert reader.asked > 3
    assert len(records) == 5  # both 100s, the 200, the first and the last 0


def test_ports_are_resolved() -> None:
    assert sampler.resolve("a->b=lo") == Port("a->b", "lo", if_nametoindex("lo"))
    for given_port in ("a->b", "=lo", "a->b="):
        with pytest.raises(InputError, match="is not LINK=IFNAME"):
            sampler.resolve(given_port)
    with pytest.raises(InputError, match="no interface absent0"):
        sampler.resolve("a->b=absent0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--interval", "0.00009", "--port", "a->b=lo"], "--interval: 9e-05 s is below 0.0001 s"),
        (["--interval", "nan", "--port", "a->b=lo"], "--interval: nan s"),
        (["--interval", "1", "--port", "a->b=absent0"], "no interface absent0"),
    ],
)
def test_bad_arguments_end_the_program(tmp_path: Path, arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "testbed.telemetry.sampler", *arguments]
    command += ["--epoch", "0", "--out", str(tmp_path / "q.csv")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "q.csv").exists()


def test_a_port_without_queues_ends_the_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "testbed.telemetry.sampler", "--interval", "0.01", "--port", "a->b=lo"]
    command += ["--epoch", "0", "--out", str(tmp_path / "q.csv")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "qdisc 3: of interface" in done.stderr


def test_counters_pair_names_with_values() -> None:
    text = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InCEPkts\nIpExt: 7\n"
    assert netstat.parse(text) == {"TcpExt.A": 1, "TcpExt.B": 2, "IpExt.InCEPkts": 7}
    for torn in ("TcpExt: A B\nTcpExt: 1\n", "TcpExt: A\nIpExt: 1\n"):
        with pytest.raises(NotValid, match="do not pair up"):
            netstat.parse(torn)


def test_a_hosts_counters_are_read_from_outside() -> None:
    assert netstat.read(os.getpid()) == netstat.read()
    assert netstat.read().not_ect >= 0
