"""The overlay that applications see: a namespace per site, joined by WireGuard tunnels and nothing else.

A tunnel's devices are made in the gateways, where their encrypted packets leave and arrive, and live in the sites'
own namespaces. A site has no other way out, so that nothing it sends can go around the tunnels. WireGuard copies
the ECN field outwards at the entry and joins both at the exit (RFC 6040), so that marks of the underlay reach the
sites; its outer DSCP is always 0.

Without tunnels (`tunnels=False`) the sites are the gateways themselves, and the underlay routes their packets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.errors import InputError
from testbed.net import links
from testbed.net.emulation import Emulation
from testbed.net.namespaces import Namespace, read_sysctl, write_sysctl
from testbed.net.readback import FabricMismatch, expect
from testbed.net.wan import routing, underlay
from testbed.net.wan.model import Wan
from testbed.net.wireguard import FIRST_PORT, OVERHEAD_BYTES, Peer, WireGuardSocket, private_key
from testbed.telemetry.netlink import Request, RouteSocket

HOME = "home"
_FORWARD = {"net/ipv4/ip_forward": "1", "net/ipv4/conf/all/rp_filter": "0"}


@dataclass(frozen=True)
class Station:
    """A site's namespace with the sockets that configure and read it."""

    namespace: Namespace
    kernel: RouteSocket
    wireguard: WireGuardSocket

    @classmethod
    def open(cls) -> Station:
        """A new namespace."""
        namespace = Namespace.new()
        with namespace.entered():
            return cls(namespace, RouteSocket(), WireGuardSocket())

    def close(self) -> None:
        """Closes the sockets and lets go of the namespace, which ends with its last process."""
        for part in (self.kernel, self.wireguard, self.namespace):
            part.close()


class Overlay:
    """The sites of a network on its running underlay (`net`, of `underlay.topology`); a context manager.

    `rule` says how sites without a tunnel of their own reach each other. Raises KernelRefused or InputError when
    something cannot be made.
    """

    def __init__(self, net: Emulation, wan: Wan, seed: int, rule: routing.Rule = "hops", tunnels: bool = True) -> None:
        self.net, self.wan, self.seed, self.tunnels = net, wan, seed, tunnels
        self.nexts = routing.next_sites(wan, rule)
        self.stations: dict[str, Station] = {}
        self._devices: dict[tuple[str, str], int] = {}
        self._keys: dict[tuple[str, str], bytes] = {}
        self._closing = contextlib.ExitStack()
        if self.mtu_bytes < 576:
            raise InputError("wan.mtu_bytes", f"{net.topology.mtu_bytes} leaves {self.mtu_bytes} in a tunnel", "more")

    def __enter__(self) -> Overlay:
        try:
            if self.tunnels:
                self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the namespaces."""
        self._closing.close()
        self.stations.clear()

    @property
    def mtu_bytes(self) -> int:
        """The largest packet that goes through a tunnel in one piece: WireGuard pads to 16 bytes, but not beyond."""
        return self.net.topology.mtu_bytes - (OVERHEAD_BYTES if self.tunnels else 0)

    def ip(self, site: str) -> str:
        """The address of a site, in the overlay, or in the underlay where there are no tunnels."""
        return underlay.address(self.wan, site, self.tunnels)

    def device(self, peer: str) -> str:
        """The device of any site's tunnel to this one, such as "wg4"."""
        return f"wg{self.wan.number(peer)}"

    @contextlib.contextmanager
    def inside(self, site: str) -> Iterator[None]:
        """Inside the block this thread, and every process it starts, is in the network of that site."""
        if not self.tunnels:
            with self.net.inside(underlay.gateway(self.wan, site)):
                yield
            return
        with self.stations[site].namespace.entered():
            yield

    def namespace(self, site: str) -> int:
        """An open file of the site's network namespace."""
        if not self.tunnels:
            return self.net.place(underlay.gateway(self.wan, site)).namespace.file
        return self.stations[site].namespace.file

    def directed(self) -> Iterator[tuple[str, str]]:
        """Both ends of every tunnel as (from, to)."""
        for a, b in self.wan.tunnels:
            yield a, b
            yield b, a

    def _start(self) -> None:
        for site in self.wan.names:
            self.stations[site] = station = Station.open()
            self._closing.callback(station.close)
            with station.namespace.entered():
                for name, value in self._sysctls().items():
                    write_sysctl(name, value)
        for a, b in self.directed():
            self._dig(a, b)
        for a, b in self.directed():
            self.stations[a].wireguard.set_peer(self._devices[a, b], self._peer(a, b))
        for site in self.wan.names:
            self._address(site)

    def cut(self, a: str, b: str) -> None:
        """Cuts the tunnel between two sites, both ways: its ends forget each other. Raises KernelRefused."""
        for site, peer in ((a, b), (b, a)):
            self.stations[site].wireguard.remove_peer(self._devices[site, peer], self._keys[peer, site])

    def mend(self, a: str, b: str) -> None:
        """Makes a tunnel that was cut whole again; keys are agreed on anew. Raises KernelRefused."""
        for site, peer in ((a, b), (b, a)):
            self.stations[site].wireguard.set_peer(self._devices[site, peer], self._peer(site, peer))

    def _peer(self, site: str, peer: str) -> Peer:
        return Peer(self._keys[peer, site], self._gateway_ip(peer), self._port(site))

    def _sysctls(self) -> dict[str, str]:
        """A site forwards packets of pairs without a tunnel, also such as come in by one tunnel and go by another."""
        return self.net.transport.sysctls() | _FORWARD

    def _gateway_ip(self, site: str) -> str:
        return self.net.topology.ip(underlay.gateway(self.wan, site))

    def _port(self, peer: str) -> int:
        """The UDP port at which every gateway awaits a peer."""
        return FIRST_PORT + self.wan.number(peer)

    def _dig(self, site: str, peer: str) -> None:
        """One end of a tunnel; the kernel makes its public key, which the other end needs to know."""
        name, station = self.device(peer), self.stations[site]
        outside = self.net.place(underlay.gateway(self.wan, site)).kernel
        outside.do([links.add_wireguard(name, self.mtu_bytes, station.namespace.file)])
        ifindex = links.devices(station.kernel)[name].ifindex
        station.wireguard.set_device(ifindex, private_key(self.seed, f"{site}->{peer}"), self._port(peer))
        self._devices[site, peer] = ifindex
        self._keys[site, peer] = station.wireguard.read(ifindex).key

    def _address(self, site: str) -> None:
        """The site's address, which belongs to no tunnel, and its routes to all others."""
        kernel, own = self.stations[site].kernel, self.ip(site)
        kernel.do([links.add_dummy(HOME)])
        found = links.devices(kernel)
        made: list[Request] = [links.set_up(device.ifindex, device.name) for device in found.values()]
        made.append(links.add_address(found[HOME].ifindex, HOME, own, 32))
        for target in self.wan.names:
            if target != site:
                name = self.device(self.nexts[site, target])
                ifindex = found[name].ifindex
                made.append(links.add_host_route(ifindex, name, self.ip(target), own, self.net.transport.rto_min_ms))
        kernel.do(made)

    def read_back(self) -> list[dict[str, Any]]:
        """What the kernel really has, as plain dicts; raises FabricMismatch at the first setting that differs."""
        return [self._read_site(site) for site in self.wan.names] if self.tunnels else []

    def _read_site(self, site: str) -> dict[str, Any]:
        station = self.stations[site]
        with station.namespace.entered():
            sysctls = {name: read_sysctl(name) for name in self._sysctls()}
        for name, value in self._sysctls().items():
            expect(site, name, value, sysctls[name])
        found = links.devices(station.kernel)
        peers = [b for a, b in self.directed() if a == site]
        names = {self.device(peer) for peer in peers}
        expect(site, "devices", sorted({"lo", HOME} | names), sorted(found))
        expect(site, "address", f"{self.ip(site)}/32", links.addresses(station.kernel).get(found[HOME].ifindex))
        routes, rto_min_ms = links.host_routes(station.kernel), self.net.transport.rto_min_ms
        for target in self.wan.names:
            if target != site:
                way = found[self.device(self.nexts[site, target])].ifindex, rto_min_ms
                expect(site, f"route to {target}", way, routes.get(self.ip(target)))
        tunnels = {peer: self._read_tunnel(site, peer, found[self.device(peer)]) for peer in peers}
        return {"of": "site", "name": site, "address": self.ip(site), "sysctls": sysctls, "tunnels": tunnels}

    def _read_tunnel(self, site: str, peer: str, device: links.Device) -> dict[str, Any]:
        where = f"tunnel {site}->{peer}"
        expect(where, "switched on", True, device.up)
        expect(where, "mtu_bytes", self.mtu_bytes, device.mtu_bytes)
        shown = self.stations[site].wireguard.read(device.ifindex)
        expect(where, "public key", self._keys[site, peer].hex(), shown.key.hex())
        expect(where, "port", self._port(peer), shown.port)
        wanted = self._peer(site, peer)
        if shown.peer != wanted:
            raise FabricMismatch(where, "peer", wanted, shown.peer)
        return {
            "device": device.name,
            "mtu_bytes": device.mtu_bytes,
            "public_key": shown.key.hex(),
            "port": shown.port,
            "endpoint": f"{wanted.ip}:{wanted.port}",
            "handshake_s": shown.handshake_s,
            "received_bytes": shown.received_bytes,
            "sent_bytes": shown.sent_bytes,
        }
