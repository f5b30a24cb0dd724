"""Runs of the two-job scenario, Ryu running: the same seed gives the same bytes, another seed other packets."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import User

pytestmark = pytest.mark.e2e

Run = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[2]
WALL_CLOCK = {"wall.json", "point.json"}  # how long it took, which no virtual clock tells
SHORT = (
    "--set", 'measure.arms=["together"]', "--set", "measure.iterations=3", "--set", "measure.trials.together=1",
    "--set", "telemetry.capture.packets=100000",
)  # fmt: skip


def hashes(run: Run, results: Path, seed: int) -> dict[str, str]:
    """The hash of every file of a run, by its path in the run's folder."""
    ended = run("run", "two-jobs", *SHORT, "--set", f"measure.seed={seed}", "--results", results)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    folder = results / "two-jobs"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def first(orrery: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The hashes of a run with the seed 1."""
    found = hashes(orrery, tmp_path_factory.mktemp("a"), seed=1)
    assert len([name for name in found if name.endswith(".pcapng")]) == 4
    assert len([name for name in found if name.endswith(".csv")]) == 7
    return found


def differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def test_four_at_once_are_as_each_alone_in_whichever_folder(orrery: Run, first: dict[str, str], tmp_path: Path) -> None:
    """Each is the others' load; another seed gives other packets."""
    asked = (("a", 1), ("another folder, further away", 1), ("b", 2), ("c", 2))
    with ThreadPoolExecutor(len(asked)) as pool:
        one, same, other, same_other = pool.map(lambda run: hashes(orrery, tmp_path / run[0], run[1]), asked)
    assert differing(first, one) <= WALL_CLOCK
    assert differing(first, same) <= WALL_CLOCK
    assert differing(other, same_other) <= WALL_CLOCK
    assert differing(first, other) >= {*(name for name in first if name.endswith(".pcapng")), "together/iterations.csv"}


def test_and_to_another_user_with_a_copy_of_the_project_elsewhere(first: dict[str, str], somebody: User) -> None:
    """Environment, owner of the files, where the project lies, byte-code: nothing of it is seen in a packet."""
    copy = somebody.home / "checked" / "out" / "somewhere else"
    for package in ("controllers", "scenarios", "testbed", "workloads"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    somebody.own(somebody.home)

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return somebody.run(*arguments, tree=copy)

    assert differing(first, hashes(run, somebody.home / "results", seed=1)) <= WALL_CLOCK


def test_the_bytes_are_those_that_were_kept(orrery: Run) -> None:
    """Where they should have changed: python -m testbed fingerprint --renew."""
    ended = orrery("fingerprint")
    if ended.returncode == 3 and "fingerprints of other versions" in ended.stderr:
        pytest.skip(ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr
