"""Built kernels are found by what they were built from, and whoever looks finds a whole one or none."""

from __future__ import annotations

import fcntl
import re
from pathlib import Path

import pytest
from kernel_fakes import fake_recipe

from testbed.engine.kernel.cache import (
    RECIPE,
    Kernel,
    Recipe,
    cached,
    exclusive,
    find,
    kernels_folder,
    numbers,
    store,
    workspace,
)
from testbed.errors import EnvironmentLacks


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KERNEL_SOURCE", raising=False)
    kernels_folder().mkdir(parents=True)
    return tmp_path / "cache"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return fake_recipe(tmp_path / "recipe")


def put(recipe: Recipe, version: str, source: str = "apt") -> Kernel:
    binary = kernels_folder() / "fresh"
    binary.write_text(version)
    return store(binary, version, recipe, {"source": source, "seccomp": True})


def test_versions_compare_as_numbers() -> None:
    assert numbers("linux-source-6.9") < numbers("linux-source-6.12") < numbers("7.2.12-1~bpo13+1")


def test_the_newest_kernel_of_the_recipe_is_found(recipe: Recipe) -> None:
    assert find(recipe) is None
    for version in ("7.10.1-1", "7.9.4-1~bpo13+1", "6.12.117-1"):
        put(recipe, version)
    found = find(recipe)
    assert found is not None
    assert found.version == "7.10.1-1"
    assert found.path.read_text() == "7.10.1-1"
    assert found.key in str(found.path)
    assert found.path.stat().st_mode & 0o777 == 0o755


def test_any_byte_of_the_recipe_makes_another_kernel(recipe: Recipe) -> None:
    first = put(recipe, "7.2.1")
    recipe.config.write_text(recipe.config.read_text() + "CONFIG_C=y\n")
    assert find(recipe) is None
    second = put(recipe, "7.2.1")
    assert second.key != first.key
    recipe.patches[0].write_text(recipe.patches[0].read_text().replace("patched", "mended"))
    assert find(recipe) is None
    assert first.path.exists()
    assert second.path.exists()


def test_bytes_moved_between_files_are_another_recipe(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("xy")
    b.write_text("z")
    before = Recipe(a, (b,)).digest()
    a.write_text("x")
    b.write_text("yz")
    assert Recipe(a, (b,)).digest() != before


def test_a_users_own_source_counts_alone(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(recipe, "7.3.1")
    own = put(recipe, "7.2.1-abcdef", source=str(tmp_path / "linux.tar.xz"))
    monkeypatch.setenv("KERNEL_SOURCE", str(tmp_path / "linux.tar.xz"))
    assert find(recipe) == own
    monkeypatch.setenv("KERNEL_SOURCE", str(tmp_path / "other"))
    assert find(recipe) is None


@pytest.mark.parametrize("absent", ["linux", "info.json"])
def test_half_a_kernel_is_none(recipe: Recipe, absent: str) -> None:
    kernel = put(recipe, "7.2.1")
    (kernel.path.parent / absent).unlink()
    assert find(recipe) is None
    assert cached("7.2.1", recipe) is None
    assert put(recipe, "7.2.1") == kernel == find(recipe)


def test_storing_again_leaves_a_running_kernels_file_alone(recipe: Recipe) -> None:
    kernel = put(recipe, "7.2.1")
    with kernel.path.open() as running:
        kernels_folder().joinpath("fresh").write_text("other")
        store(kernels_folder() / "fresh", "7.2.1", recipe, {"source": "apt", "seccomp": False})
        assert running.read() == "7.2.1"
    assert kernel.path.read_text() == "other"
    assert sorted(path.name for path in kernel.path.parent.iterdir()) == ["info.json", "linux"]


def test_a_version_cannot_leave_the_cache(recipe: Recipe) -> None:
    kernel = put(recipe, "7.2.1/../../x y")
    assert kernel.path.parent.parent == kernels_folder()
    assert find(recipe) == kernel


def test_a_workspace_is_gone_afterwards_whatever_happens(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), workspace(tmp_path) as work:
        (work / "tree").mkdir()
        raise RuntimeError
    assert not work.exists()


def test_remains_of_the_dead_are_swept_and_the_living_are_not(tmp_path: Path) -> None:
    dead, living, foreign = (tmp_path / f"orrery-kernel-{name}" for name in ("dead", "living", "file"))
    for folder in (dead, living):
        folder.mkdir()
        (folder / "lock").touch()
    (dead / "tree").mkdir()
    foreign.write_text("not a workspace")
    with (living / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with workspace(tmp_path):
            assert not dead.exists()
            assert living.exists()
    assert foreign.exists()


def test_a_cache_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentLacks, match="ORRERY_CACHE"), exclusive(lambda *_: None):
        pytest.fail("the lock was had")
    assert find(RECIPE) is None


def test_our_options_are_each_asked_for_once() -> None:
    lines = RECIPE.config.read_text().splitlines()
    names = [line.split("=")[0] for line in lines if line and not line.startswith("#")]
    assert all(name.startswith("CONFIG_") for name in names)
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"#.*|CONFIG_\w+=(y|n|\d+)", line) for line in lines)
    assert {patch.stem for patch in RECIPE.patches} == {
        "hostfs-writable",
        "missing-file",
        "read-after-fork",
        "rng-seed",
    }
