"""What a guest takes of the machine: a CPU of its own while there are any, and a place for its memory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.engine import host
from testbed.engine.host import cpu_slot, memory_folder
from testbed.errors import EnvironmentLacks


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def two_cpus(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not cache.exists()
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _: {4, 7})


@pytest.mark.usefixtures("two_cpus")
def test_each_guest_has_a_cpu_of_its_own_while_there_are_any() -> None:
    with cpu_slot() as (first, lock), cpu_slot() as (second, other):
        assert {first, second} == {4, 7}
        assert None not in (lock, other)
        assert lock != other


@pytest.mark.usefixtures("two_cpus")
def test_beyond_that_they_share_in_turn() -> None:
    with cpu_slot(), cpu_slot():
        shared = []
        for _ in range(6):
            with cpu_slot() as (cpu, lock):
                assert lock is None
                shared.append(cpu)
    assert shared in ([4, 7] * 3, [7, 4] * 3)


@pytest.mark.usefixtures("two_cpus")
def test_a_cpu_is_free_again_when_its_guest_is_gone() -> None:
    with cpu_slot() as (first, _):
        pass
    with cpu_slot() as (again, lock):
        assert again == first
        assert lock is not None


@pytest.mark.usefixtures("two_cpus")
def test_a_cpu_is_taken_as_long_as_the_guest_lives_whatever_its_launcher_does() -> None:
    with cpu_slot() as (taken, lock):
        assert lock is not None
        guest = subprocess.Popen(["sleep", "600"], pass_fds=[lock])
    try:
        with cpu_slot() as (other, _):
            assert other != taken
    finally:
        guest.kill()
        guest.wait()
    with cpu_slot() as (again, _):
        assert again == taken


def test_without_a_cache_folder_a_guest_shares_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "file"))
    with cpu_slot() as (cpu, lock):
        assert cpu in os.sched_getaffinity(0)
        assert lock is None


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch, cache: Path) -> dict[str, tuple[int, int]]:
    """Folders by (free bytes, mount flags), instead of the machine's."""
    table = {str(cache): (0, 0)}

    def statvfs(folder: Path) -> SimpleNamespace:
        if str(folder) not in table:
            raise FileNotFoundError
        free, flags = table[str(folder)]
        return SimpleNamespace(f_bavail=free // 4096, f_frsize=4096, f_flag=flags)

    monkeypatch.setattr(host.os, "statvfs", statvfs)
    monkeypatch.setattr(host.os, "access", lambda *_: True)
    return table


def test_memory_goes_where_it_fits_and_may_be_executed(disks: dict[str, tuple[int, int]], cache: Path) -> None:
    disks |= {"/dev/shm": (4 << 30, 0), "/tmp": (8 << 30, 0)}
    assert memory_folder(2 << 30) == Path("/dev/shm")
    assert memory_folder(4 << 30) == Path("/dev/shm")
    assert memory_folder(5 << 30) == Path("/tmp")
    disks["/dev/shm"] = (4 << 30, os.ST_NOEXEC)
    assert memory_folder(2 << 30) == Path("/tmp")
    disks["/tmp"] = (1 << 30, 0)
    disks[str(cache)] = (3 << 30, 0)
    assert memory_folder(2 << 30) == cache


def test_memory_that_fits_nowhere_is_lacking_with_its_mend(disks: dict[str, tuple[int, int]]) -> None:
    disks |= {"/dev/shm": (64 << 20, 0), "/tmp": (8 << 30, os.ST_NOEXEC)}
    with pytest.raises(EnvironmentLacks, match=r"2048 MB \(/dev/shm has 64 MB, /tmp has 8192 MB") as caught:
        memory_folder(2 << 30)
    assert caught.value.exit_code == 3
    assert "mount -o remount,size=" in caught.value.mend


def test_a_folder_that_cannot_be_written_is_no_place(
    disks: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    disks |= {"/dev/shm": (4 << 30, 0), "/tmp": (4 << 30, 0)}
    monkeypatch.setattr(host.os, "access", lambda folder, _: folder != Path("/dev/shm"))
    assert memory_folder(2 << 30) == Path("/tmp")


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORRERY_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ann")
    assert host.cache_folder() == Path("/home/ann/.cache/orrery")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert host.cache_folder() == Path("/cache/orrery")
    monkeypatch.setenv("ORRERY_CACHE", "/elsewhere")
    assert host.cache_folder() == Path("/elsewhere")
