"""A whole scenario in the fluid engine: as testbed.campaign, but every arm is played here, one after another."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from testbed.campaign import Campaign, Outcome, code_version
from testbed.cluster_campaign import ClusterCampaign
from testbed.errors import NotValid
from testbed.fidelity import Check
from testbed.fluid.arm import FluidArm, run_arm
from testbed.fluid.checks import check_arm
from testbed.fluid.cluster import Remembering, run_cluster_arm
from testbed.report.cluster.load import HISTORIES_FILE, IDEAL, asked_of
from testbed.timeline_checks import check_stays
from testbed.versions import versions


@dataclass(frozen=True, kw_only=True)
class FluidCampaign(Campaign):
    """How a scenario is run at flow level. No kernel is needed; `played` has the arms that were run."""

    played: dict[str, FluidArm] = field(default_factory=dict)

    def _run_guest(
        self, folder: Path, arm: str, plan: dict[str, Any], iterations: int, program: str = "testbed.arm",
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> dict[str, float]:  # fmt: skip
        """Play an arm, of whatever program; return its wall time."""
        del program
        self._begin(folder, arm, plan, iterations, files)
        if self.stopped.is_set():
            raise NotValid(f"arm {arm}: was stopped before it began")
        started = time.monotonic()
        self.played[arm] = run_arm(plan, folder)
        self.watcher.message(arm, {"stage": "files"})
        return {"played": round(time.monotonic() - started, 3)}

    def _checks(self, folder: Path) -> dict[str, list[Check]]:
        return {arm: check_arm(folder / arm, played.traces) for arm, played in self.played.items()}

    def _manifest(self, outcome: Outcome) -> dict[str, Any]:
        return fluid_manifest(self, outcome)


@dataclass(frozen=True, kw_only=True)
class FluidClusterCampaign(ClusterCampaign):
    """How a scenario with a cluster is run at flow level. `solver` knows CASSINI's links that were solved before."""

    played: dict[str, FluidArm] = field(default_factory=dict)
    solver: Remembering = field(default_factory=Remembering)

    def _run_guest(
        self, folder: Path, arm: str, plan: dict[str, Any], iterations: int, program: str = "testbed.arm",
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> dict[str, float]:  # fmt: skip
        """Play an arm; return its wall time."""
        self._begin(folder, arm, plan, iterations, files)
        if self.stopped.is_set():
            raise NotValid(f"arm {arm}: was stopped before it began")
        started = time.monotonic()
        if program == "testbed.arm":
            self.played[arm] = run_arm(plan, folder)
        else:
            run_cluster_arm(plan, folder, self.solver)
        self.watcher.message(arm, {"stage": "files"})
        return {"played": round(time.monotonic() - started, 3)}

    def _checks(self, folder: Path) -> dict[str, list[Check]]:
        checks = {arm: check_arm(folder / arm, played.traces) for arm, played in self.played.items()}
        asked = [vars(job) for trial in asked_of(folder).values() for job in trial.values()]
        for arm in self.cluster.keys.arms:
            if arm != IDEAL:
                with np.load(folder / arm / HISTORIES_FILE) as arrays:
                    names = [str(name).partition("/") for name in arrays["jobs"]]
                    counts = arrays["counts"].tolist()
                seen = {(trial, job): count for (trial, _, job), count in zip(names, counts, strict=True)}
                checks[arm] = check_stays(folder / arm, asked, self.setting["servers"], seen)
        return checks

    def _manifest(self, outcome: Outcome) -> dict[str, Any]:
        return fluid_manifest(self, outcome)


def fluid_manifest(campaign: Campaign, outcome: Outcome) -> dict[str, Any]:
    """Return what a run at flow level was run on; there is no kernel, and no packet."""
    scenario = campaign.scenario
    return {
        "engine": "fluid",
        "estimated": "CE packets, marks and backlogs are estimates (docs/fluid.md)",
        "valid": outcome.valid,
        "verdict": {arm: [asdict(check) for check in checks] for arm, checks in outcome.checks.items()},
        "scenario": scenario.model_dump(mode="json"),
        "scenario_sha256": sha256(campaign.source.encode()).hexdigest(),
        "report_setting": campaign.setting,
        "seed": scenario.measure.seed,
        "scaling": [asdict(row) for row in campaign.experiment.scaling.rows()],
        "jobs": {job.name: job.note for job in campaign.experiment.jobs},
        "code": code_version(),
        "versions": versions(),
    }
