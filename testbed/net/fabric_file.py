"""A fabric of the user's own, as a TOML file: switches, the hosts plugged into each, and links between switches.

    [[switch]]
    name = "tor1"
    role = "tor"                    # tor, aggregation, core, or switch, which is the default
    hosts = ["h1", "h2"]

    [[link]]
    between = ["tor1", "core1"]
    times = 2                       # the rate of the fabric twice; 1 is the default

Rates, delays, queues and marking are those of the scenario's [fabric], scaled as those of any other fabric are.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from testbed.errors import InputError
from testbed.net import fabrics
from testbed.net.fabrics import FabricSettings
from testbed.net.topology import Direction, Link, Node, Role, Topology

SUFFIX = ".toml"
KEYS = {"switch": {"name", "role", "hosts"}, "link": {"between", "times"}}
MOST_TIMES = 100


def build(name: str, settings: FabricSettings, base: Path = Path()) -> Topology:
    """Return the fabric of that name, or that of a file, which is looked for in `base`. Raises InputError."""
    return read(base / name.strip(), settings) if name.strip().endswith(SUFFIX) else fabrics.build(name, settings)


def read(path: Path, settings: FabricSettings) -> Topology:
    """Return the fabric that a file describes. Raises InputError that names the file and what is wrong."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("topology", f"{path} cannot be read: {error.strerror}", "name a file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError("topology", f"{path} is not TOML: {error}", "docs/howto/topology.md has one") from error
    tables = {kind: _tables(path, raw, kind) for kind in KEYS}
    if foreign := sorted(raw.keys() - KEYS.keys()):
        raise InputError("topology", f"{path}: unknown key {foreign[0]!r}", "[[switch]] and [[link]]")
    made = _Made(path, settings)
    for switch in tables["switch"]:
        made.switch(switch)
    for link in tables["link"]:
        made.link(link)
    hosts = [node for node in made.nodes if node.role == "host"]
    switches = [node for node in made.nodes if node.role != "host"]
    return Topology(path.stem, settings.mtu_bytes, (*hosts, *switches), tuple(made.links))


def _tables(path: Path, raw: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    tables = raw.get(kind, [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise InputError("topology", f"{path}: {kind} is not a list of tables", f"as in [[{kind}]]")
    for one in tables:
        if foreign := sorted(one.keys() - KEYS[kind]):
            raise InputError("topology", f"{path}: unknown key {kind}.{foreign[0]}", ", ".join(sorted(KEYS[kind])))
    return tables


class _Made:
    """Nodes and links so far; ports are given in the order in which cables are plugged in."""

    def __init__(self, path: Path, settings: FabricSettings) -> None:
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self._path, self._settings = path, settings
        self._used: dict[str, int] = {}

    def switch(self, raw: dict[str, Any]) -> None:
        """Add a switch and its hosts."""
        name, role, hosts = raw.get("name"), raw.get("role", "switch"), raw.get("hosts", [])
        if not isinstance(name, str) or not name:
            raise self._fault("a switch has no name", 'as in name = "tor1"')
        if role == "host" or role not in get_args(Role):
            raise self._fault(f"{name}: role {role!r}", "tor, aggregation, core or switch")
        if not isinstance(hosts, list) or not all(isinstance(host, str) and host for host in hosts):
            raise self._fault(f"{name}: hosts are not names", 'as in hosts = ["h1", "h2"]')
        self.nodes.append(Node(name, role))
        self._used[name] = 0
        s = self._settings
        up = Direction(
            s.host_rate_bps or s.rate_bps, s.host_delay_s, s.loss, s.queue_bytes, s.burst_bytes, None
        )  # the host's: delayed, never marked
        for host in hosts:
            self.nodes.append(Node(host, "host"))
            self.links.append(Link(host, 0, name, self._port(name), up, replace(up, delay_s=0.0, aqm=s.red)))

    def link(self, raw: dict[str, Any]) -> None:
        """Add a cable between switches."""
        ends, times = raw.get("between"), raw.get("times", 1)
        if not isinstance(ends, list) or len(ends) != 2 or not all(end in self._used for end in map(str, ends)):
            raise self._fault(f"a link is between {ends}", "two switches of the file, which come before the links")
        if isinstance(times, bool) or not isinstance(times, int | float) or not 0 < times <= MOST_TIMES:
            raise self._fault(f"link {ends[0]}-{ends[1]}: times {times!r}", f"a number above 0, up to {MOST_TIMES}")
        s = self._settings
        rate_bps = 8 * round(s.rate_bps * times / 8)
        both = Direction(rate_bps, s.fabric_delay_s, s.loss, s.queue_bytes, s.burst_bytes, s.red)
        self.links.append(Link(ends[0], self._port(ends[0]), ends[1], self._port(ends[1]), both, both))

    def _port(self, switch: str) -> int:
        self._used[switch] += 1
        return self._used[switch]

    def _fault(self, what: str, mend: str) -> InputError:
        return InputError("topology", f"{self._path}: {what}", mend)
