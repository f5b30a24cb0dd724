"""What the kernel really has, held against what it was asked for.

Mininet prints its errors and goes on, `tc` rounds what it cannot say, drivers ignore what they do not know.
So every setting of every port and host is read back, by other calls than those that made it, before a packet
is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.errors import NotValid
from testbed.net import filters, links, ovs, tc
from testbed.net.namespaces import OFFLOADS, machine, read_sysctl
from testbed.net.topology import link_id
from testbed.net.transport import (
    BACKLOG,
    BACKLOG_PACKETS,
    CONGESTION_CONTROL_ALLOWED,
    CONGESTION_CONTROL_AVAILABLE,
)
from testbed.telemetry.qdisc import Qdisc

if TYPE_CHECKING:
    from testbed.net.emulation import Emulation, Place

# One object as it was read: "of" says what kind ("machine", "switch", "host", "port"), "name" which one.
Reading = dict[str, Any]
# The kernel shows a burst in ticks of 64 ns, from a time that it has itself rounded.
_ROUNDING = {"buffer_ticks": 1}


class FabricMismatch(NotValid):
    """A setting of the network is not what it should be. `port` names the port, host or switch."""

    def __init__(self, port: str, setting: str, wanted: object, found: object) -> None:
        super().__init__(f"{port}: {setting} should be {wanted} and is {found}")
        self.port, self.setting, self.wanted, self.found = port, setting, wanted, found


def expect(port: str, setting: str, wanted: object, found: object) -> None:
    """Raises FabricMismatch unless both are equal."""
    if wanted != found:
        raise FabricMismatch(port, setting, wanted, found)


def read_back(net: Emulation) -> list[Reading]:
    """Readings of the machine, every switch, every host and every port, in the topology's order."""
    return [_machine(), *_switches(net), *_hosts(net), *_ports(net)]


def expect_qdiscs(port: str, wanted: list[tc.Wanted], found: list[Qdisc]) -> None:
    """Compares the tree of one port: which disciplines, where in the tree, with which numbers."""
    wanted = sorted(wanted, key=lambda w: w.handle)
    expect(port, "qdiscs", [f"{w.kind} {w.handle}" for w in wanted], [f"{q.kind} {q.handle}" for q in found])
    for w, q in zip(wanted, found, strict=True):
        expect(port, f"parent of {w.kind}", w.parent, q.parent)
        for name, value in w.options.items():
            if abs(value - q.options[name]) > _ROUNDING.get(name, 0):
                raise FabricMismatch(port, f"{w.kind} {name}", value, q.options[name])


def _machine() -> Reading:
    with machine():
        allowed = {
            CONGESTION_CONTROL_ALLOWED: read_sysctl(CONGESTION_CONTROL_AVAILABLE),
            BACKLOG: str(BACKLOG_PACKETS),
        }
        found = {name: read_sysctl(name) for name in allowed}
    for name, value in allowed.items():
        expect("this machine", name, value, found[name])
    return {"of": "machine", "name": "", "sysctls": found}


def _switches(net: Emulation) -> list[Reading]:
    t = net.topology
    bridges, ofports = ovs.read()
    controllers = [] if net.controller_port is None else [ovs.controller_target(net.controller_port)]
    readings = []
    for switch in t.switches:
        wanted = {
            "datapath_id": f"{t.dpid(switch):016x}",
            "fail_mode": "secure",
            "protocols": "OpenFlow13",
            "controllers": controllers,
        }
        found = bridges.get(switch, {})
        for setting, value in wanted.items():
            expect(switch, setting, value, found.get(setting))
        ports = {t.interface(a, b): t.port(a, b) for a, b in t.directed() if a == switch}
        for interface, port in ports.items():
            expect(interface, "OpenFlow port", port, ofports.get(interface))
        readings.append({"of": "switch", "name": switch, **found, "ports": ports})
    return readings


def _hosts(net: Emulation) -> list[Reading]:
    t = net.topology
    readings = []
    for host in t.hosts:
        place = net.places[host]
        interface = net.interfaces[link_id(host, t.uplink(host))]
        with place.namespace.entered():
            sysctls = {name: read_sysctl(name) for name in net.transport.sysctls()}
        for name, value in net.transport.sysctls().items():
            expect(host, name, value, sysctls[name])
        addresses = links.addresses(place.kernel)
        expect(interface.name, "address", f"{t.ip(host)}/16", addresses.get(interface.ifindex))
        management = links.devices(place.kernel)[f"{host}-mgmt"]
        expect(management.name, "operstate", "up", management.operstate)
        expect(management.name, "address", f"{t.mgmt_ip(host)}/16", addresses.get(management.ifindex))
        metrics = links.route_metrics(place.kernel).get(interface.ifindex, links.Metrics())
        expect(interface.name, "rto_min of the route in ms", net.transport.rto_min_ms, metrics.rto_min_ms)
        expect(interface.name, "quick acknowledgements of the route", net.transport.quick_ack, metrics.quick_ack)
        neighbours = {ip: mac for (i, ip), mac in links.neighbours(place.kernel).items() if i == interface.ifindex}
        for peer in t.hosts:
            if peer != host:
                expect(interface.name, f"neighbour {t.ip(peer)}", t.mac(peer), neighbours.get(t.ip(peer)))
        found = {
            "address": addresses[interface.ifindex],
            **metrics._asdict(),
            "neighbours": len(neighbours),
        }
        readings.append({"of": "host", "name": host, "sysctls": sysctls, **found})
    return readings


def _ports(net: Emulation) -> list[Reading]:
    t = net.topology
    devices = {where: links.devices(place.kernel) for where, place in net.places.items()}
    qdiscs = {where: _by_device(place) for where, place in net.places.items()}
    readings = []
    for a, b in t.directed():
        interface = net.interfaces[link_id(a, b)]
        where = a if a in net.places else None
        device = devices[where].get(interface.name)
        if device is None:
            raise FabricMismatch(interface.name, "device", "present", "absent")
        expect(interface.name, "ifindex", interface.ifindex, device.ifindex)
        expect(interface.name, "mac", t.port_mac(a, b), device.mac)
        expect(interface.name, "mtu_bytes", t.mtu_bytes, device.mtu_bytes)
        expect(interface.name, "switched on", True, device.up)
        expect(interface.name, "operstate", "up", device.operstate)
        offloads = net.places[where].offloads.read(interface.name)
        for name in OFFLOADS:
            expect(interface.name, name, False, offloads[name])
        tree = qdiscs[where].get(device.ifindex, [])
        expect_qdiscs(interface.name, tc.wanted(t.direction(a, b)), tree)
        if sorting := tc.wanted_filters(t.direction(a, b)):
            kernel = net.places[where].kernel
            expect(interface.name, "filters", sorting, filters.read(kernel, device.ifindex, tc.PRIO))
        shown = [{"kind": q.kind, "handle": q.handle, "parent": q.parent, **q.options} for q in tree]
        found = {"mac": device.mac, "mtu_bytes": device.mtu_bytes, "operstate": device.operstate}
        readings.append(
            {
                "of": "port",
                "name": interface.name,
                "link": interface.link,
                **found,
                "qdiscs": shown,
                **offloads,
            }
        )
    return readings


def _by_device(place: Place) -> dict[int, list[Qdisc]]:
    found: dict[int, list[Qdisc]] = {}
    for q in sorted(place.qdiscs.dump(), key=lambda q: q.handle):
        found.setdefault(q.ifindex, []).append(q)
    return found
