"""One worker of a training job, as a program in its host.

    python -m workloads.training.agent --coordinator IP:PORT --job NAME --rank R

It reports to the coordinator (coordinator.py) over the management network, is told what to do, joins the
ring of its job over the fabric, and acts out iterations: compute as sleep, gradients as bytes. It leaves
with 0 when it is sent home, with 1 when it failed (the coordinator has been told why), with 2 when the
command line is wrong.

Messages are JSON lines. The agent says: hello (job, rank); listening; connected (sockets: what the
kernel uses towards the next worker, and from the previous one); iteration (iteration, begin_s, up_begin_s,
end_s, ce_packets); done; failed (why). It is told: listen (plan), which also ends the ring it may be in;
connect; run (start_s, iterations); bye. The plan has hosts, fabric_ips, port, congestion_control, dscp,
buffer_bytes (or null), timeout_s, and the program as [kind, duration_s, size_bytes, after] of its operations.
All times are time.time().
"""

# Imports only what starts quickly: in a guest every module costs dozens of system calls of 12 µs.
from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from pathlib import Path

from testbed.errors import NotValid
from testbed.telemetry import netstat
from workloads.training import sockets
from workloads.training.ring import PeerLostError, Ring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

OPTIONS = ("--coordinator", "--job", "--rank")


class AgentError(Exception):
    """This worker cannot go on; the message says why."""


class Worker:
    """The worker of `rank` in the job of `plan` (see the module): its way into the ring, its iterations."""

    def __init__(self, plan: dict[str, Any], rank: int) -> None:
        self._plan, self._rank = plan, rank
        workers = len(plan["hosts"])
        self._next, self._previous = (rank + 1) % workers, (rank - 1) % workers
        self._options = (plan["congestion_control"], plan["dscp"], plan["buffer_bytes"])

    def listen(self) -> socket.socket:
        """Await the previous worker at this one's fabric address.

        Raises AgentError if it is not this host's.
        """
        ip, port = self._plan["fabric_ips"][self._rank], self._plan["port"]
        try:
            return sockets.listen(ip, port, *self._options)
        except OSError as error:
            raise AgentError(f"cannot listen on {ip}:{port}: {error.strerror}") from None

    def join(self, listener: socket.socket) -> Ring:
        """The ring, joined once all workers listen; closes `listener`. Raises PeerLostError."""
        ips, timeout_s = self._plan["fabric_ips"], self._plan["timeout_s"]
        names = self._name(self._next), self._name(self._previous)
        whom = names[0]
        try:
            peer = (ips[self._next], self._plan["port"])
            out = sockets.connect(ips[self._rank], peer, *self._options, timeout_s)
            whom = names[1]
            inward = sockets.accept(listener, ips[self._previous], timeout_s)
        except OSError as error:
            raise PeerLostError(f"no connection with {whom}: {error.strerror or error}") from None
        listener.close()
        return Ring(self._rank, len(ips), out, inward, *names)

    def iterations(self, ring: Ring, start_s: float, count: int) -> Iterator[dict[str, int | float]]:
        """Act out `count` iterations, the first from `start_s` on, each from the end of the one before.

        Yields the record of each when it ends. Raises PeerLostError, and AgentError if `start_s` is over.
        """
        late_s = time.time() - start_s
        if late_s > 0:
            raise AgentError(f"was told to start {late_s:.6f} s ago")
        sleep_until(start_s)
        begin_s, ce_packets = start_s, netstat.read().ce
        for iteration in range(count):
            up_begin_s, end_s = self._iterate(ring, begin_s)
            ce_before, ce_packets = ce_packets, netstat.read().ce
            yield {
                "iteration": iteration,
                "begin_s": begin_s,
                "up_begin_s": up_begin_s,
                "end_s": end_s,
                "ce_packets": ce_packets - ce_before,
            }
            begin_s = end_s

    def _iterate(self, ring: Ring, begin_s: float) -> tuple[float, float]:
        # Everything is due at a time counted from the beginning, so that late wakes do not add up.
        computed_s, up_begin_s, ends = begin_s, 0.0, list[float]()
        for kind, duration_s, size_bytes, after in self._plan["program"]:
            if kind == "compute":
                computed_s = max([computed_s, *(ends[other] for other in after)]) + duration_s
                ends.append(computed_s)
                continue
            sleep_until(max((ends[other] for other in after), default=begin_s))
            up_begin_s = up_begin_s or time.time()
            ring.all_reduce(size_bytes)
            ends.append(time.time())
        sleep_until(computed_s)
        return up_begin_s, time.time()

    def _name(self, rank: int) -> str:
        return f"rank {rank} ({self._plan['hosts'][rank]}, {self._plan['fabric_ips'][rank]})"


class Control:
    """The connection to the coordinator: one JSON object per line, each way."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")

    def say(self, what: str, **more: object) -> None:
        """Tell the coordinator. Raises OSError if it is gone."""
        self._connection.sendall(json.dumps({"say": what, **more}).encode() + b"\n")

    def hear(self, *expected: str) -> dict[str, Any]:
        """The next order, which must be one of `expected`. Raises AgentError."""
        line = self._lines.readline()
        if not line:
            raise AgentError("the coordinator is gone")
        order: dict[str, Any] = json.loads(line)
        if order["do"] not in expected:
            raise AgentError(f"was told to {order['do']}, expected {' or '.join(expected)}")
        return order


def sleep_until(due_s: float) -> None:
    """Sleep until time.time() is at least `due_s`."""
    while (left_s := due_s - time.time()) > 0:
        time.sleep(left_s)


def serve(control: Control, job: str, rank: int) -> None:
    """Be the worker of `rank` in `job` until the coordinator says bye.

    Raises AgentError, PeerLostError, OSError, and NotValid if the host's counters cannot be read.
    """
    control.say("hello", job=job, rank=rank)
    order = control.hear("listen", "bye")
    while order["do"] == "listen":
        worker = Worker(order["plan"], rank)
        listener = worker.listen()
        control.say("listening")
        control.hear("connect")
        ring = worker.join(listener)
        control.say("connected", sockets=ring.read_back())
        while (order := control.hear("run", "listen", "bye"))["do"] == "run":
            for record in worker.iterations(ring, order["start_s"], order["iterations"]):
                control.say("iteration", **record)
            control.say("done")
        ring.close()


def parse(arguments: list[str]) -> tuple[tuple[str, int], str, int] | None:
    """((ip, port) of the coordinator, job, rank) of a command line, None if it is wrong."""
    given = dict(zip(arguments[::2], arguments[1::2], strict=False))
    ip, _, port = given.get("--coordinator", "").rpartition(":")
    rank = given.get("--rank", "")
    if len(arguments) != 2 * len(OPTIONS) or sorted(given) != sorted(OPTIONS):
        return None
    if not (ip and port.isdecimal() and rank.isdecimal()):
        return None
    return (ip, int(port)), given["--job"], int(rank)


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code. A forked child may call it."""
    command = parse(arguments)
    if command is None:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    address, job, rank = command
    # A timer may otherwise ring up to 50 µs late, which is an eternity where the CPU costs no time.
    with contextlib.suppress(OSError):
        Path("/proc/self/timerslack_ns").write_text("1")
    with socket.socket() as connection:
        # Not create_connection(): it would load everything that is needed to resolve names.
        connection.connect(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        control = Control(connection)
        try:
            serve(control, job, rank)
        except (AgentError, PeerLostError, NotValid, OSError) as error:
            # If it is the coordinator that is gone, there is nobody left to tell.
            with contextlib.suppress(OSError):
                control.say("failed", why=str(error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
