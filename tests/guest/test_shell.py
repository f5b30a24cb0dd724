"""`shell`: a guest on a terminal, which is afterwards as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.guest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0


class Terminal:
    """A terminal with a command on it: what is typed, and what is seen."""

    def __init__(self, *command: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 33, 111, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "testbed", "shell", *command],
            cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, close_fds=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=dict(os.environ),  # without what the readline that pytest loads says of pytest's own terminal
        )  # fmt: skip
        self.theirs = theirs
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def see(self, pattern: str) -> re.Match[str]:
        """Wait until what was written since the last call matches."""
        os.set_blocking(self.ours, False)
        give_up_s = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < give_up_s, f"no {pattern!r} in {self.seen!r}"
            try:
                self.seen += os.read(self.ours, 1 << 14).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
        self.seen = self.seen[found.end() :]
        return found

    def rest(self) -> str:
        """What was written since, once nothing more will be."""
        with suppress(BlockingIOError):
            self.seen += os.read(self.ours, 1 << 14).decode(errors="replace")
        return self.seen

    def end(self) -> int:
        """Wait for the command's end; the terminal must then be as it was."""
        code = self.process.wait(PATIENCE_S)
        assert termios.tcgetattr(self.theirs) == self.before
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A shell in a virtual-time guest: the quick one."""
    made = Terminal("--virtual-time", "--no-vswitch", "--", "/bin/bash", "--norc", "-i")
    yield made
    made.close()


def test_a_shell_knows_its_terminal_and_passes_its_exit_code_on(terminal: Terminal) -> None:
    terminal.see(r"guest:\S*# ")
    terminal.type("stty size; tty; id -u; echo $((6 * 7))th; exit 5\r")
    terminal.see(r"33 111\r\n/dev/tty0\r\n0\r\n42th\r\n")
    assert terminal.end() == 5
    assert terminal.rest() == "exit\r\n"


def test_a_terminal_that_changes_its_size_changes_the_guests(terminal: Terminal) -> None:
    terminal.see(r"guest:\S*# ")
    fcntl.ioctl(terminal.ours, termios.TIOCSWINSZ, struct.pack("4H", 44, 155, 0, 0))
    for _ in range(100):  # the guest hears of it a little later
        terminal.type("stty size\r")
        if terminal.see(r"(\d+ \d+)\r\n")[1] == "44 155":
            break
    else:
        raise AssertionError("the guest's terminal kept its size")


def test_ctrl_c_ends_what_runs_in_the_guest_and_not_the_guest(terminal: Terminal) -> None:
    terminal.see(r"guest:\S*# ")
    terminal.type("read -r line\r")
    terminal.see(r"read -r line\r\n")
    terminal.type("\x03")
    terminal.see(r"\^C\r\n.*guest:\S*# ")
    terminal.type("echo code $?; exit\r")
    terminal.see(r"code 130\r\n")
    assert terminal.end() == 0


def test_a_launcher_that_is_told_to_end_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.see(r"guest:\S*# ")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() != 0
