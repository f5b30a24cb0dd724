"""Programs of ours that run beside another one, as long as it does."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.errors import NotValid

ENDS_WITHIN_S = 10.0


@contextmanager
def beside(name: str, arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program, started with `arguments`. At the end it must still run, and must end well when told to;
    raises NotValid, with the `name` it is called by, where it does not."""
    process = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.DEVNULL)
    try:
        yield process
        if process.poll() is not None:
            raise NotValid(f"{name} ended before its time, with exit code {process.returncode}")
        process.send_signal(signal.SIGTERM)
        if process.wait(ENDS_WITHIN_S) != 0:
            raise NotValid(f"{name} ended with exit code {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
