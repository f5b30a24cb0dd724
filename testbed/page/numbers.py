"""Values as a page shows them: the text, the value itself, and where in summary.json it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.units import show_size

Show = Callable[[float], str]


@dataclass(frozen=True)
class Cell:
    """One value of a table. `path` says where it stands in summary.json ("" for others), `interval` its bounds."""

    text: str
    value: float | None = None
    path: str = ""
    interval: str = ""


def ms(seconds: float) -> str:
    """Return seconds as milliseconds."""
    return f"{1e3 * seconds:.1f}"


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.1f}"


def count(packets: float) -> str:
    """Return a number of packets: whole from ten on, with two digits below."""
    return f"{packets:,.0f}" if packets >= 10 or packets == 0 else f"{packets:.2g}"


def times(factor: float) -> str:
    """Return a ratio."""
    return f"{factor:.2f}" if factor < 100 else f"{factor:,.0f}"


def seconds(value: float) -> str:
    """Return seconds with as many digits as matter."""
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def size(size_bytes: float) -> str:
    """Return a number of bytes in a fitting unit."""
    return show_size(float(f"{size_bytes:.3g}")) if abs(size_bytes) >= 1 else "0 B"


def plain(value: Any) -> str:
    """Return any value of a file as text: numbers with four digits, nothing as a dash."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(one)}" for key, one in value.items())
    return ", ".join(map(plain, value)) if isinstance(value, list | tuple) else str(value)


def at(raw: Any, path: str) -> Any:
    """Return what stands in nested mappings under "a|b|c"; None where a key is missing."""
    for key in path.split("|"):
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return raw


def cell(summary: Mapping[str, Any], path: str, show: Show) -> Cell:
    """Return the value of summary.json under a path, a number or {"value", "low", "high"}, ready to be shown."""
    found = at(summary, path)
    of = found if isinstance(found, Mapping) else {"value": found}
    value = of.get("value")
    if value is None:
        both = of.get("above"), of.get("below")
        known = None not in both and any(both)
        return Cell(f"{count(float(both[0] or 0))} : {count(float(both[1] or 0))}" if known else "–", None, path)
    low, high = of.get("low"), of.get("high")
    interval = "" if low is None or high is None else f"[{show(low)}, {show(high)}]"
    return Cell(show(value), float(value), path, interval)
