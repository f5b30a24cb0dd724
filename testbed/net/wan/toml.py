"""Our own format of a network, as a TOML file.

    name = "three"                       # optional
    [[site]]                             # optional, in order; sites of links follow in order of appearance
    name = "Bern"
    latitude = 46.9
    longitude = 7.4
    [[link]]
    between = ["Bern", "Oslo"]
    rate = "100 Mbit/s"                  # both directions; back_rate for the second one, if it differs
    delay = "11 ms"                      # or by the positions of the sites
    jitter = "1 ms"
    loss = 0.001
    queue = "1 MB"
    [[tunnel]]                           # optional: without any, every link has one
    between = ["Bern", "Oslo"]

Any of rate, delay, jitter, loss and queue may have a `back_` before it, for the direction from the second site.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from testbed.files import read_text
from testbed.net.wan.build import Defaults, RawLink, assemble
from testbed.net.wan.model import Site, Wan, link_name
from testbed.units import parse_delay, parse_rate, parse_size

_TABLES = {"name", "site", "link", "tunnel"}
_SITE = {"name", "latitude", "longitude"}


def _loss(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a probability, as in 0.001")
    return float(value)


_KEYS: dict[str, tuple[str, Callable[[Any], float]]] = {
    "rate": ("rate_bps", parse_rate),
    "delay": ("delay_s", parse_delay),
    "jitter": ("jitter_s", parse_delay),
    "loss": ("loss", _loss),
    "queue": ("queue_bytes", parse_size),
}


def read(path: Path, defaults: Defaults) -> Wan:
    """The network of a file. Raises InputError that names the element."""
    where = path.name
    try:
        data = tomllib.loads(read_text(path))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(where, f"is not TOML: {error}") from error
    _only(where, data, _TABLES)
    sites = {site.name: site for site in (_site(where, entry) for entry in data.get("site", []))}
    entries = [(_ends(f"{where}, link", entry), entry) for entry in data.get("link", [])]
    for ends, _ in entries:
        for end in ends:
            sites.setdefault(end, Site(end))
    values = {ends: _values(f"{where}, link {'-'.join(ends)}", entry) for ends, entry in entries}
    links = [
        RawLink(a, b, values[a, b].get("rate_bps"), values[a, b].get("delay_s"), values[a, b].get("back_rate_bps"))
        for (a, b), _ in entries
    ]
    wan = assemble(where, sites.values(), links, defaults)
    changed = {}
    for (a, b), given in values.items():
        there = {key: value for key, value in given.items() if not key.startswith("back_")}
        back = there | {key.removeprefix("back_"): value for key, value in given.items() if key.startswith("back_")}
        changed[link_name(a, b)] = dataclasses.replace(wan.direction(a, b), **there)
        changed[link_name(b, a)] = dataclasses.replace(wan.direction(b, a), **back)
    tunnels = tuple(_ends(f"{where}, tunnel", entry) for entry in data.get("tunnel", [])) or wan.tunnels
    return dataclasses.replace(wan.with_attributes(changed), name=str(data.get("name", where)), tunnels=tunnels)


def _site(where: str, entry: dict[str, Any]) -> Site:
    _only(f"{where}, site {entry.get('name', '')}", entry, _SITE)
    if not isinstance(entry.get("name"), str):
        raise InputError(f"{where}, site", "has no name", 'as in name = "Bern"')
    for axis in ("latitude", "longitude"):
        if not isinstance(entry.get(axis, 0.0), int | float):
            raise InputError(f"{where}, site {entry['name']}", f"{axis} is {entry[axis]!r}", "degrees")
    return Site(**entry)


def _ends(where: str, entry: dict[str, Any]) -> tuple[str, str]:
    ends = entry.get("between")
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, str) for end in ends):
        raise InputError(where, f"between is {ends!r}", 'as in between = ["Bern", "Oslo"]')
    return ends[0], ends[1]


def _values(where: str, entry: dict[str, Any]) -> dict[str, Any]:
    """The attributes that an entry states, those of the way back with "back_" before them."""
    _only(where, entry, {"between", *_KEYS, *(f"back_{key}" for key in _KEYS)})
    found = {}
    for key, value in entry.items():
        if key != "between":
            back = "back_" if key.startswith("back_") else ""
            attribute, parse = _KEYS[key.removeprefix("back_")]
            try:
                found[back + attribute] = parse(value)
            except ValueError as error:
                raise InputError(where, f"{key}: {error}") from None
    return found


def _only(where: str, table: dict[str, Any], known: set[str]) -> None:
    for key in table:
        if key not in known:
            raise InputError(where, f"unknown key {key}", f"one of {', '.join(sorted(known))}")
