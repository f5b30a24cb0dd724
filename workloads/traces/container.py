"""The bytes of a trace out of the file it comes in: plain, gzipped, or in a tar archive, told by content."""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path

from testbed.errors import InputError
from testbed.files import read_bytes

GZIP = b"\x1f\x8b"
BLOCK_BYTES = 4096
LARGEST_BYTES = 1 << 28
"""Of a trace, unpacked: its nodes take some ten times as much memory."""


def contents(path: Path) -> bytes:
    """What the trace file `path` holds, unpacked.

    Raises InputError, with the byte offset in the file where it is cut off or not what it seems.
    """
    try:
        data = read_bytes(path, LARGEST_BYTES)
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    if data[:2] == GZIP:
        data = _unzipped(path, data)
    return _only_member(path, data) if data[257:262] == b"ustar" else data


def _unzipped(path: Path, packed: bytes) -> bytes:
    unzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    plain = bytearray()
    for offset in range(0, len(packed), BLOCK_BYTES):
        try:
            plain += unzip.decompress(packed[offset : offset + BLOCK_BYTES])
        except zlib.error as error:
            raise InputError(str(path), f"byte {offset} or soon after: {error}", "it was damaged") from None
        if len(plain) > LARGEST_BYTES:
            raise InputError(str(path), f"byte {offset}: holds more than {LARGEST_BYTES} bytes")
        if unzip.eof:
            return bytes(plain)
    raise InputError(str(path), f"byte {len(packed)}: the compressed data are cut off", "fetch it again")


def _only_member(path: Path, archive: bytes) -> bytes:
    where = f"{path} (tar archive)"
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            traces = [member for member in tar if member.isfile() and member.name.endswith(".et")]
            if len(traces) != 1:
                raise InputError(where, f"holds {len(traces)} files *.et", "give an archive with exactly one")
            member = traces[0]
            if member.offset_data + member.size > len(archive):
                raise InputError(where, f"byte {len(archive)}: {member.name} is cut off", "fetch it again")
            return archive[member.offset_data : member.offset_data + member.size]
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise InputError(where, f"byte {len(archive)} or before: {error}", "it was damaged") from None
