"""Messages between servers, and between a worker and its server: a header, then the bytes of a chunk.

Header, in the network's order: kind (1 B), nodes still to come (1 B), sender (2 B), version of the policy or attempt
(4 B), round (4 B), chunk (4 B), bytes that follow (8 B), time.time() of the sender when it began (8 B); then the nodes
still to come (2 B each), where the whole path travels with the message.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

HELLO, PUSH, PULL, CONTROL, DONE, GRANT = 1, 2, 3, 4, 5, 6
KINDS = {HELLO: "hello", PUSH: "push", PULL: "pull", CONTROL: "control", DONE: "done", GRANT: "grant"}
_HEADER = struct.Struct("!BBHIIIQd")
_LONGEST_BYTES = 1 << 28
UNSENT_BYTES = 65_536
"""So much may wait in a socket before it is on its way, where queues are to decide what is next: what a socket holds
goes in the order in which it came."""


class BrokenOffError(Exception):
    """The other end went away, or said what nobody understands."""


@dataclass(frozen=True)
class Header:
    """What stands before a chunk: `source` is the node that sends it (or ledger.WORKER), `version` that of the policy;
    under a scheduler it is the attempt at the round, and `path` has the nodes still to come, the receiver first."""

    kind: int
    source: int
    version: int = 0
    round: int = 0
    chunk: int = 0
    size_bytes: int = 0
    sent_s: float = 0.0
    path: tuple[int, ...] = ()


def send(connection: socket.socket, header: Header, payload: memoryview | bytes = b"") -> None:
    """Sends one message; returns when the kernel has all of it. Raises OSError."""
    size_bytes = len(payload)
    packed = _HEADER.pack(
        header.kind, len(header.path), header.source, header.version, header.round, header.chunk, size_bytes,
        time.time(),
    ) + struct.pack(f"!{len(header.path)}H", *header.path)  # fmt: skip
    if size_bytes:
        # One call for both, or the header would travel in a packet of its own.
        sent = connection.sendmsg([packed, payload])
        if sent < len(packed):
            connection.sendall(packed[sent:])
        connection.sendall(memoryview(payload)[max(0, sent - len(packed)) :])
    else:
        connection.sendall(packed)


def receive(connection: socket.socket) -> tuple[Header, bytearray] | None:
    """The next message, or None when the other end hung up between two. Raises BrokenOffError."""
    packed = bytearray(_HEADER.size)
    got = connection.recv_into(packed, _HEADER.size, socket.MSG_WAITALL)
    if got == 0:
        return None
    if got < _HEADER.size:
        raise BrokenOffError(f"only {got} of {_HEADER.size} bytes of a header came")
    kind, nodes, *rest = _HEADER.unpack(packed)
    path = bytearray(2 * nodes)
    if nodes and connection.recv_into(path, 2 * nodes, socket.MSG_WAITALL) < 2 * nodes:
        raise BrokenOffError("a path broke off")
    source, version, round_, chunk, size_bytes, sent_s = rest
    header = Header(kind, source, version, round_, chunk, size_bytes, sent_s, struct.unpack(f"!{nodes}H", path))
    if header.kind not in KINDS or header.size_bytes > _LONGEST_BYTES:
        raise BrokenOffError(f"a header that is none: {packed.hex()}")
    payload = bytearray(header.size_bytes)
    # One call that waits for all of it: a program that wakes per packet costs the guest more than the packets.
    if header.size_bytes and (got := connection.recv_into(payload, 0, socket.MSG_WAITALL)) < header.size_bytes:
        raise BrokenOffError(f"only {got} of {header.size_bytes} bytes of chunk {header.chunk} came")
    return header, payload
