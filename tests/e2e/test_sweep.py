"""A sweep as a user runs it, one of whose workers is killed in the middle of a point: all points are run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("--set", "measure.iterations=2", "--set", 'measure.arms=["together"]', "--set", 'fabric.topology="dumbbell"')
SEEDS = """
[[study.vary]]
label = "seed"
keys = ["measure.seed"]
values = [1, 2, 3, 4]
"""
GIVES_UP_AFTER_S = 600


def with_a_guest(sweep: psutil.Process) -> tuple[psutil.Process, list[psutil.Process]]:
    """Wait for a worker that runs a guest; return both."""
    until_s = time.monotonic() + GIVES_UP_AFTER_S
    while time.monotonic() < until_s and sweep.is_running():
        for worker in sweep.children(recursive=True):
            try:
                guests = [child for child in worker.children() if child.name() == "linux"]
                if guests and worker.name().startswith("python"):
                    return worker, guests
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.1)
    raise AssertionError("no worker has run a guest")


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that run still: an ended one that nobody has waited for yet does not."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_a_worker_killed_in_the_middle_costs_no_point(tmp_path: Path) -> None:
    smoke = (ROOT / "scenarios" / "smoke.toml").read_text()
    (tmp_path / "sweep.toml").write_text(smoke.replace('"smoke"', '"seeds"') + SEEDS)
    command = [sys.executable, "-m", "testbed", "sweep", str(tmp_path / "sweep.toml"), *SHORT]
    command += ["--results", str(tmp_path / "results")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        worker, guests = with_a_guest(psutil.Process(running.pid))
        everybody = psutil.Process(running.pid).children(recursive=True)
        worker.kill()
        psutil.wait_procs(guests, timeout=GIVES_UP_AFTER_S)
        assert not alive(guests)
        said, _ = running.communicate(timeout=GIVES_UP_AFTER_S)
    assert running.returncode == 0, said
    assert "is lost; seeds/seed-" in said
    assert "4 of 4 points valid, 0 kept from before" in said
    psutil.wait_procs(everybody, timeout=20)
    assert not alive(everybody)
    folder = tmp_path / "results" / "seeds"
    read = pq.read_table(folder / "results.parquet").to_pydict()
    assert set(read["seed"]) == {1, 2, 3, 4}
    assert all(read["valid"])
    assert (folder / "plots" / "mean-ms.png").is_file()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]

    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "4 of 4 points valid, 4 kept from before" in again.stdout
