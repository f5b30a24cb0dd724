"""How the attributes of links change over time: a list of changes, from a rule and a seed, or from a file.

Times count from the beginning of the first round. Values are unscaled, like those of the network; `scaled` divides
rates and multiplies delays and leaves the times alone.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from testbed.files import read_text
from testbed.net.wan import netstorm
from testbed.net.wan.model import Attributes, Wan, check_value, link_name, scaled_attributes

COLUMNS = ("t_s", "link", "attribute", "value")
_WHOLE = ("rate_bps", "queue_bytes")


@dataclass(frozen=True, order=True)
class Change:
    """From `t_s` on, the direction `link` ("a->b") has this value of `attribute`."""

    t_s: float
    link: str
    attribute: str
    value: float


def redrawn(wan: Wan, seed: int, period_s: float, until_s: float) -> list[Change]:
    """All rates drawn again every `period_s`, as in NETSTORM's dynamic network, up to and without `until_s`."""
    if period_s <= 0:
        raise InputError("wan.redraw", f"{period_s:g} s", "a period above 0")
    names = [link_name(a, b) for a, b, _ in wan.directed()]
    changes, turn = [], 1
    while turn * period_s < until_s:
        rates_bps = netstorm.draw(names, seed, turn)
        changes += [Change(turn * period_s, name, "rate_bps", rate_bps) for name, rate_bps in rates_bps.items()]
        turn += 1
    return changes


def read(path: Path, wan: Wan) -> list[Change]:
    """A trace from a CSV file with the columns t_s,link,attribute,value, in order of time; raises InputError."""
    try:
        lines = list(csv.reader(read_text(path).splitlines()))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from error
    if not lines or tuple(lines[0]) != COLUMNS:
        raise InputError(f"{path.name}:1", "columns are not those of a trace", ",".join(COLUMNS))
    changes = []
    for line, cells in enumerate(lines[1:], start=2):
        at = f"{path.name}:{line}"
        if len(cells) != len(COLUMNS):
            raise InputError(at, f"has {len(cells)} values", ",".join(COLUMNS))
        try:
            changes.append(Change(float(cells[0]), cells[1], cells[2], float(cells[3])))
        except ValueError:
            raise InputError(at, f"{cells[0]!r} and {cells[3]!r}", "time and value are numbers") from None
    check(path.name, wan, changes)
    return sorted(changes)


def check(where: str, wan: Wan, changes: Iterable[Change]) -> None:
    """Raises InputError unless the network has every link and may have every value, one after the other."""
    now = wan
    for change in sorted(changes):
        at = f"{where}, {change.t_s:g} s, link {change.link}"
        if not change.t_s >= 0:
            raise InputError(at, f"t_s is {change.t_s:g}", "0 or later")
        if change.link not in {link_name(a, b) for a, b, _ in wan.directed()}:
            raise InputError(at, "there is no such link", f"as in {link_name(wan.links[0].a, wan.links[0].b)}")
        check_value(at, change.attribute, change.value)
        now = apply(now, change)


def apply(wan: Wan, change: Change) -> Wan:
    """The network after a change; raises InputError when the result cannot be."""
    return wan.with_attributes({change.link: _changed(wan, change)})


def _changed(wan: Wan, change: Change) -> Attributes:
    """The direction that changes, as it is afterwards."""
    a, _, b = change.link.partition("->")
    changed: dict[str, Any] = {change.attribute: change.value}
    if change.attribute in _WHOLE:
        changed[change.attribute] = int(change.value)
    return dataclasses.replace(wan.direction(a, b), **changed)


def scaled(wan: Wan, changes: Iterable[Change], scale: float) -> list[Change]:
    """The changes of the scaled network: what `Wan.scaled` does to an attribute, done to its later values."""
    found = []
    for change in changes:
        after = scaled_attributes(_changed(wan, change), scale)
        found.append(dataclasses.replace(change, value=getattr(after, change.attribute)))
    return found
