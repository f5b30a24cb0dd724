"""Devices, addresses, routes and neighbours as netlink messages, and how to read them back.

Formats: `include/uapi/linux/if_link.h`, `if_addr.h`, `rtnetlink.h` and `neighbour.h` of the Linux sources.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

from testbed.telemetry.netlink import (
    CREATE,
    EXCLUSIVE,
    REPLACE,
    Request,
    RouteSocket,
    attribute,
    attributes,
    nested,
    text,
    u32,
)

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_GETADDR = 20, 22
RTM_NEWROUTE, RTM_GETROUTE = 24, 26
RTM_NEWNEIGH, RTM_GETNEIGH = 28, 30

# struct ifinfomsg: family, padding, type, index, flags, change mask
_IFINFO = struct.Struct("=BxHiII")
# struct ifaddrmsg: family, prefix length, flags, scope, index
_IFADDR = struct.Struct("=BBBBI")
# struct rtmsg: family, dst length, src length, tos, table, protocol, scope, type, flags
_RT = struct.Struct("=BBBBBBBBI")
# struct ndmsg: family, padding, index, state, flags, type
_ND = struct.Struct("=BxxxiHBB")

_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_OPERSTATE = 1, 3, 4, 10, 16
_IFLA_LINKINFO, _IFLA_NET_NS_FD, _IFLA_NUM_TX_QUEUES, _IFLA_NUM_RX_QUEUES = 18, 28, 31, 32
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS, _NO_PREFIX_ROUTE = 1, 2, 8, 0x200
_RTA_DST, _RTA_OIF, _RTA_PREFSRC, _RTA_METRICS = 1, 4, 7, 8
_RTAX_LOCK, _RTAX_RTO_MIN, _RTAX_QUICKACK = 1, 13, 15
_NDA_DST, _NDA_LLADDR = 1, 2
_IFF_UP = 1
_PERMANENT = 0x80
_MAIN_TABLE, _STATIC, _SCOPE_LINK, _UNICAST = 254, 4, 253, 1
# The operational states of RFC 2863, in the kernel's order.
OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")


@dataclass(frozen=True)
class End:
    """One end of a veth pair; `namespace` is an open file of the network namespace it belongs in."""

    name: str
    mac: str
    namespace: int


@dataclass(frozen=True)
class Device:
    """A network device as the kernel shows it; `up` is what it was told, `operstate` what it is."""

    ifindex: int
    name: str
    mac: str
    mtu_bytes: int
    up: bool
    operstate: str


def add_veth(a: End, b: End, mtu_bytes: int) -> Request:
    """A cable: two devices, each made inside its own namespace. They begin down."""
    peer = attribute(_VETH_PEER, _IFINFO.pack(0, 0, 0, 0, 0) + _end(b, mtu_bytes))
    info = nested(_IFLA_LINKINFO, text(_INFO_KIND, "veth"), nested(_INFO_DATA, peer))
    body = _IFINFO.pack(0, 0, 0, 0, 0) + _end(a, mtu_bytes) + info
    return Request(RTM_NEWLINK, CREATE | EXCLUSIVE, body, f"the cable between {a.name} and {b.name}")


def add_bridge(name: str, mac: str) -> Request:
    """A Linux bridge, down."""
    body = _IFINFO.pack(0, 0, 0, 0, 0) + text(_IFLA_IFNAME, name) + attribute(_IFLA_ADDRESS, bytes.fromhex(_hex(mac)))
    body += nested(_IFLA_LINKINFO, text(_INFO_KIND, "bridge"))
    return Request(RTM_NEWLINK, CREATE | EXCLUSIVE, body, f"the bridge {name}")


def add_dummy(name: str) -> Request:
    """A device that leads nowhere, to hold an address."""
    body = _IFINFO.pack(0, 0, 0, 0, 0) + text(_IFLA_IFNAME, name)
    body += nested(_IFLA_LINKINFO, text(_INFO_KIND, "dummy"))
    return Request(RTM_NEWLINK, CREATE | EXCLUSIVE, body, f"the device {name}")


def add_wireguard(name: str, mtu_bytes: int, namespace: int) -> Request:
    """A WireGuard device in `namespace` (an open file); its encrypted packets leave by the namespace that asks."""
    body = _IFINFO.pack(0, 0, 0, 0, 0) + text(_IFLA_IFNAME, name) + u32(_IFLA_MTU, mtu_bytes)
    body += u32(_IFLA_NET_NS_FD, namespace) + nested(_IFLA_LINKINFO, text(_INFO_KIND, "wireguard"))
    return Request(RTM_NEWLINK, CREATE | EXCLUSIVE, body, f"the WireGuard device {name}")


def delete(ifindex: int, name: str) -> Request:
    """Takes a device (and its peer) away."""
    return Request(RTM_DELLINK, 0, _IFINFO.pack(0, 0, ifindex, 0, 0), f"to delete {name}")


def set_up(ifindex: int, name: str, master: int = 0) -> Request:
    """Switches a device on, and plugs it into the bridge `master` (an interface index) if given."""
    body = _IFINFO.pack(0, 0, ifindex, _IFF_UP, _IFF_UP) + (u32(_IFLA_MASTER, master) if master else b"")
    return Request(RTM_SETLINK, 0, body, f"to switch {name} on")


def set_down(ifindex: int, name: str) -> Request:
    """Switches a device off, which cuts its cable: what waits in its queues is lost."""
    return Request(RTM_SETLINK, 0, _IFINFO.pack(0, 0, ifindex, 0, _IFF_UP), f"to switch {name} off")


def add_address(ifindex: int, name: str, ip: str, prefix: int) -> Request:
    """An IPv4 address without the route that the kernel would add by itself."""
    number = socket.inet_aton(ip)
    body = _IFADDR.pack(socket.AF_INET, prefix, 0, 0, ifindex)
    body += attribute(_IFA_LOCAL, number) + attribute(_IFA_ADDRESS, number) + u32(_IFA_FLAGS, _NO_PREFIX_ROUTE)
    return Request(RTM_NEWADDR, CREATE | REPLACE, body, f"the address {ip}/{prefix} on {name}")


class Metrics(NamedTuple):
    """What a route says of TCP: the lower bound of its retransmission timeout in ms (0: the kernel's own), and whether
    it acknowledges every packet at once."""

    rto_min_ms: int = 0
    quick_ack: bool = False


def add_route(ifindex: int, name: str, ip: str, prefix: int, metrics: Metrics = Metrics()) -> Request:  # noqa: B008 - a constant
    """The route to the network of `ip` through one device."""
    mask = 0xFFFFFFFF << (32 - prefix) & 0xFFFFFFFF
    network = (int.from_bytes(socket.inet_aton(ip), "big") & mask).to_bytes(4, "big")
    body = _RT.pack(socket.AF_INET, prefix, 0, 0, _MAIN_TABLE, _STATIC, _SCOPE_LINK, _UNICAST, 0)
    body += attribute(_RTA_DST, network) + u32(_RTA_OIF, ifindex) + attribute(_RTA_PREFSRC, socket.inet_aton(ip))
    if any(metrics):
        # TCP looks at the timeout's metric only when it is locked.
        lock = u32(_RTAX_LOCK, 1 << _RTAX_RTO_MIN if metrics.rto_min_ms else 0)
        numbers = u32(_RTAX_RTO_MIN, metrics.rto_min_ms), u32(_RTAX_QUICKACK, metrics.quick_ack)
        body += nested(_RTA_METRICS, lock, *numbers)
    return Request(RTM_NEWROUTE, CREATE | REPLACE, body, f"the route of {ip}/{prefix} through {name}")


def add_host_route(ifindex: int, name: str, ip: str, source: str, rto_min_ms: int) -> Request:
    """The route to one address through one device, from the address `source` of ours."""
    body = _RT.pack(socket.AF_INET, 32, 0, 0, _MAIN_TABLE, _STATIC, _SCOPE_LINK, _UNICAST, 0)
    body += attribute(_RTA_DST, socket.inet_aton(ip)) + u32(_RTA_OIF, ifindex)
    body += attribute(_RTA_PREFSRC, socket.inet_aton(source))
    body += nested(_RTA_METRICS, u32(_RTAX_LOCK, 1 << _RTAX_RTO_MIN), u32(_RTAX_RTO_MIN, rto_min_ms))
    return Request(RTM_NEWROUTE, CREATE | REPLACE, body, f"the route to {ip} through {name}")


def add_neighbour(ifindex: int, name: str, ip: str, mac: str) -> Request:
    """A neighbour that need never be asked for."""
    body = _ND.pack(socket.AF_INET, ifindex, _PERMANENT, 0, 0)
    body += attribute(_NDA_DST, socket.inet_aton(ip)) + attribute(_NDA_LLADDR, bytes.fromhex(_hex(mac)))
    return Request(RTM_NEWNEIGH, CREATE | REPLACE, body, f"the neighbour {ip} on {name}")


def devices(kernel: RouteSocket) -> dict[str, Device]:
    """Every device of the socket's namespace, by name."""
    request = Request(RTM_GETLINK, 0, _IFINFO.pack(0, 0, 0, 0, 0), "to list the devices")
    found = (_device(body) for body in kernel.dump(request))
    return {d.name: d for d in found}


def addresses(kernel: RouteSocket) -> dict[int, str]:
    """The IPv4 address of each device that has one, as "ip/prefix" by interface index."""
    request = Request(RTM_GETADDR, 0, _IFADDR.pack(socket.AF_INET, 0, 0, 0, 0), "to list the addresses")
    found: dict[int, str] = {}
    for body in kernel.dump(request):
        family, prefix, _, _, ifindex = _IFADDR.unpack_from(body)
        local = attributes(body, _IFADDR.size).get(_IFA_LOCAL)
        if family == socket.AF_INET and local:
            found[ifindex] = f"{socket.inet_ntoa(local)}/{prefix}"
    return found


def route_metrics(kernel: RouteSocket) -> dict[int, Metrics]:
    """The metrics of each device's unicast route, by interface index."""
    request = Request(RTM_GETROUTE, 0, _RT.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0), "to list the routes")
    found: dict[int, Metrics] = {}
    for body in kernel.dump(request):
        family, *_, table, _, _, kind, _ = _RT.unpack_from(body)
        values = attributes(body, _RT.size)
        if (family, table, kind) != (socket.AF_INET, _MAIN_TABLE, _UNICAST) or _RTA_OIF not in values:
            continue
        (ifindex,) = struct.unpack("=I", values[_RTA_OIF])
        (quick_ack,) = struct.unpack("=I", attributes(values.get(_RTA_METRICS, b"")).get(_RTAX_QUICKACK, bytes(4)))
        found[ifindex] = Metrics(_locked_rto_min_ms(values), bool(quick_ack))
    return found


def host_routes(kernel: RouteSocket) -> dict[str, tuple[int, int]]:
    """The routes to single addresses: (interface index, locked rto_min in ms, 0 for none) by address."""
    request = Request(RTM_GETROUTE, 0, _RT.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0), "to list the routes")
    found: dict[str, tuple[int, int]] = {}
    for body in kernel.dump(request):
        family, prefix, _, _, table, _, _, kind, _ = _RT.unpack_from(body)
        values = attributes(body, _RT.size)
        if (family, prefix, table, kind) == (socket.AF_INET, 32, _MAIN_TABLE, _UNICAST) and _RTA_OIF in values:
            (ifindex,) = struct.unpack("=I", values[_RTA_OIF])
            found[socket.inet_ntoa(values[_RTA_DST])] = ifindex, _locked_rto_min_ms(values)
    return found


def neighbours(kernel: RouteSocket) -> dict[tuple[int, str], str]:
    """The permanent IPv4 neighbours: hardware address by interface index and IP address."""
    request = Request(RTM_GETNEIGH, 0, _ND.pack(socket.AF_INET, 0, 0, 0, 0), "to list the neighbours")
    found: dict[tuple[int, str], str] = {}
    for body in kernel.dump(request):
        family, ifindex, state, _, _ = _ND.unpack_from(body)
        values = attributes(body, _ND.size)
        if family == socket.AF_INET and state == _PERMANENT and _NDA_LLADDR in values:
            found[ifindex, socket.inet_ntoa(values[_NDA_DST])] = values[_NDA_LLADDR].hex(":")
    return found


def _locked_rto_min_ms(route: dict[int, bytes]) -> int:
    metrics = attributes(route.get(_RTA_METRICS, b""))
    (lock,) = struct.unpack("=I", metrics.get(_RTAX_LOCK, bytes(4)))
    (rto_min_ms,) = struct.unpack("=I", metrics.get(_RTAX_RTO_MIN, bytes(4)))
    return int(rto_min_ms) if lock & 1 << _RTAX_RTO_MIN else 0


def _end(end: End, mtu_bytes: int) -> bytes:
    # One queue each way: with more, the kernel would put a multiqueue discipline where ours belong.
    return (
        text(_IFLA_IFNAME, end.name)
        + attribute(_IFLA_ADDRESS, bytes.fromhex(_hex(end.mac)))
        + u32(_IFLA_MTU, mtu_bytes)
        + u32(_IFLA_NUM_TX_QUEUES, 1)
        + u32(_IFLA_NUM_RX_QUEUES, 1)
        + u32(_IFLA_NET_NS_FD, end.namespace)
    )


def _hex(mac: str) -> str:
    return mac.replace(":", "")


def _device(body: bytes) -> Device:
    _, _, ifindex, flags, _ = _IFINFO.unpack_from(body)
    values = attributes(body, _IFINFO.size)
    state = values[_IFLA_OPERSTATE][0]
    return Device(
        ifindex=ifindex,
        name=values[_IFLA_IFNAME].rstrip(b"\0").decode(),
        mac=values.get(_IFLA_ADDRESS, b"").hex(":"),
        mtu_bytes=struct.unpack("=I", values[_IFLA_MTU])[0],
        up=bool(flags & _IFF_UP),
        operstate=OPERSTATES[state] if state < len(OPERSTATES) else str(state),
    )
