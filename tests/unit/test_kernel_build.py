"""A kernel is built once, whole or not at all, and nothing of a build is left whichever way it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from kernel_fakes import fake_recipe, fake_tarball, fake_tree, start_build

from testbed.engine.kernel import build, builder, find
from testbed.engine.kernel.cache import Recipe, kernels_folder
from testbed.engine.kernel.source import given_version
from testbed.errors import EnvironmentLacks, InputError, NotValid

PATIENCE_S = 60


def silent(_fraction: float, _text: str) -> None:
    """A progress that nobody looks at."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return fake_recipe(tmp_path / "recipe")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    def give(path: Path) -> Path:
        monkeypatch.setenv("KERNEL_SOURCE", str(path))
        return path

    return give


def remains() -> list[str]:
    return sorted(path.name for path in kernels_folder().glob("orrery-kernel-*"))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_tree_becomes_a_kernel(tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path]) -> None:
    tree = given(fake_tree(tmp_path / "linux"))
    before = {path.name: path.read_bytes() for path in tree.iterdir()}
    heard: list[tuple[float, str]] = []
    kernel = build(lambda fraction, text: heard.append((fraction, text)), recipe)
    assert kernel == find(recipe)
    assert kernel.version.startswith("7.2.1-")
    assert kernel.seccomp
    assert "rng-seed=" in subprocess.run((kernel.path,), capture_output=True, text=True, check=True).stdout
    assert kernel.info["source"] == str(tree)
    assert kernel.info["compiler"].startswith("gcc")
    fractions = [fraction for fraction, _ in heard]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert {path.name: path.read_bytes() for path in tree.iterdir()} == before
    assert remains() == []


def test_a_kernel_without_seccomp_is_known_as_such(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path]
) -> None:
    given(fake_tree(tmp_path / "linux", version=(6, 12, 3), extra=""))
    assert not build(silent, recipe).seccomp


def test_a_tarball_is_built_once_and_a_tree_always(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path]
) -> None:
    count = tmp_path / "count"
    tree = fake_tree(tmp_path / "linux", f"\t@echo built >>{count}")
    given(fake_tarball(tree))
    assert build(silent, recipe) == build(silent, recipe)
    assert count.read_text().count("built") == 1
    build(silent, recipe, force=True)
    assert count.read_text().count("built") == 2
    given(tree)
    assert build(silent, recipe) == build(silent, recipe)
    assert count.read_text().count("built") == 4


def test_what_an_earlier_build_left_in_a_tree_is_not_taken_along(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path]
) -> None:
    tree = given(fake_tree(tmp_path / "linux", "\t@test ! -e old.o -a ! -e include/generated"))
    (tree / "old.o").touch()
    (tree / ".config").write_text("CONFIG_A=n\n")
    (tree / "include" / "generated").mkdir(parents=True)
    build(silent, recipe)
    assert (tree / "old.o").exists()


def test_an_outer_makes_flags_do_not_reach_the_kernels(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    given(fake_tree(tmp_path / "linux"))
    monkeypatch.setenv("MAKEFLAGS", "n --jobserver-auth=97,98")
    monkeypatch.setenv("ARCH", "arm64")
    build(silent, recipe)


def test_a_failing_build_shows_the_end_of_its_log(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path]
) -> None:
    steps = "\t@for n in $$(seq 100); do echo line $$n; done; echo 'code.c:7: error: no such thing'; exit 1"
    given(fake_tree(tmp_path / "linux", steps))
    with pytest.raises(NotValid) as caught:
        build(silent, recipe)
    assert "code.c:7: error: no such thing" in str(caught.value)
    assert "line 99" in str(caught.value)
    assert "line 9\n" not in str(caught.value)
    log = kernels_folder() / "build.log"
    assert str(log) in str(caught.value)
    assert "line 9\n" in log.read_text()
    assert find(recipe) is None
    assert remains() == []


@pytest.mark.parametrize(
    ("steps", "said"),
    [("\t@echo '#!/bin/sh' >answer", "does not know rng-seed="), ("\t@echo nonsense >answer", "does not")],
)
def test_a_kernel_that_lacks_our_patches_is_not_kept(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path], steps: str, said: str
) -> None:
    given(fake_tree(tmp_path / "linux", steps))
    with pytest.raises(NotValid, match=said):
        build(silent, recipe)
    assert find(recipe) is None


@pytest.mark.parametrize("code", ["something\nelse\n", "nearly\noriginal\nlast\n"])
def test_a_patch_that_does_not_fit_exactly_is_named(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path], code: str
) -> None:
    tree = given(fake_tree(tmp_path / "linux"))
    (tree / "code.c").write_text(code)
    with pytest.raises(EnvironmentLacks, match=r"fence\.patch does not apply"):
        build(silent, recipe)
    assert remains() == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("CONFIG_A=y\nCONFIG_LOST=y\n", "CONFIG_LOST=y"),
        ("CONFIG_LOST=y\nCONFIG_B=n\nCONFIG_LOST_TOO=y\n", "CONFIG_LOST=y, CONFIG_LOST_TOO=y"),
        ("CONFIG_A=n\nCONFIG_FORCED=n\n", "CONFIG_FORCED=n"),
        ("CONFIG_A=y\nCONFIG_FORCED=7\n", "CONFIG_FORCED=7"),
    ],
)
def test_an_option_that_is_not_taken_is_named(
    tmp_path: Path, given: Callable[[Path], Path], options: str, named: str
) -> None:
    given(fake_tree(tmp_path / "linux"))
    with pytest.raises(EnvironmentLacks, match=f"does not take the options {named} of"):
        build(silent, fake_recipe(tmp_path / "recipe", options))


def test_a_number_counts_only_where_there_is_such_an_option(tmp_path: Path, given: Callable[[Path], Path]) -> None:
    given(fake_tree(tmp_path / "linux"))
    build(silent, fake_recipe(tmp_path / "recipe", "CONFIG_A=7\nCONFIG_LOST=7\n"))


def test_an_option_under_its_new_name_counts(
    tmp_path: Path, given: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    given(fake_tree(tmp_path / "linux"))
    monkeypatch.setattr(builder, "RENAMED", {"CONFIG_LOST": "CONFIG_FOUND"})
    build(silent, fake_recipe(tmp_path / "recipe", "CONFIG_LOST=y\nCONFIG_FOUND=y\n"))
    with pytest.raises(EnvironmentLacks, match="CONFIG_LOST=y"):
        build(silent, fake_recipe(tmp_path / "recipe", "CONFIG_LOST=y\n"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        ("", "is not the source of a Linux kernel"),
        ("VERSION = 5\nPATCHLEVEL = 10\nSUBLEVEL = 0\n", r"is Linux 5\.10\.0"),
    ],
)
def test_a_source_that_is_none_is_refused(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path], content: str | None, said: str
) -> None:
    tree = given(tmp_path / "linux")
    if content is not None:
        tree.mkdir()
        (tree / "Makefile").write_text(content)
    with pytest.raises(InputError, match=said) as caught:
        build(silent, recipe)
    assert caught.value.where == "KERNEL_SOURCE"


def test_a_tarball_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "linux.tar.xz").write_bytes(b"\xfd7zXZ\x00 and then nothing of the kind")
    with pytest.raises(InputError, match="is not the source of a Linux kernel"):
        given_version(tmp_path / "linux.tar.xz")


def test_missing_tools_are_named_with_their_packages(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in ("gcc", "ld", "make", "bc", "patch", "tar"):
        (tmp_path / program).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentLacks) as caught:
        build(silent, recipe)
    assert caught.value.mend.split()[-3:] == ["bison", "flex", "xz-utils"]


def test_a_full_disk_is_seen_before_anything_begins(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    given(fake_tree(tmp_path / "linux"))
    usage = shutil.disk_usage(tmp_path)._replace(free=100 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(EnvironmentLacks, match="has 100 MB free"):
        build(silent, recipe)


def test_two_processes_build_once(tmp_path: Path, recipe: Recipe) -> None:
    count = tmp_path / "count"
    tarball = fake_tarball(fake_tree(tmp_path / "linux", f"\t@sleep 0.5; echo built >>{count}"))
    builds = [start_build(recipe, {"KERNEL_SOURCE": str(tarball)}) for _ in range(2)]
    results = [process.communicate(timeout=PATIENCE_S) for process in builds]
    assert [process.returncode for process in builds] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert count.read_text() == "built\n"


class Hanging(NamedTuple):
    """A build in a process of its own that has come to its compiler and stays there."""

    process: subprocess.Popen[str]
    compiler: int


@pytest.fixture
def hanging(tmp_path: Path, recipe: Recipe) -> Hanging:
    began = tmp_path / "began"
    tree = fake_tree(tmp_path / "linux", f"\t@echo $$$$ >{began}.new; mv {began}.new {began}; exec sleep 1000")
    process = start_build(recipe, {"KERNEL_SOURCE": str(tree)})
    until(lambda: began.exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return Hanging(process, int(began.read_text()))


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts as ended."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_build_leaves_nothing(hanging: Hanging, number: signal.Signals) -> None:
    assert len(remains()) == 1
    os.kill(hanging.process.pid, number)
    hanging.process.communicate(timeout=PATIENCE_S)
    assert hanging.process.returncode in (128 + number, -number)
    assert remains() == []
    until(lambda: gone(hanging.compiler))


def test_whatever_interrupts_a_build_ends_its_programs(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path]
) -> None:
    pid = tmp_path / "pid"
    given(fake_tree(tmp_path / "linux", f"\t@echo $$$$ >{pid}; echo '  CC      more.o'; exec sleep 1000"))

    def interrupt(_: float, text: str) -> None:
        if "compiling: 2" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(interrupt, recipe)
    until(lambda: gone(int(pid.read_text())))
    assert remains() == []


def test_a_killed_builds_remains_are_swept_by_the_next(
    hanging: Hanging, tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path]
) -> None:
    hanging.process.kill()
    hanging.process.communicate(timeout=PATIENCE_S)
    assert len(remains()) == 1
    until(lambda: gone(hanging.compiler))
    given(fake_tree(tmp_path / "other"))
    assert build(silent, recipe) == find(recipe)
    assert remains() == []


def test_temporary_folder_instead_of_the_cache(
    tmp_path: Path, recipe: Recipe, given: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    given(fake_tree(tmp_path / "linux", f"\t@pwd >{seen}"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    build(silent, recipe, in_tmpdir=True)
    assert Path(seen.read_text()).is_relative_to(tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []
