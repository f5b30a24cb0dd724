"""The scheduler's program, at one of the sites: `controllers.netstorm.scheduler` with lines, time and a record.

It has lines to its own site's server and to those of the sites that it has tunnels to, and is never killed itself.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

from controllers.netstorm.awareness import Settings
from controllers.netstorm.messages import Answer, Hello, Link, Report, Request, Routes, ToNode
from controllers.netstorm.named import Choice
from controllers.netstorm.overlay import Overlay, Tunnel
from controllers.netstorm.scheduler import Scheduler
from controllers.netstorm.tree import Plan, Tree
from workloads.paramsync import wire
from workloads.paramsync.control import Control
from workloads.paramsync.envelope import packed, unpacked
from workloads.paramsync.late import Late
from workloads.paramsync.lines import End, Lines
from workloads.paramsync.plan import SyncPlan
from workloads.paramsync.protocol import Protocol
from workloads.paramsync.records import BELIEF, HEARD, POLICY, SCHEDULER_RECORD, STAGE
from workloads.paramsync.relay import Relay
from workloads.paramsync.tensors import FP32_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

AGAIN_S = 5.0


def believed(plan: SyncPlan, protocol: Protocol) -> Overlay:
    """The overlay as the scheduler takes it to be at first."""
    names = plan.sites
    tunnels = (Tunnel(names[t.source], names[t.target], t.believed_bps, t.latency_s) for t in protocol.tunnels)
    return Overlay(names, tuple(tunnels))


class Planner:
    """The scheduler; `failed` is told why it cannot go on."""

    def __init__(self, plan: SyncPlan, failed: Callable[[str], None]) -> None:
        assert plan.protocol is not None
        self._plan, self._protocol, self._failed = plan, plan.protocol, failed
        own, site = len(plan.sites), self._protocol.scheduler
        path = Path(self._protocol.folder) / SCHEDULER_RECORD
        self._record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        start, settings = believed(plan, self._protocol), self._protocol
        self._scheduler = Scheduler(
            start, self._decide, chunk_bytes=FP32_BYTES * settings.chunk_elements, most_paths=settings.paths,
            awareness=Settings(
                settings.probe_bytes, look_s=settings.look_s, report_change=settings.report_change,
                decide_change=settings.decide_change,
            ),
        )  # fmt: skip
        self._said: dict[str, int] = {}
        self._noted: tuple[int, tuple[int, int]] = (0, (0, 0))
        # Nodes connect to it, so where it would go does not matter.
        ends = [End(node, ("", 0), data=False) for node in sorted([site, *self._protocol.peers(site)])]
        self._ends = ends
        self._lines = Lines(
            own, 1, (plan.ips[site], plan.port + 1), ends, self, plan.congestion_control, settings.detect_s
        )
        self._relay = Relay(own, 1, self._lines.tell, Late(settings.late_s, f"{plan.seed}/scheduler", self._heard))
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        for tunnel in start.tunnels:
            self._note(BELIEF, tunnel.source, tunnel.target, tunnel.throughput_bps)

    def listen(self) -> None:
        """Await the nodes. Raises OSError."""
        self._lines.listen()

    def join(self) -> None:
        """Wait until all lines are up, then keep the time."""
        with self._changed:
            while not all(self._lines.up(end.number) for end in self._ends):
                self._changed.wait()
        threading.Thread(target=self._look, daemon=True).start()
        threading.Thread(target=self._again, daemon=True).start()

    def state(self) -> dict[str, object]:
        """What it waits for."""
        return {"scheduler": str(self._scheduler), "not acknowledged": self._relay.state(), "heard": dict(self._said)}

    def received(self, peer: int, header: wire.Header, payload: bytearray) -> None:
        """Take a control message (lines.Owner)."""
        if header.kind != wire.CONTROL:
            self.broken(f"node {peer} sent {header}")
        else:
            self._relay.received(bytes(payload), peer)

    def sent(self, peer: int, header: wire.Header | None, begin_s: float) -> None:
        """Nothing but control goes from here (lines.Owner)."""

    def changed(self, peer: int, up: bool) -> None:  # noqa: ARG002 - which one it is does not matter here
        """A line is up or down (lines.Owner)."""
        with self._changed:
            self._changed.notify_all()

    def worker(self, connection: socket.socket) -> None:
        """A worker has no business here (lines.Owner)."""
        connection.close()
        self.broken("a worker came to the scheduler")

    def broken(self, why: str) -> None:
        """Something happened that never should (lines.Owner)."""
        self._failed(why)

    def _decide(self, overlay: Overlay) -> Plan:
        settings = self._protocol
        choice = Choice(settings.strategy, settings.root, settings.roots)
        return choice.decide(overlay, settings.tensors, settings.chunk_elements)

    def _heard(self, body: list[Any]) -> None:
        message = unpacked(body)
        assert isinstance(message, Request | Hello | Link | Report)
        with self._lock:
            self._said[body[0]] = self._said.get(body[0], 0) + 1
            if isinstance(message, Report):
                self._note(BELIEF, message.source, message.target, message.throughput_bps)
            else:
                self._note(HEARD, body[0], message.node, message.incarnation)
            self._carry(self._scheduler.heard(message))

    def _look(self) -> None:
        began_s = time.time()
        while True:
            time.sleep(self._protocol.look_s)
            with self._lock:
                self._carry(self._scheduler.look(time.time() - began_s))

    def _again(self) -> None:
        while True:
            time.sleep(AGAIN_S)
            self._relay.again(time.time())

    def _carry(self, messages: list[ToNode]) -> None:
        """Send each message once, to all whom it is for."""
        self._note_changes()
        grouped: list[tuple[Answer | Routes, list[int]]] = []
        for one in messages:
            number = self._plan.sites.index(one.node)
            same = next((targets for message, targets in grouped if message == one.message), None)
            if same is None:
                grouped.append((one.message, [number]))
            else:
                same.append(number)
        for message, targets in grouped:
            self._relay.send(packed(message), targets, time.time())

    def _note_changes(self) -> None:
        policy, stage = self._scheduler.policy, self._scheduler.stage
        version, before = self._noted
        if policy.version != version:
            chunk_bytes = [FP32_BYTES * elements for elements in self._plan.chunks]
            for number, way in enumerate(policy.ways):
                part = sum(size for size, of in zip(chunk_bytes, policy.way_of, strict=True) if of == number)
                self._note(POLICY, policy.version, way.root, part / sum(chunk_bytes), _text(way.push))
        if stage != before:
            self._note(STAGE, stage[0] - 1, stage[1], policy.version)
        self._noted = policy.version, stage

    def _note(self, what: str, *values: object) -> None:
        os.write(self._record, json.dumps([time.time(), what, *values]).encode() + b"\n")


def _text(tree: Tree) -> str:
    """A tree as its edges, child before parent: "b>a c>a"."""
    return " ".join(f"{child}>{parent}" for child, parent in tree.edges())


def serve(control: Control, plan: SyncPlan) -> None:
    """Be the scheduler until the conductor says bye. Raises OSError."""
    planner = Planner(plan, lambda why: control.say("failed", why=why))
    planner.listen()
    control.say("listening")
    control.hear()
    planner.join()
    control.say("connected", sockets={})
    while (order := control.hear())["do"] != "bye":
        if order["do"] == "state":
            control.say("state", state=planner.state())
