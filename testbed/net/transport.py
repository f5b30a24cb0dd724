"""What the hosts' TCP is told: congestion control, ECN, timers and buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.errors import InputError

CONGESTION_CONTROL_ALLOWED = "net/ipv4/tcp_allowed_congestion_control"
CONGESTION_CONTROL_AVAILABLE = "net/ipv4/tcp_available_congestion_control"
BACKLOG = "net/core/netdev_max_backlog"
# Packets between two ends of a veth pair wait here; the default of 1000 drops what no queue of ours would.
BACKLOG_PACKETS = 1_000_000


@dataclass(frozen=True)
class Transport:
    """The hosts' transport. `rto_min_s` is the lower bound of the retransmission timeout, in whole
    milliseconds (the kernel rounds it up to its own tick); `socket_buffer_bytes` is the size of every
    socket's buffers, both ways; with `quick_ack` every packet is acknowledged at once.

    Raises InputError for values that no kernel takes.
    """

    congestion_control: str = "dctcp"
    ecn: bool = True
    rto_min_s: float = 0.2
    socket_buffer_bytes: int = 16_000_000
    quick_ack: bool = False

    def __post_init__(self) -> None:
        if not 1e-3 <= self.rto_min_s <= 120:
            raise InputError("transport", f"rto_min_s {self.rto_min_s:g}", "1 ms to 120 s")
        if not 4096 <= self.socket_buffer_bytes < 1 << 31:
            raise InputError("transport", f"socket_buffer_bytes {self.socket_buffer_bytes}", "4096 B to 2 GiB")

    @property
    def rto_min_ms(self) -> int:
        """`rto_min_s` as the kernel's routes hold it."""
        return math.ceil(round(self.rto_min_s * 1e3, 6))

    def sysctls(self) -> dict[str, str]:
        """The settings of a host's network namespace, by their names under /proc/sys."""
        buffers = f"4096 {self.socket_buffer_bytes} {self.socket_buffer_bytes}"
        return {
            "net/ipv6/conf/all/disable_ipv6": "1",
            "net/ipv6/conf/default/disable_ipv6": "1",
            "net/ipv4/tcp_congestion_control": self.congestion_control,
            "net/ipv4/tcp_ecn": "1" if self.ecn else "0",
            # The transport of a training job does not begin slowly again after each compute phase.
            "net/ipv4/tcp_slow_start_after_idle": "0",
            # One run's connections must not teach the next ones.
            "net/ipv4/tcp_no_metrics_save": "1",
            "net/ipv4/tcp_rmem": buffers,
            "net/ipv4/tcp_wmem": buffers,
        }
