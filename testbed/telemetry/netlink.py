"""Netlink, the kernel's own way to be asked about networks, in the little that a testbed needs of it.

A request is a header, a fixed structure and a list of attributes; many requests travel in one system call,
and the kernel answers each in order. That is why this room speaks netlink itself: in a virtual-time guest a
system call costs 12 µs and importing a general library costs more than building a whole fabric.

Formats: `include/uapi/linux/netlink.h` and `rtnetlink.h` of the Linux sources.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from testbed.errors import NotValid

REQUEST, ACK, ECHO = 0x1, 0x4, 0x8
DUMP, REPLACE, EXCLUSIVE, CREATE = 0x300, 0x100, 0x200, 0x400
NESTED = 0x8000

_ERROR, _DONE = 2, 3
_DUMP_INTERRUPTED = 0x10
# Options of level SOL_NETLINK, which Python's socket module does not name.
_SOL_NETLINK, _CAPPED_ERRORS, _EXTENDED_ERRORS = 270, 10, 11
_HINT = 1
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
# Below the default send buffer of a socket, with room for its bookkeeping.
_BATCH_BYTES = 32768
# The kernel fills at most 32 KiB per answer.
_RECEIVE_BYTES = 65536


class KernelRefused(NotValid):
    """The kernel did not do what it was asked; `number` is its errno, `what` names the object and the
    setting."""

    def __init__(self, what: str, number: int, hint: str = "") -> None:
        text = f"{errno.errorcode.get(number, str(number))}, {os.strerror(number)}"
        super().__init__(f"the kernel refused {what}: {text}" + (f": {hint}" if hint else ""))
        self.what, self.number = what, number


@dataclass(frozen=True)
class Request:
    """One message to the kernel: an `RTM_*` number, `NLM_F_*` flags, its body, and in words what it asks
    for."""

    kind: int
    flags: int
    body: bytes
    what: str


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind | NESTED, b"".join(attributes))


def u32(kind: int, value: int) -> bytes:
    """An attribute of one unsigned 32-bit number."""
    return attribute(kind, struct.pack("=I", value))


def u64(kind: int, value: int) -> bytes:
    """An attribute of one unsigned 64-bit number."""
    return attribute(kind, struct.pack("=Q", value))


def text(kind: int, value: str) -> bytes:
    """An attribute of one zero-terminated string."""
    return attribute(kind, value.encode() + b"\0")


def attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """The attributes of `data` from `offset` on, by number; a damaged tail ends the list."""
    found: dict[int, bytes] = {}
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size:
            break
        found[kind & 0x3FFF] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    return found


class RouteSocket:
    """A conversation with the kernel about the network namespace that was current when the socket was
    opened; about routes, or in another `protocol` of netlink."""

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.bind((0, 0))
        self._socket.setsockopt(_SOL_NETLINK, _EXTENDED_ERRORS, 1)
        self._socket.setsockopt(_SOL_NETLINK, _CAPPED_ERRORS, 1)
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._sequence = 0

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def __enter__(self) -> RouteSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def do(self, requests: Iterable[Request]) -> None:
        """Sends the requests in order, as few system calls as possible; raises KernelRefused for the first
        refusal."""
        batch: list[Request] = []
        size = 0
        for request in requests:
            batch.append(request)
            size += _HEADER.size + len(request.body)
            if size > _BATCH_BYTES:
                self._do_batch(batch)
                batch, size = [], 0
        if batch:
            self._do_batch(batch)

    def get(self, request: Request) -> bytes:
        """The body of the kernel's one answer to one request; raises KernelRefused."""
        self._sequence += 1
        self._socket.send(_message(request, self._sequence, REQUEST | request.flags))
        for kind, _, sequence, body in self._receive():
            if sequence == self._sequence:
                if kind == _ERROR:
                    raise _refusal(request, body)
                return body
        raise KernelRefused(request.what, errno.ENODATA)

    def dump(self, request: Request) -> list[bytes]:
        """The bodies of a whole table; asked for again when it changed while it was read. Raises
        KernelRefused."""
        while (bodies := self._dump_once(request)) is None:
            pass
        return bodies

    def _dump_once(self, request: Request) -> list[bytes] | None:
        self._sequence += 1
        self._socket.send(_message(request, self._sequence, REQUEST | DUMP | request.flags))
        bodies: list[bytes] = []
        interrupted = False
        while True:
            for kind, flags, sequence, body in self._receive():
                if sequence != self._sequence:
                    continue
                interrupted |= bool(flags & _DUMP_INTERRUPTED)
                if kind == _ERROR:
                    raise _refusal(request, body)
                if kind == _DONE:
                    return None if interrupted else bodies
                bodies.append(body)

    def _do_batch(self, batch: list[Request]) -> None:
        # Refusals are always reported; only the last request needs an answer when all goes well.
        first = self._sequence + 1
        self._sequence += len(batch)
        flags = [REQUEST] * (len(batch) - 1) + [REQUEST | ACK]
        data = (_message(r, first + i, r.flags | f) for i, (r, f) in enumerate(zip(batch, flags, strict=True)))
        self._socket.send(b"".join(data))
        refused: KernelRefused | None = None
        while True:
            for kind, _, sequence, body in self._receive():
                if kind != _ERROR or not first <= sequence <= self._sequence:
                    continue
                if struct.unpack_from("=i", body)[0] and refused is None:
                    refused = _refusal(batch[sequence - first], body)
                if sequence == self._sequence:
                    if refused:
                        raise refused
                    return

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        size = self._socket.recv_into(self._buffer)
        offset = 0
        while offset + _HEADER.size <= size:
            length, kind, flags, sequence, _ = _HEADER.unpack_from(self._buffer, offset)
            yield kind, flags, sequence, bytes(self._buffer[offset + _HEADER.size : offset + length])
            offset += (length + 3) & ~3


def _message(request: Request, sequence: int, flags: int) -> bytes:
    body = request.body + bytes(-len(request.body) % 4)
    return _HEADER.pack(_HEADER.size + len(request.body), request.kind, flags, sequence, 0) + body


def _refusal(request: Request, body: bytes) -> KernelRefused:
    (number,) = struct.unpack_from("=i", body)
    # After the number stands the header of the request it answers, and then the kernel's own words.
    hint = attributes(body, 4 + _HEADER.size).get(_HINT, b"").rstrip(b"\0").decode(errors="replace")
    return KernelRefused(request.what, -number, hint)
