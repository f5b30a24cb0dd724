"""Protocol buffers on the wire, in the little a trace needs: numbers, spans, and the byte where one is wrong.

Decoded here rather than by the protobuf package, whose errors do not say where in a file they are, and which
would be one more package to install (the format: https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, SPAN, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_LONGEST_VARINT = 10


class WireError(Exception):
    """`what` is wrong at byte `offset` of the file."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"byte {offset}: {what}")
        self.offset, self.what = offset, what


class Field(NamedTuple):
    """A field at byte `offset`.

    `value` is its number if it is a VARINT; its contents are bytes `begin` to `end`.
    """

    offset: int
    number: int
    kind: int
    value: int
    begin: int
    end: int


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(the unsigned number of up to 64 bits at byte `at`, where it ends). Raises WireError."""
    value = 0
    for index in range(_LONGEST_VARINT):
        if at + index >= end:
            raise WireError(at, "a number is cut off")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >> 64:
                break
            return value, at + index + 1
    raise WireError(at, "a number is longer than 64 bits")


def span(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(begin, end) of the bytes whose length stands at byte `at`.

    Raises WireError if they end after `end`.
    """
    length, begin = varint(data, at, end)
    if length > end - begin:
        raise WireError(at, f"{length} bytes are announced, {end - begin} are there")
    return begin, begin + length


def fields(data: bytes, begin: int, end: int) -> Iterator[Field]:
    """The fields of the message in bytes `begin` to `end`, in their order. Raises WireError."""
    at = begin
    while at < end:
        offset = at
        key, at = varint(data, at, end)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError(offset, "field number 0")
        if kind == VARINT:
            value, after = varint(data, at, end)
            yield Field(offset, number, kind, value, at, after)
            at = after
        elif kind == SPAN:
            inner, after = span(data, at, end)
            yield Field(offset, number, kind, 0, inner, after)
            at = after
        elif kind in _FIXED_BYTES:
            after = at + _FIXED_BYTES[kind]
            if after > end:
                raise WireError(offset, f"a field of {_FIXED_BYTES[kind]} bytes is cut off")
            yield Field(offset, number, kind, 0, at, after)
            at = after
        else:
            raise WireError(offset, f"wire type {kind} is not in use")


def text(data: bytes, begin: int, end: int) -> str:
    """The UTF-8 string in bytes `begin` to `end`. Raises WireError."""
    try:
        return data[begin:end].decode()
    except UnicodeDecodeError as error:
        raise WireError(begin + error.start, "not UTF-8") from None
