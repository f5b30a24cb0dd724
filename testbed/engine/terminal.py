"""A guest on the user's terminal, for `shell`.

The guest gets a pseudo-terminal of its own and the launcher copies between the two: a guest that were given the real
terminal would leave it in non-blocking raw mode behind.
"""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from testbed.engine.kernel import Kernel
from testbed.engine.launch import Guest, Job, Machine
from testbed.errors import InputError


@contextmanager
def _raw(terminal: int) -> Iterator[None]:
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _same_size(terminal: int, other: int) -> Iterator[None]:
    """Give the other terminal this one's size, also when it changes: the guest takes it from there."""

    def adapt(*_: object) -> None:
        termios.tcsetwinsize(other, termios.tcgetwinsize(terminal))

    adapt()
    before = signal.signal(signal.SIGWINCH, adapt)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _copy(source: int, sink: int) -> None:
    with suppress(OSError):  # either side may be gone first
        while chunk := os.read(source, 1 << 14):
            os.write(sink, chunk)


def run_on_terminal(job: Job, machine: Machine, kernel: Kernel) -> int:
    """Run an interactive job (its `terminal` is the size to use) on this process's terminal; return its exit code.

    Raises InputError when standard input is no terminal.
    """
    if not os.isatty(sys.stdin.fileno()):
        raise InputError("shell", "standard input is not a terminal", "use exec for commands in scripts")
    ours, theirs = pty.openpty()
    copies = [
        threading.Thread(target=_copy, args=(sys.stdin.fileno(), ours), daemon=True),
        threading.Thread(target=_copy, args=(ours, sys.stdout.fileno()), daemon=True),
    ]
    with _raw(sys.stdin.fileno()), _same_size(sys.stdin.fileno(), theirs):
        for copy in copies:
            copy.start()
        try:
            return Guest(job, machine, kernel).run(_drop, _drop, terminal=theirs)
        finally:
            os.close(theirs)
            copies[1].join(timeout=1)  # what the guest said last is still on its way
            os.close(ours)


def _drop(_: bytes) -> None:
    """Nothing comes over the guest's serial lines while it has a terminal."""
