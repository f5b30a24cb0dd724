"""The line between a program and the conductor: a Unix socket, which no network has, and one JSON object per line.

A program says: hello (role, node); listening; connected (sockets); round (a RoundRecord); done; state; report (events);
failed (why). It is told: listen (plan); connect; run (start_s); state; report; bye. Whoever is started again goes
through all of it again.
"""

from __future__ import annotations

import json
import os
import socket
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

SERVER, WORKER, SCHEDULER = "server", "worker", "scheduler"


class ConductorGoneError(Exception):
    """Nobody is left who could be told anything."""


class Control:
    """A program's end of the line."""

    def __init__(self, path: Path, role: str, node: int) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(path))
        self._lines = self._connection.makefile("rb")
        self._saying = threading.Lock()
        self.say("hello", role=role, node=node, pid=os.getpid())

    def say(self, what: str, **more: object) -> None:
        """Tell the conductor; any thread may. Raises OSError if it is gone."""
        with self._saying:
            self._connection.sendall(json.dumps({"say": what, **more}).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """The next order. Raises ConductorGoneError."""
        line = self._lines.readline()
        if not line:
            raise ConductorGoneError
        order: dict[str, Any] = json.loads(line)
        return order
