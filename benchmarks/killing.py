"""An arm in whose guest some process is killed at some virtual moment. Runs in a guest, as `testbed.arm` does:

    python -m benchmarks.killing KIND AFTER_S FOLDER

KIND is a key of `VICTIMS`; the first process of it found from AFTER_S virtual seconds on gets SIGKILL, and the
launcher is told.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from testbed import arm

VICTIMS = {
    "arm": "",
    "agent": "workloads.training.spawn",
    "controller": "controllers.sdn.launcher",
    "ovs-vswitchd": "ovs-vswitchd --pidfile",
    "ovsdb-server": "ovsdb-server /run",
    "sampler": "testbed.telemetry.sampler",
}
"""Kinds of processes by what their command lines contain; the arm is the one that starts the others."""
LOOK_EVERY_S = 0.02


def processes(kind: str, own: int) -> list[int]:
    """The processes of a kind that live now, in order."""
    if kind == "arm":
        return [own]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if VICTIMS[kind] in line and int(folder.name) not in (own, os.getpid()):
            found.append(int(folder.name))
    return sorted(found)


def kill_one(kind: str, after_s: float, own: int) -> None:
    """Wait, find, kill, tell."""
    time.sleep(after_s)
    while not (found := processes(kind, own)):
        time.sleep(LOOK_EVERY_S)
    with Path(os.environ["ORRERY_STATUS"]).open("w") as status:
        status.write(json.dumps({"stage": f"killed {kind}"}) + "\n")
    os.kill(random.Random(after_s).choice(found), signal.SIGKILL)


def main(kind: str, after_s: str, folder: str) -> int:
    """Run the arm of the folder, and the one that kills beside it."""
    own = os.getpid()
    if os.fork() == 0:
        kill_one(kind, float(after_s), own)
        os._exit(0)
    return arm.main([folder])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
