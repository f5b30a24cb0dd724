"""What a run in progress tells others: a file in its work folder, written by its launcher, removed before the run ends.

    {"name", "pid", "began_s", "stage": text,
     "arms": {arm: {"state", "done", "of", "virtual_s", "trial", "links": {link: {"utilisation", "marks"}}}}}

`began_s` is the host's clock. Everything comes from what guests tell anyway, so a run that is watched sends the same
packets as one that is not. Utilisation is of the last quarter of a second of virtual time or more, marks all so far.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from testbed.net.topology import Topology

FILE = "status.json"
WRITE_EVERY_S = 0.5
WINDOW_S = 0.25
"""Virtual time over which utilisation is told, at least."""


class Watcher(Protocol):
    """What shows a run's progress."""

    def arm(self, arm: str, iterations: int) -> None:
        """Say that an arm with so many job iterations has begun."""

    def message(self, arm: str, message: dict[str, Any]) -> None:
        """Take what the arm's guest says: a stage it has reached, or an iteration done."""

    def stage(self, text: str) -> None:
        """Say what the launcher itself does now."""


@dataclass
class _Arm:
    """An arm in progress; `rates_bps` of the links it tells of, in the order of its plan."""

    of: int
    rates_bps: dict[str, float]
    state: str = "boots"
    done: int = 0
    virtual_s: float = 0.0
    trial: str = ""
    links: dict[str, dict[str, float]] = field(default_factory=dict)
    since: tuple[float, dict[str, int]] | None = None

    def hear(self, message: dict[str, Any]) -> None:
        """Take a message of the guest."""
        if "stage" in message:
            self.state = str(message["stage"])
            return
        self.state = "runs"
        self.done += 1
        self.virtual_s, self.trial = float(message["progress"]), str(message.get("trial", ""))
        counts = dict(zip(self.rates_bps, message.get("links", ()), strict=False))
        sent = {link: int(of[0]) for link, of in counts.items()}
        for link, of in counts.items():
            self.links.setdefault(link, {"utilisation": 0.0})["marks"] = int(of[1])
        if self.since is not None and self.virtual_s - self.since[0] < WINDOW_S:
            return
        if self.since is not None:
            span_s = self.virtual_s - self.since[0]
            for link, size_bytes in sent.items():
                grown = 8 * (size_bytes - self.since[1].get(link, size_bytes))
                self.links[link]["utilisation"] = round(grown / (self.rates_bps[link] * span_s), 4)
        self.since = (self.virtual_s, sent)

    def told(self) -> dict[str, Any]:
        """What the file says of it."""
        names = ("state", "done", "of", "virtual_s", "trial", "links")
        return {name: getattr(self, name) for name in names}


class Live:
    """A watcher that keeps the file of the run in `folder` and tells another watcher all that it is told."""

    def __init__(self, folder: Path, name: str, watcher: Watcher) -> None:
        self._folder, self._name, self._watcher = folder, name, watcher
        self._lock, self._began_s, self._next_s = Lock(), time.time(), 0.0
        self._arms: dict[str, _Arm] = {}
        self._stage = "begins"
        self._write()

    def arm(self, arm: str, iterations: int) -> None:
        """Take note that an arm has begun, whose plan lies in its folder."""
        with self._lock:
            self._arms[arm] = _Arm(iterations, _rates_bps(self._folder / arm / "plan.json"))
            self._write()
        self._watcher.arm(arm, iterations)

    def message(self, arm: str, message: dict[str, Any]) -> None:
        """Take what the arm's guest says."""
        with self._lock:
            self._arms[arm].hear(message)
            if "stage" in message or time.monotonic() >= self._next_s:
                self._write()
        self._watcher.message(arm, message)

    def stage(self, text: str) -> None:
        """Take note of what the launcher does itself."""
        with self._lock:
            self._stage = text
            self._write()
        self._watcher.stage(text)

    def end(self) -> None:
        """Remove the file: a finished run has none."""
        (self._folder / FILE).unlink(missing_ok=True)

    def _write(self) -> None:
        self._next_s = time.monotonic() + WRITE_EVERY_S
        said = {"name": self._name, "pid": os.getpid(), "began_s": round(self._began_s, 1), "stage": self._stage}
        new = self._folder / f".{FILE}.new"
        new.write_text(json.dumps(said | {"arms": {name: arm.told() for name, arm in self._arms.items()}}))
        new.replace(self._folder / FILE)


def _rates_bps(plan: Path) -> dict[str, float]:
    """Return the rates of the links that an arm tells of; none where its plan names none, as on wide-area networks."""
    made = json.loads(plan.read_text(encoding="utf-8"))
    if "shared" not in made:
        return {}
    topology = Topology.from_dict(made["topology"])
    return {link: float(topology.direction(*link.split("->")).rate_bps) for link in made["shared"]}


def read(folder: Path) -> dict[str, Any] | None:
    """Return what the file in a run's work folder says; None where there is none (any more)."""
    try:
        said: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return said
