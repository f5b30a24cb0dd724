"""The plots of a run as SVG inside the page: in the page's colours, light or dark, and read out by their titles."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from matplotlib.colors import to_hex

from testbed.report import style
from testbed.report.cluster.figures import ARM_COLOURS as CLUSTER_COLOURS

PLACES = {  # which part of the page a plot belongs to; the others come last
    "iteration-times": "arms",
    "ce-marks": "arms",
    "marks-by-model": "arms",
    "affinity": "decisions",
    "circles": "decisions",
    "phases": "time",
    "servers": "time",
    "utilisation": "time",
    "queue": "time",
    "traffic": "time",
}
TINTS = (0.24, 0.3)
"""Shares at which the plots mix colours with white (testbed.report.style.tint)."""


WIDER = 1.75
"""Pixels of the page for a point of the plot: its text is then nearly as large as that of the page."""


@dataclass(frozen=True)
class Figure:
    """A plot: its file's name, title, what the line below the title says, and the SVG element."""

    name: str
    title: str
    subtitle: str
    svg: str

    @property
    def place(self) -> str:
        """Which part of the page it belongs to."""
        return next((place for stem, place in PLACES.items() if self.name.startswith(stem)), "more")


def load(folder: Path) -> list[Figure]:
    """Return the plots of a folder in the order of PLACES, those of other names after them."""
    order = {stem: at for at, stem in enumerate(PLACES)}

    def rank(path: Path) -> tuple[int, int, str]:
        place = next((at for stem, at in order.items() if path.stem.startswith(stem)), len(order))
        return place, len(path.stem), path.stem

    return [inline(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.svg"), key=rank)]


def inline(name: str, text: str) -> Figure:
    """Return an SVG file of matplotlib as an element of a page."""
    found = re.search(r"<title>(.*?)</title>", text, re.S)
    title = html.unescape(found[1]) if found else name.replace("-", " ")
    found = re.search(r"<dc:description>(.*?)</dc:description>", text, re.S)
    subtitle = html.unescape(found[1]) if found else ""
    svg = text[text.index("<svg") :]
    for gone in (r"<metadata>.*?</metadata>", r"<title>.*?</title>", r"<style.*?</style>", r"<!--.*?-->"):
        svg = re.sub(gone, "", svg, flags=re.S)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda own: own[0] if own[1] in used else "", svg)
    prefix = f"plot-{name}-"  # many figures in one page must not share names
    for before in (' id="', ' xlink:href="#', "url(#"):
        svg = svg.replace(before, before + prefix)
    svg = re.sub(r'\bd="([^"]*)"', lambda path: f'd="{_short(path[1])}"', svg)
    for colour, ours in _colours().items():
        svg = svg.replace(colour, ours)
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    if size:
        svg = svg.replace(size[0], f'class="plot" style="max-width:{float(size[1]) * WIDER:.0f}px"', 1)
    said = html.escape(f"{title}. {subtitle}" if subtitle else title, quote=True)
    return Figure(name, title, subtitle, svg.replace("<svg", f'<svg role="img" aria-label="{said}"', 1).strip())


def _short(path: str) -> str:
    """Return path data with two decimals, a fiftieth of a pixel, and without the line breaks."""
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", path).replace(" \n", " ").replace("\n", " ")


def _colours() -> Mapping[str, str]:
    """Return for every colour that the plots write into a file what the page has in its place."""
    fixed = {
        style.INK: "var(--ink)",
        style.FAINT: "var(--faint)",
        style.GRID: "var(--grid)",
        "#9a9a9a": "var(--axis)",
        "#ffffff": "var(--paper)",
        "#7d610c": "var(--threshold)",
        style.CONTENTION: "var(--contention)",
    }
    arms = {colour: f"var(--arm-{css(name)})" for name, colour in (style.ARM_COLOURS | CLUSTER_COLOURS).items()}
    tints = {
        to_hex(style.tint(colour, share)): f"color-mix(in srgb, {colour} {share:.0%}, var(--paper))"
        for share in TINTS
        for colour in (*style.JOBS, style.CONTENTION, style.FAINT)
    }
    return tints | arms | fixed


def css(arm: str) -> str:
    """Return the name of an arm as a part of a CSS name."""
    return re.sub(r"[^a-z0-9]+", "-", arm.lower())
