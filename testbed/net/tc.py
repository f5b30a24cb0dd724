"""From the settings of an egress to the kernel's queueing disciplines, as netlink messages.

The order is delay, rate, queue: `netem 1:` at the root (only where there is delay or loss), `tbf 2:` under
it, and under that `red 3:` or `bfifo 3:`. With bands of priority `prio 4:` stands between, and under it `red 3:`
for the first band, `red 5:` and so on for the others; filters sort packets by their DSCP. The other way round,
packets in flight would count as a queue and be marked. Netlink can say two things that the command `tc` cannot: a
RED that looks at the instantaneous queue (Wlog 0), and rates above 34 Gbit/s together with RED.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from testbed.net import filters as filters_of
from testbed.net.filters import Filter
from testbed.net.topology import Direction, Red
from testbed.telemetry.netlink import CREATE, REPLACE, Request, attribute, text, u32, u64
from testbed.telemetry.qdisc import (
    NETEM_JITTER64,
    NETEM_LATENCY64,
    NETEM_QOPT,
    PRIO_QOPT,
    RED_FLAGS,
    RED_MAX_P,
    RED_PARMS,
    RED_QOPT,
    RED_STAB,
    RTM_NEWQDISC,
    TBF_BURST,
    TBF_PARMS,
    TBF_QOPT,
    TBF_RATE64,
    TCA_KIND,
    TCA_OPTIONS,
    TCMSG,
    handle_number,
)

NETEM, TBF, QUEUE, PRIO = "1:", "2:", "3:", "4:"
_SECOND_BAND = 5

_RED_ECN, _RED_NODROP = 1, 8
_ETHERNET = 1
_U32_MAX = (1 << 32) - 1
_SMALLEST_FRAME_BYTES = 60
# After an idle period RED would decay its old average by this table; a shift of 31 leaves nothing of it.
_RED_FORGET = bytes([31]) * 256


@dataclass(frozen=True)
class Wanted:
    """One qdisc as it must be: its place in the tree and the numbers `testbed.telemetry.qdisc` will show for
    it."""

    kind: str
    handle: str
    parent: str
    options: dict[str, int]


def wanted(d: Direction) -> list[Wanted]:
    """The qdiscs of an egress, each after its parent."""
    tree: list[Wanted] = []
    if d.delay_s or d.loss:
        tree.append(Wanted("netem", NETEM, "root", _netem(d)))
    tree.append(Wanted("tbf", TBF, "1:1" if tree else "root", _tbf(d)))
    if d.aqm and d.bands:
        tree.append(Wanted("prio", PRIO, "2:1", {"bands": len(d.bands), "default_band": len(d.bands) - 1}))
        for band, handle in enumerate(queues(d), 1):
            tree.append(Wanted("red", handle, f"{PRIO}{band:x}", _red(d.aqm, d.queue_bytes)))
    elif d.aqm:
        tree.append(Wanted("red", QUEUE, "2:1", _red(d.aqm, d.queue_bytes)))
    else:
        tree.append(Wanted("bfifo", QUEUE, "2:1", {"limit_bytes": d.queue_bytes}))
    return tree


def queues(d: Direction) -> tuple[str, ...]:
    """The handles of the qdiscs in which packets of an egress wait; one, or one for each band."""
    return (QUEUE, *(f"{number:x}:" for number in range(_SECOND_BAND, _SECOND_BAND + len(d.bands) - 1)))


def wanted_filters(d: Direction) -> list[Filter]:
    """The filters that sort packets into bands, in the order in which they are asked."""
    return [Filter(order, f"{PRIO}{order:x}", dscp) for order, dscp in enumerate(d.bands, 1)]


def requests(ifindex: int, interface: str, d: Direction) -> list[Request]:
    """The messages that give an egress its qdiscs, each after its parent, and its filters."""
    filters = [filters_of.request(ifindex, interface, PRIO, f) for f in wanted_filters(d)]
    return [_request(ifindex, interface, w, d) for w in wanted(d)] + filters


def changes(ifindex: int, interface: str, before: Direction, after: Direction) -> list[Request]:
    """The messages that turn an egress from one setting to another whose qdiscs are the same kinds, and no more.

    A RED that is told what it has already throws away what waits in it.
    """
    pairs = zip(wanted(before), wanted(after), strict=True)
    return [_request(ifindex, interface, new, after) for old, new in pairs if old != new]


def _request(ifindex: int, interface: str, w: Wanted, d: Direction) -> Request:
    encode = {
        "netem": _encode_netem, "tbf": _encode_tbf, "prio": _encode_prio, "red": _encode_red, "bfifo": _encode_bfifo,
    }[w.kind]  # fmt: skip
    body = TCMSG.pack(0, ifindex, handle_number(w.handle), handle_number(w.parent), 0)
    body += text(TCA_KIND, w.kind) + attribute(TCA_OPTIONS, encode(w.options, d))
    return Request(RTM_NEWQDISC, CREATE | REPLACE, body, f"qdisc {w.kind} {w.handle} on {interface}")


def _netem(d: Direction) -> dict[str, int]:
    # What the link's own queue would keep must not be lost here: room for a line and a queue of small frames.
    line_bytes = int(d.rate_bps * (d.delay_s + d.jitter_s) / 8)
    limit_packets = (line_bytes + d.queue_bytes) // _SMALLEST_FRAME_BYTES + 1000
    return {
        "latency_ns": round(d.delay_s * 1e9),
        "jitter_ns": round(d.jitter_s * 1e9),
        "limit_packets": min(limit_packets, _U32_MAX),
        "loss_2e32": min(round(d.loss * 2**32), _U32_MAX),
        "gap_packets": 0,
        "duplicate_2e32": 0,
    }


def _encode_netem(options: dict[str, int], _: Direction) -> bytes:
    fixed = NETEM_QOPT.pack(0, options["limit_packets"], options["loss_2e32"], 0, 0, 0)
    latency = attribute(NETEM_LATENCY64, struct.pack("=q", options["latency_ns"]))
    return fixed + latency + attribute(NETEM_JITTER64, struct.pack("=q", options["jitter_ns"]))


def _tbf(d: Direction) -> dict[str, int]:
    # The kernel shows a burst only as the time it takes, in ticks of 64 ns.
    rate = d.rate_bps // 8
    return {
        "rate_bytes_per_s": rate,
        "limit_bytes": d.queue_bytes,
        "buffer_ticks": d.burst_bytes * 1_000_000_000 // rate >> 6,
    }


def _encode_tbf(options: dict[str, int], d: Direction) -> bytes:
    rate = options["rate_bytes_per_s"]
    spec = (0, _ETHERNET, 0, 0, 0, min(rate, _U32_MAX))
    parms = TBF_QOPT.pack(*spec, *(0,) * 6, options["limit_bytes"], options["buffer_ticks"], 0)
    return attribute(TBF_PARMS, parms) + u64(TBF_RATE64, rate) + u32(TBF_BURST, d.burst_bytes)


def _encode_prio(options: dict[str, int], _: Direction) -> bytes:
    # Whatever no filter knows waits in the last band.
    return PRIO_QOPT.pack(options["bands"], *[options["default_band"]] * 16)


def _red(aqm: Red, queue_bytes: int) -> dict[str, int]:
    return {
        "limit_bytes": queue_bytes,
        "min_bytes": aqm.min_bytes,
        # The kernel divides by max - min: a step is one byte wide.
        "max_bytes": max(aqm.max_bytes, aqm.min_bytes + 1),
        "wlog": 0,
        "flags": _RED_ECN | (_RED_NODROP if aqm.keeps else 0),
        # 0 would mean "unset" to the kernel.
        "max_probability_2e32": min(max(round(aqm.probability * 2**32), 1), _U32_MAX),
    }


def _encode_red(options: dict[str, int], _: Direction) -> bytes:
    parms = RED_QOPT.pack(options["limit_bytes"], options["min_bytes"], options["max_bytes"], 0, 0, 0, 0)
    max_p = u32(RED_MAX_P, options["max_probability_2e32"])
    flags = attribute(RED_FLAGS, struct.pack("=II", options["flags"], options["flags"]))
    return attribute(RED_PARMS, parms) + attribute(RED_STAB, _RED_FORGET) + max_p + flags


def _encode_bfifo(options: dict[str, int], _: Direction) -> bytes:
    return struct.pack("=I", options["limit_bytes"])
