"""Run the programs that make a kernel: nothing of them outlives this process, however it ends."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from testbed.errors import EnvironmentLacks, OrreryError

PR_SET_PDEATHSIG = 1
TAIL_LINES = 25

TOOLS = {
    "gcc": "gcc", "ld": "binutils", "make": "make", "flex": "flex", "bison": "bison", "bc": "bc",
    "patch": "patch", "tar": "tar", "xz": "xz-utils",
}  # fmt: skip
"""Program that a build needs -> the Debian package that has it."""
C_HEADERS = Path("/usr/include/stdio.h")


class StepError(OrreryError):
    """A program ended with a status other than 0; `tail` holds the end of what it printed."""

    def __init__(self, argv: Sequence[str], status: int, tail: Sequence[str]) -> None:
        super().__init__(f"{argv[0]} ended with status {status}")
        self.tail = "\n".join(tail)


def missing_packages() -> list[str]:
    """Return the Debian packages that a kernel build needs and this machine lacks."""
    packages = {package for program, package in TOOLS.items() if shutil.which(program) is None}
    if not C_HEADERS.exists():
        packages.add("libc6-dev")
    return sorted(packages)


def require_tools() -> None:
    """Raise EnvironmentLacks, with the command that mends it, when a program a build needs is missing."""
    if packages := missing_packages():
        raise EnvironmentLacks(
            f"building the guest kernel needs {', '.join(packages)}",
            f"apt-get install --no-install-recommends {' '.join(packages)}",
        )


def run(
    argv: Sequence[str],
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    stdin: Path | None = None,
) -> None:
    """Run a program, append what it prints to `log`, and tell `on_line` each line.

    Raises StepError when it fails. Whatever interrupts this call ends the program and all its children
    first.
    """
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with log.open("a", buffering=1) as record, (stdin or Path(os.devnull)).open("rb") as source:
        process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True, preexec_fn=_end_with(os.getpid()),
        )  # fmt: skip
        assert process.stdout is not None
        try:
            for line in process.stdout:
                record.write(line)
                tail.append(line.rstrip())
                if on_line:
                    on_line(line)
            status = process.wait()
        except BaseException:
            _end(process)
            raise
        finally:
            process.stdout.close()
    if status:
        raise StepError(argv, status, tail)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack, as Ctrl-C does, so that what was begun is cleaned up."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_with(parent: int) -> Callable[[], None]:
    """Return what the child does before exec, so that `kill -9` of its parent ends it too."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the line above
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def _end(process: subprocess.Popen[str]) -> None:
    """End a program and its children: politely first, so that make removes half-written files."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
            break
