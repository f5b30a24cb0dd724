"""Networks as data: nodes, ports, links, and the settings of every egress.

A link has two ends and two directions, and each direction has settings of its own, because that is where a
packet waits: at the egress of the sending end. A direction's name is "a->b", for the egress of a towards b.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Literal

from testbed.errors import InputError

if TYPE_CHECKING:
    import networkx as nx

Role = Literal["host", "tor", "aggregation", "core", "switch"]

MAX_RATE_BPS = 100_000_000_000
MAX_HOSTS = 8000
MAX_BANDS = 16  # of the kernel's prio
# A network device's name has at most 15 characters.
_MAX_INTERFACE_NAME = 15
_FABRIC_BASE, _MANAGEMENT_BASE = IPv4Address("10.0.0.0"), IPv4Address("10.255.1.0")


@dataclass(frozen=True)
class Node:
    """A host or a switch."""

    name: str
    role: Role


@dataclass(frozen=True)
class Red:
    """Random early detection on the instantaneous queue: no mark up to `min_bytes`, then with a probability
    that rises to `probability` at `max_bytes`, then always. A step is `min_bytes == max_bytes`. A packet that cannot
    be marked is dropped, unless the queue `keeps` it while there is room."""

    min_bytes: int
    max_bytes: int
    probability: float
    keeps: bool = False


@dataclass(frozen=True)
class Direction:
    """The settings of one egress: every packet is delayed by `delay_s` or lost with probability `loss`, then
    waits in a queue of `queue_bytes` for a transmitter of `rate_bps` that may send `burst_bytes` at once.
    `aqm` marks packets in that queue; without it a full queue drops. With `jitter_s` each packet's delay is drawn
    evenly from `delay_s` - `jitter_s` to `delay_s` + `jitter_s`, so that packets may overtake each other.
    `bands` are DSCPs from the highest strict priority to the lowest, each with a queue and an AQM of its own; packets
    of none of them wait in the last. Without bands there is one queue."""

    rate_bps: int
    delay_s: float
    loss: float
    queue_bytes: int
    burst_bytes: int
    aqm: Red | None
    jitter_s: float = 0.0
    bands: tuple[int, ...] = ()


@dataclass(frozen=True)
class Link:
    """A cable between port `a_port` of `a` and port `b_port` of `b`."""

    a: str
    a_port: int
    b: str
    b_port: int
    a_to_b: Direction
    b_to_a: Direction


def link_id(a: str, b: str) -> str:
    """The name of the directed link from a to b."""
    return f"{a}->{b}"


@dataclass(frozen=True)
class Topology:
    """A network. Hosts are numbered from 1 in the order of `nodes`, and so are switches (their datapath ids).

    Raises InputError when the nodes and links do not fit together or a setting is out of range.
    """

    name: str
    mtu_bytes: int
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        _check(self)

    @functools.cached_property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts, in order."""
        return tuple(n.name for n in self.nodes if n.role == "host")

    @functools.cached_property
    def switches(self) -> tuple[str, ...]:
        """Names of the switches, in order."""
        return tuple(n.name for n in self.nodes if n.role != "host")

    @functools.cached_property
    def _host_index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.hosts, 1)}

    @functools.cached_property
    def _egress(self) -> dict[tuple[str, str], tuple[int, Direction]]:
        ends = {(k.a, k.b): (k.a_port, k.a_to_b) for k in self.links}
        return ends | {(k.b, k.a): (k.b_port, k.b_to_a) for k in self.links}

    @functools.cached_property
    def _uplinks(self) -> dict[str, str]:
        return {a: b for a, b in self.directed() if a in self._host_index}

    def graph(self) -> nx.Graph:
        """The network as an undirected graph; nodes carry `role`, edges carry their `Link` as `link`."""
        import networkx as nx  # costs a second in a guest, where nobody needs it

        graph = nx.Graph(name=self.name)
        graph.add_nodes_from((n.name, {"role": n.role}) for n in self.nodes)
        graph.add_edges_from((k.a, k.b, {"link": k}) for k in self.links)
        return graph

    def directed(self) -> Iterator[tuple[str, str]]:
        """Every direction of every link as (from, to), in the order of the links."""
        for link in self.links:
            yield link.a, link.b
            yield link.b, link.a

    def direction(self, a: str, b: str) -> Direction:
        """The settings of the egress from a to b; raises KeyError when they are not neighbours."""
        return self._egress[a, b][1]

    def port(self, node: str, peer: str) -> int:
        """The port of `node` towards `peer`; raises KeyError when they are not neighbours."""
        return self._egress[node, peer][0]

    def interface(self, node: str, peer: str) -> str:
        """The network device of `node` towards `peer`, such as "tor1-eth3"."""
        return f"{node}-eth{self.port(node, peer)}"

    def uplink(self, host: str) -> str:
        """The switch a host is plugged into."""
        return self._uplinks[host]

    def dpid(self, switch: str) -> int:
        """The datapath id of a switch: its place among the switches, from 1."""
        return self.switches.index(switch) + 1

    def host_number(self, host: str) -> int:
        """The place of a host among the hosts, from 1; raises KeyError."""
        return self._host_index[host]

    def ip(self, host: str) -> str:
        """The address of a host in the fabric, 10.0.0.0/16."""
        return str(_FABRIC_BASE + self.host_number(host))

    def mgmt_ip(self, host: str) -> str:
        """The address of a host in the management network, 10.255.0.0/16."""
        return str(_MANAGEMENT_BASE + self.host_number(host))

    def mac(self, host: str) -> str:
        """The hardware address of a host's fabric interface."""
        return mac_text(self.host_number(host))

    def port_mac(self, node: str, peer: str) -> str:
        """The hardware address of the device of `node` towards `peer`; switch ports have locally administered
        ones."""
        if node in self._host_index:
            return self.mac(node)
        return mac_text(0x02 << 40 | self.dpid(node) << 16 | self.port(node, peer))

    def to_dict(self) -> dict[str, Any]:
        """The topology in plain dicts and lists, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Topology:
        """The inverse of `to_dict`; raises InputError (or KeyError and TypeError for foreign data)."""
        links = (
            Link(**{**k, "a_to_b": _direction_from(k["a_to_b"]), "b_to_a": _direction_from(k["b_to_a"])})
            for k in data["links"]
        )
        return cls(data["name"], data["mtu_bytes"], tuple(Node(**n) for n in data["nodes"]), tuple(links))


def mac_text(number: int) -> str:
    """A hardware address from its 48 bits."""
    return number.to_bytes(6, "big").hex(":")


def prioritised(topology: Topology, dscps: Sequence[int]) -> Topology:
    """The topology whose switches send packets of one DSCP before those of the next, the first of `dscps` first.

    A single DSCP needs no bands. Raises InputError for more than there can be.
    """
    bands = tuple(dscps) if len(dscps) > 1 else ()

    def banded(d: Direction) -> Direction:
        return replace(d, bands=bands) if d.aqm else d

    links = (replace(link, a_to_b=banded(link.a_to_b), b_to_a=banded(link.b_to_a)) for link in topology.links)
    return replace(topology, links=tuple(links))


def _direction_from(data: dict[str, Any]) -> Direction:
    aqm = Red(**data["aqm"]) if data["aqm"] else None
    return Direction(**{**data, "aqm": aqm, "bands": tuple(data.get("bands", ()))})


def _check(topology: Topology) -> None:
    where = f"topology {topology.name}"
    names = [n.name for n in topology.nodes]
    roles = {n.name: n.role for n in topology.nodes}
    if repeated := _repeated(names):
        raise InputError(where, f"node {repeated} is there twice", "give every node its own name")
    if len(topology.hosts) > MAX_HOSTS:
        raise InputError(where, f"{len(topology.hosts)} hosts", f"at most {MAX_HOSTS} have addresses")
    if not 68 <= topology.mtu_bytes <= 65535:
        raise InputError(where, f"an MTU of {topology.mtu_bytes} bytes", "68 to 65535")
    ports = [(k.a, k.a_port) for k in topology.links] + [(k.b, k.b_port) for k in topology.links]
    cables = Counter(node for node, _ in ports)
    for host in topology.hosts:
        if cables[host] != 1:
            raise InputError(where, f"host {host} has {cables[host]} links", "a host has one")
    for node, port in ports:
        if node not in roles:
            raise InputError(where, f"a link ends at {node}, which is not a node", f"nodes are {', '.join(names)}")
        if port < (0 if roles[node] == "host" else 1):
            raise InputError(where, f"port {port} of {node}", "hosts' ports begin at 0, switches' at 1")
        if len(f"{node}-eth{port}") > _MAX_INTERFACE_NAME:
            raise InputError(where, f"the device {node}-eth{port}", f"at most {_MAX_INTERFACE_NAME} characters")
    if doubled := _repeated([f"{node} port {port}" for node, port in ports]):
        raise InputError(where, f"two links end at {doubled}", "a port takes one link")
    if parallel := _repeated([" and ".join(sorted((k.a, k.b))) for k in topology.links]):
        raise InputError(where, f"two links between {parallel}", "one link per pair, at a higher rate")
    for a, b in topology.directed():
        _check_direction(f"{where}, {link_id(a, b)}", topology.direction(a, b), topology.mtu_bytes)


def _repeated(names: list[str]) -> str:
    return next((name for name, count in Counter(names).items() if count > 1), "")


def _check_direction(where: str, d: Direction, mtu_bytes: int) -> None:
    frame_bytes = mtu_bytes + 14
    checks = (
        (0 < d.rate_bps <= MAX_RATE_BPS, f"rate_bps {d.rate_bps}", f"above 0, at most {MAX_RATE_BPS}"),
        (d.rate_bps % 8 == 0, f"rate_bps {d.rate_bps}", "the kernel counts bytes: a multiple of 8"),
        (0 <= d.delay_s < 3600, f"delay_s {d.delay_s}", "0 to an hour"),
        (0 <= d.jitter_s <= d.delay_s, f"jitter_s {d.jitter_s}", "0 to delay_s: no delay is negative"),
        (0 <= d.loss < 1, f"loss {d.loss}", "a probability, below 1"),
        (
            frame_bytes <= d.queue_bytes < 1 << 31,
            f"queue_bytes {d.queue_bytes}",
            f"at least one frame, {frame_bytes}",
        ),
        (
            frame_bytes <= d.burst_bytes < 1 << 31,
            f"burst_bytes {d.burst_bytes}",
            f"at least one frame, {frame_bytes}",
        ),
    )
    for good, what, mend in checks:
        if not good:
            raise InputError(where, what, mend)
    if d.aqm and not 0 < d.aqm.min_bytes <= d.aqm.max_bytes <= d.queue_bytes:
        raise InputError(where, f"RED from {d.aqm.min_bytes} to {d.aqm.max_bytes} bytes", "0 < min <= max <= queue")
    if d.bands and not (d.aqm and 2 <= len(d.bands) == len(set(d.bands)) <= MAX_BANDS):
        raise InputError(where, f"{len(d.bands)} bands", f"2 to {MAX_BANDS} different DSCPs, where there is an AQM")
    if d.aqm and not 0 <= d.aqm.probability <= 1:
        raise InputError(where, f"RED probability {d.aqm.probability}", "0 to 1")
