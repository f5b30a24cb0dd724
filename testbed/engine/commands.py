"""`exec` and `shell`: a command of the user's in a guest of its own."""

from __future__ import annotations

import os
import shutil
import site
import sys
from pathlib import Path

from testbed.engine.code import PROJECT_IN_GUEST as PROJECT_IN_GUEST
from testbed.engine.fence import homes
from testbed.engine.guest.init import COVERED, COVERED_HOMES
from testbed.engine.kernel import Kernel, find
from testbed.engine.launch import PROJECT, Guest, Job, Machine, Sink
from testbed.engine.terminal import run_on_terminal
from testbed.errors import EnvironmentLacks, InputError

PYTHON_IN_GUEST, RESULTS_IN_GUEST, TREE_IN_GUEST = "/run/orrery/venv", "/run/orrery/results", "/run/orrery/tree"
"""Where a program of ours finds its virtual environment, its results, and the user's own tree where it needs that
beside the compiled copy (PROJECT_IN_GUEST): the same paths for everybody."""
GUEST_BIN = f"{PROJECT_IN_GUEST}/testbed/engine/guest/bin"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = ("site-packages", "dist-packages")
PYTHON_FLAGS = ("-S",) if sys.version_info < (3, 12) else ()
"""Without `site`, which would run the code that this machine's .pth files hold, and take a tenth of a second for each
program. From 3.12 on distutils, which Mininet imports, comes by one of those files."""


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
        "PYTHONPATH": PROJECT_IN_GUEST,
        "ORRERY_PYTHON": sys.executable,
    }


def program_job(arguments: tuple[str, ...], cwd: str, write: Path, tree: bool = False) -> Job:
    """Return the job of a Python program of ours, which sees nothing of where its user keeps the project.

    With `tree` it may also import what is in no copy (benchmarks, tests), from the user's own files.
    """
    mounts = [(sys.prefix, PYTHON_IN_GUEST)]
    path = [PROJECT_IN_GUEST]
    if tree:
        mounts.append((str(PROJECT), TREE_IN_GUEST))
        path.append(TREE_IN_GUEST)
    return Job(
        argv=(f"{PYTHON_IN_GUEST}/bin/python", *PYTHON_FLAGS, *arguments),
        cwd=cwd,
        env={"PATH": f"{GUEST_BIN}:{SYSTEM_PATH}", "PYTHONPATH": ":".join(path + _packages())},
        write=(str(write.resolve()), RESULTS_IN_GUEST),
        mounts=(*mounts, *_interpreter()),
    )


def _packages() -> list[str]:
    """Return the folders of installed packages, as a guest has them: without `site` nobody else names them.

    The user's own is not among them: it differs by user, and lies in a home folder, which a guest does not see.
    """
    if not PYTHON_FLAGS:
        return []
    found = [folder for folder in sys.path if Path(folder).name in PACKAGES and folder != site.getusersitepackages()]
    return [folder.replace(sys.prefix, PYTHON_IN_GUEST, 1) for folder in found]


def _interpreter() -> tuple[tuple[str, str], ...]:
    """Return the mount of the Python that the virtual environment was made from, where that lies in a home folder."""
    base, hidden = Path(sys.base_prefix).resolve(), (*map(Path, COVERED_HOMES), *homes())
    return ((str(base), str(base)),) if any(base.is_relative_to(home) for home in hidden) else ()


def _writable(write: Path | None) -> tuple[str, str] | None:
    if write is None:
        return None
    folder = write.resolve()
    if not folder.is_dir():
        raise InputError("--write", f"{write} is not a folder", f"mkdir -p {write}")
    if folder == Path("/"):
        raise InputError("--write", "the whole machine is not a folder to hand out", "name a folder for results")
    return str(folder), str(folder)


def _mounts(home: bool) -> tuple[tuple[str, str], ...]:
    """Return what a command sees at its own place: the project, the environment and the working folder, the latter
    not where all of the home folder would come with it."""
    here = Path.cwd()
    shown = [str(PROJECT), sys.prefix]
    if home or not any(own.is_relative_to(here) for own in homes()):
        shown.append(str(here))
    own = tuple((folder, folder) for folder in dict.fromkeys(shown) if folder not in ("/", *COVERED, *COVERED_HOMES))
    return (*own, *_interpreter())


def execute(
    command: list[str], machine: Machine, write: Path | None, open_vswitch: bool = True, home: bool = False
) -> int:
    """Run a command in a guest on this process's streams and return its exit code.

    Raises InputError, EnvironmentLacks, GuestDied. Ctrl-C ends the guest and gives 130.
    """
    piped = not os.isatty(0) and os.fstat(0).st_rdev != Path(os.devnull).stat().st_rdev
    job = Job(
        argv=tuple(command), cwd=str(Path.cwd()), env=environment(), write=_writable(write), mounts=_mounts(home),
        open_vswitch=open_vswitch, stdin=piped, home=home,
    )  # fmt: skip
    guest = Guest(job, machine, ready_kernel())
    try:
        return guest.run(_to(sys.stdout.fileno()), _to(sys.stderr.fileno()), stdin=sys.stdin.buffer if piped else None)
    except KeyboardInterrupt:
        return 130


def interact(
    command: list[str], machine: Machine, write: Path | None, open_vswitch: bool = True, home: bool = False
) -> int:
    """Run a command on this process's terminal in a guest and return its exit code."""
    size = shutil.get_terminal_size()
    job = Job(
        argv=tuple(command), cwd=str(Path.cwd()), write=_writable(write), mounts=_mounts(home),
        env=environment() | {"TERM": os.environ.get("TERM", "xterm"), "PS1": r"guest:\w# "},
        open_vswitch=open_vswitch, terminal=(size.lines, size.columns), home=home,
    )  # fmt: skip
    return run_on_terminal(job, machine, ready_kernel())


def _to(descriptor: int) -> Sink:
    def write(chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            view = view[os.write(descriptor, view) :]

    return write
