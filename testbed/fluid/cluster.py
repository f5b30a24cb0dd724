"""An arm of a cluster at flow level: testbed.timeline on the fluid conductor, and the files it leaves.

events.jsonl is as in packets; of clusters with many accelerators rounds leave out placements and what was expected.
iterations.npz has what iterations.csv has of rank 0, without times of day, since there may be millions of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from testbed.fluid.arm import Network
from testbed.fluid.conductor import FluidConductor
from testbed.fluid.interleaving import GroupedCassini
from testbed.fluid.skipping import History
from testbed.report.cluster.load import HISTORIES_FILE
from testbed.telemetry.events import EventLog
from testbed.timeline import Kinds, Timeline, cluster_of
from workloads.training.plan import JobPlan

LARGE = 64  # accelerators, from which on rounds are noted in brief
BRIEF = ("now_s", "scheduler", "candidates", "chosen", "moved")
EXPECTED = ("score", "score_unshifted", "score_best")
MOST_REMEMBERED = 50_000
Result = TypeVar("Result")


class Remembering(Executor):
    """Solves problems here and now, and knows those it has solved: links of the same jobs come round after round."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Do it now."""
        future: Future[Result] = Future()
        future.set_result(fn(*args, **kwargs))
        return future

    def map(self, fn: Callable[..., Result], *iterables: Iterable[Any], **_: Any) -> Iterator[Result]:
        """Solve (system, bound) after (system, bound); equal ones are solved once."""
        for problem in zip(*iterables, strict=True):
            system, floor = problem[0]
            key = fn, system.key, floor
            if key not in self._known:
                if len(self._known) >= MOST_REMEMBERED:
                    self._known.clear()
                self._known[key] = fn(*problem)
            yield self._known[key]


class LightKinds(Kinds):
    """Kinds whose plans are copied and not checked again for every start."""

    def plan(self, start: Any, topology: Any, dscp: int) -> JobPlan:
        """Return the plan of a job that is to start."""
        known = self.plans[self.sorts[start.job][len(start.placement)]]
        made = object.__new__(JobPlan)
        changed = {
            "name": start.job, "hosts": start.placement, "dscp": dscp, "iterations": start.iterations,
            "fabric_ips": tuple(topology.ip(host) for host in start.placement),
        }  # fmt: skip
        made.__dict__.update({**known.__dict__, **changed})
        return made


def run_cluster_arm(plan: Mapping[str, Any], out: Path, solver: Executor | None = None) -> dict[str, Any]:
    """Play every trace of an arm into a folder that is there; return what its manifest says."""
    network, cluster = Network.of(plan), plan["cluster"]
    events = EventLog(out / "events.jsonl")
    large = sum(plan["slots"].values()) > LARGE
    histories: dict[tuple[str, str], list[History]] = {}
    zero_s, played = 0.0, 0
    for number, trial in enumerate(cluster["trials"]):
        zero_s += plan["lead_s"]
        events.write(zero_s, "trial", trial=str(number), seed=trial["seed"])
        log = _logged(events, str(number), zero_s, brief=large)
        ended_s, conductor = _play(cluster, trial, network, solver, log, out)
        for job, _, history in conductor.finished:
            histories.setdefault((str(number), job), []).append(history)
        conductor.finished.clear()
        zero_s, played = zero_s + ended_s, played + conductor.played
        events.write(zero_s, "trial done", trial=str(number))
    events.close()
    every = [history for of_job in histories.values() for history in of_job]
    done, proven, sampled = (sum(getattr(one, name) for one in every) for name in ("done", "proven", "sampled"))
    every.clear()
    _write(out / HISTORIES_FILE, histories)
    manifest = {
        "engine": "fluid", "virtual_s": round(zero_s, 6), "events": played,
        "iterations": {"played": done - proven - sampled, "proven": proven, "sampled": sampled},
    }  # fmt: skip
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _play(
    cluster: Mapping[str, Any],
    trial: Mapping[str, Any],
    network: Network,
    solver: Executor | None,
    log: Callable[..., None],
    folder: Path,
) -> tuple[float, FluidConductor]:
    """Play a trace; return when its last job ended, and who conducted it."""
    if cluster["plugin"] is None:
        cluster = {**cluster, "candidates": 1}  # the first one is taken, and nobody looks at the others
    made, kinds = cluster_of(cluster, trial, network.topology, solver, GroupedCassini, pool=True, folder=folder)
    conductor = FluidConductor(network, cluster["skipping"], cluster["window"])
    light = LightKinds(kinds.plans, kinds.traffic, kinds.sorts)
    dscps = [1] * sum(server["accelerators"] for server in trial["state"]["servers"])
    timeline = Timeline(made, light, network.topology, conductor, 0.0, log, dscps, conductor.clock)
    conductor.on_iteration, conductor.on_record = timeline.on_iteration, timeline.on_record
    timeline.run()
    return conductor.now_s, conductor


def _logged(events: EventLog, trial: str, zero_s: float, *, brief: bool) -> Callable[..., None]:
    def log(t_s: float, event: str, **details: Any) -> None:
        if brief and event == "round":
            expects = details.get("expects", {})
            details = {name: details[name] for name in BRIEF} | {
                "waiting": len(details["waiting"]), "shifts": len(details["shifts"]),
                "expects": {name: expects[name] for name in EXPECTED if name in expects},
            }  # fmt: skip
        events.write(zero_s + t_s, event, trial=trial, **details)

    return log


def _write(path: Path, histories: dict[tuple[str, str], list[History]]) -> None:
    """Write the iterations of all jobs, one job after another (testbed.report.cluster.load reads them). There may be
    many: histories are taken out of the dictionary one by one."""
    counts = np.array([sum(one.done for one in of_job) for of_job in histories.values()], dtype=np.int64)
    jobs = np.array(["/".join(key) for key in histories])
    waited_s = np.array([sum(one.waited_s for one in of_job) for of_job in histories.values()])
    adjusted = np.array([sum(one.adjusted for one in of_job) for of_job in histories.values()], dtype=np.int64)
    times_s, marked = np.zeros(counts.sum()), np.zeros(counts.sum(), dtype=np.float32)
    first = 0
    for key in list(histories):
        for one in histories.pop(key):
            own = slice(first, first + one.done)
            times_s[own], marked[own] = one.closed(), one.marked
            first += one.done
    np.savez(path, jobs=jobs, counts=counts, times_s=times_s, marked=marked, waited_s=waited_s, adjusted=adjusted)
