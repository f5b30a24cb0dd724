"""The part of an arm whose sites ask a scheduler: what strikes them, and the files that they leave."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.geo.records import BELIEFS, CONTROL, POLICIES, STAGES
from testbed.net.overlay import Overlay
from testbed.telemetry.events import EventLog
from workloads.paramsync.conductor import Conductor, start
from workloads.paramsync.control import SERVER, WORKER
from workloads.paramsync.plan import SyncPlan
from workloads.paramsync.records import BELIEF, HEARD, POLICY, SCHEDULER_RECORD, STAGE, ChunkEvent

SAYS = {"kill": "site killed", "start": "site started", "cut": "tunnel cut", "mend": "tunnel mended"}
TABLES = {BELIEF: BELIEFS, POLICY: POLICIES, STAGE: STAGES, HEARD: CONTROL}  # of the scheduler's lines, by kind


class Strikes:
    """Carries out what strikes an arm: `script` has [t_s, what, whom], `namespaces` a descriptor for each site."""

    def __init__(
        self, plan: SyncPlan, script: Sequence[tuple[float, str, str]], overlay: Overlay, conductor: Conductor,
        programs: subprocess.Popen[bytes], namespaces: Mapping[int, int],
    ) -> None:  # fmt: skip
        self._plan, self._script, self._overlay = plan, script, overlay
        self._conductor, self._programs, self._namespaces = conductor, programs, namespaces
        self._cut: set[str] = set()

    def timers(self, start_s: float, epoch_s: float, events: EventLog) -> Iterator[tuple[float, Callable[[], None]]]:
        """When something is to be done, as time.time(), and how. All is noted in `events`."""
        for t_s, what, whom in self._script:

            def strike(what: str = what, whom: str = whom) -> None:
                events.write(time.time() - epoch_s, SAYS[what], whom=whom)
                self._do(what, whom)

            yield start_s + t_s, strike

    def mend(self) -> None:
        """Put right what is still cut."""
        for tunnel in sorted(self._cut):
            self._do("mend", tunnel)

    def _do(self, what: str, whom: str) -> None:
        if what == "kill":
            self._conductor.kill(self._plan.sites.index(whom))
        elif what == "start":
            node = self._plan.sites.index(whom)
            self._conductor.revive(node)
            start(self._programs, [(role, node, self._namespaces[node]) for role in (SERVER, WORKER)])
        elif what == "cut":
            self._overlay.cut(*whom.split("->"))
            self._cut.add(whom)
        else:
            self._overlay.mend(*whom.split("->"))
            self._cut.discard(whom)


def chunk_events(folder: Path) -> list[ChunkEvent]:
    """What all sites have written down, in order of time."""
    found = [
        ChunkEvent(*json.loads(line))
        for file in sorted(folder.glob("events-*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return sorted(found, key=lambda event: event.t_s)


def write_record(folder: Path, out: Path, epoch_s: float) -> None:
    """What the scheduler has written down, as tables of the arm."""
    lines: list[list[Any]] = [json.loads(line) for line in (folder / SCHEDULER_RECORD).read_text().splitlines()]
    for kind, table in TABLES.items():
        with table.writer(out / table.file) as writer:
            for t_s, of, *values in lines:
                if of == kind:
                    writer.row(t_s - epoch_s, *values)
