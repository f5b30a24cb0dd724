"""A wide-area network as a topology of gateways and switches, which `testbed.net.emulation` brings to life.

Site number n has a gateway `g<n>` (a host) on a switch `s<n>`; a link between sites is a link between their
switches. The line between gateway and switch is fast and has no delay: what a packet meets is the link's.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address

from testbed.net.fabrics import BURST_PACKETS, ETHERNET_HEADER_BYTES
from testbed.net.topology import Direction, Link, Node, Red, Topology
from testbed.net.wan.dynamics import Change
from testbed.net.wan.model import Attributes, Wan, link_name

LINE_S = 1e-9
"""The delay of a direction that is to have a delay or loss later: its delay line has to be there from the beginning."""
_ACCESS_BPS, _ACCESS_QUEUE_BYTES = 40_000_000_000, 64_000_000
_OVERLAY, _UNDERLAY = IPv4Address("10.64.0.0"), IPv4Address("10.0.0.0")
_IN_LINE = ("delay_s", "jitter_s", "loss")
MARK_FROM, MARK_ALL, MARK_PROBABILITY = 0.25, 0.75, 0.1
"""Shares of a queue, and the probability between: RED's maximum is to be three times its minimum, and marks a tenth
(Floyd, 1997, "RED: discussions of setting parameters")."""


def gateway(wan: Wan, site: str) -> str:
    """The host that stands for a site in the underlay."""
    return f"g{wan.number(site)}"


def switch(wan: Wan, site: str) -> str:
    """The switch of a site."""
    return f"s{wan.number(site)}"


def address(wan: Wan, site: str, tunnels: bool) -> str:
    """The address of a site's programs: in the overlay, or that of its gateway where there are no tunnels."""
    return str((_OVERLAY if tunnels else _UNDERLAY) + wan.number(site))


def topology(wan: Wan, mtu_bytes: int, changes: Iterable[Change] = ()) -> Topology:
    """The underlay; directions that `changes` will delay get a delay line from the beginning. Raises InputError."""
    lines = {change.link for change in changes if change.attribute in _IN_LINE}
    ports = dict.fromkeys(wan.names, 1)
    nodes = [Node(gateway(wan, site), "host") for site in wan.names]
    nodes += [Node(switch(wan, site), "switch") for site in wan.names]
    access = direction(Attributes(_ACCESS_BPS, 0.0, _ACCESS_QUEUE_BYTES), mtu_bytes)
    links = [Link(gateway(wan, site), 0, switch(wan, site), 1, access, access) for site in wan.names]
    for k in wan.links:
        for site in (k.a, k.b):
            ports[site] += 1
        there = direction(k.a_to_b, mtu_bytes, line=link_name(k.a, k.b) in lines, ecn=wan.ecn)
        back = direction(k.b_to_a, mtu_bytes, line=link_name(k.b, k.a) in lines, ecn=wan.ecn)
        links.append(Link(switch(wan, k.a), ports[k.a], switch(wan, k.b), ports[k.b], there, back))
    return Topology(wan.name, mtu_bytes, tuple(nodes), tuple(links))


def direction(attributes: Attributes, mtu_bytes: int, *, line: bool = False, ecn: bool = False) -> Direction:
    """The egress that makes a direction. Its queue drops what does not fit; with `ecn` it marks from a quarter
    on, and keeps what cannot be marked: dropped acknowledgements would be timeouts of windows of few segments."""
    queue_bytes = attributes.queue_bytes
    marking = Red(int(MARK_FROM * queue_bytes), int(MARK_ALL * queue_bytes), MARK_PROBABILITY, keeps=True)
    return Direction(
        rate_bps=attributes.rate_bps,
        delay_s=max(attributes.delay_s, LINE_S) if line else attributes.delay_s,
        loss=attributes.loss,
        queue_bytes=queue_bytes,
        burst_bytes=BURST_PACKETS * (mtu_bytes + ETHERNET_HEADER_BYTES),
        aqm=marking if ecn else None,
        jitter_s=attributes.jitter_s,
    )
