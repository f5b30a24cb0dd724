"""The virtual-time guest as a system under test, and the stopwatch for anything that runs in one."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.inside.network import ANSWER, ASKED, MARK
from testbed.engine.commands import PROJECT_IN_GUEST, RESULTS_IN_GUEST, program_job
from testbed.engine.kernel import Kernel
from testbed.engine.launch import Guest, Job, Machine
from testbed.errors import NotValid

MEMORY_BYTES = 2 << 30


@dataclass(frozen=True)
class Moved:
    """What a system moved: packet-hops in seconds of wall time; `details` are figures of its own."""

    hops: int
    wall_s: float
    details: dict[str, Any]

    @property
    def hops_per_s(self) -> float:
        """Packet-hops per wall second."""
        return self.hops / self.wall_s


def timed(job: Job, kernel: Kernel) -> dict[str, float]:
    """Run a job in a guest: the host's time (time.time()) when it was launched, up, and gone.

    Raises NotValid with the job's own words when it failed.
    """
    times_s = {"launched": time.time()}
    words: list[bytes] = []

    def hear(message: dict[str, Any]) -> None:
        times_s[message["stage"]] = time.time()

    if Guest(job, Machine(MEMORY_BYTES), kernel).run(words.append, words.append, hear) != 0:
        raise NotValid(f"in the guest: {b''.join(words).decode(errors='replace').strip()[-3000:]}")
    return times_s | {"guest gone": time.time()}


def program(module: str, asked: dict[str, Any], kernel: Kernel) -> tuple[dict[str, float], dict[str, Any]]:
    """Run a program of `benchmarks.inside`; return the host's time at each stage, and what the program answered."""
    with tempfile.TemporaryDirectory(prefix="orrery-bench-") as name:
        folder = Path(name)
        (folder / ASKED).write_text(json.dumps(asked))
        command = ("-m", f"benchmarks.inside.{module}", RESULTS_IN_GUEST)
        times_s = timed(program_job(command, PROJECT_IN_GUEST, write=folder, tree=True), kernel)
        times_s |= {mark.stem: mark.stat().st_mtime_ns / 1e9 for mark in folder.glob(f"*{MARK}")}
        answer = folder / ANSWER
        return times_s, json.loads(answer.read_text()) if answer.exists() else {}


def moved(case: Case, kernel: Kernel) -> Moved:
    """Run a case in a guest of its own. Raises NotValid."""
    times_s, answer = program("traffic", case.to_dict(), kernel)
    return Moved(answer.pop("hops"), times_s["sent"] - times_s["begin"], answer)
