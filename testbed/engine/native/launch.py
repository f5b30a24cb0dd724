"""Start a job in namespaces of the machine's own kernel, carry its streams, and leave nothing behind.

Devices, switches, mounts and processes are made in namespaces that go with their first process. That one ends when its
standard input does, which its launcher holds: whichever way the launcher ends, there is nothing to take away.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from typing import IO, Any

from testbed.engine import doctor
from testbed.engine.code import PROJECT_IN_GUEST
from testbed.engine.guest import init
from testbed.engine.launch import PROJECT, GuestDied, Job, Sink
from testbed.engine.native import ledger
from testbed.errors import EnvironmentLacks

NAMESPACES = ("--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")


def check() -> None:
    """Raise EnvironmentLacks, which names all that is missing, unless this machine can run jobs natively."""
    lacking = [one for one in doctor.checks("native") if not (one.ok or one.optional)]
    if lacking:
        what = "; ".join(f"{one.name}: {one.detail}" for one in lacking)
        raise EnvironmentLacks(f"the native engine cannot run here: {what}", lacking[0].mend or "see doctor")


class NativeRun:
    """One run of one job, as testbed.engine.launch.Guest is one in a guest."""

    def __init__(self, job: Job) -> None:
        self.job = replace(job, mounts=((str(PROJECT), PROJECT_IN_GUEST), *job.mounts))
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_code: int | None = None
        self._died = "somebody killed it"

    def run(self, stdout: Sink, stderr: Sink, status: Callable[[dict[str, Any]], None] = lambda _: None) -> int:
        """Run the job and return its exit code. Raises GuestDied when it ended before its job, EnvironmentLacks."""
        check()
        with ledger.kept(), ExitStack() as stack:
            said, telling = os.pipe()
            lines = stack.enter_context(os.fdopen(said, "r", encoding="utf-8"))
            network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, network)
            inside = [sys.executable, "-sB", "-m", "testbed.engine.native.inside", str(telling), str(network)]
            self._process = subprocess.Popen(
                ["unshare", *NAMESPACES, *inside],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT,
                env=init.ENVIRONMENT, pass_fds=(telling, network), start_new_session=True,
            )  # fmt: skip
            os.close(telling)
            try:
                self._carry(lines, stdout, stderr, status)
            finally:
                self.stop()
        if self._exit_code is None:
            raise GuestDied(f"the native run ended before its command did: {self._died}")
        return self._exit_code

    def stop(self) -> None:
        """End everything if it still runs, and wait for its end."""
        process = self._process
        if process is not None:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.kill()
            process.wait()

    def _carry(self, lines: IO[str], stdout: Sink, stderr: Sink, status: Callable[[dict[str, Any]], None]) -> None:
        """Carry the streams until all of them are closed, as they are when the last process is gone."""
        process = self._process
        assert process is not None and process.stdin and process.stdout and process.stderr
        streams = (process.stdout, stdout), (process.stderr, stderr)
        pumps = [threading.Thread(target=_pump, args=each) for each in streams]
        for pump in pumps:
            pump.start()
        with suppress(BrokenPipeError, ValueError):  # it may have ended, and says why; or somebody stopped it
            process.stdin.write(json.dumps(asdict(self.job)).encode() + b"\n")
            process.stdin.flush()
        for line in lines:
            message = json.loads(line)
            if "exit" in message:
                self._exit_code = int(message["exit"])
            elif "died" in message:
                self._died = message["died"]
            else:
                status(message)
        for pump in pumps:
            pump.join()


def _pump(source: IO[bytes], sink: Sink) -> None:
    with source:
        while chunk := os.read(source.fileno(), 1 << 16):
            sink(chunk)
