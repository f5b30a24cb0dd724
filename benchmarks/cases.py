"""What is sent: networks, and who sends how much to whom. The same description runs in the guest and in ns-3."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from testbed.net.fabrics import ETHERNET_HEADER_BYTES, FabricSettings, build
from testbed.net.topology import Red, Topology

MARK_AT_PACKETS = 40
QUEUE_BYTES = 4_000_000
BUFFER_BYTES = 8 << 20
"""What a socket may hold, each way, in every system."""
_IPV4, _TCP, _TIME_STAMPS = 20, 20, 12


@dataclass(frozen=True)
class Flow:
    """One TCP connection; `size_bytes` None sends until the case ends."""

    source: str
    destination: str
    size_bytes: int | None


@dataclass(frozen=True)
class Case:
    """Flows that all start at once. The case ends when each has arrived, or after `lasts_s` virtual seconds.

    `copied`: the programs of the guest hand the payload from buffer to kernel to buffer; otherwise the sender's kernel
    takes it from a file's pages and the receiver's drops it once it is acknowledged. The packets are the same.
    """

    name: str
    topology: Topology
    flows: tuple[Flow, ...]
    lasts_s: float
    copied: bool = False

    @property
    def segment_bytes(self) -> int:
        """TCP payload of a full packet."""
        return self.topology.mtu_bytes - _IPV4 - _TCP - _TIME_STAMPS

    @property
    def sized(self) -> bool:
        """Whether the case ends when all bytes have arrived."""
        return all(flow.size_bytes is not None for flow in self.flows)

    def with_copies(self) -> Case:
        """Return the same case with programs that copy the payload."""
        return replace(self, copied=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the case as JSON has it."""
        flows = [[flow.source, flow.destination, flow.size_bytes] for flow in self.flows]
        return {
            "name": self.name, "topology": self.topology.to_dict(), "flows": flows, "lasts_s": self.lasts_s,
            "copied": self.copied,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Case:
        """Read what `to_dict` wrote."""
        flows = tuple(Flow(*flow) for flow in data["flows"])
        return cls(**data | {"topology": Topology.from_dict(data["topology"]), "flows": flows})


def dumbbell(rate_bps: int, mtu_bytes: int, lasts_s: float, way_delay_s: float = 0.0) -> Case:
    """Two flows, h1 and h2 - s1 - s2 - h3 and h4; a packet travels for `way_delay_s` besides its waits in queues."""
    delay = f", {way_delay_s * 1e6:g} µs each way" if way_delay_s else ""
    return Case(
        f"dumbbell, {rate_bps / 1e9:g} Gbit/s, MTU {mtu_bytes}{delay}",
        build("dumbbell", _settings(rate_bps, mtu_bytes, way_delay_s)),
        (Flow("h1", "h3", None), Flow("h2", "h4", None)),
        lasts_s,
    )


def fabric(size_bytes: int) -> Case:
    """24 hosts, 48 links of 5 Gbit/s: every host sends `size_bytes` to the host four further, in the next rack."""
    topology = build("cassini-48", _settings(5_000_000_000, 9000, 0.0))
    hosts = topology.hosts
    flows = tuple(Flow(host, hosts[(number + 4) % len(hosts)], size_bytes) for number, host in enumerate(hosts))
    return Case("fabric, 24 hosts, 5 Gbit/s, MTU 9000", topology, flows, 10.0)


def standard(short: bool = False) -> list[Case]:
    """Return the cases of `make bench`; `short` ones last a tenth as long, to see that everything works."""
    part = 0.1 if short else 1.0
    return [
        dumbbell(10**9, 1500, 2 * part),
        dumbbell(10**9, 1500, 2 * part, way_delay_s=60e-6),
        dumbbell(10**9, 9000, 2 * part),
        dumbbell(10**10, 9000, part),
        fabric(int(20_000_000 * part)),
    ]


def _settings(rate_bps: int, mtu_bytes: int, way_delay_s: float) -> FabricSettings:
    """Return links whose switches mark from 40 full packets on; the delay of a way lies on its first link."""
    mark_bytes = MARK_AT_PACKETS * (mtu_bytes + ETHERNET_HEADER_BYTES)
    return FabricSettings(
        rate_bps=rate_bps, host_rate_bps=None, host_delay_s=way_delay_s, fabric_delay_s=0.0, loss=0.0,
        queue_bytes=QUEUE_BYTES, red=Red(mark_bytes, mark_bytes, 1.0), mtu_bytes=mtu_bytes,
    )  # fmt: skip
