"""A scenario on the machine's own kernel, in real time, arm after arm; the verdict asks whether the machine kept up."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from testbed.campaign import Campaign, Runs
from testbed.engine.launch import Job
from testbed.engine.native.launch import NativeRun
from testbed.fidelity import Check
from testbed.machine_checks import check_machine


@dataclass(frozen=True)
class NativeCampaign(Campaign):
    """How a scenario is run natively. `at_once` is to be 1: in real time arms would disturb each other."""

    def _run_guest(
        self, folder: Path, arm: str, plan: dict[str, Any], iterations: int, program: str = "testbed.arm",
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> dict[str, float]:  # fmt: skip
        return super()._run_guest(folder, arm, plan | {"real_time": True}, iterations, program, files)

    def _guest(self, job: Job) -> Runs:
        return NativeRun(job)

    def _kernel(self) -> dict[str, Any]:
        return {"version": platform.release(), "engine": "native"}

    def _checks(self, folder: Path) -> dict[str, list[Check]]:
        return {arm: [*checks, *check_machine(folder / arm)] for arm, checks in super()._checks(folder).items()}
