"""One point of a study, as a worker runs it: the campaign that it is, what it tells meanwhile, what became of it.

A worker is a process of a Dask cluster (testbed.study.pool), on this machine or another one that sees the same results
folder. The guests of a point are children of the thread that waits for them: a worker that dies takes them with it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import cluster, experiment, plugins
from testbed.campaign import Campaign, Outcome, code_version
from testbed.cluster import ClusterExperiment
from testbed.cluster_campaign import ClusterCampaign
from testbed.engine.commands import ready_kernel
from testbed.engine.kernel import Kernel
from testbed.errors import EnvironmentLacks, OrreryError, lacks
from testbed.experiment import Experiment
from testbed.fidelity import Check
from testbed.fluid.campaign import FluidCampaign, FluidClusterCampaign
from testbed.geo import experiment as wide
from testbed.geo.campaign import WideCampaign, WideOutcome
from testbed.geo.experiment import WideExperiment
from testbed.geo.keys import WideScenario
from testbed.jobs import TRACE_FOLDERS
from testbed.live import Watcher
from testbed.native_campaign import NativeCampaign
from testbed.report.cluster.load import IDEAL
from testbed.scenario import Scenario
from testbed.study.points import Point

if TYPE_CHECKING:
    from distributed import Worker

FABRICS = {"virtual": Campaign, "fluid": FluidCampaign, "native": NativeCampaign}
CLUSTERS = {"virtual": ClusterCampaign, "fluid": FluidClusterCampaign}
"""How a scenario of each engine is run."""
FILE = "point.json"
TELL_EVERY_S = 0.5
AnyCampaign = Campaign | WideCampaign
AnyOutcome = Outcome | WideOutcome
AnyExperiment = Experiment | ClusterExperiment | WideExperiment


@dataclass(frozen=True)
class Task:
    """A point to run: into the folder `results`, on `kernel`, by the code that has the hash `code`.

    `study` names its study; `sweep` is of all tasks that are told of, and stopped, together. `drawn`: see
    testbed.campaign.Campaign.
    """

    study: str
    point: Point
    results: Path
    kernel: Kernel | None
    code: str
    memory_bytes: int
    sweep: str
    drawn: bool = True

    @property
    def name(self) -> str:
        """What the point is called beside those of other studies."""
        return self.point.name if self.study in ("", self.point.name) else f"{self.study}/{self.point.name}"


@dataclass(frozen=True)
class Ended:
    """What became of a point: its folder's name, and the `faults` among so many `checks` of the verdict.

    `error` says what ended it before its end; `lacking` whether that was the machine's fault (EnvironmentLacks).
    """

    folder: str
    valid: bool
    wall_s: float
    checks: int = 0
    faults: tuple[str, ...] = ()
    error: str = ""
    lacking: bool = False


def identity(point: Point, kernel: Kernel | None, code: str) -> str:
    """Return the hash by which a point is known again: of its scenario, the files that it names, code and kernel."""
    said = point.scenario.model_dump(mode="json")
    files = {name: digest for name in sorted(set(_texts(said))) if (digest := _digest(name, point.path.parent))}
    of_kernel = kernel.key if kernel and point.needs_kernel else None
    if point.plugin:
        files[plugins.FILE] = sha256(point.plugin.read_bytes()).hexdigest()
    known = {"scenario": said, "files": files, "code": code, "kernel": of_kernel}
    return sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _digest(name: str, base: Path) -> str | None:
    """Return the hash of a file that a scenario names (a trace, a table of arrivals, a topology); None without one."""
    kept = [os.environ.get(key, "") for key in ("ORRERY_TRACES", "ORRERY_WAN")]
    folders = [base, *(Path(one) for of in kept for one in of.split(":") if one), *TRACE_FOLDERS, *wide.FOLDERS]
    for folder in folders:
        try:
            return sha256((folder / name).read_bytes()).hexdigest()
        except (OSError, ValueError):
            continue
    return None


def prepared(point: Point) -> AnyExperiment:
    """Return what a point would run: on a wide-area network, or on a fabric with jobs that have places of their own or
    are scheduled."""
    if isinstance(point.scenario, WideScenario):
        return wide.build(point.scenario, point.path.parent)
    where = str(point.path), point.path.parent
    if point.scenario.cluster is None:
        return experiment.build(point.scenario, *where)
    return cluster.build(point.scenario, *where, point.plugin)


def campaign_of(
    point: Point,
    kernel: Kernel | None,
    results: Path,
    watcher: Watcher,
    memory_bytes: int,
    at_once: int | None = None,
    made: AnyExperiment | None = None,
) -> AnyCampaign:
    """Return the campaign that a point is, into `results/NAME`; with `at_once` arms side by side (as many as CPUs).

    made: what the point would run, where it has been prepared already.
    """
    made = made or prepared(point)
    at_once = 1 if point.in_real_time else at_once or len(os.sched_getaffinity(0))
    rest = (results, watcher, memory_bytes, point.name, at_once)
    if isinstance(made, WideExperiment):
        assert kernel is not None  # every point that needs one was asked for it
        return WideCampaign(made, point.source, kernel, *rest)
    if isinstance(made, ClusterExperiment):
        return CLUSTERS[made.scenario.engine](made.alone, point.source, kernel, *rest, cluster=made)
    return FABRICS[made.scenario.engine](made, point.source, kernel, *rest)


def execute(campaign: AnyCampaign, point: Point, kernel: Kernel | None, code: str, sweep: str = "") -> AnyOutcome:
    """Run the campaign of a point to its end; its folder then has point.json, by which it is known again.

    Raises what the campaign does.
    """
    began = time.monotonic()
    outcome = campaign.run()
    wall_s = round(time.monotonic() - began, 3)
    known = {"key": identity(point, kernel, code), "sweep": sweep, "settings": list(point.settings), "wall_s": wall_s}
    (outcome.folder / FILE).write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return outcome


def alone(point: Point, kernel: Kernel | None, results: Path, watcher: Watcher, memory_bytes: int) -> AnyOutcome:
    """Run a point in this process, its arms side by side, and return what became of it. Raises what it meets."""
    return execute(campaign_of(point, kernel, results, watcher, memory_bytes), point, kernel, code_version())


def kept(folder: Path, point: Point, kernel: Kernel | None, code: str, sweep: str | None = None) -> float | None:
    """Return the wall time of a valid run of the point that is in `folder`, None where there is none.

    With `sweep` it must have been run in that sweep.
    """
    try:
        known = json.loads((folder / FILE).read_text(encoding="utf-8"))
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not manifest.get("valid") or known.get("key") != identity(point, kernel, code):
        return None
    if sweep is not None and known.get("sweep") != sweep:
        return None
    return float(known["wall_s"])


def verdict(outcome: AnyOutcome) -> tuple[int, tuple[str, ...]]:
    """Return how many checks there were, and every one that failed as text."""
    made = [(arm, check) for arm, checks in outcome.checks.items() for check in checks]
    seen = [
        (arm, check.ok, check.what, check.found)
        if isinstance(check, Check)
        else (arm, check["ok"], check["what"], check["detail"])
        for arm, check in made
    ]
    return len(seen), tuple(f"{arm}: {what}: {found}" for arm, ok, what, found in seen if not ok)


_running: dict[str, list[AnyCampaign]] = {}
_stopped: set[str] = set()


def stop(sweep: str) -> None:
    """End the guests of all points of a sweep that this process runs, and begin no other of its points."""
    _stopped.add(sweep)
    for campaign in list(_running.get(sweep, ())):  # other threads end theirs meanwhile
        campaign.stop()


def run_point(task: Task) -> Ended:
    """Run a point in this worker and return what became of it. What is wrong with the point itself is no exception."""
    began = time.monotonic()
    where = task.results / task.point.name
    wall_s = kept(where, task.point, task.kernel, task.code, task.sweep)
    if wall_s is not None:  # a worker that had run it was lost before it could hand over what became of it
        return Ended(task.point.name, True, wall_s)
    try:
        campaign = _campaign(task)
        _running.setdefault(task.sweep, []).append(campaign)
        try:
            if task.sweep in _stopped:
                campaign.stop()
            outcome = execute(campaign, task.point, task.kernel, task.code, task.sweep)
        finally:
            _running[task.sweep].remove(campaign)
    except OrreryError as error:
        return _failed(task, began, error)
    except OSError as error:
        return _failed(task, began, lacks(error))
    checks, faults = verdict(outcome)
    return Ended(outcome.folder.name, outcome.valid, time.monotonic() - began, checks, faults)


def _failed(task: Task, began: float, error: OrreryError) -> Ended:
    wall_s = time.monotonic() - began
    return Ended(task.point.name, False, wall_s, error=str(error), lacking=isinstance(error, EnvironmentLacks))


def _campaign(task: Task) -> AnyCampaign:
    from distributed import get_worker  # a run alone does without: it is a third of all that is imported

    if _code() != task.code:
        raise EnvironmentLacks("this worker has other code than the sweep", "start workers in the same checkout")
    kernel = task.kernel
    if kernel is not None and task.point.needs_kernel and not kernel.path.is_file():  # another machine's cache
        kernel = ready_kernel()
        if task.kernel is None or kernel.key != task.kernel.key:
            raise EnvironmentLacks(f"this worker has another kernel, {kernel.key}", "python -m testbed kernel build")
    worker = get_worker()
    at_once = max(1, len(os.sched_getaffinity(0)) // worker.state.nthreads)
    made = prepared(task.point)
    watcher = Telling(task, _to_scheduler(worker), arms_of(task.point, made))
    campaign = campaign_of(task.point, kernel, task.results, watcher, task.memory_bytes, at_once, made)
    return campaign if task.drawn or isinstance(campaign, WideCampaign) else replace(campaign, drawn=False)


@cache
def _code() -> str:
    return code_version()


def _to_scheduler(worker: Worker) -> Callable[[str, dict[str, Any]], None]:
    return lambda topic, message: worker.log_event(topic, message | {"worker": worker.address})


def arms_of(point: Point, made: AnyExperiment) -> int:
    """Return how many guests a point takes that has become `made`, one after the other where it has one CPU."""
    if isinstance(made, WideExperiment):
        return len(made.systems)
    assert isinstance(point.scenario, Scenario)
    if point.scenario.cluster is not None:
        return 1 + sum(arm != IDEAL for arm in point.scenario.cluster.arms)
    return len(point.scenario.measure.arms)


class Telling:
    """A watcher that tells the sweep what share of its point is done, twice a second at most."""

    def __init__(self, task: Task, tell: Callable[[str, dict[str, Any]], None], arms: int) -> None:
        self._task, self._tell, self._arms = task, tell, max(arms, 1)
        self._totals: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._next_s = 0.0

    def arm(self, arm: str, iterations: int) -> None:
        """Take note that an arm has begun."""
        self._totals[arm], self._done[arm] = max(iterations, 1), 0
        self._say(arm, "boots", now=True)

    def message(self, arm: str, message: dict[str, Any]) -> None:
        """Take what an arm's guest says: a stage it has reached, or an iteration done."""
        if "stage" in message:
            self._say(arm, message["stage"], now=message["stage"] == "files")
            return
        self._done[arm] += 1
        self._say(arm, f"{message['progress']:.1f} s virtual")

    def stage(self, text: str) -> None:
        """Take note of what the launcher itself does."""
        self._say("", text, now=True)

    @property
    def share(self) -> float:
        """What share of the point is done, 0 to 1; every arm counts the same."""
        done = sum(min(1.0, self._done[arm] / total) for arm, total in self._totals.items())
        return min(1.0, done / self._arms)

    def _say(self, arm: str, text: str, now: bool = False) -> None:
        if not now and time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + TELL_EVERY_S
        said = f"{arm}: {text}" if arm else text
        self._tell(self._task.sweep, {"point": self._task.name, "share": round(self.share, 4), "text": said})
