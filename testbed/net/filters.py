"""Filters of the kernel's kind u32 that sort IPv4 packets into bands by their DSCP, as netlink messages.

Formats: `include/uapi/linux/pkt_cls.h` and `rtnetlink.h` of the Linux sources.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from testbed.telemetry.netlink import CREATE, EXCLUSIVE, Request, RouteSocket, attribute, attributes, text, u32
from testbed.telemetry.qdisc import TCA_KIND, TCA_OPTIONS, TCMSG, handle_number, handle_text

RTM_NEWTFILTER, RTM_GETTFILTER = 44, 46
_CLASS, _SELECTOR = 1, 5
_TERMINAL = 1
_IPV4 = 0x0800
# struct tc_u32_sel up to its keys: flags, offset shift, number of keys, offset mask, offset, two of hashing, hash mask
_SELECTOR_HEAD = struct.Struct("=BBBxHHhhI")
# struct tc_u32_key: mask and value in network order, offset, mask of the offset
_KEY = struct.Struct(">II")
_KEY_TAIL = struct.Struct("=ii")
_TOS_SHIFT, _DSCP_MASK = 18, 0x00FC0000  # in the first word of an IPv4 header


@dataclass(frozen=True)
class Filter:
    """Packets of `dscp` go to the class `band` ("4:1"); filters are asked by `order`, from 1 on."""

    order: int
    band: str
    dscp: int


def request(ifindex: int, interface: str, parent: str, f: Filter) -> Request:
    """The message that puts a filter on the qdisc `parent` of an interface."""
    info = f.order << 16 | struct.unpack("=H", struct.pack(">H", _IPV4))[0]
    body = TCMSG.pack(0, ifindex, 0, handle_number(parent), info)
    selector = _SELECTOR_HEAD.pack(_TERMINAL, 0, 1, 0, 0, 0, 0, 0)
    selector += _KEY.pack(_DSCP_MASK, f.dscp << _TOS_SHIFT) + _KEY_TAIL.pack(0, 0)
    options = u32(_CLASS, handle_number(f.band)) + attribute(_SELECTOR, selector)
    body += text(TCA_KIND, "u32") + attribute(TCA_OPTIONS, options)
    return Request(RTM_NEWTFILTER, CREATE | EXCLUSIVE, body, f"filter of DSCP {f.dscp} on {interface}")


def read(kernel: RouteSocket, ifindex: int, parent: str) -> list[Filter]:
    """The filters on the qdisc `parent` of an interface, in the order in which they are asked."""
    asked = TCMSG.pack(0, ifindex, 0, handle_number(parent), 0)
    bodies = kernel.dump(Request(RTM_GETTFILTER, 0, asked, f"to list the filters of interface {ifindex}"))
    return sorted((f for body in bodies if (f := decode(body))), key=lambda f: f.order)


def decode(body: bytes) -> Filter | None:
    """A Filter from the body of an RTM_NEWTFILTER message, None for the kernel's own tables of them.

    A filter that is none of ours has the DSCP -1.
    """
    _, _, _, _, info = TCMSG.unpack_from(body)
    found = attributes(attributes(body, TCMSG.size).get(TCA_OPTIONS, b""))
    if _CLASS not in found or _SELECTOR not in found:
        return None
    selector = found[_SELECTOR]
    keys = selector[2]
    mask, value = _KEY.unpack_from(selector, _SELECTOR_HEAD.size)
    offsets = _KEY_TAIL.unpack_from(selector, _SELECTOR_HEAD.size + _KEY.size)
    ours = keys == 1 and mask == _DSCP_MASK and offsets == (0, 0)
    (band,) = struct.unpack_from("=I", found[_CLASS])
    return Filter(info >> 16, handle_text(band), value >> _TOS_SHIFT if ours else -1)
