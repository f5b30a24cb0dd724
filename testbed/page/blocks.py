"""What a page is put together from: sections of blocks; templates/blocks.html.j2 has a macro for each kind of block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.page.content import Line, Table
from testbed.page.figures import Figure
from testbed.page.maps import Map


@dataclass(frozen=True)
class Shown:
    """A table in full view."""

    macro: ClassVar[str] = "shown"
    table: Table


@dataclass(frozen=True)
class Plot:
    """A plot of the run."""

    macro: ClassVar[str] = "plot"
    figure: Figure


@dataclass(frozen=True)
class Chart:
    """Mean iteration times of the arms on one axis from 0 to `end_s`."""

    macro: ClassVar[str] = "chart"
    lines: Sequence[Line]
    end_s: float
    note: str = ""


@dataclass(frozen=True)
class Tree:
    """A tree of a wide-area system: its name, the parent of each site in words, and an arrow from each to it."""

    name: str
    words: str
    arrows: Sequence[str]


@dataclass(frozen=True)
class Network:
    """The map with the slider. `data` is what the script reads: arms with their frames (testbed.page.frames).

    `trees` are those of each arm, on wide-area networks; `jobs` have a colour on the map each.
    """

    macro: ClassVar[str] = "network"
    map: Map
    data: Mapping[str, Any]
    jobs: Mapping[str, str]
    trees: Mapping[str, Sequence[Tree]]


@dataclass(frozen=True)
class Prose:
    """A paragraph."""

    macro: ClassVar[str] = "prose"
    text: str


@dataclass(frozen=True)
class Source:
    """The text of a file."""

    macro: ClassVar[str] = "source"
    name: str
    text: str


@dataclass(frozen=True)
class Checks:
    """The fidelity checks of one arm: (what, whether it holds, what was found)."""

    macro: ClassVar[str] = "checks"
    arm: str
    checks: Sequence[tuple[str, bool, str]]


@dataclass(frozen=True)
class Points:
    """The points of a study: heads of the columns, and of each point its name, page, whether it is valid, and texts."""

    macro: ClassVar[str] = "points"
    heads: Sequence[str]
    rows: Sequence[tuple[str, str, bool, Sequence[str]]]


@dataclass(frozen=True)
class Folded:
    """Blocks behind a line that opens them."""

    macro: ClassVar[str] = "folded"
    title: str
    blocks: Sequence[Any]


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; `name` is its anchor."""

    name: str
    title: str
    blocks: Sequence[Any]


@dataclass(frozen=True)
class Page:
    """A whole page. `valid` is None where there is no verdict; `faults` are (arm, check, finding)."""

    name: str
    title: str
    kind: str
    valid: bool | None
    verdict: str
    headline: str
    faults: Sequence[tuple[str, str, str]]
    sections: Sequence[Section]
