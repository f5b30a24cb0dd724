"""The TCP connections of one worker: one to every peer it sends to, one from every peer it receives from.

Every outgoing connection has a thread that sends, so that a worker sends and receives at the same time: with one
thread, all workers would first send, fill each other's buffers, and wait for ever. Since no sender waits for another,
what is in order on every connection arrives however large it is. Timing needs no contents, so mostly bytes of no
meaning move; `contents.py` moves real ones over the same steps, and proves them.

On a CPU that costs no time a receiver is never behind and would wake for every packet, and whatever is copied is copied
between processes. So bytes of no meaning leave from a file in memory and are dropped by the receiving kernel, and a
receiver sleeps until a piece has come: the packets are the same.
"""

from __future__ import annotations

import mmap
import os
import queue
import select
import socket
import struct
import threading
from functools import partial

from workloads.training import sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PIECE_BYTES = 1 << 20  # large, since every piece costs system calls


class PeerLostError(Exception):
    """A peer died, or was silent for too long; the message names it."""


class Sender:
    """Sends to one peer, in a thread, what it is given, in order. `on_error` is called, once, when that fails."""

    def __init__(self, connection: socket.socket, blank: int, on_error: Callable[[OSError], None]) -> None:
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
        while item:
            item -= os.sendfile(self._connection.fileno(), self._blank, 0, min(PIECE_BYTES, item))


class Arrivals:
    """What comes on one connection, whose SO_RCVTIMEO says how long a silence is borne."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._least_bytes = 1
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        seconds, microseconds = struct.unpack("@ll", connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))
        self._patience_ms = seconds * 1000 + microseconds // 1000 or None
        # Well below a window, or the peer would wait for a receiver that sleeps.
        self._most_bytes = min(PIECE_BYTES, connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 4)
        self._sink = mmap.mmap(-1, PIECE_BYTES)  # never touched, so it takes no memory

    def drop(self, size_bytes: int) -> int:
        """Forget at most so much once it has come, or the connection ends; how much it was. Raises OSError."""
        size_bytes = min(self._most_bytes, size_bytes)
        self._sleep_for(size_bytes)
        # Not in recv, which would take what there is and then wait for as much again.
        if not self._poll.poll(self._patience_ms):
            raise BlockingIOError
        return self._connection.recv_into(self._sink, size_bytes, socket.MSG_TRUNC)

    def take(self, view: memoryview) -> int:
        """Fill `view`, unless the connection ends; with how much. Raises OSError."""
        self._sleep_for(1)
        return self._connection.recv_into(view, len(view), socket.MSG_WAITALL)

    def _sleep_for(self, size_bytes: int) -> None:
        if size_bytes != self._least_bytes:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)
            self._least_bytes = size_bytes


class Mesh:
    """One worker's connections, by the rank at the other end.

    `out` are those it sends on, `inward` those it receives on, all blocking, with SO_SNDTIMEO and SO_RCVTIMEO as the
    longest silence that is borne. `names` has what to call each peer in errors. Owns all sockets.
    """

    def __init__(
        self, out: Mapping[int, socket.socket], inward: Mapping[int, socket.socket], names: Mapping[int, str]
    ) -> None:
        self._out, self._inward, self._names = out, inward, names
        self._arrivals = {peer: Arrivals(connection) for peer, connection in inward.items()}
        self._send_error = ""
        self._blank = os.fdopen(os.memfd_create("blank"), "rb+", buffering=0)
        self._blank.truncate(PIECE_BYTES)  # a hole: no page is ever made for it
        self._senders = {
            peer: Sender(connection, self._blank.fileno(), partial(self._lost_while_sending, peer))
            for peer, connection in out.items()
        }

    def send(self, peer: int, what: int | memoryview) -> None:
        """Hand so many bytes of no meaning, or what is in a view of memory, to the sender to `peer`."""
        self._senders[peer].give(what)

    def receive(self, peer: int, size_bytes: int) -> None:
        """Receive `size_bytes` from `peer` and forget them. Raises PeerLostError."""
        while size_bytes:
            size_bytes -= self._came(peer, partial(self._arrivals[peer].drop, size_bytes))

    def receive_into(self, peer: int, view: memoryview) -> None:
        """Fill a view of memory, of bytes, with what comes from `peer`. Raises PeerLostError."""
        while view:
            view = view[self._came(peer, partial(self._arrivals[peer].take, view)) :]

    def _came(self, peer: int, read: Callable[[], int]) -> int:
        """Return how many bytes were read, at least one. Raises PeerLostError."""
        try:
            count = read()
        except OSError as error:
            raise PeerLostError(self._send_error or self._lost(peer, error)) from None
        if count == 0:
            raise PeerLostError(self._send_error or f"{self._names[peer]} closed the connection")
        return count

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
        self._blank.close()

    def _lost_while_sending(self, peer: int, error: OSError) -> None:
        self._send_error = self._send_error or self._lost(peer, error)
        # The main thread may be waiting for a peer that is well: wake it to report this one.
        for connection in self._inward.values():
            connection.shutdown(socket.SHUT_RD)

    def _lost(self, peer: int, error: OSError) -> str:
        if isinstance(error, BlockingIOError):
            return f"{self._names[peer]} was silent for too long"
        return f"{self._names[peer]} is lost: {error.strerror}"
