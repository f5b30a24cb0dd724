"""Connections to the neighbours over their tunnels: two to each, for chunks and for control, made anew when they break.

The one with the lower number connects. A line is up when both its connections are, and down as soon as either has
broken: because the other program ended, or because nothing has been answered for `detect_s`, which the kernel watches
(TCP_USER_TIMEOUT, keepalive). What was on its way on a broken line is lost.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol as Interface

from workloads.paramsync import wire
from workloads.paramsync.ledger import WORKER

DATA, CONTROL = 0, 1
RETRY_S = 1.0
SYN_TRIES = 3
Message = tuple[wire.Header, bytes | memoryview]


@dataclass(frozen=True)
class End:
    """The other end of a line: its number, where it listens, whether chunks go there too (not to the scheduler)."""

    number: int
    address: tuple[str, int]
    data: bool = True

    @property
    def kinds(self) -> tuple[int, ...]:
        """The connections there are to it."""
        return (DATA, CONTROL) if self.data else (CONTROL,)


class Owner(Interface):
    """Whose lines they are. All are called from threads of the lines. That a line is up or down, and that a chunk is
    lost, is said in the order in which it happened; such a call may send, but not wait for another of the same peer."""

    def received(self, peer: int, header: wire.Header, payload: bytearray) -> None:
        """Take a chunk or a control message."""

    def sent(self, peer: int, header: wire.Header | None, begin_s: float) -> None:
        """A chunk is off (or, without header, lost): the next may go."""

    def changed(self, peer: int, up: bool) -> None:
        """A line is up or down."""

    def worker(self, connection: socket.socket) -> None:
        """The site's own worker has come."""

    def broken(self, why: str) -> None:
        """Something happened that never should."""


@dataclass(eq=False)
class _Session:
    """A line while it is up."""

    peer: int
    sockets: dict[int, socket.socket]
    queues: dict[int, SimpleQueue[Message | None]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        for kind, connection in self.sockets.items():
            self.queues[kind].put(None)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.ended.set()


class Lines:
    """The lines of `own` (in its `life`-th life), which listens at `address` for lower numbers and for its worker."""

    def __init__(
        self, own: int, life: int, address: tuple[str, int], ends: Sequence[End], owner: Owner,
        congestion_control: str, detect_s: float,
    ) -> None:  # fmt: skip
        self._own, self._life, self._address, self._owner = own, life, address, owner
        self._ends = {end.number: end for end in ends}
        self._congestion_control, self._detect_s = congestion_control, detect_s
        self._sessions: dict[int, _Session] = {}
        self._latest: dict[int, tuple[int, int]] = {}
        self._halves: dict[tuple[int, int, int], dict[int, socket.socket]] = {}
        self._busy: set[int] = set()
        self._turns = {end.number: threading.RLock() for end in ends}  # held from a change to when the owner knows
        self._lock = threading.Lock()

    def listen(self) -> None:
        """Await the others, from now on."""
        listener = self._socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(self._address)
        listener.listen(64)
        self._start(self._accept, listener)

    def connect(self) -> None:
        """Go to the others, from now on."""
        for end in self._ends.values():
            if end.number > self._own:
                self._start(self._keep, end)

    def up(self, peer: int) -> bool:
        """Whether the line to a peer is up."""
        with self._lock:
            return peer in self._sessions

    def sockets(self) -> Iterator[tuple[int, socket.socket]]:
        """The connections for chunks that are there, in the order of the peers."""
        with self._lock:
            found = [(peer, one.sockets[DATA]) for peer, one in sorted(self._sessions.items()) if DATA in one.sockets]
        return iter(found)

    def send(self, peer: int, header: wire.Header, payload: memoryview) -> bool:
        """Send a chunk, one at a time to each peer; False if it is lost, because the line is down."""
        with self._lock:
            session = self._sessions.get(peer)
            if session is None:
                return False
            self._busy.add(peer)
            session.queues[DATA].put((header, payload))
            return True

    def tell(self, packed: bytes, but: int | None) -> None:
        """Send a control message to everybody whose line is up, but one."""
        with self._lock:
            for peer, session in sorted(self._sessions.items()):
                if peer != but:
                    session.queues[CONTROL].put((wire.Header(wire.CONTROL, self._own), packed))

    def _socket(self) -> socket.socket:
        made = socket.socket()
        with contextlib.suppress(OSError):  # a refusal shows in what is read back
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion_control.encode())
        self._tune(made)
        return made

    def _tune(self, connection: socket.socket) -> None:
        third_s = max(1, round(self._detect_s / 3))
        for level, option, value in (
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self._detect_s * 1e3)),
            (socket.IPPROTO_TCP, socket.TCP_SYNCNT, SYN_TRIES),
            (socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, wire.UNSENT_BYTES),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, third_s),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, third_s),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        ):
            connection.setsockopt(level, option, value)

    def _start(self, work: object, *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()  # type: ignore[arg-type]

    def _keep(self, end: End) -> None:
        """Have a line to a peer, again whenever it broke."""
        number = 0
        while True:
            number += 1
            made: dict[int, socket.socket] = {}
            try:
                for kind in end.kinds:
                    made[kind] = self._socket()
                    made[kind].bind((self._address[0], 0))
                    made[kind].connect(end.address)
                    wire.send(made[kind], wire.Header(wire.HELLO, self._own, self._life, number, kind))
            except OSError:
                for connection in made.values():
                    connection.close()
            else:
                session = self._begin(end.number, (self._life, number), made)
                if session is not None:
                    session.ended.wait()
            time.sleep(RETRY_S)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            self._tune(connection)
            self._start(self._greet, connection)

    def _greet(self, connection: socket.socket) -> None:
        try:
            said = wire.receive(connection)
        except (OSError, wire.BrokenOffError):
            said = None
        if said is None:
            connection.close()
            return
        hello = said[0]
        if hello.kind != wire.HELLO or hello.source not in {WORKER, *self._ends}:
            self._owner.broken(f"a stranger came, and said {hello}")
        elif hello.source == WORKER:
            self._owner.worker(connection)
        else:
            with self._lock:
                halves = self._halves.setdefault((hello.source, hello.version, hello.round), {})
                halves[hello.chunk] = connection
                complete = len(halves) == len(self._ends[hello.source].kinds)
                if complete:
                    del self._halves[hello.source, hello.version, hello.round]
            if complete:
                self._begin(hello.source, (hello.version, hello.round), halves)

    def _begin(self, peer: int, order: tuple[int, int], sockets: dict[int, socket.socket]) -> _Session | None:
        """Take up a line; None if a later one of the same peer has been taken up already."""
        with self._turns[peer]:
            with self._lock:
                before, late = self._sessions.get(peer), order <= self._latest.get(peer, (0, 0))
            if late:
                for connection in sockets.values():
                    connection.close()
                return None
            if before is not None:  # the other end has noticed first
                self._end(before)
            session = _Session(peer, sockets, {kind: SimpleQueue() for kind in sockets})
            with self._lock:
                self._sessions[peer], self._latest[peer] = session, order
            self._owner.changed(peer, True)
        for kind in sockets:
            self._start(self._receive, session, kind)
            self._start(self._send, session, kind)
        return session

    def _end(self, session: _Session) -> None:
        with self._turns[session.peer]:
            with self._lock:
                if self._sessions.get(session.peer) is not session:
                    return
                del self._sessions[session.peer]
                lost = session.peer in self._busy
                self._busy.discard(session.peer)
            session.close()
            self._owner.changed(session.peer, False)
            if lost:
                self._owner.sent(session.peer, None, 0.0)

    def _receive(self, session: _Session, kind: int) -> None:
        try:
            while (message := wire.receive(session.sockets[kind])) is not None:
                self._owner.received(session.peer, *message)
        except (OSError, wire.BrokenOffError):
            pass
        self._end(session)

    def _send(self, session: _Session, kind: int) -> None:
        while (message := session.queues[kind].get()) is not None:
            header, payload = message
            begin_s = time.time()
            try:
                wire.send(session.sockets[kind], header, payload)
            except OSError:
                self._end(session)
                return
            if kind == CONTROL:
                continue
            with self._lock:
                free = self._sessions.get(session.peer) is session
                if free:
                    self._busy.discard(session.peer)
            if free:
                self._owner.sent(session.peer, header, begin_s)
