"""An ordinary user, without root and without any capability, can do all of it and gets the same bytes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import User

pytestmark = pytest.mark.guest

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_mininet_runs_for_a_user_without_any_right(somebody: User) -> None:
    ended = somebody.run("exec", "--", "mn", "--topo", "single,2", "--switch", "ovsk", "--test", "pingall")
    assert ended.returncode == 0, ended.stderr
    assert "0% dropped (2/2 received)" in ended.stdout + ended.stderr


def test_inside_everybody_is_root_and_outside_nobody_becomes_it(somebody: User) -> None:
    folder = somebody.home / "out"
    folder.mkdir()
    somebody.own(folder)
    script = f"id -u; grep CapEff /proc/self/status; echo mine > {folder}/file; touch /etc/orrery-was-here; exit 9"
    ended = somebody.run("exec", "--no-vswitch", "--write", folder, "--", "sh", "-c", script)
    assert ended.stdout.splitlines()[0] == "0"
    assert int(ended.stdout.split()[-1], 16) > 0
    assert ended.returncode == 9
    assert (folder / "file").read_text() == "mine\n"
    assert (folder / "file").stat().st_uid == somebody.uid
    assert not Path("/etc/orrery-was-here").exists()


def test_the_same_seed_is_the_same_guest_whoever_starts_it(orrery: Run, somebody: User) -> None:
    script = "head -c 16 /dev/urandom | base64; env | sort; pwd; cat /proc/sys/kernel/random/boot_id /proc/cmdline"
    theirs = somebody.run("exec", "--no-vswitch", "--seed", "3", "--", "sh", "-c", script)
    ours = orrery("exec", "--no-vswitch", "--seed", "3", "--", "sh", "-c", script)
    assert theirs.stdout == ours.stdout
    assert len(ours.stdout.splitlines()) > 10
    other = orrery("exec", "--no-vswitch", "--seed", "4", "--", "sh", "-c", script)
    assert other.stdout.splitlines()[0] != ours.stdout.splitlines()[0]
