"""Tunnels measured end to end: round trips by ICMP echo, throughput by TCP, one tunnel after another.

Both ends are sockets of this process, opened inside the sites. The second half of each transfer counts, when TCP's
window has opened.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from dataclasses import dataclass

from testbed.errors import NotValid
from testbed.net.overlay import Overlay

PROBE_S, PROBE_BYTES = 1.0, 2_000_000
"""How long the counted half of a transfer would take at the rate of the tunnel, and how large it is at most."""
_PORT, _ECHO_REQUEST, _ECHO_REPLY = 5190, 8, 0
_PING_TIMEOUT_S = 30.0
"""Longer than keys and an echo take over the longest way that WireGuard bears (testbed.net.wireguard.HANDSHAKE_S)."""
_ICMP = struct.Struct("!BBHHH")


@dataclass(frozen=True)
class Measured:
    """A tunnel from `a` to `b`: round trip of a small packet once keys are agreed, and TCP's throughput."""

    a: str
    b: str
    rtt_s: float
    throughput_bps: float


def measure(overlay: Overlay, rates_bps: dict[tuple[str, str], int]) -> list[Measured]:
    """Measures every pair of `rates_bps` (the tunnels and what they should carry). Raises NotValid where nothing
    answers."""
    found = []
    for (a, b), rate_bps in rates_bps.items():
        ping(overlay, a, b)  # keys are agreed on now
        rtt_s = ping(overlay, a, b)
        found.append(
            Measured(a, b, rtt_s, throughput_bps(overlay, a, b, min(PROBE_BYTES, int(rate_bps / 8 * PROBE_S))))
        )
    return found


def ping(overlay: Overlay, a: str, b: str) -> float:
    """The round trip of 64 bytes from site a to site b in seconds; raises NotValid when no answer comes."""
    packet = _ICMP.pack(_ECHO_REQUEST, 0, 0, os.getpid() & 0xFFFF, 1) + bytes(56)
    packet = _ICMP.pack(_ECHO_REQUEST, 0, _checksum(packet), os.getpid() & 0xFFFF, 1) + bytes(56)
    with overlay.inside(a):
        asking = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with asking:
        asking.settimeout(_PING_TIMEOUT_S)
        begin_s = time.time()
        asking.sendto(packet, (overlay.ip(b), 0))
        try:
            while True:
                answer, (address, _) = asking.recvfrom(2048)
                if answer[20] == _ECHO_REPLY and address == overlay.ip(b):
                    return time.time() - begin_s
        except TimeoutError:
            raise NotValid(f"tunnel {a}->{b}: no answer to a ping in {_PING_TIMEOUT_S:g} s") from None


def throughput_bps(overlay: Overlay, a: str, b: str, size_bytes: int) -> float:
    """What TCP carries from site a to site b, over `size_bytes` that follow on as many; raises NotValid."""
    with overlay.inside(b):
        listener = socket.create_server((overlay.ip(b), _PORT))
    with overlay.inside(a):
        sending = socket.socket()
    with listener, sending:
        sending.connect((overlay.ip(b), _PORT))
        receiving, _ = listener.accept()
        with receiving:
            sender = threading.Thread(target=sending.sendall, args=(bytes(2 * size_bytes),))
            sender.start()
            buffer = bytearray(size_bytes)
            times = []
            for _ in range(2):
                if receiving.recv_into(buffer, size_bytes, socket.MSG_WAITALL) != size_bytes:
                    raise NotValid(f"tunnel {a}->{b}: a transfer broke off")
                times.append(time.time())
            sender.join()
    return 8 * size_bytes / (times[1] - times[0])


def _checksum(data: bytes) -> int:
    total = int(sum(struct.unpack(f"!{len(data) // 2}H", data)))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
