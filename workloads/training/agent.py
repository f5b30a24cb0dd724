"""One worker of whatever training job it is given, as a program in its host: one per accelerator.

    python -m workloads.training.agent --coordinator IP:PORT --host HOST --slot I

It reports to the coordinator (coordinator.py) over the management network, is told what to do, joins the other workers
of its job over the fabric, and acts out iterations: compute as waiting, gradients as bytes. It leaves with 0 when it is
sent home, with 1 when it failed (the coordinator has been told why), with 2 when the command line is wrong.

Messages are JSON lines. The agent says: hello (host, slot, pid); listening; connected (sockets: what the kernel uses on
each of its connections); iteration (what records.IterationRecord has); done; failed (why). It is told: listen (rank,
plan), which also ends the job it may be in; connect; run (start_s, iterations, first_iteration, hold or null); leave,
which ends its job; bye. Heard between two iterations, without waiting for them, are stop (after: the number of the last
iteration), and hold (hold: start_s, period_s, tolerance, as in pace.py, or null). The plan is that of plan.JobPlan, but
for the worker's own program, conduct, port, peers and names; with buffer_bytes (or null) and timeout_s, the longest
silence of a peer that is borne. All times are time.time().
"""

# Imports only what starts quickly: in a guest every module costs dozens of system calls of 12 µs.
from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import time

from testbed.errors import NotValid
from testbed.telemetry import netstat
from workloads.training import pace, sockets
from workloads.training.executor import compiled, iterate, sleep_until
from workloads.training.mesh import Mesh, PeerLostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OPTIONS = ("--coordinator", "--host", "--slot")
LONGEST_ORDER_BYTES = 1 << 16  # at a time
RANK = struct.Struct("!I")  # the first bytes on every connection: whose it is


class AgentError(Exception):
    """This worker cannot go on; the message says why."""


class Control:
    """The connection to the coordinator: one JSON object per line, each way."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self._orders: list[dict[str, Any]] = []

    def say(self, what: str, **more: object) -> None:
        """Tell the coordinator. Raises OSError if it is gone."""
        self._connection.sendall(json.dumps({"say": what, **more}).encode() + b"\n")

    def hear(self, *expected: str) -> dict[str, Any]:
        """Wait for the next order, which must be one of `expected`. Raises AgentError."""
        while not self._orders:
            self._take(0)
        order = self._orders.pop(0)
        if order["do"] not in expected:
            raise AgentError(f"was told to {order['do']}, expected {' or '.join(expected)}")
        return order

    def heard(self, *expected: str) -> dict[str, Any] | None:
        """The next order if there is one already; it must be one of `expected`. Raises AgentError."""
        if not self._orders:
            with contextlib.suppress(BlockingIOError):
                self._take(socket.MSG_DONTWAIT)
        return self.hear(*expected) if self._orders else None

    def _take(self, flags: int) -> None:
        data = self._connection.recv(LONGEST_ORDER_BYTES, flags)
        if not data:
            raise AgentError("the coordinator is gone")
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._orders += [json.loads(line) for line in lines]


class Worker:
    """The worker of `rank` in the job of `plan` (see the module): its way to its peers, its iterations."""

    def __init__(self, plan: dict[str, Any], rank: int, control: Control) -> None:
        self._plan, self._rank, self._control = plan, rank, control
        self._options = (plan["congestion_control"], plan["dscp"], plan["buffer_bytes"])
        self._names = {
            peer: f"rank {peer} ({host}, {ip})"
            for peer, (host, ip) in enumerate(zip(plan["hosts"], plan["fabric_ips"], strict=True))
        }
        self._steps = compiled(plan["program"], plan["groups"], rank)

    def listen(self) -> socket.socket:
        """Await peers at this worker's fabric address. Raises AgentError if it is not this host's."""
        ip, port = self._plan["fabric_ips"][self._rank], self._plan["ports"][self._rank]
        try:
            return sockets.listen(ip, port, *self._options, backlog=len(self._plan["from"]))
        except OSError as error:
            raise AgentError(f"cannot listen on {ip}:{port}: {error.strerror}") from None

    def join(self, listener: socket.socket) -> Mesh:
        """All connections, once all workers listen; closes `listener`. Raises PeerLostError."""
        ips, ports, timeout_s = self._plan["fabric_ips"], self._plan["ports"], self._plan["timeout_s"]
        out, inward = {}, dict[int, socket.socket]()
        for peer in self._plan["to"]:
            try:
                out[peer] = sockets.connect(ips[self._rank], (ips[peer], ports[peer]), *self._options, timeout_s)
                out[peer].sendall(RANK.pack(self._rank))
            except OSError as error:
                raise PeerLostError(f"no connection with {self._names[peer]}: {error.strerror or error}") from None
        awaited = list(self._plan["from"])
        while awaited:
            whom = " or ".join(self._names[peer] for peer in awaited)
            try:
                connection, ip = sockets.accept(listener, timeout_s)
                (peer,) = RANK.unpack(connection.recv(RANK.size, socket.MSG_WAITALL).ljust(RANK.size, b"\xff"))
            except OSError as error:
                raise PeerLostError(f"no connection with {whom}: {error.strerror or error}") from None
            if peer not in awaited or ip != ips[peer]:
                raise PeerLostError(f"no connection with {whom}: one came from {ip}")
            awaited.remove(peer)
            inward[peer] = connection
        listener.close()
        return Mesh(out, {peer: inward[peer] for peer in sorted(inward)}, self._names)

    def run(self, mesh: Mesh, order: dict[str, Any]) -> None:
        """Act out the iterations that `order` says, each from the end of the one before, or held for its tick.

        Says the record of each when it ends. Raises PeerLostError, OSError, and AgentError if the start is over, or the
        iteration to stop after.
        """
        over_s = time.time() - order["start_s"]
        if over_s > 0:
            raise AgentError(f"was told to start {over_s:.6f} s ago")
        ticks = pace.Ticks(order["hold"])
        begin_s, held_s, lost_s = ticks.begin(order["start_s"])
        begin_s += self._plan["conduct"]["late_s"]
        sleep_until(begin_s)
        iteration, ce_packets = order["first_iteration"], netstat.read().ce
        last = iteration + order["iterations"] - 1
        while True:
            sleep_until(begin_s)
            up_begin_s, end_s = iterate(self._steps, mesh, begin_s, self._factor(iteration))
            ce_before, ce_packets = ce_packets, netstat.read().ce
            self._control.say(
                "iteration", iteration=iteration, begin_s=begin_s, up_begin_s=up_begin_s, end_s=end_s,
                ce_packets=ce_packets - ce_before, held_s=held_s, lost_s=lost_s, adjusted=int(lost_s > 0),
            )  # fmt: skip
            last = self._heed(ticks, iteration, last)
            if iteration >= last:
                return
            iteration += 1
            begin_s, held_s, lost_s = ticks.begin(end_s)

    def _factor(self, iteration: int) -> float:
        conduct, seed = self._plan["conduct"], self._plan["seed"]
        return pace.compute_factor(conduct["jitter"], conduct["slow"], seed, self._plan["name"], self._rank, iteration)

    def _heed(self, ticks: pace.Ticks, iteration: int, last: int) -> int:
        """Follow the orders that came meanwhile; the last iteration, as it is then."""
        while (order := self._control.heard("stop", "hold")) is not None:
            if order["do"] == "hold":
                ticks.change(order["hold"])
            elif order["after"] < iteration:
                raise AgentError(f"was told to stop after iteration {order['after']}, when {iteration} was over")
            else:
                last = min(last, order["after"])
        return last


def serve(control: Control, host: str, slot: int) -> None:
    """Be the worker that `slot` of `host` is told to be until the coordinator says bye.

    Raises AgentError, PeerLostError, OSError, and NotValid if the host's counters cannot be read.
    """
    control.say("hello", host=host, slot=slot, pid=os.getpid())
    worker: Worker | None = None
    mesh: Mesh | None = None
    # stop and hold are for a job that runs; its last iteration may just be over.
    while (order := control.hear("listen", "run", "leave", "stop", "hold", "bye"))["do"] != "bye":
        if order["do"] in ("listen", "leave") and mesh is not None:
            mesh.close()
            mesh = None
        if order["do"] == "listen":
            worker = Worker(order["plan"], order["rank"], control)
            listener = worker.listen()
            control.say("listening")
            control.hear("connect")
            mesh = worker.join(listener)
            control.say("connected", sockets=mesh.read_back())
        elif order["do"] == "run":
            if worker is None or mesh is None:
                raise AgentError("was told to run before it had a job")
            worker.run(mesh, order)
            control.say("done")


def parse(arguments: list[str]) -> tuple[tuple[str, int], str, int] | None:
    """((ip, port) of the coordinator, host, slot) of a command line, None if it is wrong."""
    given = dict(zip(arguments[::2], arguments[1::2], strict=False))
    ip, _, port = given.get("--coordinator", "").rpartition(":")
    slot = given.get("--slot", "")
    if len(arguments) != 2 * len(OPTIONS) or sorted(given) != sorted(OPTIONS):
        return None
    if not (ip and port.isdecimal() and slot.isdecimal()):
        return None
    return (ip, int(port)), given["--host"], int(slot)


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code. A forked child may call it."""
    command = parse(arguments)
    if command is None:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    address, host, slot = command
    # A timer may otherwise ring up to 50 µs late, which is an eternity where the CPU costs no time.
    with contextlib.suppress(OSError), open("/proc/self/timerslack_ns", "w") as slack:  # noqa: PTH123 - without pathlib
        slack.write("1")
    with socket.socket() as connection:
        # Not create_connection(): it would load everything that is needed to resolve names.
        connection.connect(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        control = Control(connection)
        try:
            serve(control, host, slot)
        except (AgentError, PeerLostError, NotValid, OSError) as error:
            # If it is the coordinator that is gone, there is nobody left to tell.
            with contextlib.suppress(OSError):
                control.say("failed", why=str(error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
