"""Two runs of the two-job scenario, Ryu running: the same seed gives the same bytes, another seed other packets."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

Run = Callable[..., subprocess.CompletedProcess[str]]

WALL_CLOCK = {"wall.json", "point.json"}  # how long it took, which no virtual clock tells
SHORT = (
    "--set", 'measure.arms=["together"]', "--set", "measure.iterations=3", "--set", "measure.trials.together=1",
    "--set", "telemetry.capture.packets=100000",
)  # fmt: skip


def hashes(orrery: Run, results: Path, seed: int) -> dict[str, str]:
    """The hash of every file of a run, by its path in the run's folder."""
    ended = orrery("run", "two-jobs", *SHORT, "--set", f"measure.seed={seed}", "--results", results)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = results / "two-jobs"
    files = sorted(path for path in run.rglob("*") if path.is_file())
    return {str(path.relative_to(run)): sha256(path.read_bytes()).hexdigest() for path in files}


def test_same_seed_same_bytes_other_seed_other_packets(orrery: Run, tmp_path: Path) -> None:
    first = hashes(orrery, tmp_path / "a", seed=1)
    second = hashes(orrery, tmp_path / "another folder, further away", seed=1)
    assert [name for name in first if name.endswith(".pcapng")]
    assert first.keys() == second.keys()
    assert {name for name in first if first[name] != second[name]} <= WALL_CLOCK
    other = hashes(orrery, tmp_path / "b", seed=2)
    captures = [name for name in first if name.endswith(".pcapng")]
    assert all(other[name] != first[name] for name in captures)
