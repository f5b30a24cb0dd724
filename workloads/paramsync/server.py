"""The server of one site: it merges what its children and its worker push, and hands results down.

One thread receives from each neighbour and one sends to it, from a queue of its own; a single one merges, chunk
after chunk, which takes the time that the plan's merge rate states. Threads wait inside the kernel for whole chunks.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from dataclasses import astuple
from queue import SimpleQueue

from workloads.paramsync import coded, wire
from workloads.paramsync.control import Control
from workloads.paramsync.gradients import Array
from workloads.paramsync.ledger import WORKER, Ledger, ProtocolError
from workloads.paramsync.outbox import Outbox
from workloads.paramsync.plan import FULL_BITS, SyncPlan
from workloads.paramsync.records import FORWARDED, MERGED, RECEIVED, SENT, ChunkEvent
from workloads.training import sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SETTLE_S = 1e-3
"""So long the other threads have, in virtual time, to note what they have just done."""


class Server:
    """The server of `node`; `failed` is told, from any thread, why it cannot go on."""

    def __init__(self, plan: SyncPlan, node: int, failed: Callable[[str], None]) -> None:
        self._plan, self._node, self._failed = plan, node, failed
        self._ledger = Ledger(node, plan.policy)
        self._sums: dict[tuple[int, int], Array] = {}
        self._inbox: SimpleQueue[tuple[int, wire.Header, bytearray]] = SimpleQueue()
        self._outbox: dict[int, Outbox] = {}
        self._complete = Counter[int]()
        self._connections: dict[int, socket.socket] = {}
        self._events: list[ChunkEvent] = []

    def listen(self) -> socket.socket:
        """Await neighbours and the worker. Raises OSError."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._plan.congestion_control.encode())
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((self._plan.ips[self._node], self._plan.port))
        listener.listen(64)
        return listener

    def join(self, listener: socket.socket) -> dict[str, Any]:
        """Connect to the neighbours of higher numbers, be connected to by the others; what each socket uses.

        Raises OSError and wire.BrokenOffError.
        """
        plan, neighbours = self._plan, self._plan.neighbours(self._node)
        for peer in neighbours:
            if peer > self._node:
                self._connections[peer] = connect(plan, self._node, peer, self._node)
        while len(self._connections) < len(neighbours) + 1:
            connection, _ = listener.accept()
            said = wire.receive(connection)
            if said is None or said[0].kind != wire.HELLO or said[0].source not in {WORKER, *neighbours}:
                raise wire.BrokenOffError(f"a stranger came, and said {said}")
            self._connections[said[0].source] = connection
        listener.close()
        for peer, connection in sorted(self._connections.items()):
            if plan.oldest_first:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, wire.UNSENT_BYTES)
            self._outbox[peer] = Outbox(plan.oldest_first, plan.window if peer != WORKER else 0)
            self._start(self._receive, peer, connection)
            self._start(self._send, peer, connection)
        self._start(self._merge)
        return {plan.sites[peer]: sockets.read_back(self._connections[peer]) for peer in neighbours}

    def state(self) -> dict[str, object]:
        """What it waits for, and how long its queues are."""
        queues = {self._name(peer): queue.qsize() for peer, queue in sorted(self._outbox.items()) if queue.qsize()}
        return self._ledger.state() | {"queues": queues, "to merge": self._inbox.qsize()}

    def report(self) -> list[tuple[object, ...]]:
        """Every event so far, once, in order of time."""
        time.sleep(SETTLE_S)
        events, self._events = self._events, []
        return [astuple(event) for event in sorted(events, key=lambda event: event.t_s)]

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                work(*arguments)
            except (OSError, wire.BrokenOffError, ProtocolError) as error:
                self._failed(str(error))

        threading.Thread(target=run, daemon=True).start()

    def _receive(self, peer: int, connection: socket.socket) -> None:
        while (message := wire.receive(connection)) is not None:
            header, payload = message
            if header.source != peer:
                raise ProtocolError(f"{self._name(peer)} says it is {self._name(header.source)}")
            if header.kind == wire.GRANT:
                self._outbox[peer].grant(header.round, header.chunk)
                continue
            self._note(RECEIVED, header.kind, peer, header.round, header.chunk, header.size_bytes, header.sent_s)
            self._inbox.put((peer, header, payload))

    def _send(self, peer: int, connection: socket.socket) -> None:
        own = self._node
        while True:
            kind, round_, chunk, payload = self._outbox[peer].get()
            begin_s = time.time()
            wire.send(connection, wire.Header(kind, own, self._plan.policy.version, round_, chunk), payload)
            if kind != wire.GRANT:
                self._note(SENT, kind, peer, round_, chunk, len(payload), begin_s)

    def _merge(self) -> None:
        while True:
            peer, header, payload = self._inbox.get()
            if header.size_bytes != self._wanted_bytes(peer, header):
                raise ProtocolError(f"chunk {header.chunk} from {self._name(peer)} has {header.size_bytes} B")
            if header.kind == wire.PUSH:
                self._contribute(peer, header, payload)
            else:
                self._ledger.pulled(header.round, header.chunk, peer, header.version)
                self._release(header.round, header.chunk, memoryview(payload))

    def _wanted_bytes(self, peer: int, header: wire.Header) -> int:
        if header.chunk >= len(self._plan.chunks):
            return 0
        elements, bits = self._plan.chunks[header.chunk], FULL_BITS if peer == WORKER else self._plan.bits_of(peer)
        return coded.size_bytes(elements, bits if header.kind == wire.PUSH else FULL_BITS)

    def _contribute(self, peer: int, header: wire.Header, payload: bytearray) -> None:
        key, begin_s = (header.round, header.chunk), time.time()
        last = self._ledger.pushed(*key, peer, header.version)
        bits = FULL_BITS if peer == WORKER else self._plan.bits_of(peer)
        values = coded.decoded(payload, self._plan.chunks[header.chunk], bits)
        if key in self._sums:
            self._sums[key] += values
        else:
            self._sums[key] = values
        if self._plan.merge_bytes_per_s is not None and peer != WORKER:
            time.sleep(len(payload) / self._plan.merge_bytes_per_s)
        self._note(MERGED, wire.PUSH, peer, *key, len(payload), begin_s)
        if not last:
            return
        total, parent = self._sums.pop(key), self._ledger.parent(header.chunk)
        if parent is not None:
            self._forward(wire.PUSH, parent, *key, coded.coded(self._plan, self._node, *key, total))
            return
        self._release(*key, total.data.cast("B"))
        if self._plan.window:
            self._complete[header.round] += 1
            for child in self._ledger.children(header.chunk):
                self._outbox[child].put(wire.GRANT, header.round, self._complete[header.round], memoryview(b""))

    def _release(self, round_: int, chunk: int, total: memoryview) -> None:
        for peer in (*self._ledger.children(chunk), WORKER):
            self._forward(wire.PULL, peer, round_, chunk, total)

    def _forward(self, kind: int, peer: int, round_: int, chunk: int, payload: memoryview) -> None:
        self._note(FORWARDED, kind, peer, round_, chunk, len(payload), time.time())
        self._outbox[peer].put(kind, round_, chunk, payload)

    def _note(self, event: str, kind: int, peer: int, round_: int, chunk: int, size_bytes: int, begin_s: float) -> None:
        whom = None if peer == WORKER else peer
        self._events.append(
            ChunkEvent(time.time(), self._node, event, wire.KINDS[kind], whom, round_, chunk, size_bytes, begin_s)
        )

    def _name(self, peer: int) -> str:
        return "the worker" if peer == WORKER else self._plan.sites[peer]


def connect(plan: SyncPlan, node: int, peer: int, source: int) -> socket.socket:
    """A connection from the site of `node` to the server of `peer`, introduced as `source`. Raises OSError."""
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, plan.congestion_control.encode())
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.bind((plan.ips[node], 0))
    connection.connect((plan.ips[peer], plan.port))
    wire.send(connection, wire.Header(wire.HELLO, source))
    return connection


def serve(control: Control, node: int, plan: SyncPlan) -> None:
    """Be the server of a site until the conductor says bye. Raises OSError and wire.BrokenOffError."""
    server = Server(plan, node, lambda why: control.say("failed", why=why))
    listener = server.listen()
    control.say("listening")
    control.hear()
    control.say("connected", sockets=server.join(listener))
    while (order := control.hear())["do"] != "bye":
        if order["do"] == "state":
            control.say("state", state=server.state())
        else:
            control.say("report", events=server.report())
