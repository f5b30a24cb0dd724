"""The two ends of a connection that moves bytes of no meaning, as cheaply as a program can.

With a CPU that costs no time a receiver is never behind: it would wake for every packet, and every wake is a system
call of the guest. SO_RCVLOWAT lets it sleep until a piece has come. MSG_TRUNC throws the piece away in the kernel, and
sendfile sends pages of a file as they are, so that no byte is copied on either side. None of this is on the packets'
way.
"""

from __future__ import annotations

import os
import select
import socket
import time

PIECE_BYTES = 1 << 20
"""What moves in one system call; less than a window, or the sender would wait for a receiver that sleeps."""


def memory_file(size_bytes: int = PIECE_BYTES) -> int:
    """Return the descriptor of a file in memory that holds `size_bytes`."""
    descriptor = os.memfd_create("payload")
    os.write(descriptor, bytes(size_bytes))
    return descriptor


def send(connection: socket.socket, size_bytes: int | None, start_s: float, file: int | None) -> None:
    """Send from `start_s` (time.time()) on: `size_bytes`, or None for ever; from the pages of `file`, or copied."""
    payload = memoryview(bytes(PIECE_BYTES))
    time.sleep(max(0.0, start_s - time.time()))
    left = size_bytes
    while left is None or left > 0:
        piece = PIECE_BYTES if left is None else min(PIECE_BYTES, left)
        if file is None:
            connection.sendall(payload[:piece])
            sent = piece
        else:
            sent = os.sendfile(connection.fileno(), file, 0, piece)
        left = None if left is None else left - sent


def receive(connection: socket.socket, size_bytes: int | None, copied: bool) -> None:
    """Receive `size_bytes`, or None until the connection ends; the payload is thrown away, or copied."""
    buffer = bytearray(PIECE_BYTES)
    arrival = select.poll()
    arrival.register(connection, select.POLLIN)
    left = size_bytes
    low_bytes = 1
    while left is None or left > 0:
        wanted = PIECE_BYTES if left is None else min(PIECE_BYTES, left)
        if copied:
            count = connection.recv_into(buffer, wanted, socket.MSG_WAITALL)
        else:
            if wanted != low_bytes:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_bytes := wanted)
            arrival.poll()  # not in recv, which would take what there is and then wait for as much again
            count = connection.recv_into(buffer, wanted, socket.MSG_TRUNC)
        if count == 0:
            return
        left = None if left is None else left - count
