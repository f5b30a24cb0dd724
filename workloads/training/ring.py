"""A ring all-reduce over two TCP connections: one to the next worker, one from the previous.

A thread of its own sends, so that a worker sends and receives at the same time: with one thread, all workers
would first send, fill each other's buffers, and wait for ever. Timing needs no sums, so `all_reduce` moves
real bytes of no meaning; `all_reduce_sum` moves and adds integers over the very same steps, and proves them.
"""

from __future__ import annotations

import queue
import socket
import threading
from array import array

from workloads.training import sockets
from workloads.training.schedule import chunk_bounds, ring_steps

# Large, since every piece costs two system calls; but in a guest every new page of memory costs as much.
PIECE_BYTES = 256 << 10


class PeerLostError(Exception):
    """A neighbour in the ring died, or was silent for too long; the message names it."""


class Ring:
    """One worker's place in a ring of `workers`.

    `out` is connected to the next worker, `inward` to the previous, both blocking, with SO_SNDTIMEO and
    SO_RCVTIMEO as the longest silence that is borne. `next_name` and `previous_name` appear in errors. Owns
    both sockets.
    """

    def __init__(
        self,
        rank: int,
        workers: int,
        out: socket.socket,
        inward: socket.socket,
        next_name: str = "the next worker",
        previous_name: str = "the previous worker",
    ) -> None:
        self.rank, self.workers = rank, workers
        self._out, self._inward = out, inward
        self._next_name, self._previous_name = next_name, previous_name
        self._blank = memoryview(bytes(PIECE_BYTES))
        self._sink = memoryview(bytearray(PIECE_BYTES))
        self._to_send: queue.SimpleQueue[memoryview | threading.Event | None] = queue.SimpleQueue()
        self._send_error = ""
        self._sender = threading.Thread(target=self._send, name="sender", daemon=True)
        self._sender.start()

    def all_reduce(self, size_bytes: int) -> None:
        """All-reduce a buffer of `size_bytes` of no meaning.

        Returns when all is received, and all is given to the kernel. Raises PeerLostError.
        """
        bounds = chunk_bounds(size_bytes, self.workers)
        sizes = [end - begin for begin, end in bounds]
        for send, receive, _ in ring_steps(self.rank, self.workers):
            for offset in range(0, sizes[send], PIECE_BYTES):
                self._to_send.put(self._blank[: min(PIECE_BYTES, sizes[send] - offset)])
            for offset in range(0, sizes[receive], PIECE_BYTES):
                self._receive(self._sink[: min(PIECE_BYTES, sizes[receive] - offset)])
        self._flush()

    def all_reduce_sum(self, values: array[int]) -> None:
        """All-reduce `values` in place: afterwards every worker holds the sums over all workers.

        Raises PeerLostError.
        """
        bounds = chunk_bounds(len(values), self.workers)
        with memoryview(values) as whole:
            for send, receive, add in ring_steps(self.rank, self.workers):
                self._to_send.put(whole[slice(*bounds[send])].cast("B"))
                begin, end = bounds[receive]
                came = array(values.typecode, bytes((end - begin) * values.itemsize))
                with memoryview(came) as view, view.cast("B") as raw:
                    self._receive(raw)
                for index, value in enumerate(came, begin):
                    values[index] = values[index] + value if add else value
            self._flush()

    def read_back(self) -> list[dict[str, str | int | float | bool]]:
        """sockets.read_back of both connections: [towards the next worker, from the previous one]."""
        return [sockets.read_back(self._out), sockets.read_back(self._inward)]

    def close(self) -> None:
        """Close both connections once everything that was to be sent is sent."""
        self._to_send.put(None)
        self._sender.join()
        self._out.close()
        self._inward.close()

    def _send(self) -> None:
        while (item := self._to_send.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
            elif not self._send_error:
                self._send_piece(item)

    def _send_piece(self, piece: memoryview) -> None:
        try:
            self._out.sendall(piece)
        except OSError as error:
            self._send_error = _lost(self._next_name, error)
            # The main thread may be waiting for a neighbour that is well: wake it to report this one.
            self._inward.shutdown(socket.SHUT_RD)

    def _receive(self, into: memoryview) -> None:
        while into:
            try:
                count = self._inward.recv_into(into, len(into), socket.MSG_WAITALL)
            except OSError as error:
                raise PeerLostError(self._send_error or _lost(self._previous_name, error)) from None
            if count == 0:
                raise PeerLostError(self._send_error or f"{self._previous_name} closed the connection")
            into = into[count:]

    def _flush(self) -> None:
        flushed = threading.Event()
        self._to_send.put(flushed)
        flushed.wait()
        if self._send_error:
            raise PeerLostError(self._send_error)


def _lost(name: str, error: OSError) -> str:
    if isinstance(error, BlockingIOError):
        return f"{name} was silent for too long"
    return f"{name} is lost: {error.strerror}"
