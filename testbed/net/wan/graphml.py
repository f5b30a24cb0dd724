"""Internet Topology Zoo: GraphML with `LinkSpeedRaw` (bit/s) on edges, latitude and longitude on nodes.

29 of its 276 networks have a speed on every edge; for the others `wan.rate` has to say one. Knight et al., "The
Internet Topology Zoo", IEEE JSAC 29(9), 2011.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from testbed.errors import InputError
from testbed.files import read_bytes
from testbed.net.wan.build import Defaults, RawLink, assemble, number
from testbed.net.wan.model import Site, Wan

_SPACE = "{http://graphml.graphdrawing.org/xmlns}"
_SPEED, _LABEL, _NORTH, _EAST = "LinkSpeedRaw", "label", "Latitude", "Longitude"


def read(path: Path, defaults: Defaults) -> Wan:
    """The network of a GraphML file; its sites are called by their labels. Raises InputError."""
    where = path.name
    try:
        root = ElementTree.fromstring(read_bytes(path))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from error
    except ElementTree.ParseError as error:
        raise InputError(where, f"is not XML: {error}", "a GraphML file of the Topology Zoo") from error
    graph = root.find(f"{_SPACE}graph")
    if graph is None:
        raise InputError(where, "has no graph", "a GraphML file of the Topology Zoo")
    keys = {(key.get("for"), key.get("id", "")): key.get("attr.name", "") for key in root.iter(f"{_SPACE}key")}
    nodes = {node.get("id", ""): _values(node, "node", keys) for node in graph.iter(f"{_SPACE}node")}
    labels = Counter(values.get(_LABEL, "") for values in nodes.values())
    names = {id_: _name(id_, values.get(_LABEL, ""), labels) for id_, values in nodes.items()}
    sites = [
        Site(names[id_], _position(where, names[id_], _NORTH, values), _position(where, names[id_], _EAST, values))
        for id_, values in nodes.items()
    ]
    links = [_link(where, edge, _values(edge, "edge", keys), names) for edge in graph.iter(f"{_SPACE}edge")]
    return assemble(where, sites, links, defaults)


def _values(element: ElementTree.Element, kind: str, keys: dict[tuple[str | None, str], str]) -> dict[str, str]:
    data = element.iter(f"{_SPACE}data")
    return {keys.get((kind, one.get("key", "")), ""): (one.text or "").strip() for one in data}


def _name(id_: str, label: str, labels: Counter[str]) -> str:
    """The label, with the node's id where another one has the same label."""
    label = label.replace(",", " ").replace('"', "").replace("->", " ")
    return label if label and labels[label] == 1 else f"{label or 'node'} {id_}"


def _position(where: str, name: str, axis: str, values: dict[str, str]) -> float | None:
    if not values.get(axis):
        return None
    try:
        return float(values[axis])
    except ValueError:
        raise InputError(f"{where}, site {name}", f"{axis} is {values[axis]!r}", "degrees") from None


def _link(where: str, edge: ElementTree.Element, values: dict[str, str], names: dict[str, str]) -> RawLink:
    ends = edge.get("source", ""), edge.get("target", "")
    for end in ends:
        if end not in names:
            raise InputError(where, f"edge {ends[0]}-{ends[1]} ends at {end!r}, which is no node")
    a, b = (names[end] for end in ends)
    speed = values.get(_SPEED)
    rate_bps = number(f"{where}, link {a}-{b}", _SPEED, speed) if speed else None
    return RawLink(a, b, rate_bps)
