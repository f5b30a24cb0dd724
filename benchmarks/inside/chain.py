"""Host - bridge - bridge - host in the network namespace of this process and two more, in real time.

    unshare --net python -m benchmarks.inside.chain MTU_BYTES SECONDS

Prints the packets that the six directed links have sent meanwhile, and how long it took, as one line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass

from benchmarks.cases import BUFFER_BYTES
from benchmarks.inside import flows
from testbed.errors import EnvironmentLacks, OrreryError
from testbed.net import links, tc
from testbed.net.links import End
from testbed.net.namespaces import Namespace, Offloads, write_sysctl
from testbed.net.topology import Direction, mac_text
from testbed.telemetry.netlink import RouteSocket
from testbed.telemetry.qdisc import QdiscReader

CLONE_NEWNET = 0x40000000
PORT = 5001
WARM_S = 0.3
FREE = Direction(rate_bps=30_000_000_000, delay_s=0.0, loss=0.0, queue_bytes=8_000_000, burst_bytes=200_000, aqm=None)
"""The settings of every egress: faster than any core."""
CABLES = (("host-l", "port-l"), ("trunk-l", "trunk-r"), ("port-r", "host-r"))
BRIDGES = {"bridge-l": ("port-l", "trunk-l"), "bridge-r": ("trunk-r", "port-r")}
IPS = {"host-l": "10.77.0.1", "host-r": "10.77.0.2"}


@dataclass(frozen=True)
class Place:
    """A network namespace, with the sockets that configure and read it."""

    namespace: Namespace
    kernel: RouteSocket
    qdiscs: QdiscReader

    @classmethod
    def here(cls) -> Place:
        """The namespace of this thread."""
        return cls(Namespace.current(), RouteSocket(), QdiscReader())

    @classmethod
    def new(cls) -> Place:
        """A new one; this thread stays where it is. Raises EnvironmentLacks."""
        with Namespace.current().entered():
            if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
                raise EnvironmentLacks(f"no new network namespace: {os.strerror(ctypes.get_errno())}", "run as root")
            return cls.here()

    def shape(self) -> None:
        """Switch all devices on, their offloads off, and put a token bucket on each that has a cable."""
        ends = [name for cable in CABLES for name in cable]
        with self.namespace.entered():
            offloads = Offloads()
            for device in links.devices(self.kernel).values():
                self.kernel.do([links.set_up(device.ifindex, device.name)])
                if device.name in ends:
                    offloads.switch_off(device.name)
                    self.kernel.do(tc.requests(device.ifindex, device.name, FREE))
            offloads.close()

    def sent_packets(self) -> int:
        """Packets that the token buckets have let through."""
        return sum(qdisc.packets for qdisc in self.qdiscs.dump() if qdisc.kind == "tbf")


def build(mtu_bytes: int) -> dict[str, Place]:
    """Make the chain; return its places by host, and that of the switches as ""."""
    places = {"": Place.here()} | {host: Place.new() for host in IPS}
    kernel, numbers = places[""].kernel, iter(range(1, 99))

    def end(name: str) -> End:
        return End(name, mac_text(0x02 << 40 | next(numbers)), places.get(name, places[""]).namespace.file)

    kernel.do(links.add_bridge(bridge, mac_text(0x02 << 40 | next(numbers))) for bridge in BRIDGES)
    kernel.do(links.add_veth(end(a), end(b), mtu_bytes) for a, b in CABLES)
    found = links.devices(kernel)
    for bridge, ports in BRIDGES.items():
        kernel.do(links.set_up(found[port].ifindex, port, found[bridge].ifindex) for port in ports)
    for place in places.values():
        place.shape()
    for host, ip in IPS.items():
        place = places[host]
        index = links.devices(place.kernel)[host].ifindex
        place.kernel.do([links.add_address(index, host, ip, 24), links.add_route(index, host, ip, 24)])
        with place.namespace.entered():
            for name in ("rmem", "wmem"):
                write_sysctl(f"net/ipv4/tcp_{name}", f"4096 {BUFFER_BYTES} {BUFFER_BYTES}")
            write_sysctl("net/ipv4/tcp_congestion_control", "reno")
    return places


def measure(places: dict[str, Place], lasts_s: float) -> dict[str, float]:
    """Send over one connection for so long; return hops and wall_s."""
    with places["host-r"].namespace.entered():
        listener = socket.create_server((IPS["host-r"], PORT))
    with places["host-l"].namespace.entered():
        out = socket.create_connection((IPS["host-r"], PORT))
    inward, _ = listener.accept()
    threading.Thread(target=flows.receive, args=(inward, None, False), daemon=True).start()
    threading.Thread(target=flows.send, args=(out, None, 0.0, flows.memory_file()), daemon=True).start()
    time.sleep(WARM_S)
    before, began_s = sum(place.sent_packets() for place in places.values()), time.monotonic()
    time.sleep(lasts_s)
    moved, wall_s = sum(place.sent_packets() for place in places.values()) - before, time.monotonic() - began_s
    return {"hops": moved, "wall_s": wall_s}


def main(arguments: list[str]) -> int:
    """Run the program; the exit code is the error's."""
    try:
        sys.stdout.write(json.dumps(measure(build(int(arguments[0])), float(arguments[1]))) + "\n")
    except OrreryError as error:
        sys.stderr.write(str(error).replace("\n", " ") + "\n")
        return error.exit_code
    sys.stdout.flush()
    os._exit(0)  # the flow without end goes with it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
