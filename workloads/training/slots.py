"""What the coordinator knows of the agents: one per accelerator slot, each with the job and rank it has at present."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workloads.training.operations import brief
from workloads.training.plan import Conduct, JobPlan
from workloads.training.records import AgentSocket, IterationRecord, SocketTerms

ROOT = Path(__file__).resolve().parents[2]
LONGEST_LINE_BYTES = 1 << 18
PORTS_PER_JOB = 64
WENT_AWAY = "went away"
STATES = {
    "hello": "said hello",
    "listening": "listens for its peers",
    "connected": "is connected with its peers, rests",
    "done": "is done with its iterations, rests",
}


@dataclass(frozen=True, order=True)
class Slot:
    """An accelerator: the host it is in, and which of the host's it is, from 0."""

    host: str
    index: int


def start_agents(
    coordinator: tuple[str, int], agents: Sequence[tuple[str, int, int | None]]
) -> subprocess.Popen[bytes]:
    """Start agents, each (host, slot, a process in its host's network namespace, None for this one).

    The process that is returned ends when all agents did, with exit code 0 if all went well; nothing else
    has to be waited for. Python is started once, without what makes its start slow (site, runpy), see
    spawn.py.
    """
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1));"
        " from workloads.training.spawn import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-B", "-P", "-s", "-S", "-c", program, str(ROOT)]
    command += ["--coordinator", f"{coordinator[0]}:{coordinator[1]}"]
    spawner = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert spawner.stdin is not None
    with spawner.stdin:
        spawner.stdin.write(json.dumps(agents).encode())
    return spawner


def spare_s(plan: JobPlan) -> float:
    """How long a worker of a job may be silent by its plan: computing, late, or waiting for a tick."""
    slowest = max((each.slow for each in plan.conduct), default=1.0)
    return 4 * slowest * plan.compute_s + max((each.late_s for each in plan.conduct), default=0.0)


def orders(plan: JobPlan, rank: int, terms: SocketTerms, timeout_s: float, first_port: int) -> dict[str, object]:
    """The plan as the agent of `rank` is given it (described in agent.py)."""
    connections = plan.connections()
    before = [plan.hosts[:other].count(host) for other, host in enumerate(plan.hosts)]
    return {
        **{key: getattr(plan, key) for key in ("name", "hosts", "fabric_ips", "dscp", "groups", "seed")},
        "congestion_control": plan.congestion_control,
        "program": [brief(op) for op in plan.program(rank)],
        "conduct": asdict(plan.conduct[rank] if plan.conduct else Conduct()),
        # Workers of one host listen at one address.
        "ports": [first_port + PORTS_PER_JOB * plan.dscp + index for index in before],
        "to": [peer for source, peer in connections if source == rank],
        "from": [peer for peer, destination in connections if destination == rank],
        "buffer_bytes": terms.set_buffer_bytes,
        "timeout_s": timeout_s + spare_s(plan),
    }


class RunError(Exception):
    """Something is wrong with the run; the message says what."""


class Agent:
    """What is known of the agent of one slot, and the connection to it."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.plan: JobPlan | None = None
        self.rank = 0
        self.connection: socket.socket | None = None
        self.awaited: str | None = "hello"
        self.state = "did not come"
        self.sockets: list[AgentSocket] = []
        self.iteration = -1
        self.process: int | None = None
        """Its process, as an open file, by which signals reach it and never another one."""

    def __str__(self) -> str:
        if self.plan is None:
            return f"slot {self.slot.index} of {self.slot.host}"
        return f"job {self.plan.name}, rank {self.rank} on {self.slot.host}"

    def tell(self, do: str, **more: object) -> None:
        """Give an order. Raises RunError if the agent is gone."""
        if self.connection is None:
            raise RunError(f"{self} cannot be told to {do}: it {self.state}")
        try:
            self.connection.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
        except OSError as error:
            raise RunError(f"{self} cannot be told to {do}: {error.strerror}") from None

    def heard(self, what: str, message: Mapping[str, Any]) -> None:
        """Note what the agent said. Raises RunError if it failed, or said what it was not asked for."""
        if what == "failed":
            self.state = f"failed: {message['why']}"
            raise RunError(f"{self} {self.state}")
        if what != self.awaited:
            raise RunError(f"{self} said {what!r}, awaited was {self.awaited!r}")
        if what == "connected":
            assert self.plan is not None
            self.sockets = [
                AgentSocket(self.plan.name, self.rank, self.slot.host, **found) for found in message["sockets"]
            ]
        self.awaited, self.state = None, STATES[what]

    def record(self, message: Mapping[str, Any]) -> IterationRecord:
        """The iteration that the agent reports. Raises RunError if it has no job."""
        if self.plan is None:
            raise RunError(f"{self} said 'iteration', but has no job")
        values = {key: value for key, value in message.items() if key != "say"}
        record = IterationRecord(job=self.plan.name, rank=self.rank, host=self.slot.host, **values)
        self.iteration, self.state = record.iteration, f"ended iteration {record.iteration}"
        return record

    def send_signal(self, number: signal.Signals) -> int:
        """Send its process a signal; 1 if it is there, else 0."""
        if self.process is None:
            return 0
        try:
            signal.pidfd_send_signal(self.process, number)
        except ProcessLookupError:
            return 0
        return 1

    def kill(self) -> None:
        """End its process, whatever it does, and let go of it."""
        self.send_signal(signal.SIGKILL)
        self.let_go()

    def let_go(self) -> None:
        """Close what its process was held by."""
        if self.process is not None:
            os.close(self.process)
            self.process = None

    def left(self) -> None:
        """Note that the agent hung up. Raises RunError if it gave no reason."""
        self.connection = None
        if not self.state.startswith("failed"):
            self.state = f"{WENT_AWAY} ({self.state})"
            raise RunError(f"{self} {WENT_AWAY}")


class Channel:
    """One connection to the coordinator, of an agent once it has said hello."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.agent: Agent | None = None
        self._rest = b""

    def read(self) -> list[bytes] | None:
        """The complete lines that can be read now, None if the other end hung up. Raises RunError."""
        try:
            data = self.connection.recv(LONGEST_LINE_BYTES)
        except ConnectionError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE_BYTES:
            raise RunError(f"{self.agent or 'a stranger'} said a line that never ends")
        return lines
