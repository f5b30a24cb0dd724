"""What the kernel's queues hold and have counted, read through netlink.

Every egress of the network is a small tree of queueing disciplines: `netem` (delay) over `tbf` (rate) over
`red` or `bfifo` (the queue itself). The queue's depth, its drops and its ECN marks come from here, one of the
two independent sources that every run must bring into agreement.

Formats: `include/uapi/linux/pkt_sched.h` and `gen_stats.h` of the Linux sources.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from testbed.telemetry.netlink import ECHO, Request, RouteSocket, attributes

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
TCA_KIND, TCA_OPTIONS, TCA_STATS2 = 1, 2, 7
TBF_PARMS, TBF_RATE64, TBF_BURST = 1, 4, 6
RED_PARMS, RED_STAB, RED_MAX_P, RED_FLAGS = 1, 2, 3, 4
NETEM_LATENCY64, NETEM_JITTER64 = 10, 11
ROOT = 0xFFFFFFFF

# struct tcmsg: family, padding, interface index, handle, parent, info
TCMSG = struct.Struct("=BxxxiIII")
# struct tc_tbf_qopt: two of (cell log, link layer, overhead, cell align, mpu, rate), then limit, buffer, mtu
TBF_QOPT = struct.Struct("=BBHhHI BBHhHI III")
# struct tc_red_qopt: limit, min, max, Wlog, Plog, Scell_log, flags
RED_QOPT = struct.Struct("=IIIBBBB")
# struct tc_netem_qopt: latency in ticks, limit, loss, gap, duplicate, jitter in ticks
NETEM_QOPT = struct.Struct("=IIIIII")
# struct tc_prio_qopt: bands, and the band of each of 16 priorities
PRIO_QOPT = struct.Struct("=i16B")

_STATS_BASIC, _STATS_QUEUE, _STATS_APP, _STATS_PACKETS64 = 1, 3, 4, 8
_BASIC = struct.Struct("=QI")
_QUEUE = struct.Struct("=IIIII")
_RED_XSTATS = struct.Struct("=IIII")


@dataclass(frozen=True)
class Qdisc:
    """One queueing discipline as the kernel shows it.

    `handle` and `parent` are written as tc writes them ("2:", "1:1", "root"). `options` are the kernel's own
    numbers with their units in their names. `bytes` and `packets` have left it, `drops` were thrown away and
    `marked` set to CE by it since it exists (32 bits wide in the kernel, except the bytes).
    """

    ifindex: int
    kind: str
    handle: str
    parent: str
    options: dict[str, int]
    bytes: int
    packets: int
    backlog_bytes: int
    backlog_packets: int
    drops: int
    marked: int


def handle_number(handle: str) -> int:
    """The kernel's number for "2:", "1:1" or "root"."""
    if handle == "root":
        return ROOT
    major, _, minor = handle.partition(":")
    return int(major, 16) << 16 | int(minor or "0", 16)


def handle_text(number: int) -> str:
    """The inverse of `handle_number`."""
    if number == ROOT:
        return "root"
    return f"{number >> 16:x}:{number & 0xFFFF:x}" if number & 0xFFFF else f"{number >> 16:x}:"


def decode(body: bytes) -> Qdisc:
    """A Qdisc from the body of an RTM_NEWQDISC message, whether the kernel wrote it or we did."""
    _, ifindex, handle, parent, _ = TCMSG.unpack_from(body)
    found = attributes(body, TCMSG.size)
    kind = found[TCA_KIND].rstrip(b"\0").decode()
    options = _options(kind, found[TCA_OPTIONS]) if kind in _OPTIONS and TCA_OPTIONS in found else {}
    stats = attributes(found.get(TCA_STATS2, b""))
    sent_bytes, sent_packets = _BASIC.unpack_from(stats[_STATS_BASIC]) if _STATS_BASIC in stats else (0, 0)
    if _STATS_PACKETS64 in stats:
        (sent_packets,) = struct.unpack_from("=Q", stats[_STATS_PACKETS64])
    length, backlog, drops, _, _ = _QUEUE.unpack_from(stats[_STATS_QUEUE]) if _STATS_QUEUE in stats else (0,) * 5
    marked = 0
    if kind == "red" and _STATS_APP in stats:
        _, _, _, marked = _RED_XSTATS.unpack_from(stats[_STATS_APP])
    return Qdisc(
        ifindex=ifindex,
        kind=kind,
        handle=handle_text(handle),
        parent=handle_text(parent) if parent else "",
        options=options,
        bytes=sent_bytes,
        packets=sent_packets,
        backlog_bytes=backlog,
        backlog_packets=length,
        drops=drops,
        marked=marked,
    )


def total(parts: Sequence[Qdisc]) -> Qdisc:
    """The first of `parts`, of which there must be one, with the counts of them all."""
    if len(parts) == 1:
        return parts[0]
    counts = ("bytes", "packets", "backlog_bytes", "backlog_packets", "drops", "marked")
    return replace(parts[0], **{name: sum(getattr(part, name) for part in parts) for name in counts})


def _tbf(data: bytes) -> dict[str, int]:
    found = attributes(data)
    values = TBF_QOPT.unpack_from(found[TBF_PARMS])
    rate = values[5]
    if TBF_RATE64 in found:
        (rate,) = struct.unpack_from("=Q", found[TBF_RATE64])
    return {"rate_bytes_per_s": rate, "limit_bytes": values[12], "buffer_ticks": values[13]}


def _red(data: bytes) -> dict[str, int]:
    found = attributes(data)
    limit, low, high, wlog, _, _, flags = RED_QOPT.unpack_from(found[RED_PARMS])
    (max_p,) = struct.unpack_from("=I", found[RED_MAX_P])
    if RED_FLAGS in found:  # of kernels from 5.6 on; it has those that RED_QOPT has no room for
        (flags,) = struct.unpack_from("=I", found[RED_FLAGS])
    return {
        "limit_bytes": limit,
        "min_bytes": low,
        "max_bytes": high,
        "wlog": wlog,
        "flags": flags,
        "max_probability_2e32": max_p,
    }


def _netem(data: bytes) -> dict[str, int]:
    _, limit, loss, gap, duplicate, _ = NETEM_QOPT.unpack_from(data)
    found = attributes(data, NETEM_QOPT.size)
    (latency,) = struct.unpack_from("=q", found[NETEM_LATENCY64])
    (jitter,) = struct.unpack_from("=q", found[NETEM_JITTER64])
    return {
        "latency_ns": latency,
        "jitter_ns": jitter,
        "limit_packets": limit,
        "loss_2e32": loss,
        "gap_packets": gap,
        "duplicate_2e32": duplicate,
    }


def _prio(data: bytes) -> dict[str, int]:
    bands, *of_priority = PRIO_QOPT.unpack_from(data)
    # -1 where priorities go to different bands
    return {"bands": bands, "default_band": of_priority[0] if len(set(of_priority)) == 1 else -1}


def _fifo(data: bytes) -> dict[str, int]:
    return {"limit_bytes": struct.unpack_from("=I", data)[0]}


_OPTIONS: dict[str, Callable[[bytes], dict[str, int]]] = {
    "tbf": _tbf,
    "red": _red,
    "netem": _netem,
    "bfifo": _fifo,
    "prio": _prio,
}


@lru_cache(maxsize=1024)  # what is read again and again has the same options every time
def _options(kind: str, data: bytes) -> dict[str, int]:
    return _OPTIONS[kind](data)


class QdiscReader:
    """Reads the qdiscs of the network namespace that is current when it is opened; usable as a context
    manager.

    A qdisc whose message is the one it was before, to the byte, is not decoded again: most rest most of the time.
    """

    def __init__(self) -> None:
        self._socket = RouteSocket()
        self._dumped: dict[bytes, Qdisc] = {}
        self._requests: dict[tuple[int, str], Request] = {}
        self._read: dict[tuple[int, str], tuple[bytes, Qdisc]] = {}

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def __enter__(self) -> QdiscReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def dump(self) -> list[Qdisc]:
        """Every qdisc of every interface."""
        request = Request(RTM_GETQDISC, 0, TCMSG.pack(0, 0, 0, 0, 0), "to list the queueing disciplines")
        self._dumped = {body: self._dumped.get(body) or decode(body) for body in self._socket.dump(request)}
        return list(self._dumped.values())

    def read(self, ifindex: int, handle: str) -> Qdisc:
        """One qdisc in two system calls, without its parent, which the kernel then does not tell; raises
        KernelRefused (ENOENT, ENODEV) when there is none."""
        key = ifindex, handle
        if key not in self._requests:
            body = TCMSG.pack(0, ifindex, handle_number(handle), 0, 0)
            # Kernels answer a question about one qdisc only to those who ask for an echo.
            self._requests[key] = Request(RTM_GETQDISC, ECHO, body, f"to show qdisc {handle} of interface {ifindex}")
        answer = self._socket.get(self._requests[key])
        before, qdisc = self._read.get(key, (b"", None))
        if qdisc is None or answer != before:
            qdisc = decode(answer)
            self._read[key] = answer, qdisc
        return qdisc

    def read_queue(self, ifindex: int, handles: Sequence[str]) -> Qdisc:
        """The queue of an egress, `read` from each of `handles` and added up; the first says what it is."""
        return total([self.read(ifindex, handle) for handle in handles])
