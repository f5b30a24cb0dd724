"""The fidelity verdict, on real runs that somebody interfered with: each source broken in turn must make it invalid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed import experiment, scenario
from testbed.engine.commands import PROJECT_IN_GUEST, RESULTS_IN_GUEST, TREE_IN_GUEST, program_job, ready_kernel
from testbed.engine.launch import Guest, Machine
from testbed.fidelity import Check, check_arm

pytestmark = pytest.mark.e2e

SETTINGS = ('measure.arms=["together"]', "measure.iterations=6", "measure.trials.together=1")
EXPERIMENT = experiment.build(scenario.load("smoke", SETTINGS), "smoke")


def interfered(how: str, folder: Path) -> tuple[int, str]:
    """Run an arm in `folder` and interfere with it in that way; return its exit code and what it said."""
    arm = EXPERIMENT.arm_plan("together", EXPERIMENT.trials("together", {}))
    (folder / "plan.json").write_text(json.dumps(arm))
    program = f"{TREE_IN_GUEST}/tests/e2e/breaking.py"
    job = program_job((program, how, RESULTS_IN_GUEST), PROJECT_IN_GUEST, write=folder, tree=True)
    said: list[bytes] = []
    code = Guest(job, Machine(), ready_kernel()).run(said.append, said.append)
    return code, b"".join(said).decode()


def faults_when(how: str, folder: Path) -> list[Check]:
    """The checks that fail on the files of an arm interfered with in that way."""
    code, said = interfered(how, folder)
    assert code == 0, said
    interval_s = EXPERIMENT.scenario.telemetry.queue_interval
    checks = check_arm(folder, EXPERIMENT.topology, interval_s, drops_allowed=False, watched=EXPERIMENT.shared)
    return [check for check in checks if not check.ok]


def test_valid_when_nobody_interferes(tmp_path: Path) -> None:
    assert faults_when("nothing", tmp_path) == []


def test_a_wrong_rate_is_noticed(tmp_path: Path) -> None:
    faults = faults_when("rate", tmp_path)
    assert any("rate of s1->s2" in fault.what for fault in faults), faults


def test_a_queue_that_does_not_mark_is_noticed(tmp_path: Path) -> None:
    faults = faults_when("red", tmp_path)
    assert any("threshold" in fault.what for fault in faults), faults


def test_a_queue_without_room_is_noticed(tmp_path: Path) -> None:
    """Also when it was replaced before its drops were counted."""
    faults = faults_when("room", tmp_path)
    assert any("s1->s2: dropped_packets fell" in fault.found for fault in faults), faults


@pytest.mark.parametrize("how", ["counter", "forwarding"])
def test_rules_that_count_and_are_gone_are_noticed(how: str, tmp_path: Path) -> None:
    """What a switch received, or forwarded: the controller finds its rules missing, and the arm ends with an error."""
    code, said = interfered(how, tmp_path)
    assert code == 1
    assert "NotValid: s" in said
    assert "has rules" in said


def test_a_setting_that_is_wrong_at_the_end_ends_the_run(tmp_path: Path) -> None:
    code, said = interfered("left", tmp_path)
    assert code == 1
    assert said.startswith("s1-eth3: tbf rate_bytes_per_s should be 31250000 and is 28125000")
