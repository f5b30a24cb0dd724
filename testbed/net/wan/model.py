"""A wide-area network: sites, the links between them, and the tunnels that applications see.

A link has two directions with attributes of their own; a direction's name is "a->b". Times are in seconds, rates in
bit/s, sizes in bytes; rates are what the sites see, before any scaling.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from testbed.errors import InputError

ATTRIBUTES = ("rate_bps", "delay_s", "jitter_s", "loss", "queue_bytes")
MAX_RATE_BPS = 100_000_000_000
MAX_SITES, MAX_LINKS = 1000, 20_000
LEAST_QUEUE_BYTES = 256_000
"""Enough for some 170 full packets: less would make a short link drop what its senders cannot help."""
_QUEUE_LIMIT_BYTES = 1 << 31
_LONGEST_S = 3600.0


@dataclass(frozen=True)
class Attributes:
    """What one direction of a link does to packets: each is delayed by `delay_s`, give or take `jitter_s`, or lost
    with probability `loss`, and waits in a queue of `queue_bytes` for a transmitter of `rate_bps`."""

    rate_bps: int
    delay_s: float
    queue_bytes: int
    jitter_s: float = 0.0
    loss: float = 0.0


@dataclass(frozen=True)
class Site:
    """A data centre, at `latitude` and `longitude` in degrees where they are known."""

    name: str
    latitude: float | None = None
    longitude: float | None = None


@dataclass(frozen=True)
class WanLink:
    """A link between two sites."""

    a: str
    b: str
    a_to_b: Attributes
    b_to_a: Attributes


def link_name(a: str, b: str) -> str:
    """The name of the direction from a to b."""
    return f"{a}->{b}"


def default_queue_bytes(rate_bps: float, delay_s: float) -> int:
    """A queue where none is given: what is in flight over one round trip, and LEAST_QUEUE_BYTES at least."""
    return max(LEAST_QUEUE_BYTES, math.ceil(min(rate_bps / 8 * 2 * delay_s, _QUEUE_LIMIT_BYTES - 1)))


@dataclass(frozen=True)
class Wan:
    """A connected network of sites. `tunnels` are the pairs with a tunnel of their own; with `ecn` the queues of links
    mark packets early, without it they drop them when full.

    Raises InputError, which names the site or link, for anything that cannot be emulated.
    """

    name: str
    sites: tuple[Site, ...]
    links: tuple[WanLink, ...]
    tunnels: tuple[tuple[str, str], ...]
    ecn: bool = True

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the sites, in order; a site's number is its place here, from 1."""
        return tuple(site.name for site in self.sites)

    def number(self, site: str) -> int:
        """The number of a site; raises KeyError."""
        return self._numbers[site]

    def directed(self) -> Iterator[tuple[str, str, Attributes]]:
        """Every direction as (from, to, attributes), in the order of the links."""
        for link in self.links:
            yield link.a, link.b, link.a_to_b
            yield link.b, link.a, link.b_to_a

    def direction(self, a: str, b: str) -> Attributes:
        """The attributes from a to b; raises KeyError when there is no such link."""
        return self._directions[a, b]

    def with_attributes(self, changed: Mapping[str, Attributes]) -> Wan:
        """The same network with other attributes of some directions, by their names."""
        links = tuple(
            dataclasses.replace(
                k,
                a_to_b=changed.get(link_name(k.a, k.b), k.a_to_b),
                b_to_a=changed.get(link_name(k.b, k.a), k.b_to_a),
            )
            for k in self.links
        )
        return dataclasses.replace(self, links=links)

    def scaled(self, scale: float) -> Wan:
        """The network at a scale: rates divided (whole bytes per second), delays and jitter multiplied, queues and
        loss kept, so that packets in flight and in queues stay as many."""
        return self.with_attributes(
            {link_name(a, b): scaled_attributes(attributes, scale) for a, b, attributes in self.directed()}
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Wan:
        """The inverse of `to_dict`."""
        links = (WanLink(k["a"], k["b"], Attributes(**k["a_to_b"]), Attributes(**k["b_to_a"])) for k in data["links"])
        tunnels = tuple((a, b) for a, b in data["tunnels"])
        return cls(data["name"], tuple(Site(**s) for s in data["sites"]), tuple(links), tunnels, data["ecn"])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names, 1)}

    @cached_property
    def _directions(self) -> dict[tuple[str, str], Attributes]:
        return {(a, b): attributes for a, b, attributes in self.directed()}


def scaled_attributes(attributes: Attributes, scale: float) -> Attributes:
    """One direction at a scale (see `Wan.scaled`)."""
    return dataclasses.replace(
        attributes,
        rate_bps=max(8, 8 * round(attributes.rate_bps / scale / 8)),
        delay_s=round(attributes.delay_s * scale, 9),
        jitter_s=round(attributes.jitter_s * scale, 9),
    )


def check_value(where: str, attribute: str, value: float) -> None:
    """Raises InputError unless a direction may have this value of an attribute."""
    ranges = {
        "rate_bps": (8 <= value <= MAX_RATE_BPS, f"8 bit/s to {MAX_RATE_BPS // 10**9} Gbit/s"),
        "delay_s": (0 <= value < _LONGEST_S, "0 to an hour"),
        "jitter_s": (0 <= value < _LONGEST_S, "0 to an hour"),
        "loss": (0 <= value < 1, "a probability, below 1"),
        "queue_bytes": (1514 <= value < _QUEUE_LIMIT_BYTES, "one packet of 1514 B to 2 GiB"),
    }
    if attribute not in ranges:
        raise InputError(where, f"{attribute} is no attribute of a link", f"one of {', '.join(ATTRIBUTES)}")
    good, mend = ranges[attribute]
    if not good:  # also for NaN, which compares with nothing
        raise InputError(where, f"{attribute} is {value:g}", mend)


def connected(nodes: Iterable[str], pairs: Iterable[tuple[str, str]]) -> set[str]:
    """The nodes that can be reached from the first one."""
    neighbours: dict[str, list[str]] = {node: [] for node in nodes}
    for a, b in pairs:
        neighbours[a].append(b)
        neighbours[b].append(a)
    waiting = list(neighbours)[:1]
    reached = set(waiting)
    while waiting:
        fresh = [peer for peer in neighbours[waiting.pop()] if peer not in reached]
        reached.update(fresh)
        waiting += fresh
    return reached


def _check(wan: Wan) -> None:
    where = wan.name
    for name, count in Counter(wan.names).items():
        if count > 1:
            raise InputError(where, f"site {name} is there {count} times", "give every site its own name")
        if not name or any(mark in name for mark in ',"\n\r') or "->" in name:
            raise InputError(where, f"site {name!r}", "a name without comma, quote, line break or ->")
    if len(wan.sites) > MAX_SITES or len(wan.links) > MAX_LINKS:
        raise InputError(
            where, f"{len(wan.sites)} sites and {len(wan.links)} links", f"at most {MAX_SITES} and {MAX_LINKS}"
        )
    if len(wan.sites) < 2:
        raise InputError(where, f"{len(wan.sites)} sites", "a wide-area network has two or more")
    _check_pairs(where, wan, "link", [(k.a, k.b) for k in wan.links])
    _check_pairs(where, wan, "tunnel", wan.tunnels)
    for a, b, attributes in wan.directed():
        for attribute in ATTRIBUTES:
            check_value(f"{where}, link {link_name(a, b)}", attribute, getattr(attributes, attribute))
        if attributes.jitter_s > attributes.delay_s:
            raise InputError(
                f"{where}, link {link_name(a, b)}",
                f"jitter_s {attributes.jitter_s:g} is above delay_s {attributes.delay_s:g}",
                "a delay does not become negative",
            )


def _check_pairs(where: str, wan: Wan, kind: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Every end is a site, no pair is there twice or joins a site to itself, and together they connect all sites."""
    seen: set[frozenset[str]] = set()
    for a, b in pairs:
        for end in (a, b):
            if end not in wan.names:
                raise InputError(where, f"{kind} {a}-{b} ends at {end}, which is no site")
        if a == b:
            raise InputError(where, f"{kind} {a}-{b} joins a site to itself", f"remove the {kind}")
        if frozenset((a, b)) in seen:
            raise InputError(where, f"{kind} {a}-{b} is there twice", "one per pair, with the rate of both")
        seen.add(frozenset((a, b)))
    reached = connected(wan.names, ((a, b) for a, b in map(tuple, map(sorted, seen))))
    if lost := [name for name in wan.names if name not in reached]:
        raise InputError(
            where, f"{kind}s do not connect {', '.join(lost[:5])} with {wan.names[0]}", f"add a {kind} between them"
        )
