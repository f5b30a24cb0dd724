"""`exec`: a command in a guest of its own, with its streams, its exit code, its clock, and its fence."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.guest

Run = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("exec", "--no-vswitch")


def test_streams_stay_apart_and_the_exit_code_comes_back(orrery: Run) -> None:
    ended = orrery(*QUICK, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("out\n", "err\n", 7)


def test_standard_input_reaches_the_command_whole(orrery: Run) -> None:
    text = "".join(f"line {number}\n" for number in range(40_000))
    ended = orrery(*QUICK, "--", "cat", stdin=text)
    assert ended.stdout == text


def test_a_command_that_is_not_there(orrery: Run) -> None:
    ended = orrery(*QUICK, "--", "no-such-command")
    assert ended.returncode == 127
    assert "no-such-command" in ended.stderr


def test_a_command_killed_by_a_signal(orrery: Run) -> None:
    assert orrery(*QUICK, "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_mininets_own_command_passes(orrery: Run) -> None:
    ended = orrery("exec", "--", "mn", "--topo", "tree,3", "--switch", "ovsk", "--test", "pingall")
    assert ended.returncode == 0
    assert "0% dropped (56/56 received)" in ended.stdout + ended.stderr


def test_time_is_virtual(orrery: Run) -> None:
    program = "import time; a = time.time(); time.sleep(1e6); print(int(a), round(time.time() - a))"
    ended = orrery(*QUICK, "--", "/usr/bin/python3", "-c", program)
    assert ended.stdout == "1700000000 1000000\n"


def test_time_is_the_walls_when_asked_for(orrery: Run) -> None:
    before = time.time()
    ended = orrery(*QUICK, "--real-time", "--", "/usr/bin/python3", "-c", "import time; print(time.time())")
    assert before - 1 <= float(ended.stdout) <= time.time() + 1


def test_entropy_follows_the_seed(orrery: Run) -> None:
    draw = ("--", "sh", "-c", "head -c 32 /dev/urandom | base64")
    first, again, other = (orrery(*QUICK, "--seed", seed, *draw).stdout for seed in ("5", "5", "6"))
    assert first == again != other


def test_nothing_but_the_folder_given_can_be_written(orrery: Run, tmp_path: Path) -> None:
    folder = tmp_path / "with a space"
    folder.mkdir()
    attempts = [
        "touch /etc/orrery-was-here",
        f"touch '{Path.home()}/orrery-was-here'; false",  # into what covers the home folder, which goes with the guest
        f"touch '{Path(__file__).parent}/orrery-was-here'",
        "mount -o remount,rw /",
        "touch /etc/orrery-was-here",
        "mkdir -p /run/a && mount -t hostfs none /run/a -o /etc; touch /run/a/orrery-was-here",
        f"ln -s /etc '{folder}/link'; touch '{folder}/link/orrery-was-here'",
        f"mkdir -p /run/b && mount -t hostfs none /run/b -o '{folder}/link'; touch /run/b/orrery-was-here",
        f"mkdir -p /run/c && mount -t hostfs none /run/c -o '{folder}'; touch /run/c/orrery-was-here",
    ]
    script = "\n".join(f"({attempt}) 2>/dev/null && echo 'worked: {number}'" for number, attempt in enumerate(attempts))
    ended = orrery(*QUICK, "--write", folder, "--", "sh", "-c", f"{script}\necho fine > '{folder}/file'")
    assert "worked" not in ended.stdout
    assert (folder / "file").read_text() == "fine\n"
    assert sorted(path.name for path in folder.iterdir()) == ["file", "link"]
    for place in (Path("/etc"), Path.home(), Path(__file__).parent):
        assert not (place / "orrery-was-here").exists()


def test_the_host_cannot_be_reached(orrery: Run) -> None:
    ended = orrery(*QUICK, "--", "ip", "-o", "link")
    names = {line.split(": ")[1].partition("@")[0] for line in ended.stdout.splitlines()}
    assert names == {"lo"}


@pytest.mark.parametrize("file", ["test_fabric.py", "test_overlay.py"])
def test_networks_in_a_guest(orrery: Run, file: str) -> None:
    """These run as root inside: they build networks, break settings, and read them back."""
    program = ("-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/guest/{file}")
    ended = orrery("exec", "--", sys.executable, *program)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    assert " passed" in ended.stdout
    assert "skipped" not in ended.stdout.splitlines()[-1]
