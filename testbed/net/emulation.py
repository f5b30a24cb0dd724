"""A topology brought to life, in the network namespaces of this kernel. Needs root: it is made for the guest.

The order matters and is explained step by step in `Emulation.start`. Everything goes through one netlink
socket per namespace, many requests to a system call; the only programs started are the hosts' shells and one
ovs-vsctl.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.errors import EnvironmentLacks
from testbed.net import links, ovs, readback, tc
from testbed.net.links import Device, End
from testbed.net.namespaces import Namespace, Offloads, machine, read_sysctl, write_sysctl
from testbed.net.nodes import FabricHost, FabricIntf, FabricLink, FabricSwitch, Network
from testbed.net.topology import Topology, link_id, mac_text
from testbed.net.transport import (
    BACKLOG,
    BACKLOG_PACKETS,
    CONGESTION_CONTROL_ALLOWED,
    CONGESTION_CONTROL_AVAILABLE,
    Transport,
)
from testbed.telemetry.netlink import Request, RouteSocket
from testbed.telemetry.qdisc import QdiscReader

MANAGEMENT, MANAGEMENT_IP, PREFIX = "mgmt", "10.255.0.1", 16
_MANAGEMENT_MAC = "02:ff:00:00:00:00"
_MANAGEMENT_MTU_BYTES = 1500
_SETTLE_S, _SETTLE_TRIES = 0.25, 12


@dataclass(frozen=True)
class Interface:
    """The egress of a directed link: its device `name` and `ifindex` in the namespace of `node` (that of this
    process for switches)."""

    link: str
    node: str
    peer: str
    name: str
    ifindex: int
    mac: str


@dataclass(frozen=True)
class Place:
    """A network namespace with the sockets that configure and read it."""

    namespace: Namespace
    kernel: RouteSocket
    qdiscs: QdiscReader
    offloads: Offloads

    @classmethod
    def open(cls, namespace: Namespace) -> Place:
        """Opens the sockets inside."""
        with namespace.entered():
            return cls(namespace, RouteSocket(), QdiscReader(), Offloads())

    def close(self) -> None:
        """Closes the sockets and lets go of the namespace."""
        for part in (self.kernel, self.qdiscs, self.offloads, self.namespace):
            part.close()


class Emulation:
    """A running network; a context manager. `controller_port` None leaves the switches without a controller.

    `mininet` is the network as Mininet knows it, `interfaces` every egress by directed link ("tor1->agg1"),
    `places` the namespaces by node name (None: the one of this process, where the switches are). Raises
    KernelRefused, EnvironmentLacks or InputError when something cannot be made; nothing is left behind then.
    """

    def __init__(self, topology: Topology, transport: Transport, controller_port: int | None = None) -> None:
        self.topology, self.transport, self.controller_port = topology, transport, controller_port
        self.interfaces: dict[str, Interface] = {}
        self.places: dict[str | None, Place] = {}
        self.mininet: Any = None
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Emulation:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Makes the network, or nothing."""
        try:
            self._open_machine()
            self._start_nodes()
            self._plug_cables()
            self._configure_hosts()
            # Switches take their ports before the ports are shaped: Open vSwitch clears what it finds.
            self._start_switches()
            self._shape()
            self._settle()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Takes away everything that was made, and gives the machine its settings back."""
        self._closing.close()
        self.places.clear()
        self.interfaces.clear()

    def pid(self, node: str) -> int:
        """The process that holds a node's namespaces."""
        return int(self.mininet.get(node).pid)

    @contextlib.contextmanager
    def inside(self, node: str) -> Iterator[None]:
        """Inside the block this thread, and every process it starts, is in the network of that node."""
        with self.place(node).namespace.entered():
            yield

    def read_back(self) -> list[readback.Reading]:
        """What the kernel and Open vSwitch really have, as plain dicts; raises FabricMismatch at the first
        setting that differs from what it should be."""
        return readback.read_back(self)

    def place(self, node: str) -> Place:
        """The namespace of a node, with its sockets."""
        return self.places.get(node) or self.places[None]

    def _open_machine(self) -> None:
        """The namespace of this process, and the settings that only the whole machine has."""
        self._open_place(None, Namespace.current())
        # The kernel refuses DCTCP in a host's namespace until it is allowed here.
        with machine():
            available = _with_congestion_control(self.transport.congestion_control)
        self._set_machine(CONGESTION_CONTROL_ALLOWED, available)
        self._set_machine(BACKLOG, str(BACKLOG_PACKETS))

    def _open_place(self, node: str | None, namespace: Namespace) -> None:
        self.places[node] = place = Place.open(namespace)
        self._closing.callback(place.close)

    def _set_machine(self, name: str, value: str) -> None:
        with machine():
            before = read_sysctl(name)
            write_sysctl(name, value)
        self._closing.callback(_write_machine, name, before)

    def _start_nodes(self) -> None:
        """Mininet's nodes, links and interfaces: processes and records, no devices yet."""
        t = self.topology
        kinds = {"host": FabricHost, "switch": FabricSwitch, "link": FabricLink, "intf": FabricIntf}
        self.mininet = net = Network(build=False, controller=None, **kinds)
        for host in t.hosts:
            node = net.addHost(host, ip=f"{t.ip(host)}/{PREFIX}", mac=t.mac(host))
            self._closing.callback(node.terminate)
            self._open_place(host, Namespace.of(node.pid))
        for switch in t.switches:
            node = net.addSwitch(switch, dpid=f"{t.dpid(switch):x}", protocols="OpenFlow13")
            self._closing.callback(node.terminate)
        for k in t.links:
            ends = {"params1": self._end_parameters(k.a), "params2": self._end_parameters(k.b)}
            macs = {"addr1": t.port_mac(k.a, k.b), "addr2": t.port_mac(k.b, k.a)}
            net.addLink(k.a, k.b, port1=k.a_port, port2=k.b_port, **macs, **ends)
        net.built = True

    def _end_parameters(self, node: str) -> dict[str, str]:
        return {"ip": f"{self.topology.ip(node)}/{PREFIX}"} if node in self.topology.hosts else {}

    def _plug_cables(self) -> None:
        """Every veth pair straight into its namespaces, and the management network beside the fabric."""
        t, machine = self.topology, self.places[None]
        if taken := sorted(set(self._machine_devices()) & set(links.devices(machine.kernel))):
            raise EnvironmentLacks(f"there is already a device {taken[0]}", "close the other network first")
        self._closing.callback(self._delete_devices)
        bridge = links.add_bridge(MANAGEMENT, _MANAGEMENT_MAC)
        cables = [links.add_veth(self._end(k.a, k.b), self._end(k.b, k.a), t.mtu_bytes) for k in t.links]
        cables += [links.add_veth(*self._management_ends(host), _MANAGEMENT_MTU_BYTES) for host in t.hosts]
        machine.kernel.do([bridge, *cables])
        found = links.devices(machine.kernel)
        for a, b in t.directed():
            if a in t.switches:
                self._note(a, b, found)
        for name in self._machine_devices():
            # Before the device is up, or the kernel already talks IPv6 on it.
            write_sysctl(f"net/ipv6/conf/{name}/disable_ipv6", "1")
        ups = [links.set_up(i.ifindex, i.name) for i in self.interfaces.values()]
        machine.kernel.do([*ups, *self._management_requests(found)])

    def _management_requests(self, found: dict[str, Device]) -> list[Request]:
        """The management bridge, with this process as its first station."""
        t, mgmt = self.topology, found[MANAGEMENT].ifindex
        ups = [links.add_address(mgmt, MANAGEMENT, MANAGEMENT_IP, PREFIX), links.set_up(mgmt, MANAGEMENT)]
        ups += [links.add_route(mgmt, MANAGEMENT, MANAGEMENT_IP, PREFIX)]
        for host in t.hosts:
            ups.append(links.set_up(found[management_port(host)].ifindex, management_port(host), mgmt))
            ups.append(links.add_neighbour(mgmt, MANAGEMENT, t.mgmt_ip(host), management_mac(t, host)))
        return ups

    def _machine_devices(self) -> list[str]:
        """The devices in the namespace of this process."""
        t = self.topology
        ports = [t.interface(a, b) for a, b in t.directed() if a in t.switches]
        return [MANAGEMENT, *(management_port(host) for host in t.hosts), *ports]

    def _delete_devices(self) -> None:
        """Every cable by one of its ends, which takes the other end along, and the bridge."""
        t, kernel = self.topology, self.places[None].kernel
        far_ends = {t.interface(k.b, k.a) for k in t.links if k.a in t.switches}
        found = links.devices(kernel)
        names = [name for name in self._machine_devices() if name in found and name not in far_ends]
        kernel.do(links.delete(found[name].ifindex, name) for name in names)

    def _end(self, node: str, peer: str) -> End:
        t = self.topology
        return End(t.interface(node, peer), t.port_mac(node, peer), self.place(node).namespace.file)

    def _management_ends(self, host: str) -> tuple[End, End]:
        port_mac = mac_text(0x02FD << 32 | self.topology.host_number(host))
        here = End(management_port(host), port_mac, self.places[None].namespace.file)
        there = self.place(host).namespace.file
        return here, End(management_end(host), management_mac(self.topology, host), there)

    def _note(self, node: str, peer: str, found: dict[str, Device]) -> None:
        name = self.topology.interface(node, peer)
        link = link_id(node, peer)
        self.interfaces[link] = Interface(link, node, peer, name, found[name].ifindex, found[name].mac)

    def _configure_hosts(self) -> None:
        """Addresses, routes, neighbours and TCP's settings: after this, a host needs to ask nobody for
        anything."""
        for host in self.topology.hosts:
            place = self.place(host)
            with place.namespace.entered():
                for name, value in self.transport.sysctls().items():
                    write_sysctl(name, value)
            found = links.devices(place.kernel)
            self._note(host, self.topology.uplink(host), found)
            place.kernel.do(self._host_requests(host, found))

    def _host_requests(self, host: str, found: dict[str, Device]) -> list[Request]:
        t = self.topology
        fabric, management = t.interface(host, t.uplink(host)), management_end(host)
        eth, mgmt = found[fabric].ifindex, found[management].ifindex
        metrics = links.Metrics(self.transport.rto_min_ms, self.transport.quick_ack)
        made = [
            links.set_up(found["lo"].ifindex, "lo"),
            links.set_up(eth, fabric),
            links.set_up(mgmt, management),
        ]
        made += [links.add_address(eth, fabric, t.ip(host), PREFIX)]
        made += [links.add_route(eth, fabric, t.ip(host), PREFIX, metrics)]
        made += [links.add_address(mgmt, management, t.mgmt_ip(host), PREFIX)]
        made += [links.add_route(mgmt, management, t.mgmt_ip(host), PREFIX)]
        made += [links.add_neighbour(mgmt, management, MANAGEMENT_IP, _MANAGEMENT_MAC)]
        return made + [links.add_neighbour(eth, fabric, t.ip(h), t.mac(h)) for h in t.hosts if h != host]

    def _start_switches(self) -> None:
        self._closing.callback(ovs.vsctl, ovs.delete(self.topology))
        ovs.vsctl(ovs.create(self.topology, self.controller_port))
        ovs.answer_misses_first()

    def _shape(self) -> None:
        """Queueing disciplines and offloads of every port."""
        wanted: dict[str | None, list[Request]] = {}
        for a, b in self.topology.directed():
            i = self.interfaces[link_id(a, b)]
            where = a if a in self.places else None
            wanted.setdefault(where, []).extend(tc.requests(i.ifindex, i.name, self.topology.direction(a, b)))
            self.places[where].offloads.switch_off(i.name)
        for where, requests in wanted.items():
            self.places[where].kernel.do(requests)

    def _settle(self) -> None:
        """Waits until every device carries packets: the kernel notices a plugged cable a little later, and
        drops until then. What never comes up, `read_back` names."""
        waiting = list(self.places.values())
        for _ in range(_SETTLE_TRIES):
            while waiting and _all_up(waiting[-1]):
                waiting.pop()
            if not waiting:
                return
            time.sleep(_SETTLE_S)


def _with_congestion_control(name: str) -> str:
    """What the kernel has, once it has loaded a congestion control that is a module; raises EnvironmentLacks."""
    if name not in read_sysctl(CONGESTION_CONTROL_AVAILABLE).split():
        with socket.socket() as asking:
            try:
                asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            except OSError as problem:
                what = f"this kernel has no congestion control {name}: {problem.strerror}"
                raise EnvironmentLacks(what, f"modprobe tcp_{name}") from problem
    return read_sysctl(CONGESTION_CONTROL_AVAILABLE)


def _write_machine(name: str, value: str) -> None:
    with machine():
        write_sysctl(name, value)


def _all_up(place: Place) -> bool:
    devices = links.devices(place.kernel).values()
    return all(d.operstate == "up" for d in devices if d.up and d.name != "lo")


def management_port(host: str) -> str:
    """The management bridge's port to a host."""
    return f"mgmt-{host}"


def management_end(host: str) -> str:
    """A host's device in the management network."""
    return f"{host}-mgmt"


def management_mac(topology: Topology, host: str) -> str:
    """The hardware address of a host in the management network."""
    return mac_text(0x02FE << 32 | topology.host_number(host))
