"""The conductor of one synchronisation: starts the programs, times what has to happen meanwhile, checks every sum.

It talks to the programs through a Unix socket, so that the networks carry nothing but what is measured. Whatever
goes wrong with any program ends the run with NotValid, and so does silence, which tells the state of every node.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import NotValid
from workloads.paramsync.control import SCHEDULER, SERVER, WORKER
from workloads.paramsync.plan import SyncPlan
from workloads.paramsync.records import ChunkEvent, RoundRecord
from workloads.paramsync.sleeping import sleep_until

ROOT = Path(__file__).resolve().parents[2]
STATE_S = 1.0
"""How long nodes may take, once the run has failed, to say what they wait for."""
Who = tuple[str, int]


def start_programs(
    path: Path, nodes: int, namespaces: Mapping[int, int], scheduler: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts a server and a worker for each node, each in the namespace (a descriptor of this process) of its node,
    or in this one, and a scheduler, if there is to be one, in that of the node where it is. The process that is
    returned ends with 0 when all did well; it takes more programs by its standard input (`start`)."""
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1));"
        " from workloads.paramsync.spawn import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-B", "-P", "-s", "-c", program, str(ROOT), str(path)]
    spawner = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=sorted(set(namespaces.values())))
    programs = [(role, node, namespaces.get(node)) for node in range(nodes) for role in (SERVER, WORKER)]
    if scheduler is not None:
        programs.append((SCHEDULER, nodes, namespaces.get(scheduler)))
    start(spawner, programs)
    return spawner


def start(spawner: subprocess.Popen[bytes], programs: Sequence[tuple[str, int, int | None]]) -> None:
    """Has a process of `start_programs` start more, each as (role, node, namespace)."""
    assert spawner.stdin is not None
    spawner.stdin.write(json.dumps(programs).encode() + b"\n")
    spawner.stdin.flush()


class _Program:
    """One program, as far as it is known, and the line to it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.who, self.state = connection, ("", -1), "came"
        self.pid, self.killed = 0, False
        self._rest = b""

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that are complete now, None when it hung up."""
        try:
            data = self.connection.recv(1 << 20)
        except ConnectionResetError:  # killed, with something unread
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def tell(self, do: str, **more: object) -> None:
        """Gives an order; a program that is gone is noticed elsewhere."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps({"do": do, **more}).encode() + b"\n")


class Conductor:
    """Conducts the programs of `plan`, which report to the Unix socket `path`; a context manager.

    `on_round` hears of every RoundRecord as it comes. Nobody may be silent for `timeout_s`, in the time of this kernel.
    """

    def __init__(
        self, plan: SyncPlan, path: Path, timeout_s: float, on_round: Callable[[RoundRecord], None] = lambda _: None
    ) -> None:
        self.plan, self._timeout_s, self._on_round = plan, timeout_s, on_round
        self.sockets: dict[str, dict[str, dict[str, Any]]] = {}
        self.records: list[RoundRecord] = []
        self._events: list[ChunkEvent] = []
        self._programs: dict[Who, _Program] = {}
        self._waiting: set[Who] = set()
        self._reviving: set[int] = set()
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self._awaited = ""
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(2 * len(plan.sites))
        self._selector.register(self._listener, selectors.EVENT_READ)

    def __enter__(self) -> Conductor:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs.values():
            program.tell("bye")
        self._selector.close()
        self._listener.close()

    def gather(self) -> None:
        """Waits for all programs, gives them the plan, has them connect. Raises NotValid."""
        everybody = self._everybody(SERVER) + self._everybody(WORKER) + self._everybody(SCHEDULER)
        self._await("hello", everybody)
        self._tell(everybody, "listen", plan=self.plan.to_dict())
        self._await("listening", everybody)
        # Workers go to their servers before these take up their neighbours, or would be taken for strangers.
        self._tell(everybody, "connect")
        self._await("connected", everybody)
        for site, found in self.sockets.items():
            for peer, uses in found.items():
                if uses["congestion_control"] != self.plan.congestion_control:
                    wanted = f"not {self.plan.congestion_control}: set transport.congestion_control to one that it has"
                    raise NotValid(f"{site} to {peer}: the kernel uses {uses['congestion_control']}, {wanted}")

    def run(
        self, start_s: float, timers: Sequence[tuple[float, Callable[[], None]]] = ()
    ) -> tuple[list[RoundRecord], list[ChunkEvent]]:
        """All rounds from time.time() = `start_s` on; what the workers and, without a scheduler, the servers noted.

        `timers` are (time.time(), what is to be done then), carried out meanwhile. Raises NotValid.
        """
        workers, servers = self._everybody(WORKER), self._everybody(SERVER)
        self._tell(workers, "run", start_s=start_s)
        self._timers = sorted(timers, key=lambda timer: timer[0])
        self._start_alarm()
        self._await("done", workers)
        if self.plan.protocol is None:
            self._tell(servers, "report")
            self._await("report", servers)
        return self.records, sorted(self._events, key=lambda event: event.t_s)

    def kill(self, node: int) -> None:
        """Kills the worker and the server of a site, as they are."""
        # In this order: a worker whose server is gone ends by itself, with an exit code; a server stays.
        programs = [self._programs.pop((role, node), None) for role in (WORKER, SERVER)]
        killed = [program for program in programs if program is not None]
        for program in killed:
            program.killed = True
        for program in killed:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself: its exit code fails the run
                os.kill(program.pid, signal.SIGKILL)

    def revive(self, node: int) -> None:
        """Expects a site's programs, which somebody starts again, and has them go on where its disk says; the run then
        does not end without them."""
        self._reviving.add(node)
        self._waiting.add((WORKER, node))

    def _lead_on(self, node: int) -> None:
        """Tells a revived pair what is next, once both have done what was before."""
        pair = [self._programs[who] for who in ((SERVER, node), (WORKER, node)) if who in self._programs]
        said = {program.state for program in pair} if len(pair) == 2 else set()
        if said == {"said hello"}:
            self._tell([program.who for program in pair], "listen", plan=self.plan.to_dict())
        elif said == {"said listening"}:
            self._tell([program.who for program in pair], "connect")
        elif said == {"said connected"}:
            self._reviving.discard(node)
            self._tell([(WORKER, node)], "run", start_s=time.time())

    def _everybody(self, role: str) -> list[Who]:
        if role == SCHEDULER:
            return [(role, len(self.plan.sites))] if self.plan.protocol else []
        return [(role, node) for node in range(len(self.plan.sites))]

    def _tell(self, whom: Sequence[Who], do: str, **more: object) -> None:
        for who in whom:
            self._programs[who].tell(do, **more)

    def _start_alarm(self) -> None:
        """Wakes the selector when a timer is due: its own waits may end late by a thousandth of their length."""
        near, far = socket.socketpair()
        self._selector.register(near, selectors.EVENT_READ, near)
        due_s = [timer[0] for timer in self._timers]

        def ring() -> None:
            with contextlib.suppress(OSError):  # the run may be over first
                for one_s in due_s:
                    sleep_until(one_s)
                    far.send(b"!")

        threading.Thread(target=ring, daemon=True).start()

    def _await(self, what: str, whom: Sequence[Who]) -> None:
        """Takes messages until each of `whom` has said `what`, and does what is due meanwhile."""
        self._awaited, self._waiting = what, set(whom)
        silent_since_s = time.time()
        while self._waiting:
            now_s = time.time()
            while self._timers and self._timers[0][0] <= now_s:
                self._timers.pop(0)[1]()
            deadline_s = silent_since_s + self._timeout_s
            if now_s >= deadline_s:
                silent = ", ".join(self._name(who) for who in sorted(self._waiting))
                self._fail(f"nobody said anything for {self._timeout_s:g} s; missing: {silent}")
            if self._take(deadline_s - now_s):
                silent_since_s = time.time()

    def _take(self, wait_s: float) -> bool:
        events = self._selector.select(max(wait_s, 1e-9))
        heard = False
        for key, _ in events:
            if isinstance(key.data, socket.socket):
                if not key.data.recv(1 << 10):  # the last alarm has rung; at its end a socket is readable for ever
                    self._selector.unregister(key.fileobj)
                continue
            heard = True
            if key.data is None:
                connection, _ = self._listener.accept()
                self._selector.register(connection, selectors.EVENT_READ, _Program(connection))
                continue
            messages = key.data.read()
            if messages is None:
                self._selector.unregister(key.fileobj)
                if key.data.killed:
                    continue
                self._fail(f"{self._name(key.data.who)} went away ({key.data.state})")
            for message in messages or ():
                self._hear(key.data, message)
        return heard

    def _hear(self, program: _Program, message: dict[str, Any]) -> None:
        what = message["say"]
        program.state = f"said {what}"
        if what == "hello":
            program.who, program.pid = (message["role"], message["node"]), message["pid"]
            self._programs[program.who] = program
        elif what == "failed" and not program.killed:  # a server may still see that its worker was killed
            self._fail(f"{self._name(program.who)} failed: {message['why']}")
        elif what == "connected" and message["sockets"]:
            self.sockets[self.plan.sites[program.who[1]]] = message["sockets"]
        elif what == "round":
            record = RoundRecord(**message["record"])
            program.state = f"ended round {record.round}"
            self._note(record)
        elif what == "report":
            self._events += [ChunkEvent(*event) for event in message["events"]]
        if what == self._awaited:
            self._waiting.discard(program.who)
        if program.who[1] in self._reviving:
            self._lead_on(program.who[1])

    def _note(self, record: RoundRecord) -> None:
        """Takes a round; a site that was killed before it had kept it tells it again, and must have the same sums."""
        for other in self.records:
            if (other.node, other.round) == (record.node, record.round):
                if other.digest != record.digest:
                    self._fail(f"round {record.round}: {self.plan.sites[record.node]} holds other sums than before")
                return
        self.records.append(record)
        self._on_round(record)

    def _fail(self, why: str) -> None:
        """Raises NotValid, with the state of every node."""
        lines = [f"{self._name(who)}: {program.state}" for who, program in sorted(self._programs.items())]
        for who, program in sorted(self._programs.items()):
            if who[0] in (SERVER, SCHEDULER) and (state := _state(program)) is not None:
                lines.append(f"{self._name(who)} waits: {json.dumps(state)}")
        raise NotValid(why + "".join(f"\n  {line}" for line in lines))

    def _name(self, who: Who) -> str:
        if who[0] == SCHEDULER:
            return "the scheduler"
        return f"{who[0]} of {self.plan.sites[who[1]]}" if who[0] else "a stranger"


def _state(program: _Program) -> dict[str, Any] | None:
    """What a server waits for, None if it does not say so in time."""
    program.tell("state")
    program.connection.settimeout(STATE_S)
    with contextlib.suppress(OSError):
        while (messages := program.read()) is not None:
            for message in messages:
                if message["say"] == "state":
                    state: dict[str, Any] = message["state"]
                    return state
    return None


def check_sums(plan: SyncPlan, records: Sequence[RoundRecord]) -> list[str]:
    """Every round's digest, once all nodes have come to it and a direct sum too. Raises NotValid. For sums that are
    exact; others are `held` against direct ones."""
    from workloads.paramsync import gradients  # numpy costs the guest half a second that only this needs

    found = []
    for round_ in range(plan.rounds):
        wanted = gradients.direct(plan, round_)
        held = {record.node: record.digest for record in records if record.round == round_}
        for node, site in enumerate(plan.sites):
            if held.get(node) != wanted:
                raise NotValid(f"round {round_}: {site} holds sums {held.get(node)}, a direct sum is {wanted}")
        found.append(wanted)
    return found
