"""A topology for the eye: as text, and as a picture in layers (PNG or SVG)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import InputError
from testbed.net.topology import Direction, Role, Topology
from testbed.units import show_delay, show_rate, show_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")
_LAYERS: dict[Role, int] = {"host": 0, "tor": 1, "switch": 1, "aggregation": 2, "core": 3}
_COLOURS: dict[Role, str] = {
    "host": "#5b6770",
    "tor": "#2a6f97",
    "switch": "#2a6f97",
    "aggregation": "#b5651d",
    "core": "#7b2d43",
}
_TITLES: dict[Role, str] = {
    "host": "hosts",
    "tor": "top of rack",
    "switch": "switches",
    "aggregation": "aggregation",
    "core": "core",
}
_INK, _CABLE = "#22272b", "#8d99a3"
_LAYER_HEIGHT, _RACK_GAP = 2.4, 0.7
_TURN_LABELS_ABOVE = 60


def text(topology: Topology) -> str:
    """Layers, settings of each kind of egress, and every switch's ports: a page for a terminal."""
    t = topology
    ratio = f", {_oversubscription(t):g}:1 oversubscribed" if _oversubscription(t) > 1 else ""
    lines = [
        f"{t.name}: {len(t.hosts)} hosts, {len(t.switches)} switches, {len(t.links)} links{ratio}, MTU {t.mtu_bytes} B",
        "",
    ]
    roles = [role for role in reversed(_LAYERS) if any(n.role == role for n in t.nodes)]
    for role in roles:
        names = [n.name for n in t.nodes if n.role == role]
        shown = " | ".join(" ".join(rack) for rack in _racks(t)) if role == "host" else " ".join(names)
        lines.append(f"{_TITLES[role]:<12} {shown}")
    lines += ["", f"{'egress':<18} {'rate':>12} {'delay':>8} {'loss':>8} {'queue':>8}  marks"]
    lines += [_egress(kind, d) for kind, d in _kinds(t)]
    lines += ["", "port of each switch and what it leads to"]
    for switch in t.switches:
        ports = sorted((t.port(a, b), b) for a, b in t.directed() if a == switch)
        lines.append(f"{switch:<12} " + "  ".join(f"{port} {peer:<5}" for port, peer in ports).rstrip())
    return "\n".join(lines) + "\n"


def picture(topology: Topology, path: Path) -> None:
    """Draws the layers into a PNG or SVG file, the same bytes every time; raises InputError for another
    ending."""
    if path.suffix not in FORMATS:
        raise InputError(str(path), "cannot draw into this kind of file", f"one of {', '.join(FORMATS)}")
    import matplotlib as mpl  # half a second that the text does not need
    from matplotlib.figure import Figure

    at = places(topology)
    width = max(x for x, _ in at.values()) + 1
    height = max(y for _, y in at.values()) + 1
    with mpl.rc_context({"svg.hashsalt": "orrery", "font.family": "sans-serif"}):
        figure = Figure(figsize=(min(max(0.44 * width + 2.2, 6), 40), 0.74 * height + 1.5), dpi=160)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        _draw_cables(axes, topology, at)
        _draw_nodes(axes, topology, at)
        _draw_words(axes, topology, at)
        axes.set_xlim(-4.4, width + 0.2)
        axes.set_ylim(-1.9, height + 0.7)
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        figure.savefig(path, metadata=metadata, facecolor="white")


def _racks(t: Topology) -> list[list[str]]:
    return [list(rack) for _, rack in groupby(t.hosts, key=t.uplink)]


def _oversubscription(t: Topology) -> float:
    """Of the switches that hosts are plugged into, the highest ratio of hosts' rates to the rates further
    up."""
    ratios = [0.0]
    for switch in dict.fromkeys(t.uplink(h) for h in t.hosts):
        rates = [(b in t.hosts, t.direction(a, b).rate_bps) for a, b in t.directed() if a == switch]
        down, up = sum(r for is_host, r in rates if is_host), sum(r for is_host, r in rates if not is_host)
        ratios.append(down / up if up else 0.0)
    return max(ratios)


def _kinds(t: Topology) -> Iterator[tuple[str, Direction]]:
    """The different settings of egresses, with what they are the egress of."""
    seen: dict[tuple[str, Direction], None] = {}
    for a, b in t.directed():
        kind = "host -> switch" if a in t.hosts else "switch -> host" if b in t.hosts else "switch -> switch"
        seen[kind, t.direction(a, b)] = None
    yield from seen


def _egress(kind: str, d: Direction) -> str:
    marks = "none"
    if d.aqm:
        low, high = show_size(d.aqm.min_bytes), show_size(d.aqm.max_bytes)
        marks = f"{low} to {high}, probability {d.aqm.probability:g}"
    rate, queue = show_rate(d.rate_bps), show_size(d.queue_bytes)
    delay = show_delay(d.delay_s) if d.delay_s else "0"
    return f"{kind:<18} {rate:>12} {delay:>8} {d.loss:>8g} {queue:>8}  {marks}"


def places(t: Topology) -> dict[str, tuple[float, float]]:
    """Where each node stands, hosts at the bottom: in racks, their switch above the middle of the rack, upper layers
    spread evenly."""
    found: dict[str, tuple[float, float]] = {}
    x = 0.0
    for rack in _racks(t):
        spacing = max(1.0, 2.6 / len(rack))
        for host in rack:
            found[host] = (x, 0.0)
            x += spacing
        x += _RACK_GAP
        found.setdefault(t.uplink(rack[0]), ((found[rack[0]][0] + found[rack[-1]][0]) / 2, _LAYER_HEIGHT))
    right = max(px for px, _ in found.values())
    for layer in (1, 2, 3):
        rest = [n.name for n in t.nodes if _LAYERS[n.role] == layer and n.name not in found]
        for i, name in enumerate(rest):
            found[name] = (right * (i + 0.5) / len(rest), layer * _LAYER_HEIGHT)
    levels = sorted({y for _, y in found.values()})
    return {name: (px, levels.index(py) * _LAYER_HEIGHT) for name, (px, py) in found.items()}


def _draw_cables(axes: Axes, t: Topology, places: dict[str, tuple[float, float]]) -> None:
    fastest = max(t.direction(a, b).rate_bps for a, b in t.directed())
    roles = {n.name: n.role for n in t.nodes}
    for k in t.links:
        upper = max(k.a, k.b, key=lambda name: places[name][1])
        colour = _CABLE if "host" in (roles[k.a], roles[k.b]) else _COLOURS[roles[upper]]
        share = max(k.a_to_b.rate_bps, k.b_to_a.rate_bps) / fastest
        (ax, ay), (bx, by) = places[k.a], places[k.b]
        axes.plot([ax, bx], [ay, by], color=colour, alpha=0.75, linewidth=0.7 + 0.9 * share, zorder=1)


def _draw_nodes(axes: Axes, t: Topology, places: dict[str, tuple[float, float]]) -> None:
    turn = 90 if len(t.hosts) > _TURN_LABELS_ABOVE else 0
    for node in t.nodes:
        x, y = places[node.name]
        label: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 3}
        if node.role == "host":
            axes.scatter([x], [y], s=70, color=_COLOURS[node.role], edgecolor="white", linewidth=1.2, zorder=2)
            axes.text(x, y - 0.3, node.name, fontsize=7.5, color=_INK, rotation=turn, **{**label, "va": "top"})
        else:
            box = {"boxstyle": "round,pad=0.42", "facecolor": _COLOURS[node.role], "edgecolor": "white"}
            axes.text(x, y, node.name, fontsize=9, color="white", bbox=box, **label)


def _draw_words(axes: Axes, t: Topology, places: dict[str, tuple[float, float]]) -> None:
    for role in dict.fromkeys(n.role for n in t.nodes):
        y = next(places[n.name][1] for n in t.nodes if n.role == role)
        count = sum(n.role == role for n in t.nodes)
        axes.text(-4.1, y, f"{count} {_TITLES[role]}", fontsize=9, color=_COLOURS[role], va="center", weight="bold")
    ratio = f" · {_oversubscription(t):g}:1 oversubscribed" if _oversubscription(t) > 1 else ""
    top = max(y for _, y in places.values())
    axes.text(-4.1, top + 1.2, t.name, fontsize=14, color=_INK, weight="bold", va="center")
    rates = sorted({t.direction(a, b).rate_bps for a, b in t.directed()})
    rate = " and ".join(show_rate(r) for r in rates)
    axes.text(-4.1, -1.55, f"{len(t.links)} links at {rate}{ratio}", fontsize=9, color=_INK, va="center")
