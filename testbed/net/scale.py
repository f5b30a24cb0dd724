"""Dimension scaling: a fast network imitated by a slow one with the same packets.

Divide every rate and every job's bytes by the scale, multiply every delay by it, and leave packets,
thresholds and queues as they are: the bandwidth-delay product, the marking thresholds and the queues keep
their size in packets, and the phases of a job keep their length in seconds. What changes is how many packets
an iteration has and how many round trips fit into it; absolute timers of TCP have to be multiplied like
delays. This is the only place that derives a scaled value.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import InputError
from testbed.net.fabrics import ETHERNET_HEADER_BYTES, FabricSettings
from testbed.net.topology import Red

# The probability is not published.
CASSINI_RED = Red(min_bytes=80_000, max_bytes=160_000, probability=1.0)


@dataclass(frozen=True)
class Original:
    """The network that is imitated, before scaling. Defaults are CASSINI's where published; the queue of 16
    MB stands in for a lossless fabric. `host_rate_bps` None means `rate_bps`."""

    rate_bps: int = 50_000_000_000
    host_rate_bps: int | None = None
    host_delay_s: float = 2e-6
    fabric_delay_s: float = 0.0
    loss: float = 0.0
    queue_bytes: int = 16_000_000
    red: Red | None = CASSINI_RED
    mtu_bytes: int = 9000
    rto_min_s: float = 4e-3


@dataclass(frozen=True)
class Row:
    """One line of what `--dry-run` shows: a value before and after scaling, in `unit`, and the rule in
    words."""

    key: str
    unit: str
    original: float
    scaled: float
    rule: str


@dataclass(frozen=True)
class Scaling:
    """An original network and the scale at which it is emulated; raises InputError for a scale below 1."""

    original: Original
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.scale < 1e6:
            raise InputError("scale", f"{self.scale:g}", "1 (unscaled) or more")

    @property
    def settings(self) -> FabricSettings:
        """What the emulated fabric's links are given."""
        o = self.original
        return FabricSettings(
            rate_bps=self.rate_bps(o.rate_bps),
            host_rate_bps=self.rate_bps(o.host_rate_bps) if o.host_rate_bps else None,
            host_delay_s=self.delay_s(o.host_delay_s),
            fabric_delay_s=self.delay_s(o.fabric_delay_s),
            loss=o.loss,
            queue_bytes=o.queue_bytes,
            red=o.red,
            mtu_bytes=o.mtu_bytes,
        )

    @property
    def rto_min_s(self) -> float:
        """The lower bound of TCP's retransmission timeout, set on every host's route."""
        return self.delay_s(self.original.rto_min_s)

    def rate_bps(self, rate_bps: float) -> int:
        """A rate of the emulated network: whole bytes per second, as the kernel counts them."""
        return max(8, 8 * round(rate_bps / self.scale / 8))

    def delay_s(self, delay_s: float) -> float:
        """A delay of the emulated network: whole nanoseconds, as the kernel counts them."""
        return round(delay_s * self.scale, 9)

    def size_bytes(self, size_bytes: float) -> int:
        """A job's bytes in the emulated network; at least one."""
        return max(1, round(size_bytes / self.scale))

    def rows(self) -> list[Row]:
        """Every original value beside the one derived from it, and the figures that must come out equal."""
        o, s = self.original, self.settings
        host_bps, scaled_host_bps = o.host_rate_bps or o.rate_bps, s.host_rate_bps or s.rate_bps
        frame_bits = 8 * (o.mtu_bytes + ETHERNET_HEADER_BYTES)
        divided, multiplied, kept = (
            "divided by the scale",
            "multiplied by the scale",
            "kept: it is a number of packets",
        )
        rows = [
            Row("rate", "bit/s", o.rate_bps, s.rate_bps, divided),
            Row("host_rate", "bit/s", host_bps, scaled_host_bps, divided),
            Row("host_delay", "s", o.host_delay_s, s.host_delay_s, multiplied),
            Row("fabric_delay", "s", o.fabric_delay_s, s.fabric_delay_s, multiplied),
            Row("rto_min", "s", o.rto_min_s, self.rto_min_s, multiplied),
            Row("loss", "probability", o.loss, s.loss, "kept: it is per packet"),
            Row("mtu", "B", o.mtu_bytes, s.mtu_bytes, "kept: packets stay as large"),
            Row("queue", "B", o.queue_bytes, s.queue_bytes, kept),
        ]
        if o.red and s.red:
            rows += [
                Row("red.min", "B", o.red.min_bytes, s.red.min_bytes, kept),
                Row("red.max", "B", o.red.max_bytes, s.red.max_bytes, kept),
                Row(
                    "red.probability",
                    "probability",
                    o.red.probability,
                    s.red.probability,
                    "kept: it is per packet",
                ),
            ]
        product = o.host_delay_s * 2 * o.rate_bps / frame_bits
        scaled_product = s.host_delay_s * 2 * s.rate_bps / frame_bits
        rows += [
            Row("job bytes", "B per GB", 1e9, self.size_bytes(1e9), divided),
            Row("packet time", "s", frame_bits / o.rate_bps, frame_bits / s.rate_bps, "follows: multiplied"),
            Row("bandwidth-delay product", "packets", product, scaled_product, "follows: equal"),
        ]
        return rows
