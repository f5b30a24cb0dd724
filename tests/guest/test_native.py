"""The native engine on a stock kernel: a wall-clock guest is one (stock_kernel.py says what is done there)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.guest

Run = Callable[..., subprocess.CompletedProcess[str]]
MACHINE = {"timers rang in time", "processors had time left"}
PROGRAM = Path(__file__).with_name("stock_kernel.py")


@pytest.fixture(scope="module")
def seen(orrery: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was seen there; under "folder" the results."""
    folder = tmp_path_factory.mktemp("native")
    ended = orrery("exec", "--real-time", "--write", folder, "--", sys.executable, PROGRAM, folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    return found | {"folder": folder}


def checks(folder: Path) -> dict[str, Any]:
    """The checks of an arm by their names, and under "manifest" the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    return {check["what"]: check for check in manifest["verdict"]["together"]} | {"manifest": manifest}


def test_a_whole_arm_runs_and_its_verdict_is_what_the_checks_say(seen: dict[str, Any]) -> None:
    # Beside other tests the machine may not keep up: then the run must say so, by these checks and no other.
    code, said = seen["slow"]["code"], seen["slow"]["said"]
    assert code in (0, 1), said
    found = checks(seen["folder"] / ("smoke" if code == 0 else "smoke.invalid"))
    manifest = found.pop("manifest")
    assert manifest["kernel"]["engine"] == "native"
    assert manifest["valid"] == (code == 0)
    in_time = MACHINE | {what for what in found if what.startswith("rate of")}
    assert in_time > MACHINE
    assert {what for what, check in found.items() if not check["ok"]} <= in_time, said
    iterations = (seen["folder"] / ("smoke" if code == 0 else "smoke.invalid") / "together/iterations.csv").read_text()
    assert len(iterations.splitlines()) == 1 + 2 * 2 * 4  # jobs, workers, iterations


def test_a_machine_that_cannot_keep_up_makes_a_run_not_valid(seen: dict[str, Any]) -> None:
    assert seen["too fast"]["code"] == 1, seen["too fast"]["said"]
    found = checks(seen["folder"] / "too-fast.invalid")
    assert not found["manifest"]["valid"]
    failed = {what: check["found"] for what, check in found.items() if what != "manifest" and not check["ok"]}
    assert failed.keys() & MACHINE
    assert "or run it in virtual time" in str(failed)


def test_what_a_run_makes_goes_with_it_and_what_others_have_stays(seen: dict[str, Any]) -> None:
    assert "mgmt" in seen["before"]
    assert "Bridge s1" in seen["before"]
    assert seen["after slow"] == seen["before"]
    assert seen["killed"] == {"came": True, "went": True}
    assert seen["after killed"] != seen["before"]
    assert seen["clean"]["said"].splitlines() == [
        "put back: net/ipv4/tcp_allowed_congestion_control",
        "put back: net/core/netdev_max_backlog",
    ]
    assert seen["after clean"] == seen["before"]
    assert seen["clean again"]["said"] == "nothing was left\n"
    assert seen["switches at the end"] == seen["switches"]
