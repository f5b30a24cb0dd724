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


def _writable(write: Path | None) -> str | None:
    if write is None:
        return None
    folder = write.resolve()
    if not folder.is_dir():
        raise InputError("--write", f"{write} is not a folder", f"mkdir -p {write}")
    if folder == Path("/"):
        raise InputError("--write", "the whole machine is not a folder to hand out", "name a folder for results")
    return str(folder)


def _visible() -> tuple[str, ...]:
    return tuple(dict.fromkeys((str(PROJECT), sys.prefix, str(Path.cwd()))))


def execute(command: list[str], machine: Machine, write: Path | None, open_vswitch: bool = True) -> int:
    """Run a command in a guest on this process's streams and return its exit code.

    Raises InputError, EnvironmentLacks, GuestDied. Ctrl-C ends the guest and gives 130.
    """
    piped = not sys.stdin.closed and not os.isatty(0) and os.fstat(0).st_rdev != os.stat(os.devnull).st_rdev
    job = Job(
        argv=tuple(command), cwd=os.getcwd(), env=environment(), write=_writable(write), visible=_visible(),
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
        argv=tuple(command), cwd=os.getcwd(), write=_writable(write), visible=_visible(),
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
