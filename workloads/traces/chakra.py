"""MLCommons Chakra execution traces: a graph of what one worker of a training run computed and communicated.

A file is a sequence of [length][message]; the first message is the metadata, every other one a node with its
dependencies, its times and named attributes (mlcommons/chakra, schema/protobuf/et_def.proto). There is no
mark at the end: a file that is cut off exactly between two messages can be told only by a data dependency
that leads nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.errors import InputError
from workloads.traces.container import contents
from workloads.traces.wire import SPAN, VARINT, Field, WireError, fields, span, text, varint

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
LAST_NODE_TYPE = 10
COLLECTIVES = (
    "all-reduce",
    "reduce",
    "all-gather",
    "gather",
    "scatter",
    "broadcast",
    "all-to-all",
    "reduce-scatter",
    "reduce-scatter-block",
    "barrier",
)
_ID, _NAME, _TYPE, _DATA_DEPS, _START, _DURATION, _ATTRIBUTE = 1, 2, 3, 5, 6, 7, 10
_NODE_KINDS = {_ID: VARINT, _NAME: SPAN, _TYPE: VARINT, _START: VARINT, _DURATION: VARINT, _ATTRIBUTE: SPAN}
_METADATA_FIELDS = {1, 2}
_SIGNED, _UNSIGNED, _ZIGZAG = {7, 9}, {11, 13, 27}, {15, 17}  # of AttributeProto's values, the whole numbers


@dataclass(frozen=True)
class Node:
    """One node of a trace, and the byte of the file (unpacked) where it begins.

    `kind` is Chakra's NodeType. Times are µs; 0 stands for none. `on_device` says whether it ran on the
    accelerator rather than on the CPU that drives it, on which `stream` or thread. `collective` (one of
    COLLECTIVES) and `size_bytes` are None unless the node moves data.
    """

    offset: int
    id: int
    name: str
    kind: int
    data_deps: tuple[int, ...]
    start_us: int
    duration_us: int
    on_device: bool
    stream: int
    collective: str | None
    size_bytes: int | None


def read_trace(path: Path) -> tuple[Node, ...]:
    """The nodes of the trace in `path` (.et, or .tar.gz with one .et in it), in order of their ids.

    Raises InputError with the byte offset when the file is cut off, or is not a Chakra trace.
    """
    data = contents(path)
    try:
        return _nodes(data)
    except WireError as error:
        raise InputError(str(path), str(error), "is it a whole Chakra execution trace?") from None


def _nodes(data: bytes) -> tuple[Node, ...]:
    begin, end = span(data, 0, len(data))
    _check_metadata(data, begin, end)
    nodes: dict[int, Node] = {}
    at = end
    while at < len(data):
        begin, end = span(data, at, len(data))
        node = _node(data, at, begin, end)
        if node.id in nodes:
            raise WireError(at, f"node {node.id} was there already, at byte {nodes[node.id].offset}")
        nodes[node.id], at = node, end
    if not nodes:
        raise WireError(len(data), "no nodes follow the metadata")
    for node in nodes.values():
        for other in node.data_deps:
            if other not in nodes:
                raise WireError(node.offset, f"node {node.id} needs node {other}, which the file lacks")
    return tuple(nodes[key] for key in sorted(nodes))


def _check_metadata(data: bytes, begin: int, end: int) -> None:
    if begin == end:
        raise WireError(0, "the metadata are empty")
    for field in fields(data, begin, end):
        if field.number not in _METADATA_FIELDS or field.kind != SPAN:
            raise WireError(field.offset, "the metadata hold what Chakra's never do")
        if field.number == 1:
            text(data, field.begin, field.end)
        else:
            _attribute(data, field)


def _node(data: bytes, offset: int, begin: int, end: int) -> Node:
    numbers = {_ID: 0, _TYPE: 0, _START: 0, _DURATION: 0}
    name, data_deps, attributes = "", list[int](), dict[str, int]()
    for field in fields(data, begin, end):
        if field.kind != _NODE_KINDS.get(field.number, field.kind):
            raise WireError(field.offset, f"field {field.number} of a node has wire type {field.kind}")
        if field.number in numbers:
            numbers[field.number] = field.value
        elif field.number == _NAME:
            name = text(data, field.begin, field.end)
        elif field.number == _DATA_DEPS:
            data_deps += _ids(data, field)
        elif field.number == _ATTRIBUTE:
            key, value = _attribute(data, field)
            if value is not None:
                attributes[key] = value
    kind = numbers[_TYPE]
    if not 0 < kind <= LAST_NODE_TYPE:
        raise WireError(offset, f"a node of type {kind}")
    collective, size_bytes = _collective(offset, attributes) if kind == COLLECTIVE else (None, None)
    return Node(
        offset=offset,
        id=numbers[_ID],
        name=name,
        kind=kind,
        data_deps=tuple(data_deps),
        start_us=numbers[_START],
        duration_us=numbers[_DURATION],
        on_device=not attributes.get("is_cpu_op", 0),
        stream=attributes.get("tid", 0),
        collective=collective,
        size_bytes=size_bytes,
    )


def _collective(offset: int, attributes: dict[str, int]) -> tuple[str | None, int | None]:
    # A CPU node that merely launches a collective has neither attribute.
    if "comm_type" not in attributes:
        return None, None
    kind, size_bytes = attributes["comm_type"], attributes.get("comm_size", 0)
    if not 0 <= kind < len(COLLECTIVES):
        raise WireError(offset, f"a collective of type {kind}")
    if size_bytes < 0:
        raise WireError(offset, f"a collective of {size_bytes} bytes")
    return COLLECTIVES[kind], size_bytes


def _ids(data: bytes, field: Field) -> list[int]:
    if field.kind == VARINT:
        return [field.value]
    if field.kind != SPAN:
        raise WireError(field.offset, "dependencies are not numbers")
    ids, at = [], field.begin
    while at < field.end:
        value, at = varint(data, at, field.end)
        ids.append(value)
    return ids


def _attribute(data: bytes, field: Field) -> tuple[str, int | None]:
    """(name, value) of an attribute; the value is None unless it is a whole number or a truth."""
    name, value = "", None
    for part in fields(data, field.begin, field.end):
        if part.number == 1 and part.kind == SPAN:
            name = text(data, part.begin, part.end)
        elif part.kind == VARINT and part.number in _SIGNED:
            value = part.value - (1 << 64) if part.value >> 63 else part.value
        elif part.kind == VARINT and part.number in _UNSIGNED:
            value = part.value
        elif part.kind == VARINT and part.number in _ZIGZAG:
            value = (part.value >> 1) ^ -(part.value & 1)
    return name, value
