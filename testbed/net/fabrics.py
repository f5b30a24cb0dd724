"""The fabrics that scenarios name: `cassini-48`, `dumbbell`, `dumbbell(n)`, `leaf-spine(n, m, k)`, `fat-tree(k)`,
`scale-up(n)`.

`cassini-48` is the shape of CASSINI's testbed (NSDI 2024): 24 hosts, 13 switches, 48 links, 2:1
oversubscribed at the top-of-rack switches. `leaf-spine(n, m, k)` has n leaves with m uplinks and k hosts each, so it is
k:m oversubscribed. `fat-tree(k)` is that of Al-Fares et al. (SIGCOMM 2008): k pods of k switches with k ports, k³/4
hosts, as many uplinks as hosts everywhere. `scale-up(n)` is one tier: 8 to 72 accelerators, each a host, on one switch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from testbed.errors import InputError
from testbed.net.topology import MAX_HOSTS, Direction, Link, Node, Red, Role, Topology

NAMES = ("cassini-48", "dumbbell", "dumbbell(n)", "leaf-spine(n, m, k)", "fat-tree(k)", "scale-up(n)")
SCALE_UP = range(8, 73)
FAT_TREE = range(2, 31, 2)
ETHERNET_HEADER_BYTES = 14
# RED sits above the token bucket and cannot see what the bucket lets go at once: two packets, no more.
BURST_PACKETS = 2

_NAME = re.compile(r"([a-z0-9-]+?)(?:\(\s*([0-9]+(?:\s*,\s*[0-9]+)*)\s*\))?")
MOST_LINKS = 100_000


@dataclass(frozen=True)
class FabricSettings:
    """What every link of a fabric is given, already scaled (`testbed.net.scale`).

    `host_rate_bps` None means `rate_bps`. `host_delay_s` is the delay from a host into the fabric: it sits at
    the host's own egress, so that a round trip takes twice `host_delay_s` and switches need no delay line for
    it. `fabric_delay_s` is the delay of every link between switches, in each direction. `loss` is the
    probability that a packet is lost, on each link. `red` is for switch ports; a host's own egress never
    marks.
    """

    rate_bps: int
    host_rate_bps: int | None
    host_delay_s: float
    fabric_delay_s: float
    loss: float
    queue_bytes: int
    red: Red | None
    mtu_bytes: int

    @property
    def burst_bytes(self) -> int:
        """What the token bucket may send at once."""
        return BURST_PACKETS * (self.mtu_bytes + ETHERNET_HEADER_BYTES)


def build(name: str, settings: FabricSettings) -> Topology:
    """The fabric of that name; raises InputError for a name or numbers that make none."""
    found = _NAME.fullmatch(name.strip())
    kind, numbers = (found[1], found[2]) if found else ("", None)
    sizes = tuple(int(n) for n in numbers.split(",")) if numbers else ()
    wiring = _Wiring(settings)
    if kind == "cassini-48" and not sizes:
        _cassini(wiring)
    elif kind == "dumbbell" and len(sizes) <= 1 and 0 not in sizes:
        _dumbbell(wiring, *sizes)
    elif kind == "leaf-spine" and len(sizes) == 3 and 0 not in sizes:
        _leaf_spine(wiring, *sizes)
    elif kind == "fat-tree" and len(sizes) == 1:
        _fat_tree(wiring, *sizes)
    elif kind == "scale-up" and len(sizes) == 1:
        _scale_up(wiring, *sizes)
    else:
        raise InputError("topology", f"there is no fabric {name!r}", f"one of {', '.join(NAMES)}, numbers from 1")
    return Topology(name.strip(), settings.mtu_bytes, tuple(wiring.nodes), tuple(wiring.links))


class _Wiring:
    """Collects nodes and links; ports are given in the order in which cables are plugged in."""

    def __init__(self, settings: FabricSettings) -> None:
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self._settings = settings
        self._used: defaultdict[str, int] = defaultdict(int)

    def add(self, stem: str, role: Role, count: int) -> list[str]:
        """Adds nodes stem1, stem2, … and returns their names."""
        if count > MAX_HOSTS:
            raise InputError("topology", f"{count} nodes of the kind {role}", f"at most {MAX_HOSTS}")
        names = [f"{stem}{i}" for i in range(1, count + 1)]
        self.nodes += [Node(name, role) for name in names]
        return names

    def attach(self, host: str, switch: str) -> None:
        """A host's cable: the delay is the host's, the marking the switch's."""
        s = self._settings
        rate_bps = s.host_rate_bps or s.rate_bps
        up = Direction(rate_bps, s.host_delay_s, s.loss, s.queue_bytes, s.burst_bytes, None)
        down = Direction(rate_bps, 0.0, s.loss, s.queue_bytes, s.burst_bytes, s.red)
        self.links.append(Link(host, 0, switch, self._port(switch), up, down))

    def connect(self, lower: str, upper: str) -> None:
        """A cable between switches, the same in both directions."""
        if len(self.links) == MOST_LINKS:
            raise InputError("topology", f"more than {MOST_LINKS} links", "fewer switches")
        s = self._settings
        both = Direction(s.rate_bps, s.fabric_delay_s, s.loss, s.queue_bytes, s.burst_bytes, s.red)
        self.links.append(Link(lower, self._port(lower), upper, self._port(upper), both, both))

    def _port(self, switch: str) -> int:
        self._used[switch] += 1
        return self._used[switch]


def _cassini(wiring: _Wiring) -> None:
    hosts = wiring.add("h", "host", 24)
    tors = wiring.add("tor", "tor", 6)
    aggregations = wiring.add("agg", "aggregation", 4)
    cores = wiring.add("core", "core", 3)
    for i, host in enumerate(hosts):
        wiring.attach(host, tors[i // 4])
    for t, tor in enumerate(tors):
        for aggregation in aggregations[2 * (t % 2) : 2 * (t % 2) + 2]:
            wiring.connect(tor, aggregation)
    for aggregation in aggregations:
        for core in cores:
            wiring.connect(aggregation, core)


def _dumbbell(wiring: _Wiring, hosts_per_side: int = 2) -> None:
    hosts = wiring.add("h", "host", 2 * hosts_per_side)
    left, right = wiring.add("s", "switch", 2)
    for i, host in enumerate(hosts):
        wiring.attach(host, left if i < hosts_per_side else right)
    wiring.connect(left, right)


def _leaf_spine(wiring: _Wiring, leaf_count: int, spine_count: int, hosts_per_leaf: int) -> None:
    hosts = wiring.add("h", "host", leaf_count * hosts_per_leaf)
    leaves = wiring.add("leaf", "tor", leaf_count)
    spines = wiring.add("spine", "core", spine_count)
    for i, host in enumerate(hosts):
        wiring.attach(host, leaves[i // hosts_per_leaf])
    for leaf in leaves:
        for spine in spines:
            wiring.connect(leaf, spine)


def _fat_tree(wiring: _Wiring, ports: int) -> None:
    if ports not in FAT_TREE:
        raise InputError(
            "topology", f"fat-tree({ports}) is not built", f"an even number of ports, {FAT_TREE[0]} to {FAT_TREE[-1]}"
        )
    half = ports // 2
    hosts = wiring.add("h", "host", ports * half * half)
    edges = wiring.add("tor", "tor", ports * half)
    aggregations = wiring.add("agg", "aggregation", ports * half)
    cores = wiring.add("core", "core", half * half)
    for i, host in enumerate(hosts):
        wiring.attach(host, edges[i // half])
    for pod in range(ports):
        own = slice(pod * half, (pod + 1) * half)
        for edge in edges[own]:
            for aggregation in aggregations[own]:
                wiring.connect(edge, aggregation)
        for i, aggregation in enumerate(aggregations[own]):
            for core in cores[i * half : (i + 1) * half]:
                wiring.connect(aggregation, core)


def _scale_up(wiring: _Wiring, accelerators: int) -> None:
    if accelerators not in SCALE_UP:
        raise InputError(
            "topology", f"scale-up({accelerators}) is not built", f"{SCALE_UP[0]} to {SCALE_UP[-1]} accelerators"
        )
    (switch,) = wiring.add("s", "switch", 1)
    for host in wiring.add("h", "host", accelerators):
        wiring.attach(host, switch)
