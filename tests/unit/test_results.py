"""Results appear whole, in place of earlier ones, and nothing of a run that died is left for ever."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import results
from testbed.errors import InputError
from testbed.results import in_progress, publish

ROOT = Path(__file__).resolve().parents[2]
HOLDER = """
import sys, time
from pathlib import Path
from testbed.results import in_progress
with in_progress(Path(sys.argv[1]), "smoke") as folder:
    (folder / "arm").mkdir()
    (folder / "arm" / "queues.csv").write_text("half a f")
    print(folder, flush=True)
    time.sleep(600)
"""


def tree(folder: Path) -> dict[str, str]:
    """All files below a folder with what is in them."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def finished(folder: Path, text: str) -> Path:
    (folder / "alone").mkdir()
    (folder / "alone" / "iterations.csv").write_text(text)
    (folder / "summary.json").write_text(text)
    return folder


@pytest.fixture
def holder(tmp_path: Path) -> Any:
    """Another process with a run in progress, and the folder of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_run_that_is_done_is_in_its_place_and_nowhere_else(tmp_path: Path) -> None:
    with in_progress(tmp_path, "smoke") as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith(".smoke.")
        assert publish(finished(folder, "new"), tmp_path / "smoke") == tmp_path / "smoke"
    assert tree(tmp_path) == {"smoke/alone/iterations.csv": "new", "smoke/summary.json": "new"}
    assert (tmp_path / "smoke").stat().st_mode & 0o777 == 0o755


def test_it_takes_the_place_of_an_earlier_one_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke" / "of an earlier version").write_text("old")
    with in_progress(tmp_path, "smoke") as folder:
        publish(finished(folder, "new"), tmp_path / "smoke")
    assert tree(tmp_path) == {"smoke/alone/iterations.csv": "new", "smoke/summary.json": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["smoke"]


def test_at_no_moment_is_there_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed while it takes the place of another must leave one of the two."""
    place = tmp_path / "smoke"
    place.mkdir()
    finished(place, "old")
    rename = Path.rename

    def watched(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        assert place.exists(), f"{self} became {target}, and a kill now would lose both"
        return moved

    monkeypatch.setattr(Path, "rename", watched)
    with in_progress(tmp_path, "smoke") as folder:
        publish(finished(folder, "new"), place)
    assert tree(place)["summary.json"] == "new"


def test_a_file_system_that_cannot_exchange_folders_does_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def __init__(self, *_: object, **__: object) -> None:
            self.renameat2 = lambda *_: ctypes.set_errno(errno.EINVAL) or -1

    monkeypatch.setattr(results.ctypes, "CDLL", Library)
    (tmp_path / "smoke").mkdir()
    finished(tmp_path / "smoke", "old")
    with in_progress(tmp_path, "smoke") as folder:
        publish(finished(folder, "new"), tmp_path / "smoke")
    assert tree(tmp_path / "smoke")["summary.json"] == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["smoke"]


def test_a_users_own_file_in_that_place_is_not_destroyed(tmp_path: Path) -> None:
    (tmp_path / "smoke").write_text("my notes")
    with in_progress(tmp_path, "smoke") as folder:
        publish(finished(folder, "new"), tmp_path / "smoke")
    assert tree(tmp_path / "smoke")["summary.json"] == "new"
    assert "my notes" in tree(tmp_path).values()


def test_a_run_that_fails_leaves_the_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "smoke").mkdir()
    finished(tmp_path / "smoke", "old")
    before = tree(tmp_path)
    with pytest.raises(RuntimeError), in_progress(tmp_path, "smoke") as folder:
        (folder / "alone").mkdir()
        raise RuntimeError
    assert tree(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["smoke"]


def test_the_results_folder_is_made(tmp_path: Path) -> None:
    with in_progress(tmp_path / "a" / "b", "smoke") as folder:
        assert folder.parent == tmp_path / "a" / "b"


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/results"])
def test_where_results_cannot_be_is_said(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match=r"cannot be written to: .* \(choose another --results\)"):  # noqa: SIM117
        with in_progress(tmp_path / place, "smoke"):
            pass


def test_a_run_that_goes_on_is_left_alone(tmp_path: Path, holder: Any) -> None:
    _, other = holder
    with in_progress(tmp_path, "smoke") as mine:
        assert mine != other
        assert tree(other) == {"arm/queues.csv": "half a f"}
    assert tree(other) == {"arm/queues.csv": "half a f"}
    assert list(tmp_path.iterdir()) == [other]


def test_what_a_killed_run_left_is_swept_by_the_next_one(tmp_path: Path, holder: Any) -> None:
    process, other = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert tree(other) == {"arm/queues.csv": "half a f"}
    with in_progress(tmp_path, "smoke"):
        assert not other.exists()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_told_to_end_is_swept_at_the_latest_by_the_next(
    sign: signal.Signals, tmp_path: Path, holder: Any
) -> None:
    process, _ = holder
    process.send_signal(sign)
    process.wait()
    with in_progress(tmp_path, "smoke") as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_sweeping_knows_its_own(tmp_path: Path) -> None:
    """Other scenarios' runs, results and a user's files stay, whatever they are called."""
    stay = ["smoke", "smoke.invalid", ".smoke-2.abcd", ".smokes.abcd", "smoke.abcd", "notes"]
    for name in [*stay, ".smoke.abcd", ".smoke.abcd.old"]:
        (tmp_path / name).mkdir()
    with in_progress(tmp_path, "smoke") as folder:
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*stay, folder.name])
    assert sorted(os.listdir(tmp_path)) == sorted(stay)  # noqa: PTH208
