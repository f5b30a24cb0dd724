"""Chakra traces made here, small ones, to be mutated: the wire format of Protocol Buffers, written."""

from __future__ import annotations

COMPUTE, COLLECTIVE, ALL_REDUCE, ALL_GATHER = 4, 7, 0, 2
_ID, _NAME, _TYPE, _DEPS, _START, _DURATION, _ATTRIBUTE = 1, 2, 3, 5, 6, 7, 10


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(key: int, value: int) -> bytes:
    return _varint(key << 3) + _varint(value)


def _span(key: int, content: bytes) -> bytes:
    return _varint(key << 3 | 2) + _varint(len(content)) + content


def _attribute(name: str, field: int, value: int) -> bytes:
    return _span(_ATTRIBUTE, _span(1, name.encode()) + _number(field, value))


def _compute(key: int, name: str, duration_us: int) -> bytes:
    fields = _number(_ID, key) + _span(_NAME, name.encode()) + _number(_TYPE, COMPUTE)
    return fields + _number(_DURATION, duration_us)


def _reduce(key: int, after: int, size_bytes: int, collective: int = ALL_REDUCE) -> bytes:
    fields = _number(_ID, key) + _span(_NAME, b"nccl") + _number(_TYPE, COLLECTIVE) + _span(_DEPS, _varint(after))
    fields += _number(_START, 1) + _number(_DURATION, 5) + _attribute("comm_type", 9, collective)
    fields += _attribute("comm_size", 9, size_bytes) + _attribute("tid", 9, 14)
    return fields + _attribute("is_cpu_op", 27, 0)


def _trace(*nodes: bytes) -> bytes:
    metadata = _span(2, _span(1, b"schema") + _span(29, b"1.0.1"))
    return _varint(len(metadata)) + metadata + b"".join(_varint(len(node)) + node for node in nodes)


GOOD = (
    _trace(
        _compute(1, "conv2d", 100), _compute(3, "mm_backward", 40), _reduce(4, 3, 10_000_000),
        _compute(5, "kernel", 60), _reduce(6, 5, 20_000_000),
    ),
    _trace(
        *(_compute(key, f"kernel_{key}", 50 * key) for key in range(1, 9)),
        *(_reduce(10 + key, key, 1 << 20) for key in range(4, 9)),
    ),
)  # fmt: skip
"""Traces that are read as they are: some compute, with all-reduces of gradients after it."""
