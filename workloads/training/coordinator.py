"""The conductor of all jobs: gathers the agents, checks them, starts them, and collects what they report.

It runs outside the hosts and talks to the agents over the management network, which shares no link with the
fabric. Agents live as long as the coordinator. Each `run` is one trial, with start times of its own; `gather`
before each, so that all begin with new connections and none with the congestion windows of another. Whatever
goes wrong with any agent ends the run with `testbed.errors.NotValid`, which tells the state of every agent.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import NotValid
from workloads.training.plan import JobPlan
from workloads.training.records import AgentSocket, IterationRecord, SocketTerms

ROOT = Path(__file__).resolve().parents[2]
LONGEST_LINE_BYTES = 1 << 16
SETTLE_S = 0.5  # after the first failure, how long the others may still say what they saw
WENT_AWAY = "went away"
STATES = {
    "hello": "said hello",
    "listening": "listens for the previous worker",
    "connected": "is in its ring, rests",
    "done": "is done with its iterations, rests",
}


def start_agents(
    coordinator: tuple[str, int], agents: Sequence[tuple[str, int, int | None]]
) -> subprocess.Popen[bytes]:
    """Start agents, each (job, rank, a process in its host's network namespace, None for this one).

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


class _RunError(Exception):
    """Something is wrong with the run; the message says what."""


class _Agent:
    """What is known of one agent, and the connection to it."""

    def __init__(self, plan: JobPlan, rank: int, port: int) -> None:
        self.plan, self.rank, self.host, self._port = plan, rank, plan.hosts[rank], port
        self.connection: socket.socket | None = None
        self.awaited: str | None = None
        self.state = "did not come"
        self.sockets: list[AgentSocket] = []

    def __str__(self) -> str:
        return f"job {self.plan.name}, rank {self.rank} on {self.host}"

    def orders(self, terms: SocketTerms, timeout_s: float) -> dict[str, object]:
        """The plan as an agent is given it (described in agent.py)."""
        plan = self.plan
        return {
            "hosts": plan.hosts,
            "fabric_ips": plan.fabric_ips,
            "port": self._port,
            "congestion_control": plan.congestion_control,
            "dscp": plan.dscp,
            "buffer_bytes": terms.set_buffer_bytes,
            "timeout_s": timeout_s,
            "program": [[op.kind, op.duration_s, op.size_bytes, op.after] for op in plan.program(self.rank)],
        }

    def tell(self, do: str, **more: object) -> None:
        """Give an order. Raises _RunError if the agent is gone."""
        if self.connection is None:
            raise _RunError(f"{self} cannot be told to {do}: it {self.state}")
        try:
            self.connection.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
        except OSError as error:
            raise _RunError(f"{self} cannot be told to {do}: {error.strerror}") from None

    def heard(self, what: str, message: Mapping[str, Any]) -> None:
        """Note what the agent said. Raises _RunError if it failed, or said what it was not asked for."""
        if what == "failed":
            self.state = f"failed: {message['why']}"
            raise _RunError(f"{self} {self.state}")
        if what != self.awaited:
            raise _RunError(f"{self} said {what!r}, awaited was {self.awaited!r}")
        if what == "connected":
            towards = ("to the next worker", "from the previous worker")
            self.sockets = [
                AgentSocket(self.plan.name, self.rank, self.host, direction, **found)
                for direction, found in zip(towards, message["sockets"], strict=True)
            ]
        self.awaited, self.state = None, STATES[what]

    def record(self, message: Mapping[str, Any]) -> IterationRecord:
        """The iteration that the agent reports."""
        values = {key: value for key, value in message.items() if key != "say"}
        record = IterationRecord(job=self.plan.name, rank=self.rank, host=self.host, **values)
        self.state = f"ended iteration {record.iteration}"
        return record

    def left(self) -> None:
        """Note that the agent hung up. Raises _RunError if it gave no reason."""
        self.connection = None
        if not self.state.startswith("failed"):
            self.state = f"{WENT_AWAY} ({self.state})"
            raise _RunError(f"{self} {WENT_AWAY}")


class _Channel:
    """One connection to the coordinator, of an agent once it has said hello."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.agent: _Agent | None = None
        self._rest = b""

    def read(self) -> list[bytes] | None:
        """The complete lines that can be read now, None if the other end hung up. Raises _RunError."""
        try:
            data = self.connection.recv(LONGEST_LINE_BYTES)
        except ConnectionError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE_BYTES:
            raise _RunError(f"{self.agent or 'a stranger'} said a line that never ends")
        return lines


class Coordinator:
    """Conducts the agents of `jobs`, which report to `bind` (port 0: any; see `address`).

    `on_iteration(job, iteration, t_s)` is called as soon as rank 0 of a job reports the end of an iteration,
    with its time.time(). `timeout_s` is how long, in the time of this kernel, an agent may be silent beyond
    what its plan explains. The ring of the i-th job uses port `first_port` + i. Starting the agents
    (`start_agents`) is the caller's work, since it knows the namespaces. To be used as a context, which
    sends the agents home at its end.
    """

    def __init__(
        self,
        bind: tuple[str, int],
        jobs: Sequence[JobPlan],
        on_iteration: Callable[[str, int, float], None],
        terms: SocketTerms,
        timeout_s: float = 60.0,
        first_port: int = 5200,
    ) -> None:
        self._on_iteration, self._terms, self._timeout_s = on_iteration, terms, timeout_s
        self._agents = {
            (plan.name, rank): _Agent(plan, rank, first_port + index)
            for index, plan in enumerate(jobs)
            for rank in range(plan.workers)
        }
        self._records: list[IterationRecord] = []
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(bind, backlog=len(self._agents))
        self._selector.register(self._listener, selectors.EVENT_READ)

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> tuple[str, int]:
        """Where the agents report: what `bind` became."""
        ip, port = self._listener.getsockname()
        return ip, port

    def gather(self) -> list[AgentSocket]:
        """Wait until every agent came and joined its ring; what the kernel uses on each of their sockets.

        Called again, it replaces all rings by new ones, so that a trial inherits nothing from the one before.
        Raises NotValid when one does not come, fails, or has a socket that is not as its plan and `terms`
        demand.
        """
        agents = list(self._agents.values())
        with self._failures_told():
            self._await("hello", [agent for agent in agents if agent.connection is None])
            for agent in agents:
                agent.tell("listen", plan=agent.orders(self._terms, self._timeout_s / 2))
            self._await("listening", agents)
            for agent in agents:
                agent.tell("connect")
            self._await("connected", agents)
        wrong = [
            f"{agent}, socket {found.direction}: {difference}"
            for agent in agents
            for found in agent.sockets
            for difference in found.differences(agent.plan, self._terms)
        ]
        if wrong:
            raise NotValid("the kernel did not do what the transport demands:\n  " + "\n  ".join(wrong))
        return [found for agent in agents for found in agent.sockets]

    def run(self, starts_s: Mapping[str, float], iterations: int | None = None) -> list[IterationRecord]:
        """One trial: each job of `starts_s` starts at its time.time(), in the future; other jobs rest.

        Waits until all are done. `iterations` is the plan's own number unless given. Returns the records in
        the order in which they came. Raises NotValid when an agent fails, goes away or is silent for too long.
        """
        agents = [agent for (job, _), agent in self._agents.items() if job in starts_s]
        unknown = sorted(set(starts_s) - {agent.plan.name for agent in agents})
        if unknown or not agents:
            raise ValueError(f"no such jobs: {', '.join(unknown)}" if unknown else "no job is to run")
        self._records = []
        with self._failures_told():
            for agent in agents:
                count = agent.plan.iterations if iterations is None else iterations
                agent.tell("run", start_s=starts_s[agent.plan.name], iterations=count)
                agent.state = "was told to run"
            self._await("done", agents, max(starts_s.values()) - time.time())
        return self._records

    def close(self) -> None:
        """Send all agents home and hang up; more than once does no harm."""
        for key in list((self._selector.get_map() or {}).values()):
            if key.data is None:
                continue
            if key.data.agent is not None:
                with contextlib.suppress(_RunError):
                    key.data.agent.tell("bye")
            key.data.connection.close()
        self._listener.close()
        self._selector.close()

    def _await(self, what: str, agents: Sequence[_Agent], grace_s: float = 0.0) -> None:
        """Take messages until each of `agents` has said `what`."""
        for agent in agents:
            agent.awaited = what
        longest_s = max(agent.plan.compute_s for agent in agents) if agents else 0.0
        patience_s = self._timeout_s + longest_s
        deadline_s = time.monotonic() + max(0.0, grace_s) + patience_s
        while any(agent.awaited for agent in agents):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                silent = ", ".join(str(agent) for agent in agents if agent.awaited)
                raise _RunError(f"nobody said anything for {patience_s:g} s; missing: {silent}")
            if self._take(left_s):
                deadline_s = max(deadline_s, time.monotonic() + patience_s)

    def _take(self, wait_s: float) -> bool:
        """Wait for messages and act on them; whether there were any."""
        events = self._selector.select(wait_s)
        for key, _ in events:
            if key.data is None:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(connection, selectors.EVENT_READ, _Channel(connection))
            else:
                self._read(key.data)
        return bool(events)

    def _read(self, channel: _Channel) -> None:
        lines = channel.read()
        if lines is None:
            self._selector.unregister(channel.connection)
            channel.connection.close()
            if channel.agent is not None:
                channel.agent.left()
            return
        for line in lines:
            try:
                message = json.loads(line)
                record = self._act(channel, message["say"], message)
            except (ValueError, KeyError, TypeError):
                whom = channel.agent or "a stranger"
                raise _RunError(f"{whom} said what nobody understands: {line[:200]!r}") from None
            if record is not None and record.rank == 0:
                self._on_iteration(record.job, record.iteration, record.end_s)

    def _act(self, channel: _Channel, what: str, message: dict[str, Any]) -> IterationRecord | None:
        """Note what was said; the iteration, if that is what it was."""
        if what == "hello":
            self._greet(channel, (message["job"], message["rank"]))
        agent = channel.agent
        if agent is None:
            raise _RunError(f"a stranger said {what} before hello")
        if what == "iteration":
            self._records.append(agent.record(message))
            return self._records[-1]
        agent.heard(what, message)
        return None

    def _greet(self, channel: _Channel, who: tuple[str, int]) -> None:
        agent = self._agents.get(who)
        if agent is None or agent.connection is not None:
            why = "which no plan has" if agent is None else "which is there already"
            raise _RunError(f"an agent came as job {who[0]}, rank {who[1]}, {why}")
        agent.connection, channel.agent = channel.connection, agent

    @contextlib.contextmanager
    def _failures_told(self) -> Iterator[None]:
        try:
            yield
        except _RunError as first:
            cause = str(first)
        else:
            return
        until_s = time.monotonic() + SETTLE_S
        while (left_s := until_s - time.monotonic()) > 0:
            with contextlib.suppress(_RunError):
                self._take(left_s)
        # Whoever dies without a word is the cause, though its neighbours may be the first to say so.
        dead = [agent for agent in self._agents.values() if agent.state.startswith(WENT_AWAY)]
        if dead:
            cause = " and ".join(f"{agent} {WENT_AWAY}" for agent in dead)
        states = "".join(f"\n  {agent}: {agent.state}" for agent in self._agents.values())
        raise NotValid(f"{cause}; the agents:{states}")
