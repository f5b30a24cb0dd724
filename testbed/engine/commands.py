"""`exec` and `shell`: a command of the user's in a guest of its own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from testbed.engine.kernel import Kernel, find
from testbed.engine.launch import PROJECT, Guest, Job, Machine, Sink
from testbed.engine.terminal import run_on_terminal
from testbed.errors import EnvironmentLacks, InputError

GUEST_BIN = PROJECT / "testbed" / "engine" / "guest" / "bin"
PROJECT_IN_GUEST, PYTHON_IN_GUEST, RESULTS_IN_GUEST = "/run/orrery/project", "/run/orrery/venv", "/run/orrery/results"
"""Where a program of ours finds the project, its virtual environment and its results: the same paths for everybody."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def ready_kernel() -> Kernel:
    """Return the newest built kernel. Raises EnvironmentLacks when there is none yet."""
    kernel = find()
    if kernel is None:
        raise EnvironmentLacks("the guest kernel is not built yet", "python -m testbed kernel build")
    return kernel


def environment() -> dict[str, str]:
    """Return what the guest's environment has beside init's own: the same for every user of the same checkout."""
    return {
        "PATH": f"{GUEST_BIN}:{SYSTEM_PATH}",
        "PYTHONPATH": str(PROJECT),
        "ORRERY_PYTHON": sys.executable,
    }


def program_job(arguments: tuple[str, ...], cwd: str, write: Path) -> Job:
    """Return the job of a Python program of ours, which sees nothing of where its user keeps the project."""
    return Job(
        argv=(f"{PYTHON_IN_GUEST}/bin/python", *arguments),
        cwd=cwd,
        env={"PATH": f"{PROJECT_IN_GUEST}/testbed/engine/guest/bin:{SYSTEM_PATH}", "PYTHONPATH": PROJECT_IN_GUEST},
        write=(str(write.resolve()), RESULTS_IN_GUEST),
        mounts=((str(PROJECT), PROJECT_IN_GUEST), (sys.prefix, PYTHON_IN_GUEST)),
    )


def _writable(write: Path | None) -> tuple[str, str] | None:
    if write is None:
        return None
    folder = write.resolve()
    if not folder.is_dir():
        raise InputError("--write", f"{write} is not a folder", f"mkdir -p {write}")
    if folder == Path("/"):
        raise InputError("--write", "the whole machine is not a folder to hand out", "name a folder for results")
    return str(folder), str(folder)


def _mounts() -> tuple[tuple[str, str], ...]:
    folders = dict.fromkeys((str(PROJECT), sys.prefix, str(Path.cwd())))
    return tuple((folder, folder) for folder in folders if folder not in ("/", "/tmp", "/run", "/var/log", "/var/tmp"))


def execute(command: list[str], machine: Machine, write: Path | None, open_vswitch: bool = True) -> int:
    """Run a command in a guest on this process's streams and return its exit code.

    Raises InputError, EnvironmentLacks, GuestDied. Ctrl-C ends the guest and gives 130.
    """
    piped = not os.isatty(0) and os.fstat(0).st_rdev != Path(os.devnull).stat().st_rdev
    job = Job(
        argv=tuple(command), cwd=str(Path.cwd()), env=environment(), write=_writable(write), mounts=_mounts(),
        open_vswitch=open_vswitch, stdin=piped,
    )  # fmt: skip
    guest = Guest(job, machine, ready_kernel())
    try:
        return guest.run(_to(sys.stdout.fileno()), _to(sys.stderr.fileno()), stdin=sys.stdin.buffer if piped else None)
    except KeyboardInterrupt:
        return 130


def interact(command: list[str], machine: Machine, write: Path | None, open_vswitch: bool = True) -> int:
    """Run a command on this process's terminal in a guest and return its exit code."""
    size = shutil.get_terminal_size()
    job = Job(
        argv=tuple(command), cwd=str(Path.cwd()), write=_writable(write), mounts=_mounts(),
        env=environment() | {"TERM": os.environ.get("TERM", "xterm"), "PS1": r"guest:\w# "},
        open_vswitch=open_vswitch, terminal=(size.lines, size.columns),
    )  # fmt: skip
    return run_on_terminal(job, machine, ready_kernel())


def _to(descriptor: int) -> Sink:
    def write(chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            view = view[os.write(descriptor, view) :]

    return write
