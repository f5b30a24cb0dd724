"""Start a guest, carry its streams, and leave nothing behind.

A guest is one User-Mode Linux process and its children. It inherits one pipe for each stream (standard output,
standard error, standard input, status, console) as a serial line, a descriptor for each folder it may see, and its
job on the kernel's command line, so that no file is made for it: whichever way the launcher ends, there is nothing to
clean up. The memory file has no name (O_TMPFILE), the kernel makes no pid folder, and the guest is killed by the host's
kernel when its launcher dies.

Linux mixes its command line into its entropy. Descriptors therefore have the same numbers in every guest, and folders
appear on the command line by descriptor, not by path: the same scenario gives the same packets in whichever folder it
lies.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import json
import os
import selectors
import signal
import struct
import subprocess
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from io import FileIO
from pathlib import Path
from typing import IO, Any

from testbed.engine.code import PROJECT_IN_GUEST, compiled
from testbed.engine.fence import fence, homes, restrict
from testbed.engine.guest.init import COVERED, COVERED_HOMES
from testbed.engine.host import cpu_slot, memory_folder
from testbed.engine.kernel import Kernel
from testbed.errors import EnvironmentLacks, InputError, NotValid, OrreryError, shortened

PROJECT = Path(__file__).resolve().parents[2]
INIT = "testbed/engine/guest/init.py"
CLOCK_START_NS = 1_700_000_000 * 10**9
"""Every virtual-time guest's clock starts here (2023-11-14 22:13:20 UTC): a fixed instant, so that stamps agree."""
COMMAND_LINE_MAX = 4096
PIPE_BYTES = 1 << 20
GUEST_UP = {"stage": "guest up"}
DESCRIPTORS = {
    name: 200 + number
    for number, name in enumerate(
        ("stdout", "stderr", "status", "console", "stdin", "terminal", "slot", "project", "write", "home", "mount")
    )
}
"""The guest's number of every inherited descriptor; mounts go on from the last one."""
PR_SET_PDEATHSIG = 1
_FAREWELL = "remove_umid_dir"
"""What the kernel says at every end of the pid folder that it is told not to make; no reason of anything."""
DEATHS = (
    (
        "check_ptrace", "this machine lets no process trap the system calls of another: neither seccomp nor ptrace",
        "in a container: --cap-add SYS_PTRACE, or --security-opt seccomp=unconfined",
    ),
    ("Out of memory", "the guest has too little memory for this", "give more with --mem, as in --mem 4GB"),
)  # fmt: skip
"""What a guest's last words mean: (words, what is lacking, its mend)."""

Sink = Callable[[bytes], None]


class GuestDied(NotValid):
    """The guest ended without an exit status of its command: a panic, or somebody killed it."""


@dataclass(frozen=True)
class Job:
    """What a guest is to do: `argv` runs as the guest's root in `cwd`.

    `write` is the one writable host folder, `mounts` are read-only ones; each is a pair of its path on the host and its
    path in the guest. Our own code (testbed.engine.code) is there without being asked for.
    """

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    write: tuple[str, str] | None = None
    mounts: tuple[tuple[str, str], ...] = ()
    open_vswitch: bool = True
    terminal: tuple[int, int] | None = None
    """Rows and columns of the terminal of an interactive guest; None for pipes."""
    stdin: bool = False
    home: bool = False
    """Whether the guest sees the user's home folder."""


@dataclass(frozen=True)
class Machine:
    """How a guest is made: `memory_bytes` of guest memory, the `seed` of all its entropy, and which clock it has."""

    memory_bytes: int = 2 << 30
    seed: int = 1
    real_time: bool = False


def host_path(descriptor: int) -> str:
    """Return the path by which the guest's kernel, a process of the host, reaches an inherited folder."""
    return f"/proc/self/fd/{descriptor}"


def encode_job(job: Job) -> str:
    """Return the job as one word for the kernel's command line, folders by descriptor.

    Raises InputError when the command is too long for it.
    """
    first = DESCRIPTORS["mount"]
    mounts = [(host_path(DESCRIPTORS["project"]), PROJECT_IN_GUEST)]
    mounts += [(host_path(first + number), guest) for number, (_, guest) in enumerate(job.mounts)]
    write = (host_path(DESCRIPTORS["write"]), job.write[1]) if job.write else None
    folders = {"mounts": mounts, "write": write, "home": None if job.home else host_path(DESCRIPTORS["home"])}
    text = json.dumps(asdict(job) | folders, separators=(",", ":"))
    packed = zlib.compress(text.encode(), 9)
    word = base64.b64encode(packed).decode()
    if len(word) > COMMAND_LINE_MAX - 700:
        raise InputError("command", f"too long for a guest ({len(word)} bytes packed)", "put it into a script file")
    return word


def kernel_arguments(job: Job, machine: Machine, kernel: Kernel) -> list[str]:
    """Return the User-Mode Linux command line."""
    line = DESCRIPTORS
    arguments = [
        f"mem={machine.memory_bytes >> 20}M",
        "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
        f"init={host_path(line['project'])}/{INIT}",
        "con=null", "ssl=null",
        f"con0=fd:{line['terminal']}" if job.terminal else f"con0=null,fd:{line['console']}",
        f"ssl0=null,fd:{line['stdout']}", f"ssl1=null,fd:{line['stderr']}", f"ssl2=null,fd:{line['status']}",
        "uml_dir=/dev/null/",  # not a folder: the kernel then makes no pid folder that a kill would leave behind
        "quiet", "loglevel=3", "norandmaps", "panic=-1", "dummy.numdummies=0",
        f"hostfs-writable={host_path(line['write']) if job.write else 'none'}",
        f"rng-seed={machine.seed}",
        f"ORRERY_JOB={encode_job(job)}",
    ]  # fmt: skip
    if job.stdin:
        arguments.append(f"ssl3=fd:{line['stdin']},null")
    if kernel.seccomp:
        arguments.append("seccomp=auto")
    if not machine.real_time:
        arguments += ["time-travel=inf-cpu", f"time-travel-start={CLOCK_START_NS}"]
    return arguments


@contextmanager
def _folders(job: Job) -> Iterator[dict[int, int]]:
    """Yield the descriptors of the job's folders, by their number in the guest. Raises InputError when one is gone."""
    wanted = {DESCRIPTORS["project"]: str(compiled(PROJECT))}
    if job.write:
        wanted[DESCRIPTORS["write"]] = job.write[0]
    wanted |= {DESCRIPTORS["mount"] + number: host for number, (host, _) in enumerate(job.mounts)}
    opened: dict[int, int] = {}
    try:
        for number, path in wanted.items():
            try:
                kind = os.O_RDONLY if number == DESCRIPTORS["project"] else os.O_PATH
                opened[number] = os.open(path, kind | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise InputError(path, f"cannot be shown to a guest: {error.strerror}") from error
        with suppress(OSError):  # a file system without locks; where there are, the copy stays as long as the guest
            fcntl.flock(opened[DESCRIPTORS["project"]], fcntl.LOCK_SH)
        if not job.home and (own := _home_elsewhere()):
            opened[DESCRIPTORS["home"]] = os.open(own, os.O_PATH | os.O_CLOEXEC)
        yield opened
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def _home_elsewhere() -> Path | None:
    """Return the user's home folder where it lies elsewhere than homes do, which every guest covers."""
    usual = (*COVERED_HOMES, *COVERED)
    return next((own for own in homes() if not any(own.is_relative_to(path) for path in usual)), None)


def _before_exec(cpu: int, inherited: Mapping[int, int], ruleset: int | None) -> Callable[[], None]:
    """Return what the child does between fork and exec: die with its launcher, keep to its CPU, number descriptors,
    stay behind its fence."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    launcher = os.getpid()

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != launcher:  # it died before the line above
            os.kill(os.getpid(), signal.SIGKILL)
        os.sched_setaffinity(0, {cpu})
        for number, descriptor in inherited.items():
            os.dup2(descriptor, number)
        if ruleset is not None:
            restrict(ruleset)

    return prepare


@contextmanager
def _pipes(names: tuple[str, ...]) -> Iterator[dict[str, tuple[FileIO, FileIO]]]:
    """Yield an unbuffered (reader, writer) for each name; all are closed at the end."""
    with ExitStack() as stack:
        pairs = {}
        for name in names:
            reader, writer = os.pipe()
            with suppress(OSError):  # a large pipe, where allowed, so that a guest never waits for its reader
                fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            pairs[name] = (
                stack.enter_context(os.fdopen(reader, "rb", buffering=0)),
                stack.enter_context(os.fdopen(writer, "wb", buffering=0)),
            )
        yield pairs


@contextmanager
def _feeder(source: IO[bytes]) -> Iterator[tuple[threading.Thread, int]]:
    """Yield a thread that will copy `source` into a pipe, and the pipe's reading end, which the guest inherits.

    The copying starts once the guest has opened its line: it is woken by what arrives, not by what was there before.
    Every piece goes behind its length and an empty piece ends them, since closing a line throws away what is in it.
    """
    reader, writer = os.pipe()

    def feed() -> None:
        with suppress(OSError):  # the guest may end before its input does
            while chunk := os.read(source.fileno(), 1 << 14):
                os.write(writer, struct.pack(">I", len(chunk)) + chunk)
            os.write(writer, struct.pack(">I", 0))

    with os.fdopen(reader, "rb", buffering=0), os.fdopen(writer, "wb", buffering=0):
        yield threading.Thread(target=feed, daemon=True), reader


class Guest:
    """One run of one job in a guest of its own.

    `run` blocks until the guest has ended and must be called in a thread that lives as long as the guest does: the
    host kills the guest when the thread that started it ends.
    """

    def __init__(self, job: Job, machine: Machine, kernel: Kernel) -> None:
        self.job, self.machine, self.kernel = job, machine, kernel
        self.console: deque[bytes] = deque(maxlen=200)
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_code: int | None = None

    def run(
        self,
        stdout: Sink,
        stderr: Sink,
        status: Callable[[dict[str, Any]], None] = lambda _: None,
        stdin: IO[bytes] | None = None,
        terminal: int | None = None,
    ) -> int:
        """Run the job and return its exit code.

        `status` receives the JSON messages the job writes to the file named by ORRERY_STATUS. Raises GuestDied when
        the guest ended by itself, EnvironmentLacks when it could not be started.
        """
        names = ("stdout", "stderr", "status", "console")
        with _pipes(names) as pairs, _folders(self.job) as folders, cpu_slot() as (cpu, slot), ExitStack() as stack:
            inherited = folders | {DESCRIPTORS[name]: pair[1].fileno() for name, pair in pairs.items()}
            if stdin is not None:
                feeder, inherited[DESCRIPTORS["stdin"]] = stack.enter_context(_feeder(stdin))
            if terminal is not None:
                inherited[DESCRIPTORS["terminal"]] = terminal
            if slot is not None:
                inherited[DESCRIPTORS["slot"]] = slot
            self._start(cpu, inherited)
            for _, writer in pairs.values():
                writer.close()

            def hear(message: dict[str, Any]) -> None:
                if stdin is not None and message == GUEST_UP:
                    feeder.start()
                status(message)

            try:
                self._carry({name: pair[0] for name, pair in pairs.items()}, stdout, stderr, hear)
            finally:
                self.stop()
        if self._exit_code is None:
            raise self._death()
        return self._exit_code

    def _death(self) -> OrreryError:
        """Return why the guest ended before its command did, with what would have kept it alive where that is known."""
        lines = b"".join(self.console).decode(errors="replace").strip().splitlines()
        said = "\n".join(line for line in lines if not line.startswith(_FAREWELL))
        for sign, what, mend in DEATHS:
            if sign in said:
                return EnvironmentLacks(
                    f"{what} ({self.machine.memory_bytes >> 20} MB)" if "memory" in what else what, mend
                )
        code = self._process.returncode if self._process else 0
        how = f" (killed by {signal.Signals(-code).name})" if code < 0 else ""
        return GuestDied(f"the guest ended before its command did{how}{': ' + shortened(said) if said else ''}")

    def stop(self) -> None:
        """Kill the guest if it still runs, and wait for its end."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()

    def _start(self, cpu: int, inherited: dict[int, int]) -> None:
        console = inherited[DESCRIPTORS["console"]]
        memory = memory_folder(self.machine.memory_bytes)
        try:
            with self._fence(inherited, memory) as ruleset:
                self._process = subprocess.Popen(
                    [str(self.kernel.path), *kernel_arguments(self.job, self.machine, self.kernel)],
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=console,
                    close_fds=False,  # all of ours close at exec but the copies made between fork and exec
                    env={"TMPDIR": str(memory), "PATH": "/usr/bin:/bin"},
                    cwd="/",
                    preexec_fn=_before_exec(cpu, inherited, ruleset),
                    start_new_session=True,
                )
        except (OSError, subprocess.SubprocessError) as error:
            what = f"the guest kernel does not start: {error}"
            raise EnvironmentLacks(what, "python -m testbed kernel build") from error

    @contextmanager
    def _fence(self, inherited: dict[int, int], memory: Path) -> Iterator[int | None]:
        """Yield the rules for this guest: it reads what it is shown and writes its results and its memory."""
        write, first = DESCRIPTORS["write"], DESCRIPTORS["mount"]
        shown = [inherited[number] for number in inherited if number == DESCRIPTORS["project"] or number >= first]
        with ExitStack() as stack:
            own, room = (os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (self.kernel.path, memory))
            for descriptor in (own, room):
                stack.callback(os.close, descriptor)
            written = [room, *([inherited[write]] if write in inherited else [])]
            yield stack.enter_context(fence(() if self.job.home else homes(), [own, *shown], written))

    def _carry(
        self, readers: dict[str, FileIO], stdout: Sink, stderr: Sink, status: Callable[[dict[str, Any]], None]
    ) -> None:
        """Carry the guest's streams to their sinks until all of them are closed."""
        half_line = b""
        with selectors.DefaultSelector() as selector:
            for name, reader in readers.items():
                selector.register(reader, selectors.EVENT_READ, name)
            while selector.get_map():
                for key, _ in selector.select():
                    chunk = os.read(key.fd, 1 << 16)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.data == "stdout":
                        stdout(chunk)
                    elif key.data == "stderr":
                        stderr(chunk)
                    elif key.data == "console":
                        self.console.append(chunk)
                    else:
                        *messages, half_line = (half_line + chunk).split(b"\n")
                        for message in messages:
                            self._status(json.loads(message), status)

    def _status(self, message: dict[str, Any], status: Callable[[dict[str, Any]], None]) -> None:
        if "exit" in message:
            self._exit_code = int(message["exit"])
        else:
            status(message)
