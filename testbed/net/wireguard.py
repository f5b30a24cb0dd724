"""WireGuard devices by generic netlink: keys, ports and peers set, and read back.

The command `wg` is not needed, and neither is a library: two messages say all of it, where pyroute2 would cost a
guest 1.8 s to import. Formats: `include/uapi/linux/wireguard.h` and `genetlink.h` of the Linux sources.
"""

from __future__ import annotations

import hashlib
import socket
import struct
from dataclasses import dataclass

from testbed.telemetry.netlink import Request, RouteSocket, attribute, attributes, nested, text, u32

OVERHEAD_BYTES = 60
"""What a tunnel adds to a packet: IPv4 20, UDP 8, WireGuard's header 16 and authentication 16 bytes."""
FIRST_PORT = 51820
HANDSHAKE_S = 5.0
"""REKEY_TIMEOUT: who has no answer to its handshake by then begins another one, and takes no answer to the first."""
_NETLINK_GENERIC = 16
# struct genlmsghdr: command, version, padding
_GENERIC = struct.Struct("=BBH")
_CONTROLLER, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2
_GET_DEVICE, _SET_DEVICE, _VERSION = 0, 1, 1
_IFINDEX, _PRIVATE_KEY, _PUBLIC_KEY, _LISTEN_PORT, _PEERS = 1, 3, 4, 6, 8
_PEER_KEY, _PEER_ENDPOINT, _PEER_HANDSHAKE, _PEER_RECEIVED, _PEER_SENT, _PEER_ADDRESSES = 1, 4, 6, 7, 8, 9
_PEER_FLAGS, _REMOVE = 3, 1
_ADDRESS_FAMILY, _ADDRESS_IP, _ADDRESS_PREFIX = 1, 2, 3
# struct sockaddr_in: family in the machine's order, port and address in the network's
_ENDPOINT_FAMILY, _ENDPOINT_REST = struct.Struct("=H"), struct.Struct("!H4s8x")


@dataclass(frozen=True)
class Peer:
    """The other end of a tunnel: its public key, where it listens, which addresses may come from it (as
    "ip/prefix")."""

    key: bytes
    ip: str
    port: int
    addresses: str = "0.0.0.0/0"


@dataclass(frozen=True)
class Device:
    """A WireGuard device as the kernel shows it. `handshake_s` is when keys were last agreed (0: never),
    `received_bytes` and `sent_bytes` count packets of the tunnel."""

    ifindex: int
    key: bytes
    port: int
    peer: Peer | None
    handshake_s: int
    received_bytes: int
    sent_bytes: int


def private_key(seed: int, end: str) -> bytes:
    """The key of one end of a tunnel, by the run's seed. It is no secret: whoever knows the seed can make it, and
    that is the point of it: the same seed gives the same packets."""
    return hashlib.sha256(f"orrery wireguard {seed} {end}".encode()).digest()


class WireGuardSocket:
    """A conversation about the WireGuard devices of the namespace that is current when it is opened."""

    def __init__(self) -> None:
        self._socket = RouteSocket(_NETLINK_GENERIC)
        body = _GENERIC.pack(_GET_FAMILY, 1, 0) + text(_FAMILY_NAME, "wireguard")
        answer = self._socket.get(Request(_CONTROLLER, 0, body, "to know WireGuard (CONFIG_WIREGUARD)"))
        (self._family,) = struct.unpack("=H", attributes(answer, _GENERIC.size)[_FAMILY_ID])

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def set_device(self, ifindex: int, key: bytes, port: int) -> None:
        """Gives a device its private key and the UDP port it listens at; raises KernelRefused."""
        body = u32(_IFINDEX, ifindex) + attribute(_PRIVATE_KEY, key) + attribute(_LISTEN_PORT, struct.pack("=H", port))
        self._set(body, f"the key and port of WireGuard device {ifindex}")

    def set_peer(self, ifindex: int, peer: Peer) -> None:
        """Tells a device its only peer; raises KernelRefused."""
        ip, _, prefix = peer.addresses.partition("/")
        address = attribute(_ADDRESS_FAMILY, struct.pack("=H", socket.AF_INET))
        address += attribute(_ADDRESS_IP, socket.inet_aton(ip)) + attribute(_ADDRESS_PREFIX, bytes([int(prefix)]))
        endpoint = _ENDPOINT_FAMILY.pack(socket.AF_INET) + _ENDPOINT_REST.pack(peer.port, socket.inet_aton(peer.ip))
        described = attribute(_PEER_KEY, peer.key) + attribute(_PEER_ENDPOINT, endpoint)
        described += nested(_PEER_ADDRESSES, nested(0, address))
        self._set(u32(_IFINDEX, ifindex) + nested(_PEERS, nested(0, described)), f"the peer {peer.ip} of {ifindex}")

    def remove_peer(self, ifindex: int, key: bytes) -> None:
        """Has a device forget its peer: nothing goes out any more, and nothing is let in. Raises KernelRefused."""
        described = attribute(_PEER_KEY, key) + u32(_PEER_FLAGS, _REMOVE)
        self._set(u32(_IFINDEX, ifindex) + nested(_PEERS, nested(0, described)), f"to remove the peer of {ifindex}")

    def read(self, ifindex: int) -> Device:
        """A device as it is; raises KernelRefused."""
        body = _GENERIC.pack(_GET_DEVICE, _VERSION, 0) + u32(_IFINDEX, ifindex)
        (answer,) = self._socket.dump(Request(self._family, 0, body, f"to show WireGuard device {ifindex}"))
        found = attributes(answer, _GENERIC.size)
        peers = attributes(found.get(_PEERS, b""))
        shown = attributes(peers[0]) if peers else {}
        return Device(
            ifindex,
            found.get(_PUBLIC_KEY, b""),
            struct.unpack("=H", found[_LISTEN_PORT])[0],
            _peer(shown) if shown else None,
            _first_u64(shown.get(_PEER_HANDSHAKE)),
            _first_u64(shown.get(_PEER_RECEIVED)),
            _first_u64(shown.get(_PEER_SENT)),
        )

    def _set(self, body: bytes, what: str) -> None:
        self._socket.do([Request(self._family, 0, _GENERIC.pack(_SET_DEVICE, _VERSION, 0) + body, what)])


def _first_u64(value: bytes | None) -> int:
    return int(struct.unpack_from("=Q", value)[0]) if value else 0


def _peer(shown: dict[int, bytes]) -> Peer:
    address = attributes(attributes(shown.get(_PEER_ADDRESSES, b"")).get(0, b""))
    addresses = f"{socket.inet_ntoa(address[_ADDRESS_IP])}/{address[_ADDRESS_PREFIX][0]}" if address else ""
    port, ip = 0, bytes(4)
    if _PEER_ENDPOINT in shown:
        port, ip = _ENDPOINT_REST.unpack_from(shown[_PEER_ENDPOINT], _ENDPOINT_FAMILY.size)
    return Peer(shown[_PEER_KEY], socket.inet_ntoa(ip), port, addresses)
