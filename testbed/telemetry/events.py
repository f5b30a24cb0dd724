"""`events.jsonl`: one JSON object per line, `{"t_s": ..., "event": ..., ...}`, from every program of an arm.

Several programs write the same file: each line is appended by a single write, which the kernel keeps whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path


class EventLog:
    """Appends events to a file, unbuffered: events are rare, and the last one before a crash matters most."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, t_s: float, event: str, **details: object) -> None:
        """Append one event at `t_s` virtual seconds since the arm's epoch; `details` must be JSON values."""
        line = json.dumps({"t_s": round(t_s, 6), "event": event, **details})
        self._file.write(line.encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def read_events(path: Path) -> Iterator[dict[str, object]]:
    """The events of a file in the order they were written."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
