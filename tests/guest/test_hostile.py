"""Machines that lack something: a guest works all the same, or one line says what is lacking and how to mend it.

The machine is made so for the command alone: in a mount or network namespace of its own, or with calls denied to it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.engine.commands import ready_kernel

pytestmark = pytest.mark.guest

ROOT = Path(__file__).resolve().parents[2]
DENY = ROOT / "tests" / "guest" / "deny.py"
WORKS = ("exec", "--no-vswitch", "--", "echo", "works")
SHORT = ("run", "smoke", "--set", 'measure.arms=["together"]', "--set", "measure.iterations=2")


def run(*command: str, cache: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"ORRERY_CACHE": cache or str(ready_kernel().path.parents[2])}
    return subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip


def orrery(*arguments: str) -> str:
    return " ".join(map(_quoted, (sys.executable, "-m", "testbed", *arguments)))


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def on_machine(script: str, command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command where `script` has changed what is mounted; skip where nothing can be."""
    own = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))
    if run(*own, "mount", "-t", "tmpfs", "none", "/dev/shm").returncode != 0:
        pytest.skip("this user may not make a mount namespace")
    return run(*own, "sh", "-ec", f"{script}\nexec {command}")


def denied(calls: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if os.uname().machine != "x86_64":
        pytest.skip("the filter knows the system calls of x86-64")
    return run(sys.executable, str(DENY), calls, sys.executable, "-m", "testbed", *arguments)


def one_line(ended: subprocess.CompletedProcess[str], code: int) -> tuple[str, str]:
    """The error and its mend, which is all that was said on standard error."""
    assert ended.returncode == code, ended.stdout + ended.stderr
    what, mend = ended.stderr.splitlines()
    assert what.startswith("orrery: ")
    assert mend.startswith("  mend: ")
    return what, mend


@pytest.mark.parametrize(
    "script",
    [
        "mount -t tmpfs -o size=64m none /dev/shm",
        "mount -t tmpfs -o ro none /dev/shm",
        "mount -t tmpfs -o noexec none /dev/shm",
        'mkdir -p /run/dev && touch /run/dev/null && for d in null urandom tty; do touch /run/dev/$d; mount --bind '
        '/dev/$d /run/dev/$d; done; mount --rbind /run/dev /dev; test ! -e /dev/shm',
    ],
    ids=["64 MB of shm", "shm read-only", "shm not executable", "no shm"],
)  # fmt: skip
def test_without_its_usual_memory_folder_a_guest_takes_another(script: str) -> None:
    ended = on_machine(script, orrery(*WORKS))
    assert (ended.returncode, ended.stdout) == (0, "works\n"), ended.stderr


def test_memory_that_fits_nowhere_is_said() -> None:
    cache = ready_kernel().path.parents[2]
    script = f"mkdir -p /run/cache && mount --bind {cache} /run/cache && mount -o remount,ro,bind /run/cache\n"
    script += "export ORRERY_CACHE=/run/cache\n"
    if ROOT.is_relative_to("/tmp") or ROOT.is_relative_to("/var/tmp"):
        script += f"mkdir /run/tree && mount --rbind {ROOT} /run/tree\n"
    script += "".join(f"mount -t tmpfs -o size=64m none {folder}\n" for folder in ("/dev/shm", "/var/tmp", "/tmp"))
    if ROOT.is_relative_to("/tmp") or ROOT.is_relative_to("/var/tmp"):
        script += f"mkdir -p {ROOT} && mount --rbind /run/tree {ROOT} && cd {ROOT}\n"
    what, mend = one_line(on_machine("mount -t tmpfs none /run\n" + script, orrery(*WORKS)), 3)
    assert "no folder can hold the guest's memory" in what
    assert "--mem" in mend


def test_a_home_that_cannot_be_written_is_no_hindrance() -> None:
    cache = ready_kernel().path.parents[2]
    folders = {str(Path.home()), str(cache)}
    script = "\n".join(f"mount --bind {folder} {folder}; mount -o remount,ro,bind {folder}" for folder in folders)
    ended = on_machine(script, orrery(*WORKS))
    assert (ended.returncode, ended.stdout) == (0, "works\n"), ended.stderr


@pytest.mark.parametrize("calls", ["seccomp", "ptrace"])
def test_either_way_of_trapping_calls_will_do(calls: str) -> None:
    ended = denied(calls, *WORKS)
    assert (ended.returncode, ended.stdout) == (0, "works\n"), ended.stderr


def test_without_both_it_says_so() -> None:
    what, mend = one_line(denied("seccomp,ptrace", *WORKS), 3)
    assert "neither seccomp nor ptrace" in what
    assert "--cap-add SYS_PTRACE" in mend
    doctor = denied("seccomp,ptrace", "doctor")
    assert doctor.returncode == 3
    assert doctor.stdout.count("lacks  virtual") == 2


def test_too_little_memory_for_the_command_is_said() -> None:
    hungry = "x = [bytearray(1 << 20) for _ in range(400)]"
    command = ("exec", "--no-vswitch", "--mem", "256MB", "--", sys.executable, "-S", "-c", hungry)
    what, mend = one_line(run(sys.executable, "-m", "testbed", *command), 3)
    assert "too little memory" in what
    assert "--mem" in mend


def test_too_little_memory_for_any_guest_is_refused() -> None:
    ended = run(sys.executable, "-m", "testbed", "exec", "--mem", "255MB", "--", "true")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("size", ["8k", "100k"])
def test_a_full_disk_ends_a_run_and_nothing_else(size: str, tmp_path: Path) -> None:
    script = f"mount -t tmpfs -o size={size} none {tmp_path}\n"
    command = f"{orrery(*SHORT, '--results', str(tmp_path))}; code=$?; echo left: $(ls -A {tmp_path}); exit $code"
    ended = on_machine(script, f"sh -c {_quoted(command)}")
    assert ended.returncode in (1, 3)
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "the disk is full" in ended.stderr
    assert "mend: make room" in ended.stderr
    assert ended.stdout.splitlines()[-1] == "left:"


def test_without_a_network_a_guest_runs() -> None:
    own = ("unshare", "--net", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))
    if run(*own, "true").returncode != 0:
        pytest.skip("this user may not make a network namespace")
    ended = run(*own, sys.executable, "-m", "testbed", *WORKS)
    assert (ended.returncode, ended.stdout) == (0, "works\n"), ended.stderr


def test_without_a_network_a_kernel_cannot_be_had_and_it_says_so(tmp_path: Path) -> None:
    own = ("unshare", "--net", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))
    if run(*own, "true").returncode != 0:
        pytest.skip("this user may not make a network namespace")
    ended = run(*own, sys.executable, "-m", "testbed", "kernel", "build", cache=str(tmp_path))
    what, mend = one_line(ended, 3)
    assert "no kernel source that can be built" in what
    assert "KERNEL_SOURCE=" in mend
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {"build.log", "lock"}
