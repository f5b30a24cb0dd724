"""Cheap stand-ins for a point's campaign, which workers of a sweep import by name. They leave files like a run's."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import psutil

from testbed.campaign import as_json
from testbed.study.work import FILE, Ended, Task, identity


def finish(task: Task, value: float = 250.0) -> Ended:
    """Leave a run whose arm together has the mean `value`, known by its point."""
    folder = task.results / task.point.name
    folder.mkdir(parents=True, exist_ok=True)
    times = {"mean": {"value": value / 1e3, "low": None, "high": None}, "worst": {"value": value / 1e3}}
    arm = {"iteration_s": times, "jobs": {}, "marked_packets_per_iteration": {"value": 3.0, "low": 2.0, "high": 4.0}}
    (folder / "summary.json").write_text(as_json({"arms": {"together": arm}, "ratios": {}}))
    (folder / "manifest.json").write_text('{"valid": true}')
    known = {"key": identity(task.point, task.kernel, task.code), "sweep": task.sweep, "wall_s": 0.1}
    (folder / FILE).write_text(json.dumps(known))
    return Ended(task.point.name, True, 0.1, checks=1)


def seed_of(task: Task) -> int:
    """The seed of a point."""
    return int(task.point.scenario.measure.seed)


def noted(task: Task) -> Ended:
    """Note in what process the point was run, on which CPUs, and where that process listens."""
    own = psutil.Process()
    families = (*own.net_connections(), *own.parent().net_connections())
    listening = sorted({one.laddr.ip for one in families if one.status == psutil.CONN_LISTEN})
    note = {"pid": os.getpid(), "cpus": sorted(os.sched_getaffinity(0)), "listening": listening}
    (task.results.parent / f"{task.point.name}.note").write_text(json.dumps(note))
    time.sleep(0.3)
    return finish(task, 250 + seed_of(task))


def dies_once(task: Task) -> Ended:
    """The worker that runs seed 2 for the first time is killed in the middle of it."""
    tried = task.results.parent / f"tried-{seed_of(task)}"
    with tried.open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.2)
    if seed_of(task) == 2 and len(tried.read_text().splitlines()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return finish(task)


def kills(task: Task) -> Ended:
    """Seed 2 kills every worker that runs it; seed 3 raises what nobody expected."""
    if seed_of(task) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed_of(task) == 3:
        raise ZeroDivisionError("a fault of ours")
    return finish(task)


def free_port() -> int:
    """A port of the loopback interface where nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def results_in(folder: Path) -> list[str]:
    """The names of all that a study left, hidden files apart."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
