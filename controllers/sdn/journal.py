"""What a controller that is started after a crash must know of the one before: one JSON line for each change.

Switches keep their rules while nobody controls them. What they cannot tell is which links were down when the rules were
made, and what removed rules had counted; so both are written down as they come.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from controllers.sdn.counters import FlowCount


@dataclass(frozen=True)
class Past:
    """The links that were `down` last, and the last counters of every rule that was removed: (switch, table, count)."""

    down: frozenset[str] = frozenset()
    removed: tuple[tuple[str, int, FlowCount], ...] = ()


class Journal:
    """The file of one arm. Without `resume` it begins anew, and the past is empty."""

    def __init__(self, path: Path, resume: bool) -> None:
        self.past = _read(path) if resume and path.exists() else Past()
        self._file = path.open("ab" if resume else "wb", buffering=0)

    def paths(self, down: Iterable[str]) -> None:
        """Note that the rules are now those for these links being down."""
        self._write({"down": sorted(down)})

    def removed(self, switch: str, table: int, last: FlowCount) -> None:
        """Note the last counters of a rule."""
        self._write({"removed": [switch, table, *last]})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")


def _read(path: Path) -> Past:
    down, removed = frozenset[str](), []
    for line in path.read_text(encoding="utf-8").splitlines():
        noted = json.loads(line)
        if "down" in noted:
            down = frozenset(noted["down"])
        else:
            switch, table, *count = noted["removed"]
            removed.append((str(switch), int(table), FlowCount(*count)))
    return Past(down, tuple(removed))
