"""A program that watches the queues of chosen ports and writes `queues.csv`.

    python -m testbed.telemetry.sampler --interval 0.005 --port "tor1->agg1=tor1-eth5" --epoch 1700000012.5
    --out queues.csv

It reads each port's AQM (qdisc 3:, backlog and marks) and rate limiter (qdisc 2:, bytes and drops) by
netlink, at multiples of the interval from the epoch. A row equal to the one before it is left out, except the
last before a change: so a line drawn through the rows is what the queue did, and an idle port costs no space.
SIGTERM or SIGINT ends it, with every row on disk.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from socket import if_nametoindex
from typing import NamedTuple, Protocol

from testbed.errors import EnvironmentLacks, InputError, exit_code
from testbed.telemetry.qdisc import Qdisc, QdiscReader, total
from testbed.telemetry.schedule import Schedule
from testbed.telemetry.tables import QUEUES, Writer

LIMITER, QUEUE = "2:", "3:"
MINIMUM_INTERVAL_S = 100e-6
ENDING = (signal.SIGTERM, signal.SIGINT)


class Port(NamedTuple):
    """A directed link, the name of its egress interface, and that interface's index."""

    link: str
    interface: str
    ifindex: int
    queues: tuple[str, ...] = (QUEUE,)


class Sample(NamedTuple):
    """One reading of a port, in the order of the columns of `queues.csv`."""

    backlog_bytes: int
    backlog_packets: int
    tx_bytes: int
    tx_packets: int
    marked_packets: int
    dropped_packets: int


class Reader(Protocol):
    """What the sampler needs of `QdiscReader`."""

    def read(self, ifindex: int, handle: str) -> Qdisc: ...


class Steps:
    """Writes the samples of many links, leaving out the inner ones of a run of equal samples."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._written: dict[str, Sample] = {}
        self._held: dict[str, tuple[float, Sample]] = {}

    def add(self, t_s: float, link: str, sample: Sample) -> None:
        """Take one sample; a link's samples come in the order of time."""
        if self._written.get(link) == sample:
            self._held[link] = t_s, sample
            return
        self._release(link)
        self._writer.row(t_s, link, *sample)
        self._written[link] = sample

    def finish(self) -> None:
        """Write the last sample of every link, so that each line ends where the watching ended."""
        for link in sorted(self._held):
            self._release(link)

    def _release(self, link: str) -> None:
        if held := self._held.pop(link, None):
            self._writer.row(held[0], link, *held[1])


def sample(reader: Reader, port: Port) -> Sample:
    """Read one port, by two netlink requests or by one more for each further band."""
    queue = total([reader.read(port.ifindex, handle) for handle in port.queues])
    limiter = reader.read(port.ifindex, LIMITER)
    return Sample(
        queue.backlog_bytes,
        queue.backlog_packets,
        limiter.bytes,
        limiter.packets,
        queue.marked,
        limiter.drops,
    )


def watch(reader: Reader, ports: Sequence[Port], writer: Writer, epoch_s: float, interval_s: float) -> None:
    """Sample until a signal of `ENDING` is pending; the caller has blocked them, so the wait itself receives
    it."""
    schedule, steps = Schedule(epoch_s, interval_s), Steps(writer)
    while True:
        now_s = time.time()
        for port in ports:
            steps.add(now_s - epoch_s, port.link, sample(reader, port))
        now_s = time.time()
        if signal.sigtimedwait(ENDING, max(0.0, schedule.after(now_s) - now_s)) is not None:
            break
    steps.finish()


def resolve(given: str) -> Port:
    """A `LINK=IFNAME` of the command line, or `LINK=IFNAME,3:,5:` with the handles of its queues. Raises InputError
    when it is not one or the interface does not exist."""
    link, equals, rest = given.rpartition("=")
    interface, *queues = rest.split(",")
    if not (link and equals and interface):
        raise InputError("--port", f"{given!r} is not LINK=IFNAME", "for example tor1->agg1=tor1-eth5")
    try:
        return Port(link, interface, if_nametoindex(interface), tuple(queues) or (QUEUE,))
    except OSError as error:
        raise InputError("--port", f"there is no interface {interface} here") from error


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="testbed.telemetry.sampler", description="Watch queues, write queues.csv.")
    parser.add_argument("--interval", type=float, required=True, metavar="S", help="virtual seconds, at least 0.0001")
    parser.add_argument("--port", action="append", required=True, metavar="LINK=IFNAME", help="may be repeated")
    parser.add_argument("--epoch", type=float, required=True, metavar="T", help="time.time() at t_s = 0")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    return parser.parse_args(argv)


def _finest_timer() -> None:
    """Ask for wake-ups on the nanosecond instead of within 50 us, the kernel's default for ordinary
    processes."""
    slack = Path("/proc/self/timerslack_ns")
    try:
        slack.write_text("1")
    except OSError as error:
        raise EnvironmentLacks(f"{slack} cannot be written: {error.strerror}", "mount -t proc proc /proc") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the exit code is the error's."""
    arguments = _arguments(argv)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    return exit_code(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    if not arguments.interval >= MINIMUM_INTERVAL_S:
        raise InputError("--interval", f"{arguments.interval} s is below {MINIMUM_INTERVAL_S} s")
    ports = [resolve(given) for given in arguments.port]
    _finest_timer()
    reader = QdiscReader()
    with QUEUES.writer(arguments.out) as writer:
        watch(reader, ports, writer, arguments.epoch, arguments.interval)
    reader.close()


if __name__ == "__main__":
    sys.exit(main())
