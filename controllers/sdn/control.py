"""How the rest of the testbed talks to the running controller: a unix socket, one JSON object per line and
answer.

    {"do": "ready?", "timeout_s": 60}   {"ok": true, "switches": 13}     once every switch is connected and
    programmed
    {"do": "epoch", "value": T}         {"ok": true}                     t_s counts from T (of time.time()) on
    {"do": "snapshot"}                  {"ok": true, "t_s": 2.5, "links": {"a->b": {...}}, "jobs": {"jobA":
    {...}}}

An answer that is not ok says why: {"ok": false, "error": "..."}. Open vSwitch hands its datapath's counters
to the tables of rules twice a second at most: who wants a settled snapshot sleeps a second of virtual time
before asking.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import NotValid, OrreryError

RETRY_S = 0.05
RECEIVE_BYTES = 1 << 16

Action = Callable[[dict[str, Any]], dict[str, Any]]


def converse(connection: socket.socket, actions: Mapping[str, Action]) -> None:
    """The controller's side: answer the requests of one connection until the other end closes it."""
    pending = b""
    while data := connection.recv(RECEIVE_BYTES):
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            connection.sendall(json.dumps(answer(line, actions)).encode() + b"\n")
    connection.close()


def answer(line: bytes, actions: Mapping[str, Action]) -> dict[str, Any]:
    """The answer to one request; the controller's errors become answers that are not ok."""
    try:
        request = json.loads(line)
        action = actions[request["do"]]
    except (ValueError, KeyError, TypeError):
        return {
            "ok": False,
            "error": f"not a request: {line.decode(errors='replace')!r}; known: {', '.join(actions)}",
        }
    try:
        return {"ok": True, **action(request)}
    except (OrreryError, KeyError, TypeError) as error:
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


class Client:
    """The other side, for the program that runs an arm; usable as a context manager."""

    def __init__(self, path: Path, timeout_s: float = 60.0) -> None:
        """Connect, waiting up to `timeout_s` for the controller to listen. Raises NotValid after that."""
        self._path, self._timeout_s = path, timeout_s
        self._socket = socket.socket(socket.AF_UNIX)
        give_up_s = time.time() + timeout_s
        while (error := self._socket.connect_ex(str(path))) and time.time() < give_up_s:
            time.sleep(RETRY_S)
        if error:
            raise NotValid(f"the controller does not listen at {path} after {timeout_s} s")
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def ready(self) -> int:
        """Wait until every switch is programmed; their number. Raises NotValid naming the ones that are
        not."""
        return int(self._ask("ready?", timeout_s=self._timeout_s)["switches"])

    def set_epoch(self, epoch: float) -> None:
        """Let t_s count from `epoch` on; the controller begins to write rows."""
        self._ask("epoch", value=epoch)

    def snapshot(self) -> dict[str, Any]:
        """Fresh counters of all switches, see `controllers.sdn.counters.SNAPSHOT_COLUMNS`; all rows are on
        disk."""
        return self._ask("snapshot")

    def _ask(self, what: str, **details: object) -> dict[str, Any]:
        try:
            self._socket.sendall(json.dumps({"do": what, **details}).encode() + b"\n")
            line = self._answers.readline()
        except OSError:
            line = b""
        if not line:
            raise NotValid(f"the controller at {self._path} went away when asked {what!r}")
        answered: dict[str, Any] = json.loads(line)
        if not answered["ok"]:
            raise NotValid(f"the controller, asked {what!r}: {answered['error']}")
        return answered
