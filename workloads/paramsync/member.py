"""The server of a site under a scheduler: `controllers.netstorm.node` with sockets, bytes and time around it.

What the node decides is carried out here: chunks go over `lines`, what is for the scheduler through `relay`. Chunks
that others push take the time of the merge rate, one after another, before the node hears of them. Whatever happens is
written down at once, so that it outlives the program.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from controllers.netstorm.awareness import Receiver, Settings
from controllers.netstorm.messages import Answer, Complete, Data, Order, Report, Routes, ToScheduler, Transmit
from controllers.netstorm.node import Node, What
from workloads.paramsync import wire
from workloads.paramsync.control import Control
from workloads.paramsync.disk import Disk
from workloads.paramsync.envelope import packed, unpacked
from workloads.paramsync.gradients import Array
from workloads.paramsync.late import Late
from workloads.paramsync.ledger import WORKER, ProtocolError
from workloads.paramsync.lines import End, Lines
from workloads.paramsync.plan import SyncPlan
from workloads.paramsync.records import FORWARDED, MERGED, RECEIVED, RELAYED, SENT
from workloads.paramsync.relay import Relay
from workloads.paramsync.tensors import FP32_BYTES
from workloads.training import sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TICK_S = 5.0
"""How often a node asks again for what it has not been answered."""
Value = Array


class Member:
    """The server of `node`; `failed` is told, from any thread, why it cannot go on."""

    def __init__(self, plan: SyncPlan, node: int, failed: Callable[[str], None]) -> None:
        assert plan.protocol is not None
        self._plan, self._protocol, self._number, self._failed = plan, plan.protocol, node, failed
        self._numbers = {site: number for number, site in enumerate(plan.sites)}
        folder = Path(self._protocol.folder)
        self._disk = Disk(folder / f"site-{node}.json")
        self._disk.start()
        self._events = os.open(folder / f"events-{node}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._node: Node[Value] = Node(
            plan.sites[node], [FP32_BYTES * elements for elements in plan.chunks], self._own, np.add,
            incarnation=self._disk.life, complete=self._disk.complete, limit_bytes=self._protocol.limit_bytes,
            noted=self._noted,
        )  # fmt: skip
        ends = [End(peer, (plan.ips[peer], plan.port)) for peer in self._protocol.peers(node)]
        at = self._protocol.scheduler
        if at == node or at in self._protocol.peers(node):
            ends.append(End(len(plan.sites), (plan.ips[at], plan.port + 1), data=False))
        address = (plan.ips[node], plan.port)
        self._ends = ends
        self._lines = Lines(
            node, self._disk.life, address, ends, self, plan.congestion_control, self._protocol.detect_s
        )
        late = Late(self._protocol.late_s, f"{plan.seed}/{node}/{self._disk.life}", self._heard)
        self._relay = Relay(node, self._disk.life, self._lines.tell, late)
        settings = Settings(self._protocol.probe_bytes, report_change=self._protocol.report_change)
        self._receivers = {peer: Receiver(settings) for peer in self._protocol.peers(node)}
        self._arrived_s: dict[int, float] = {}
        self._gradients: dict[int, dict[int, Value]] = {}
        self._to_merge: SimpleQueue[tuple[Data[Value], int]] = SimpleQueue()
        self._to_worker: SimpleQueue[wire.Header | tuple[wire.Header, memoryview]] = SimpleQueue()
        self._unheard: list[list[Any]] = []
        self._started = self._joined = False
        self._merge_began_s: float | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def listen(self) -> None:
        """Await neighbours and the worker. Raises OSError."""
        self._lines.listen()
        self._start(self._merge)

    def join(self) -> dict[str, Any]:
        """Take up all lines and begin; what each socket uses. Who was started again waits for no line for long."""
        self._lines.connect()
        until_s = time.time() + self._protocol.detect_s if self._disk.life > 1 else None
        with self._changed:
            while not all(self._lines.up(end.number) for end in self._ends):
                left_s = None if until_s is None else until_s - time.time()
                if left_s is not None and left_s <= 0:
                    break
                self._changed.wait(left_s)
            self._joined = True
            self._begin()
        self._start(self._tick)
        return {self._plan.sites[peer]: sockets.read_back(one) for peer, one in self._lines.sockets()}

    def state(self) -> dict[str, object]:
        """What it waits for."""
        down = [end.number for end in self._ends if not self._lines.up(end.number)]
        return {"node": str(self._node), "lines down": down, "not acknowledged": self._relay.state()}

    def received(self, peer: int, header: wire.Header, payload: bytearray) -> None:
        """Take a chunk or a control message (lines.Owner)."""
        if header.kind == wire.CONTROL:
            self._relay.received(bytes(payload), peer)
            return
        wanted = FP32_BYTES * self._plan.chunks[header.chunk] if header.chunk < len(self._plan.chunks) else -1
        if header.kind not in (wire.PUSH, wire.PULL) or len(payload) != wanted or header.path[:1] != (self._number,):
            self.broken(f"{self._plan.sites[peer]} sent {header}")
            return
        event = RECEIVED if len(header.path) == 1 else RELAYED
        self._note(event, header, header.source, len(payload), header.sent_s, peer)
        self._probe(peer, len(payload), header.sent_s)
        names = self._plan.sites
        path = tuple(names[number] for number in header.path)
        values = np.frombuffer(payload, dtype=np.float32)
        stage, push = (header.round + 1, header.version), header.kind == wire.PUSH
        data = Data(stage, header.chunk, push, names[header.source], path, values)
        if data.push and len(path) == 1:
            self._to_merge.put((data, len(payload)))
            return
        with self._lock:
            self._do(self._node.arrived(data))

    def sent(self, peer: int, header: wire.Header | None, begin_s: float) -> None:
        """A chunk is off, or lost (lines.Owner)."""
        if header is not None:
            size_bytes = FP32_BYTES * self._plan.chunks[header.chunk]
            self._note(SENT, header, header.path[-1], size_bytes, begin_s, peer)
        with self._lock:
            self._do(self._node.sent(self._plan.sites[peer]))

    def changed(self, peer: int, up: bool) -> None:
        """A line is up or down (lines.Owner)."""
        with self._changed:
            self._arrived_s.pop(peer, None)
            if self._started and peer < len(self._plan.sites):
                self._do(self._node.link(self._plan.sites[peer], up))
            self._changed.notify_all()

    def worker(self, connection: socket.socket) -> None:
        """The site's own worker has come (lines.Owner): say which round is complete, and do as it does."""
        self._to_worker.put(wire.Header(wire.HELLO, self._number, round=self._disk.complete))
        self._start(self._to, connection)
        self._start(self._from, connection)

    def broken(self, why: str) -> None:
        """Something happened that never should (lines.Owner)."""
        self._failed(why)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                work(*arguments)
            except (OSError, wire.BrokenOffError, ProtocolError) as error:
                self._failed(str(error))

        threading.Thread(target=run, daemon=True).start()

    def _begin(self) -> None:
        """Start the node, once lines are there and, from disk, the gradients of the last round it has completed."""
        complete = self._node.complete
        if self._started or not self._joined or (complete and len(self._of(complete)) < len(self._plan.chunks)):
            return
        self._started = True
        orders = self._node.start()
        for peer in self._protocol.peers(self._number):
            if not self._lines.up(peer):
                orders += self._node.link(self._plan.sites[peer], False)
        self._do(orders)
        for body in self._unheard:
            self._heard(body)
        for number in sorted(self._gradients):
            self._ready(number)

    def _of(self, number: int) -> dict[int, Value]:
        return self._gradients.setdefault(number, {})

    def _own(self, number: int, chunk: int) -> Value:
        return self._gradients[number][chunk]

    def _ready(self, number: int) -> None:
        if self._started and number > self._node.complete and len(self._of(number)) == len(self._plan.chunks):
            self._do(self._node.ready(number))

    def _from(self, connection: socket.socket) -> None:
        """What the worker pushes: gradients, and that it has taken note of a round's sums."""
        while (message := wire.receive(connection)) is not None:
            header, payload = message
            number = header.round + 1  # the protocol counts rounds from 1
            with self._lock:
                if header.kind == wire.DONE:
                    self._disk.completed(number)
                    continue
                if header.kind != wire.PUSH or len(payload) != FP32_BYTES * self._plan.chunks[header.chunk]:
                    raise ProtocolError(f"the worker sent {header}")
                for old in [old for old in self._gradients if old < number - 1]:
                    del self._gradients[old]
                self._of(number)[header.chunk] = np.frombuffer(payload, dtype=np.float32)
                self._begin()
                self._ready(number)

    def _to(self, connection: socket.socket) -> None:
        while True:
            message = self._to_worker.get()
            if isinstance(message, wire.Header):
                wire.send(connection, message)
            else:
                wire.send(connection, *message)

    def _merge(self) -> None:
        while True:
            data, size_bytes = self._to_merge.get()
            began_s = time.time()
            if self._plan.merge_bytes_per_s is not None:
                time.sleep(size_bytes / self._plan.merge_bytes_per_s)
            with self._lock:
                self._merge_began_s = began_s
                self._do(self._node.arrived(data))
                self._merge_began_s = None

    def _tick(self) -> None:
        while True:
            time.sleep(TICK_S)
            self._relay.again(time.time())
            with self._lock:
                if self._started:
                    self._do(self._node.tick())

    def _heard(self, body: list[Any]) -> None:
        """Hear what the scheduler says; not before the node has begun."""
        with self._lock:
            if not self._started:
                self._unheard.append(body)
                return
            message = unpacked(body)
            assert isinstance(message, Answer | Routes)
            self._do(self._node.heard(message))

    def _probe(self, peer: int, size_bytes: int, sent_s: float) -> None:
        """Take a chunk's time: from when it was sent or, where chunks come without a break, the end of the last."""
        now_s = time.time()
        elapsed_s = now_s - max(sent_s, self._arrived_s.get(peer, 0.0))
        self._arrived_s[peer] = now_s
        if not self._protocol.awareness or elapsed_s <= 0:
            return
        found_bps = self._receivers[peer].received(size_bytes, elapsed_s)
        if found_bps is not None:
            self._to_scheduler(Report(self._plan.sites[peer], self._plan.sites[self._number], found_bps))

    def _to_scheduler(self, message: Any) -> None:
        self._relay.send(packed(message), [len(self._plan.sites)], time.time())

    def _do(self, orders: list[Order[Value]]) -> None:
        """Carry out what the node wants. The lock is held."""
        waiting = deque(orders)
        while waiting:
            order = waiting.popleft()
            if isinstance(order, ToScheduler):
                self._to_scheduler(order.message)
            elif isinstance(order, Transmit):
                if not self._transmit(order):
                    waiting += self._node.sent(order.peer)
            else:
                self._complete(order)

    def _transmit(self, order: Transmit[Value]) -> bool:
        data = order.data
        header = wire.Header(
            wire.PUSH if data.push else wire.PULL, self._numbers[data.source], data.stage[1], data.stage[0] - 1,
            data.chunk, path=tuple(self._numbers[name] for name in data.path),
        )  # fmt: skip
        return self._lines.send(self._numbers[order.peer], header, data.value.data.cast("B"))

    def _complete(self, order: Complete[Value]) -> None:
        for chunk, value in sorted(order.results.items()):
            header = wire.Header(wire.PULL, self._number, round=order.round - 1, chunk=chunk)
            self._to_worker.put((header, value.data.cast("B")))

    def _noted(self, what: What, stage: tuple[int, int], chunk: int, push: bool, other: str) -> None:
        """What the node has merged or handed to a queue, as an event."""
        peer, now_s = self._numbers[other], time.time()
        header = wire.Header(wire.PUSH if push else wire.PULL, self._number, stage[1], stage[0] - 1, chunk)
        size_bytes = FP32_BYTES * self._plan.chunks[chunk]
        if what == "handed":
            self._note(FORWARDED, header, peer, size_bytes, now_s)
        else:
            whom = WORKER if peer == self._number else peer
            self._note(MERGED, header, whom, size_bytes, self._merge_began_s or now_s)

    def _note(
        self, event: str, header: wire.Header, peer: int, size_bytes: int, begin_s: float, via: int | None = None
    ) -> None:
        whom = None if peer == WORKER else peer
        row = [
            time.time(), self._number, event, wire.KINDS[header.kind], whom, header.round, header.chunk, size_bytes,
            begin_s, header.version, header.source, self._disk.life, via, list(header.path),
        ]  # fmt: skip
        os.write(self._events, json.dumps(row).encode() + b"\n")


def serve(control: Control, node: int, plan: SyncPlan) -> None:
    """Be the server of a site until the conductor says bye. Raises OSError and wire.BrokenOffError."""
    member = Member(plan, node, lambda why: control.say("failed", why=why))
    member.listen()
    control.say("listening")
    control.hear()
    control.say("connected", sockets=member.join())
    while (order := control.hear())["do"] != "bye":
        if order["do"] == "state":
            control.say("state", state=member.state())
