"""Programs of ours in a guest: what they tell the launcher, and those that run beside another one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import NotValid

ENDS_WITHIN_S = 10.0


class Status:
    """Tells the launcher, who alone has a wall clock, what the guest is doing and how far its virtual time is."""

    def __init__(self, path: str | None) -> None:
        self._file = Path(path).open("w", buffering=1) if path else None  # noqa: SIM115 - as long as the process

    def say(self, **message: object) -> None:
        """Send one message; without a launcher it is dropped."""
        if self._file:
            self._file.write(json.dumps(message) + "\n")


@contextmanager
def beside(name: str, arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program, started with `arguments`. At the end it must still run, and must end well when told to;
    raises NotValid, with the `name` it is called by, where it does not."""
    process = start(arguments)
    try:
        yield process
    except BaseException:
        end(name, process, expected=False)
        raise
    end(name, process)


def python() -> list[str]:
    """Return the command of this Python, without `site` where it runs without."""
    return [sys.executable, *(["-S"] if sys.flags.no_site else [])]


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start a Python program."""
    return subprocess.Popen([*python(), *arguments], stdin=subprocess.DEVNULL)


def end(name: str, process: subprocess.Popen[bytes], expected: bool = True) -> None:
    """End a program: raises NotValid when it has ended before, or does not end well. Not `expected`, it is killed."""
    try:
        if not expected:
            return
        if process.poll() is not None:
            raise NotValid(f"{name} ended before its time, with exit code {process.returncode}")
        process.send_signal(signal.SIGTERM)
        if process.wait(ENDS_WITHIN_S) != 0:
            raise NotValid(f"{name} ended with exit code {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
