"""The doctor sees what is there and what is not, and has a command for whatever is lacking."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.engine import doctor
from testbed.engine.doctor import Check, checks, usable
from testbed.engine.kernel import Kernel
from testbed.errors import EnvironmentLacks

KERNEL = Kernel(Path("/cache/linux"), "7.2.12-1", "7.2.12-1-abc", True)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "not" / "yet"))
    return tmp_path


def look(name: str) -> Check:
    return next(check for check in checks() if check.name == name)


def test_every_check_is_whole_and_nothing_is_changed(cache: Path) -> None:
    found = checks()
    assert len({check.name for check in found}) == len(found)
    for check in found:
        assert check.detail
        assert check.engine in ("any", "virtual", "native")
        assert not (check.ok and check.mend)
    assert list(cache.iterdir()) == []


def test_a_kernel_that_is_not_built_comes_with_its_command() -> None:
    check = look("guest kernel")
    assert not check.ok
    assert check.mend == "python -m testbed kernel build"
    assert not usable(checks(), "virtual")


def test_a_built_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find", lambda: KERNEL)
    assert look("guest kernel").detail == "Linux 7.2.12-1"
    monkeypatch.setattr(doctor, "missing_packages", lambda: ["flex"])
    tools = look("kernel build tools")
    assert (tools.ok, tools.optional) == (False, True)
    assert tools.mend == "apt-get install --no-install-recommends flex"


def test_programs_that_are_missing_are_named_with_their_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "ADMIN_PATH", str(tmp_path))
    for name, package in (
        ("open vswitch", "openvswitch-switch"), ("ip and tc", "iproute2"), ("ethtool", "ethtool"),
    ):  # fmt: skip
        check = look(name)
        assert not check.ok
        assert check.mend == f"apt-get install {package}"
    assert look("tshark").optional
    assert not usable(checks(), "virtual")


def test_programs_of_the_administrator_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ethtool").touch(0o755)
    monkeypatch.setattr(doctor, "ADMIN_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    assert look("ethtool").detail == str(tmp_path / "ethtool")


def test_missing_python_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MODULES", ("json", "no_such_module", "nor_this"))
    check = look("python packages")
    assert not check.ok
    assert check.detail == "no_such_module, nor_this missing"
    assert check.mend == "make setup"


@pytest.mark.parametrize(
    ("kernel", "traps", "ok", "said"),
    [
        (None, True, False, "known once"),
        (KERNEL, True, True, "full speed"),
        (KERNEL, False, False, "this machine has none"),
        (Kernel(Path("/x"), "6.12.117", "k", False), True, False, "not in Linux 6.12.117"),
    ],
)
def test_seccomp_needs_the_kernel_and_the_machine(
    monkeypatch: pytest.MonkeyPatch, kernel: Kernel | None, traps: bool, ok: bool, said: str
) -> None:
    monkeypatch.setattr(doctor, "find", lambda: kernel)
    monkeypatch.setattr(doctor, "_host_traps", lambda: traps)
    check = look("seccomp")
    assert check.ok is ok
    assert said in check.detail
    assert look("ptrace").optional is ok


def test_too_little_memory_is_said_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(size_bytes: int) -> Path:
        raise EnvironmentLacks(f"no folder can hold {size_bytes >> 20} MB", "enlarge /dev/shm")

    monkeypatch.setattr(doctor, "memory_folder", none)
    check = look("guest memory")
    assert not check.ok
    assert "2048 MB" in check.detail
    assert check.mend == "enlarge /dev/shm"


def test_a_cache_that_cannot_be_written_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORRERY_CACHE", "/proc/1/orrery")
    check = look("cache folder")
    assert not check.ok
    assert check.mend == "export ORRERY_CACHE=FOLDER"


def test_usable_asks_only_for_what_the_engine_needs() -> None:
    def check(ok: bool, engine: doctor.Engine, optional: bool = False) -> Check:
        return Check("x", ok, "d", "m", engine, optional)

    assert usable([check(True, "any"), check(False, "native"), check(False, "virtual", True)], "virtual")
    assert not usable([check(True, "any"), check(False, "native")], "native")
    assert not usable([check(False, "any")], "virtual")
