"""What every link carried over time: an arm's links.csv as frames, which the page's slider goes through.

A frame lasts from one reading of the controller to the next, or over several where there are more than MOST. A reading
that repeats the one before is not in the file, so a counter holds until its next row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testbed.report.load import Floats
from testbed.telemetry import tables

MOST = 300
FULL = 1000
"""Shares are whole numbers of thousandths."""


@dataclass(frozen=True)
class Span:
    """A trial, or a round: its name and when it ran, in s."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Frames:
    """One arm over time. `edges_s` has an entry more than there are frames.

    `used` is the share of each directed link's rate that was sent, `marked` the share of its packets that its queue
    marked CE (or dropped, see `of`), in thousandths, by frame. Links that carried nothing are left out.
    """

    edges_s: Floats
    used: Mapping[str, list[int]]
    marked: Mapping[str, list[int]]
    spans: tuple[Span, ...]

    def to_dict(self, name: str) -> dict[str, Any]:
        """Return it as the page's script reads it, times in ms."""
        return {
            "name": name,
            "edges": [round(1e3 * at) for at in self.edges_s],
            "used": dict(self.used),
            "marked": dict(self.marked),
            "spans": [[one.name, round(1e3 * one.begin_s), round(1e3 * one.end_s)] for one in self.spans],
        }


def of(
    folder: Path, rates_bps: Mapping[str, float], spans: tuple[Span, ...], lost: str = "marked_packets"
) -> Frames | None:
    """Return the frames of an arm, from its first span to its last; None without links.csv or readings of any use.

    rates_bps: of each directed link, which names the links wanted. lost: the column behind `marked`.
    """
    path = folder / tables.LINKS.file
    if not path.is_file() or not spans:
        return None
    rows = tables.LINKS.read(path)
    t_s, links = np.array(rows.numbers("t_s")), np.array(rows.text("link"))
    edges_s = _edges(np.unique(t_s), min(one.begin_s for one in spans), max(one.end_s for one in spans))
    if len(edges_s) < 2:
        return None
    columns = {
        name: np.array(rows.numbers(name)) for name in ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets", lost)
    }
    used, marked = {}, {}
    for link, rate_bps in rates_bps.items():
        mine = links == link
        at = np.searchsorted(t_s[mine], edges_s, side="right") - 1
        grown = {name: _grown(values[mine], at) for name, values in columns.items()}
        # A host has no OpenFlow counter: what it sent is what the switch at the other end received.
        sent_bytes = np.maximum(grown["tx_bytes"], grown["rx_bytes"])
        if sent_bytes.any():
            packets = np.maximum(grown["tx_packets"], grown["rx_packets"])
            used[link] = _thousandths(8 * sent_bytes, rate_bps * np.diff(edges_s))
            marked[link] = _thousandths(grown[lost], packets + (grown[lost] if lost == "dropped_packets" else 0))
    return Frames(edges_s, used, marked, spans) if used else None


def _edges(readings_s: Floats, begin_s: float, end_s: float) -> Floats:
    first, last = np.searchsorted(readings_s, [begin_s, end_s])
    inside = readings_s[max(0, first - 1) : last + 1]
    return inside[:: max(1, -(-(len(inside) - 1) // MOST))]


def _grown(counter: Floats, at: np.typing.NDArray[np.int64]) -> Floats:
    """Return by how much a counter grew from edge to edge; 0 before its first reading, and where it has none."""
    seen = np.where(at >= 0, np.nan_to_num(counter[np.maximum(at, 0)]), 0.0) if len(counter) else np.zeros(len(at))
    return np.maximum(np.diff(seen), 0.0)


def _thousandths(part: Floats, whole: Floats) -> list[int]:
    shares = np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) > 0)
    return [min(FULL, round(FULL * float(share))) for share in shares]


def spans_of(path: Path, table: tables.Table, name: str) -> tuple[Span, ...]:
    """Return the spans that a column of a table with begin_s and end_s tells apart, in order; none without the file."""
    if not path.is_file():
        return ()
    rows = table.read(path)
    found: dict[str, tuple[float, float]] = {}
    for one, begin_s, end_s in zip(rows.text(name), rows.numbers("begin_s"), rows.numbers("end_s"), strict=True):
        known = found.get(one, (begin_s, end_s))
        found[one] = min(begin_s, known[0]), max(end_s, known[1])
    return tuple(Span(one, *when) for one, when in sorted(found.items(), key=lambda item: item[1]))
