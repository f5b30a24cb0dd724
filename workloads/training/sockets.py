"""The sockets of a job: opened, set, and read back, because the kernel does not always do as it is asked.

A congestion control that the namespace may not use is refused, and a connection whose two ends do not both
speak ECN falls back to one without. Both happen in practice, and silently: so what is reported is never what
was asked for.
"""

from __future__ import annotations

import contextlib
import socket
import struct

ECN_NEGOTIATED = 8  # TCPI_OPT_ECN, include/uapi/linux/tcp.h
NAME_BYTES = 16  # TCP_CA_NAME_MAX
INFO_BYTES = 104  # enough of struct tcp_info to hold what is read here


def listen(
    ip: str, port: int, congestion_control: str, dscp: int, buffer_bytes: int | None, backlog: int = 1
) -> socket.socket:
    """A socket that awaits `backlog` peers at `ip`:`port`; what it accepts inherits its settings."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _set(listener, congestion_control, dscp, buffer_bytes)
    listener.bind((ip, port))
    listener.listen(backlog)
    return listener


def accept(listener: socket.socket, timeout_s: float) -> tuple[socket.socket, str]:
    """The next connection and the address it comes from. TimeoutError if there is none."""
    listener.settimeout(timeout_s)
    connection, (ip, _) = listener.accept()
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _limit_waits(connection, timeout_s)
    return connection, ip


def connect(
    own_ip: str,
    peer: tuple[str, int],
    congestion_control: str,
    dscp: int,
    buffer_bytes: int | None,
    timeout_s: float,
) -> socket.socket:
    """A connection to a peer, from `own_ip` so that it can be recognised. OSError if it fails."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    _set(connection, congestion_control, dscp, buffer_bytes)
    connection.bind((own_ip, 0))
    connection.settimeout(timeout_s)
    connection.connect(peer)
    connection.settimeout(None)
    _limit_waits(connection, timeout_s)
    return connection


def read_back(connection: socket.socket) -> dict[str, str | int | float | bool]:
    """What the kernel really uses on a connected socket.

    congestion_control; ecn (negotiated by both ends); nodelay; dscp; send_buffer_bytes and
    receive_buffer_bytes as the kernel counts them; mss_bytes; rto_s (retransmission timeout as it stands
    now).
    """
    name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME_BYTES)
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
    rto_us, _, mss_bytes = struct.unpack_from("=III", info, 8)
    return {
        "congestion_control": name.split(b"\0")[0].decode(),
        "ecn": bool(info[5] & ECN_NEGOTIATED),
        "nodelay": bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)),
        "dscp": connection.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2,
        "send_buffer_bytes": connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
        "receive_buffer_bytes": connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        "mss_bytes": mss_bytes,
        "rto_s": rto_us / 1e6,
    }


def _set(connection: socket.socket, congestion_control: str, dscp: int, buffer_bytes: int | None) -> None:
    # A refusal shows in what is read back, beside every other difference.
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
    # The kernel keeps its own two ECN bits of this byte on TCP sockets.
    connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if buffer_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)


def _limit_waits(connection: socket.socket, timeout_s: float) -> None:
    # Not settimeout(): that makes the socket non-blocking underneath, and MSG_WAITALL would wake per packet.
    whole = int(timeout_s)
    limit = struct.pack("@ll", whole, int((timeout_s - whole) * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
