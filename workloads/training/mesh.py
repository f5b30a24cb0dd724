"""The TCP connections of one worker: one to every peer it sends to, one from every peer it receives from.

Every outgoing connection has a thread that sends, so that a worker sends and receives at the same time: with one
thread, all workers would first send, fill each other's buffers, and wait for ever. Since no sender waits for another,
what is in order on every connection arrives however large it is. Timing needs no contents, so mostly bytes of no
meaning move; `contents.py` moves real ones over the same steps, and proves them.
"""

from __future__ import annotations

import queue
import socket
import threading

from workloads.training import sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Large, since every piece costs two system calls; but in a guest every new page of memory costs as much.
PIECE_BYTES = 256 << 10


class PeerLostError(Exception):
    """A peer died, or was silent for too long; the message names it."""


class Sender:
    """Sends to one peer, in a thread, what it is given, in order. `on_error` is called, once, when that fails."""

    def __init__(self, connection: socket.socket, blank: memoryview, on_error: Callable[[OSError], None]) -> None:
        self._connection, self._blank, self._on_error = connection, blank, on_error
        self._given, self._sent = 0, 0
        self._to_send: queue.SimpleQueue[int | memoryview | threading.Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="sender", daemon=True)
        self._thread.start()

    def give(self, what: int | memoryview) -> None:
        """Send so many bytes of no meaning, or what is in a view of memory."""
        self._given += 1
        self._to_send.put(what)

    def flush(self) -> None:
        """Return when all that was given is in the hands of the kernel, or given up."""
        if self._sent < self._given:
            flushed = threading.Event()
            self._to_send.put(flushed)
            flushed.wait()

    def close(self) -> None:
        """Close the connection once everything that was to be sent is sent."""
        self._to_send.put(None)
        self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        failed = False
        while (item := self._to_send.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            try:
                if not failed:
                    self._send(item)
            except OSError as error:
                failed = True
                self._on_error(error)
            self._sent += 1

    def _send(self, item: int | memoryview) -> None:
        if isinstance(item, memoryview):
            self._connection.sendall(item)
            return
        for offset in range(0, item, PIECE_BYTES):
            self._connection.sendall(self._blank[: min(PIECE_BYTES, item - offset)])


class Mesh:
    """One worker's connections, by the rank at the other end.

    `out` are those it sends on, `inward` those it receives on, all blocking, with SO_SNDTIMEO and SO_RCVTIMEO as the
    longest silence that is borne. `names` has what to call each peer in errors. Owns all sockets.
    """

    def __init__(
        self, out: Mapping[int, socket.socket], inward: Mapping[int, socket.socket], names: Mapping[int, str]
    ) -> None:
        self._out, self._inward, self._names = out, inward, names
        self._sink = memoryview(bytearray(PIECE_BYTES))
        self._send_error = ""
        blank = memoryview(bytes(PIECE_BYTES))
        self._senders = {
            peer: Sender(connection, blank, lambda error, peer=peer: self._lost_while_sending(peer, error))  # type: ignore[misc]
            for peer, connection in out.items()
        }

    def send(self, peer: int, what: int | memoryview) -> None:
        """Hand so many bytes of no meaning, or what is in a view of memory, to the sender to `peer`."""
        self._senders[peer].give(what)

    def receive(self, peer: int, size_bytes: int) -> None:
        """Receive `size_bytes` from `peer` and forget them. Raises PeerLostError."""
        for offset in range(0, size_bytes, PIECE_BYTES):
            self.receive_into(peer, self._sink[: min(PIECE_BYTES, size_bytes - offset)])

    def receive_into(self, peer: int, view: memoryview) -> None:
        """Fill a view of memory, of bytes, with what comes from `peer`. Raises PeerLostError."""
        connection = self._inward[peer]
        while view:
            try:
                count = connection.recv_into(view, len(view), socket.MSG_WAITALL)
            except OSError as error:
                raise PeerLostError(self._send_error or self._lost(peer, error)) from None
            if count == 0:
                raise PeerLostError(self._send_error or f"{self._names[peer]} closed the connection")
            view = view[count:]

    def flush(self, peers: Iterable[int] | None = None) -> None:
        """Return when the kernel has all that was to be sent to `peers` (None: to all). Raises PeerLostError."""
        for peer in self._senders if peers is None else peers:
            self._senders[peer].flush()
        if self._send_error:
            raise PeerLostError(self._send_error)

    def read_back(self) -> list[dict[str, str | int | float | bool]]:
        """sockets.read_back of every connection, with its `direction`: "to rank 1", "from rank 2"."""
        found = []
        for word, connections in (("to", self._out), ("from", self._inward)):
            for peer, connection in connections.items():
                found.append({"direction": f"{word} rank {peer}", **sockets.read_back(connection)})
        return found

    def close(self) -> None:
        """Close all connections once everything that was to be sent is sent."""
        for sender in self._senders.values():
            sender.close()
        for connection in self._inward.values():
            connection.close()

    def _lost_while_sending(self, peer: int, error: OSError) -> None:
        self._send_error = self._send_error or self._lost(peer, error)
        # The main thread may be waiting for a peer that is well: wake it to report this one.
        for connection in self._inward.values():
            connection.shutdown(socket.SHUT_RD)

    def _lost(self, peer: int, error: OSError) -> str:
        if isinstance(error, BlockingIOError):
            return f"{self._names[peer]} was silent for too long"
        return f"{self._names[peer]} is lost: {error.strerror}"
