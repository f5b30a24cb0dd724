"""All points of a study: each a campaign of its own in results/STUDY/POINT, as many at once as there are CPUs.

A point whose valid run is there already, of the same scenario text and the same code, need not be run again. When all
points are there, results/STUDY/study.json and its plots are made of their files (testbed.report.study).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from testbed import cluster, experiment
from testbed.campaign import Campaign, Outcome, Watcher, as_json, code_version
from testbed.cluster import ClusterExperiment
from testbed.cluster_campaign import ClusterCampaign
from testbed.engine.kernel import Kernel
from testbed.errors import NotValid
from testbed.experiment import Experiment
from testbed.fluid.campaign import FluidCampaign
from testbed.geo import experiment as wide
from testbed.geo.campaign import WideCampaign, WideOutcome
from testbed.geo.experiment import WideExperiment
from testbed.geo.keys import WideScenario
from testbed.report import study as report
from testbed.study.points import Point, Study


@dataclass(frozen=True)
class Ran:
    """What became of a point. `outcome` is None for one that was there already and for one that `error` ended."""

    point: Point
    folder: Path
    valid: bool
    wall_s: float
    outcome: Outcome | WideOutcome | None = None
    error: str = ""


@dataclass(frozen=True)
class StudyRun:
    """How a study is run: on which kernel, into which folder. With `keep`, runs that are there are not run again."""

    study: Study
    kernel: Kernel | None
    results: Path
    watcher: Watcher
    memory_bytes: int = 2 << 30
    keep: bool = False
    campaigns: list[Campaign | WideCampaign] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Where the points' folders are."""
        return self.results / self.study.name if self.study.varied else self.results

    def run(self) -> list[Ran]:
        """Run all points and return what became of each; an invalid one ends no other.

        Raises what is no fault of a point's (EnvironmentLacks), and KeyboardInterrupt once all guests are gone.
        """
        concluded = self.study.varied and self.study.whole
        if concluded:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / report.FILE).unlink(missing_ok=True)
        cpus = len(os.sched_getaffinity(0))
        beside = min(cpus, len(self.study.points))
        with ThreadPoolExecutor(max_workers=beside) as pool:
            futures = [pool.submit(self._point, point, max(1, cpus // beside)) for point in self.study.points]
            try:
                ran = [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for campaign in self.campaigns:
                    campaign.stop()
                raise
        if concluded:
            self._conclude(ran)
        return ran

    def _point(self, point: Point, at_once: int) -> Ran:
        folder, began = self.folder / point.name, time.monotonic()
        if self.keep and is_current(folder, point):
            return Ran(point, folder, True, wall_of(folder))
        watcher = _Named(self.watcher, point.name) if self.study.varied else self.watcher
        campaign = campaign_of(point, self.kernel, self.folder, watcher, self.memory_bytes, at_once)
        self.campaigns.append(campaign)
        try:
            outcome = campaign.run()
        except NotValid as error:
            return Ran(point, folder, False, time.monotonic() - began, error=str(error))
        return Ran(point, outcome.folder, outcome.valid, outcome.wall_s["whole"]["total"], outcome)

    def _conclude(self, ran: Sequence[Ran]) -> None:
        """Write study.json and the plots, and remove points that the study has no more."""
        names = {name for one in ran for name in (one.point.name, f"{one.point.name}.invalid")}
        for path in self.folder.iterdir():
            if path.is_dir() and path.name not in names and path.name != report.PLOTS:
                shutil.rmtree(path)
        points = [
            {
                "name": one.point.name, "at": one.point.at, "settings": list(one.point.settings), "valid": one.valid,
                "error": one.error, "folder": one.folder.name, "wall_s": round(one.wall_s, 1),
            }
            for one in ran
        ]  # fmt: skip
        plots = [plot.model_dump() for plot in self.study.plots]
        about = {"name": self.study.name, "title": self.study.title, "plots": plots, "points": points}
        (self.folder / report.FILE).write_text(as_json(report.summarise(self.folder, about)))
        report.draw(self.folder)


def prepared(point: Point) -> Experiment | ClusterExperiment | WideExperiment:
    """Return what a point would run: jobs with places of their own, jobs that are scheduled, or data centres."""
    if isinstance(point.scenario, WideScenario):
        return wide.build(point.scenario, point.path.parent)
    build = experiment.build if point.scenario.cluster is None else cluster.build
    return build(point.scenario, str(point.path), point.path.parent)


def campaign_of(
    point: Point, kernel: Kernel | None, results: Path, watcher: Watcher, memory_bytes: int, at_once: int
) -> Campaign | WideCampaign:
    """Return the campaign that a point is, `at_once` of its arms side by side."""
    made, rest = prepared(point), (results, watcher, memory_bytes, point.name, at_once)
    if isinstance(made, WideExperiment):
        assert kernel is not None  # every point that needs one was asked for it
        return WideCampaign(made, point.source, kernel, *rest)
    if isinstance(made, Experiment) and made.scenario.engine == "fluid":
        return FluidCampaign(made, point.source, None, *rest)
    if isinstance(made, ClusterExperiment):
        return ClusterCampaign(made.alone, point.source, kernel, *rest, cluster=made)
    return Campaign(made, point.source, kernel, *rest)


def is_current(folder: Path, point: Point) -> bool:
    """Return whether a valid run is there, of the same scenario and the same code."""
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    same = manifest.get("scenario_sha256") == sha256(point.source.encode()).hexdigest()
    return bool(manifest.get("valid")) and same and manifest.get("code") == code_version()


def wall_of(folder: Path) -> float:
    """Return how long a finished run took, in seconds."""
    return float(json.loads((folder / "wall.json").read_text(encoding="utf-8"))["whole"]["total"])


@dataclass(frozen=True)
class _Named:
    """Tells of the arms of one point among several."""

    watcher: Watcher
    name: str

    def arm(self, arm: str, iterations: int) -> None:
        self.watcher.arm(f"{self.name}: {arm}", iterations)

    def message(self, arm: str, message: dict[str, Any]) -> None:
        self.watcher.message(f"{self.name}: {arm}", message)

    def stage(self, text: str) -> None:
        self.watcher.stage(f"{self.name}: {text}")
