"""From tcpdump's classic capture file to pcapng, which carries the link's name and nanoseconds without being
told.

Streams: a capture larger than memory is no trouble. Deterministic: no program version, host name or date goes
in, so the same packets give the same bytes. Formats: pcap, draft-ietf-opsawg-pcap; pcapng,
draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

from testbed.errors import InputError

MICROSECONDS, NANOSECONDS = 0xA1B2C3D4, 0xA1B23C4D
SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
OPTION_END, OPTION_NAME, OPTION_RESOLUTION = 0, 2, 9
HEADER_BYTES, RECORD_BYTES = 24, 16
MAXIMUM_PACKET_BYTES = 1 << 18


class Converted(NamedTuple):
    """What came out: packets and bytes written, and whether the size cap or a torn end left packets out."""

    packets: int
    size_bytes: int
    truncated: bool


def convert(source: Path, target: Path, interface: str, max_bytes: int) -> Converted:
    """Write `source` (pcap) as `target` (pcapng) of at most `max_bytes`, with `interface` as the interface's
    name.

    A capture that was cut off inside its last packet keeps the whole ones. Raises InputError, with the byte
    offset, when `source` is not a pcap file.
    """
    with source.open("rb") as pcap, target.open("wb") as pcapng:
        order, per_second, snaplen_bytes, link_type = _header(source, pcap)
        size = pcapng.write(_section() + _interface(link_type, snaplen_bytes, interface))
        record, packets = struct.Struct(order + "IIII"), 0
        while head := pcap.read(RECORD_BYTES):
            if len(head) < RECORD_BYTES:
                return Converted(packets, size, truncated=True)
            seconds, fraction, captured_bytes, original_bytes = record.unpack(head)
            if captured_bytes > MAXIMUM_PACKET_BYTES:
                raise InputError(
                    str(source), f"byte {pcap.tell() - RECORD_BYTES}: no packet has {captured_bytes} bytes"
                )
            data = pcap.read(captured_bytes)
            if len(data) < captured_bytes:
                return Converted(packets, size, truncated=True)
            stamp_ns = seconds * 1_000_000_000 + fraction * (1_000_000_000 // per_second)
            block = _packet(stamp_ns, data, original_bytes)
            if size + len(block) > max_bytes:
                return Converted(packets, size, truncated=True)
            size += pcapng.write(block)
            packets += 1
    return Converted(packets, size, truncated=False)


def _header(source: Path, pcap: BinaryIO) -> tuple[str, int, int, int]:
    """Byte order, ticks per second, snap length and link type of a pcap file."""
    head = pcap.read(HEADER_BYTES)
    for order in "<>":
        for magic, per_second in ((NANOSECONDS, 1_000_000_000), (MICROSECONDS, 1_000_000)):
            if len(head) == HEADER_BYTES and head[:4] == struct.pack(order + "I", magic):
                snaplen_bytes, link_type = struct.unpack(order + "II", head[16:])
                return order, per_second, snaplen_bytes, link_type & 0xFFFF
    raise InputError(str(source), f"byte 0: {head[:4].hex(' ') or 'nothing'} is not the begin of a pcap file")


def _block(kind: int, body: bytes) -> bytes:
    length = 12 + len(body)
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _section() -> bytes:
    byte_order_magic, major, minor, unknown_length = 0x1A2B3C4D, 1, 0, -1
    return _block(SECTION, struct.pack("<IHHq", byte_order_magic, major, minor, unknown_length))


def _interface(link_type: int, snaplen_bytes: int, name: str) -> bytes:
    nanoseconds = b"\x09"
    options = _option(OPTION_NAME, name.encode()) + _option(OPTION_RESOLUTION, nanoseconds) + _option(OPTION_END, b"")
    return _block(INTERFACE, struct.pack("<HHI", link_type, 0, snaplen_bytes) + options)


def _packet(stamp_ns: int, data: bytes, original_bytes: int) -> bytes:
    head = struct.pack("<IIIII", 0, stamp_ns >> 32, stamp_ns & 0xFFFFFFFF, len(data), original_bytes)
    return _block(PACKET, head + _padded(data))
