"""This room's netlink, against hand-made bytes and against the kernel the tests run on (reading only)."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.net import links
from testbed.telemetry.netlink import (
    KernelRefused,
    RouteSocket,
    attribute,
    attributes,
    nested,
    text,
    u32,
    u64,
)
from testbed.telemetry.qdisc import TCA_KIND, TCA_OPTIONS, TCA_STATS2, TCMSG, QdiscReader, decode


@given(values=st.dictionaries(st.integers(1, 0x3FFF), st.binary(max_size=40), max_size=8))
def test_attributes_read_back_what_was_written(values: dict[int, bytes]) -> None:
    data = b"".join(attribute(kind, value) for kind, value in values.items())
    assert len(data) % 4 == 0
    assert attributes(data) == values


@given(data=st.binary(max_size=200))
def test_damaged_attributes_end_the_list(data: bytes) -> None:
    assert sum(4 + len(value) for value in attributes(data).values()) <= len(data) + 3


def test_kinds_of_attributes() -> None:
    assert attributes(nested(5, u32(1, 7), text(2, "red"))) == {5: u32(1, 7) + text(2, "red")}
    assert attributes(u64(4, 1 << 40)) == {4: struct.pack("=Q", 1 << 40)}


def test_statistics_of_a_red_queue() -> None:
    red = attribute(1, struct.pack("=IIIBBBB", 16_000_000, 80_000, 160_000, 0, 0, 0, 1)) + u32(3, 0xFFFFFFFF)
    stats = attribute(1, struct.pack("=QIxxxx", 1 << 40, 77)) + attribute(3, struct.pack("=IIIII", 5, 45_070, 3, 0, 9))
    stats += attribute(4, struct.pack("=IIII", 2, 1, 0, 4242)) + u64(8, (1 << 32) + 77)
    body = TCMSG.pack(0, 12, 3 << 16, 2 << 16 | 1, 2) + text(TCA_KIND, "red") + attribute(TCA_OPTIONS, red)
    q = decode(body + nested(TCA_STATS2, stats))
    assert (q.ifindex, q.kind, q.handle, q.parent) == (12, "red", "3:", "2:1")
    assert (q.bytes, q.packets, q.backlog_bytes, q.backlog_packets) == (1 << 40, (1 << 32) + 77, 45_070, 5)
    assert (q.drops, q.marked) == (3, 4242)


def test_a_discipline_that_is_not_ours_has_no_options() -> None:
    q = decode(TCMSG.pack(0, 1, 0, 0xFFFFFFFF, 2) + text(TCA_KIND, "noqueue"))
    assert (q.kind, q.parent, q.options, q.marked) == ("noqueue", "root", {}, 0)


def _fifo(ifindex: int, packets: int) -> bytes:
    queue = nested(TCA_STATS2, attribute(3, struct.pack("=IIIII", packets, 100 * packets, 0, 0, 0)))
    return TCMSG.pack(0, ifindex, 3 << 16, 0, 1) + text(TCA_KIND, "bfifo") + u32(TCA_OPTIONS, 1000) + queue


class FakeKernel:
    """Gives the answers of a test, in order."""

    def __init__(self, answers: list[list[bytes]]) -> None:
        self._answers = iter(answers)

    def get(self, _request: object) -> bytes:
        return next(self._answers)[0]

    def dump(self, _request: object) -> list[bytes]:
        return next(self._answers)


@given(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=2), min_size=1, max_size=6))
def test_what_is_remembered_of_a_queue_is_never_what_it_was_before(counts: list[list[int]]) -> None:
    bodies = [[_fifo(ifindex, packets) for ifindex, packets in enumerate(both)] for both in counts]
    reader = QdiscReader()
    reader._socket.close()
    vars(reader)["_socket"] = FakeKernel([*bodies, *bodies])
    for one in bodies:
        assert reader.dump() == [decode(body) for body in one]
    for one in bodies:
        assert reader.read(0, "3:") == decode(one[0])


def test_the_loopback_device_is_read_from_this_kernel() -> None:
    with RouteSocket() as kernel:
        lo = links.devices(kernel)["lo"]
    assert lo.mac == "00:00:00:00:00:00"
    assert lo.ifindex == 1


def test_a_refusal_names_what_was_asked() -> None:
    with (
        QdiscReader() as reader,
        pytest.raises(KernelRefused, match="qdisc 3: of interface 2147483000") as caught,
    ):
        reader.read(2_147_483_000, "3:")
    assert caught.value.number == errno.ENODEV


def test_a_refusal_inside_a_batch_names_its_request() -> None:
    requests = [links.set_up(2_147_483_000 + i, f"missing{i}") for i in range(3)]
    with RouteSocket() as kernel, pytest.raises(KernelRefused, match="missing0") as caught:
        kernel.do(requests)
    assert caught.value.number in (errno.ENODEV, errno.EPERM)
    with RouteSocket() as kernel:
        kernel.do([])
