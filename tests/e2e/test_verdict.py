"""The fidelity verdict, on real runs that somebody interfered with: each source broken in turn must make it invalid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed import experiment, scenario
from testbed.engine.commands import PROJECT_IN_GUEST, RESULTS_IN_GUEST, program_job, ready_kernel
from testbed.engine.launch import Guest, Machine
from testbed.fidelity import Check, check_arm

pytestmark = pytest.mark.e2e

SETTINGS = ('measure.arms=["together"]', "measure.iterations=6", "measure.trials.together=1")


def faults_when(how: str, folder: Path) -> list[Check]:
    """The checks that fail on an arm interfered with in that way."""
    made = experiment.build(scenario.load("smoke", SETTINGS), "smoke")
    (folder / "plan.json").write_text(json.dumps(made.arm_plan("together", made.trials("together", {}))))
    program = f"{PROJECT_IN_GUEST}/tests/e2e/breaking.py"
    job = program_job((program, how, RESULTS_IN_GUEST), PROJECT_IN_GUEST, write=folder)
    said: list[bytes] = []
    code = Guest(job, Machine(), ready_kernel()).run(said.append, said.append)
    assert code == 0, b"".join(said).decode()
    interval_s = made.scenario.telemetry.queue_interval
    checks = check_arm(folder, made.topology, interval_s, drops_allowed=False, watched=made.shared)
    return [check for check in checks if not check.ok]


def test_valid_when_nobody_interferes(tmp_path: Path) -> None:
    assert faults_when("nothing", tmp_path) == []


def test_a_wrong_rate_is_noticed(tmp_path: Path) -> None:
    faults = faults_when("rate", tmp_path)
    assert any("rate of s1->s2" in fault.what for fault in faults), faults


def test_a_queue_that_does_not_mark_is_noticed(tmp_path: Path) -> None:
    faults = faults_when("red", tmp_path)
    assert any("threshold" in fault.what for fault in faults), faults


def test_a_lost_counter_is_noticed(tmp_path: Path) -> None:
    faults = faults_when("counter", tmp_path)
    assert any("s1->s2" in fault.found for fault in faults), faults
