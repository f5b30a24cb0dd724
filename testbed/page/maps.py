"""Where nodes and directed links stand on the map of a fabric, or of a wide-area network. Lengths are SVG units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

from testbed.net.draw import places
from testbed.net.topology import Topology

SPACING, MARGIN = 36.0, 48.0
APART = 3.2
"""From the middle of a cable to each of its two directions."""
HOST_RADIUS, SWITCH_RADIUS, SITE_RADIUS = 7.0, 15.0, 16.0
WAN_SIZE = (1000.0, 520.0)
Point = tuple[float, float]


@dataclass(frozen=True)
class Node:
    """A host, a switch or a site; `job` is whose worker the host is, "" of none."""

    name: str
    kind: str
    x: float
    y: float
    job: str = ""


@dataclass(frozen=True)
class Lane:
    """One direction of a link, from a to b; `host` where one end is a host."""

    link: str
    x1: float
    y1: float
    x2: float
    y2: float
    host: bool = False


@dataclass(frozen=True)
class Map:
    """A drawing of so many units; `what` says in words what is on it. `lines` are of a grid behind it, with labels."""

    what: str
    width: float
    height: float
    nodes: tuple[Node, ...]
    lanes: tuple[Lane, ...]
    lines: tuple[tuple[float, float, float, float, str], ...] = ()


def fabric(topology: Topology, jobs: Mapping[str, Sequence[str]]) -> Map:
    """Return the map of a fabric, hosts below; jobs: the hosts of each."""
    seen = places(topology)
    top = max(y for _, y in seen.values())
    at = {name: (MARGIN + SPACING * x, MARGIN + 1.35 * SPACING * (top - y)) for name, (x, y) in seen.items()}
    of_host = {host: job for job, hosts in jobs.items() for host in hosts}
    nodes = tuple(
        Node(node.name, "host" if node.role == "host" else "switch", *at[node.name], of_host.get(node.name, ""))
        for node in topology.nodes
    )
    radius = {node.name: HOST_RADIUS if node.kind == "host" else SWITCH_RADIUS for node in nodes}
    what = f"{topology.name}: {len(topology.hosts)} hosts, {len(topology.switches)} switches"
    width = max(x for x, _ in at.values()) + MARGIN
    return Map(
        what, width, max(y for _, y in at.values()) + 0.75 * MARGIN, nodes,
        tuple(_lanes(((a, b) for a, b in topology.directed()), at, radius, set(topology.hosts))),
    )  # fmt: skip


def wan(raw: Mapping[str, Any]) -> Map:
    """Return the map of a wide-area network (`testbed.net.wan.model.Wan.to_dict`).

    Sites with positions stand where they are on earth, the others so that links are of like lengths.
    """
    sites, links = raw["sites"], [(one["a"], one["b"]) for one in raw["links"]]
    located = all(site.get("latitude") is not None and site.get("longitude") is not None for site in sites)
    lines: tuple[tuple[float, float, float, float, str], ...] = ()
    if located:
        at, lines = _projected({site["name"]: (site["longitude"], site["latitude"]) for site in sites})
    else:
        graph = nx.Graph(links)
        graph.add_nodes_from(site["name"] for site in sites)
        at = _fitted({name: (float(x), float(y)) for name, (x, y) in nx.kamada_kawai_layout(graph).items()})
    nodes = tuple(Node(site["name"], "site", *at[site["name"]]) for site in sites)
    both = [pair for a, b in links for pair in ((a, b), (b, a))]
    how = "where they are on earth" if located else "placed by their links, since they have no positions"
    what = f"{raw['name']}: {len(sites)} sites, {len(links)} links; sites stand {how}"
    lanes = tuple(_lanes(both, at, dict.fromkeys(at, SITE_RADIUS), set()))
    return Map(what, *WAN_SIZE, nodes, lanes, lines)


def _lanes(
    pairs: Iterable[tuple[str, str]], at: Mapping[str, Point], radius: Mapping[str, float], hosts: set[str]
) -> Iterable[Lane]:
    for a, b in pairs:
        (ax, ay), (bx, by) = at[a], at[b]
        length = math.hypot(bx - ax, by - ay) or 1.0
        ux, uy = (bx - ax) / length, (by - ay) / length
        side = -uy * APART, ux * APART  # traffic keeps to its right
        begin, end = radius[a] + 1, radius[b] + 1
        yield Lane(
            f"{a}->{b}", round(ax + begin * ux + side[0], 1), round(ay + begin * uy + side[1], 1),
            round(bx - end * ux + side[0], 1), round(by - end * uy + side[1], 1), a in hosts or b in hosts,
        )  # fmt: skip


def _fitted(at: Mapping[str, Point]) -> dict[str, Point]:
    """Return points spread over the drawing, each axis by itself."""
    spans = [(min(axis), max(axis)) for axis in zip(*at.values(), strict=True)]
    sizes = [side - 2 * MARGIN for side in WAN_SIZE]

    def put(value: float, axis: int) -> float:
        low, high = spans[axis]
        return round(MARGIN + sizes[axis] * ((value - low) / (high - low) if high > low else 0.5), 1)

    return {name: (put(x, 0), put(y, 1)) for name, (x, y) in at.items()}


def _projected(at: Mapping[str, Point]) -> tuple[dict[str, Point], tuple[tuple[float, float, float, float, str], ...]]:
    """Return places of (longitude, latitude) in degrees on the drawing, true in the middle, and the degrees' lines."""
    longitudes, latitudes = zip(*at.values(), strict=True)
    middle = (min(longitudes) + max(longitudes)) / 2, (min(latitudes) + max(latitudes)) / 2
    narrow = max(0.2, math.cos(math.radians(middle[1])))
    wide, high = (max(longitudes) - min(longitudes)) * narrow, max(latitudes) - min(latitudes)
    scale = min((WAN_SIZE[0] - 2 * MARGIN) / max(wide, 1e-6), (WAN_SIZE[1] - 2 * MARGIN) / max(high, 1e-6))

    def put(longitude: float, latitude: float) -> Point:
        x = WAN_SIZE[0] / 2 + (longitude - middle[0]) * narrow * scale
        return round(x, 1), round(WAN_SIZE[1] / 2 - (latitude - middle[1]) * scale, 1)

    step = next((one for one in (1, 2, 5, 10, 20) if max(wide, high) / one <= 6), 30)
    lines = []
    reach = [WAN_SIZE[0] / 2 / scale / narrow, WAN_SIZE[1] / 2 / scale]
    for axis, letters in enumerate(("EW", "NS")):
        for degree in range(-180, 181, step):
            if abs(degree - middle[axis]) < 0.97 * reach[axis]:
                x, y = put(degree, middle[1]) if axis == 0 else put(middle[0], degree)
                ends = (x, 0.0, x, WAN_SIZE[1]) if axis == 0 else (0.0, y, WAN_SIZE[0], y)
                lines.append((*ends, f"{abs(degree)}° {letters[degree < 0]}" if degree else "0°"))
    return {name: put(*place) for name, place in at.items()}, tuple(lines)
