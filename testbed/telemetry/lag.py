"""A program that watches whether a machine in real time keeps up, and writes `machine.csv`.

    python -m testbed.telemetry.lag --epoch 1700000012.5 --out machine.csv

Every 5 ms it asks to be woken, each time on the next processor, and looks how late it was: so late may any timer be,
of a program or of a link. Every 100 ms it writes the latest of them, and what share of the busiest processor was in
use. SIGTERM ends it, with every row on disk.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import exit_code
from testbed.telemetry.tables import MACHINE

WAKE_S, WINDOW_S = 5e-3, 0.1
ENDING = (signal.SIGTERM, signal.SIGINT)
_BUSY, _ALL = (0, 1, 2, 5, 6, 7), range(8)  # fields of /proc/stat, all but idle and iowait; steal is what others had
Ticks = tuple[int, int]


def cpu_ticks(stat: str) -> dict[str, Ticks]:
    """Return (busy, all) ticks of each processor since it was started, from the text of /proc/stat."""
    ticks = {}
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks[name] = sum(int(fields[at]) for at in _BUSY), sum(int(fields[at]) for at in _ALL)
    return ticks


def busiest(before: dict[str, Ticks], after: dict[str, Ticks]) -> float:
    """Return what share of the busiest processor was in use between two readings."""
    passed = [(busy - before[name][0], whole - before[name][1]) for name, (busy, whole) in after.items()]
    return max((busy / whole for busy, whole in passed if whole > 0), default=0.0)


def watch(epoch_s: float, out: Path, proc_stat: Path = Path("/proc/stat")) -> None:
    """Watch until a signal of `ENDING` is pending; the caller has blocked them."""
    processors = itertools.cycle(sorted(os.sched_getaffinity(0)))
    with MACHINE.writer(out) as writer:
        before, latest_s = cpu_ticks(proc_stat.read_text()), 0.0
        window_end_s = time.monotonic() + WINDOW_S
        ending = False
        while not ending:
            os.sched_setaffinity(0, {next(processors)})
            due_s = time.monotonic() + WAKE_S
            ending = signal.sigtimedwait(ENDING, WAKE_S) is not None
            now_s = time.monotonic()
            if not ending:
                latest_s = max(latest_s, now_s - due_s)
                if now_s < window_end_s:
                    continue
            after = cpu_ticks(proc_stat.read_text())
            writer.row(time.time() - epoch_s, latest_s, busiest(before, after))
            before, latest_s, window_end_s = after, 0.0, now_s + WINDOW_S


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the exit code is the error's."""
    parser = argparse.ArgumentParser(prog="testbed.telemetry.lag", description="Watch a machine, write machine.csv.")
    parser.add_argument("--epoch", type=float, required=True, metavar="T", help="time.time() at t_s = 0")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    asked = parser.parse_args(argv)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    Path("/proc/self/timerslack_ns").write_text("1")
    return exit_code(lambda: watch(asked.epoch, asked.out))


if __name__ == "__main__":
    sys.exit(main())
