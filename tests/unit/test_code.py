"""The compiled copy of our code that guests see: the same bytes for everybody, made once, old ones removed."""

from __future__ import annotations

import fcntl
import marshal
import os
import shutil
from hashlib import sha256
from pathlib import Path
from types import CodeType

import pytest

from testbed.engine import code

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "code"


def project(folder: Path, text: str = "x = 1\n") -> Path:
    for package in code.PACKAGES:
        (folder / package / "sub").mkdir(parents=True)
        (folder / package / "__init__.py").write_text("")
        (folder / package / "sub" / "module.py").write_text(text)
    (folder / "testbed" / "run").write_text("#!/bin/sh\n")
    (folder / "testbed" / "run").chmod(0o755)
    return folder


def content(folder: Path) -> dict[str, tuple[str, int, int]]:
    return {
        str(path.relative_to(folder)): (
            sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
    }


def test_wherever_a_tree_lies_and_whatever_python_left_in_it_the_copy_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = project(tmp_path / "ours"), project(tmp_path / "a" / "longer place")
    (theirs / "testbed" / "__pycache__").mkdir()
    (theirs / "testbed" / "__pycache__" / "stale.cpython-311.pyc").write_bytes(b"stale")
    for path in theirs.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(path.stat().st_mode & ~0o044)
    (theirs / "README").write_text("not of a package\n")
    copies = []
    for number, tree in enumerate((ours, theirs)):
        monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / f"cache-{number}"))
        copies.append(code.compiled(tree))
    assert copies[0].name == copies[1].name
    assert content(copies[0]) == content(copies[1])
    assert (copies[0] / "testbed" / "run").stat().st_mode & 0o777 == 0o755


@pytest.mark.usefixtures("cache")
def test_byte_code_is_taken_unchecked_and_names_files_as_the_guest_does(tmp_path: Path) -> None:
    (byte_code,) = (code.compiled(project(tmp_path / "p")) / "workloads" / "sub").rglob("*.pyc")
    header, body = byte_code.read_bytes()[:16], byte_code.read_bytes()[16:]
    assert int.from_bytes(header[4:8], "little") == 0b01  # by hash, not to be checked
    compiled = marshal.loads(body)
    assert isinstance(compiled, CodeType)
    assert compiled.co_filename == f"{code.PROJECT_IN_GUEST}/workloads/sub/module.py"


def test_it_is_made_once_and_anew_for_changed_files(tmp_path: Path, cache: Path) -> None:
    tree = project(tmp_path / "p")
    first = code.compiled(tree)
    (first / "mark").write_text("")
    assert code.compiled(tree) == first
    assert (first / "mark").exists()
    (tree / "testbed" / "sub" / "module.py").write_text("x = 2\n")
    second = code.compiled(tree)
    assert second != first
    (tree / "testbed" / "run").chmod(0o644)
    assert code.compiled(tree) not in (first, second)
    assert len(list(cache.iterdir())) == 3


def test_of_old_copies_the_last_used_stay_and_those_a_guest_runs_from(tmp_path: Path, cache: Path) -> None:
    places = []
    for number in range(code.KEPT + 3):
        tree = project(tmp_path / str(number), f"x = {number}\n")
        place = code.compiled(tree)
        os.utime(place, (1000 + number, 1000 + number))
        places.append(place)
        if number == 0:
            held = os.open(place, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_SH)
    (cache / ".new-dead").mkdir()
    os.utime(cache / ".new-dead", (1, 1))
    (cache / ".new-alive").mkdir()
    code.compiled(tree)
    os.close(held)
    assert {path for path in places if path.exists()} == {places[0], *places[-code.KEPT :]}
    assert not (cache / ".new-dead").exists()
    assert (cache / ".new-alive").exists()


def test_a_cache_that_cannot_be_written_hinders_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = project(tmp_path / "p")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "file"))
    assert code.compiled(tree) == tree


def test_two_that_make_it_at_once_have_the_same(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = project(tmp_path / "p")
    make = code._copy

    def slow(project: Path, fresh: Path) -> None:
        make(project, fresh)
        shutil.copytree(fresh, cache / code.digest(project))  # the other one is done

    monkeypatch.setattr(code, "_copy", slow)
    assert code.compiled(tree) == cache / code.digest(tree)
    assert [path.name for path in cache.iterdir()] == [code.digest(tree)]


def test_ours_has_what_guests_start() -> None:
    names = {str(path.relative_to(ROOT)) for path in code.files(ROOT)}
    assert names >= {"testbed/engine/guest/init.py", "testbed/engine/guest/bin/controller", "testbed/arm.py"}
    assert not [name for name in names if "__pycache__" in name]
