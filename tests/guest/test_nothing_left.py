"""Whichever way a guest ends, nothing of it is left: no process, memory file, temporary file, interface or listener."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testbed.engine.commands import ready_kernel
from testbed.engine.host import cache_folder

pytestmark = pytest.mark.guest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (Path("/dev/shm"), Path("/tmp"), Path.home() / ".uml")
GONE_WITHIN_S = 10.0


def guests_of(launcher: int) -> list[int]:
    """The kernels that a launcher has started, by its process id in their environment of birth: their parent."""
    kernel = str(ready_kernel().path)
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            started = (folder / "cmdline").read_bytes().partition(b"\0")[0].decode()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if started == kernel and parent == launcher:
            found.append(int(folder.name))
    return found


def family(pid: int) -> set[int]:
    """A process and all that descend from it."""
    found, new = {pid}, {pid}
    while new:
        children = set()
        for parent in new:
            for listing in Path("/proc").glob(f"{parent}/task/*/children"):
                children |= set(map(int, listing.read_text().split()))
        new = children - found
        found |= new
    return found


def opened_by(pid: int) -> Iterator[tuple[str, int]]:
    """What a process has open, with the flags; a process may end meanwhile."""
    with suppress(FileNotFoundError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                facts = Path(f"/proc/{pid}/fdinfo/{link.name}").read_text()
                yield str(link.readlink()), int(facts.split("flags:")[1].split()[0], 8)


def alive(pids: set[int]) -> set[int]:
    """Those that still run; a process that has ended and waits to be looked at does not."""
    still = set()
    for pid in pids:
        try:
            state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            still.add(pid)
    return still


def belongings() -> dict[str, set[str]]:
    """What a guest could leave behind on this machine."""
    return {
        **{str(folder): {path.name for path in folder.glob("*vm_file*")} for folder in FOLDERS},
        "interfaces": {path.name for path in Path("/sys/class/net").iterdir()},
        "uml": {path.name for path in FOLDERS[-1].glob("*")},
    }


@pytest.fixture
def clean() -> Iterator[None]:
    """Nothing that a guest could leave is there afterwards that was not there before."""
    before = belongings()
    yield
    assert belongings() == before


def start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "testbed", "exec", "--", "sh", "-c", "echo up; exec sleep 100000000000"]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def wait_for_guest(launcher: subprocess.Popen[bytes]) -> int:
    give_up_s = time.monotonic() + 60
    while time.monotonic() < give_up_s:
        if guests := guests_of(launcher.pid):
            return guests[0]
        time.sleep(0.01)
    raise AssertionError("the launcher started no guest")


def gone(pids: set[int]) -> bool:
    give_up_s = time.monotonic() + GONE_WITHIN_S
    while alive(pids) and time.monotonic() < give_up_s:
        time.sleep(0.05)
    return not alive(pids)


@pytest.mark.parametrize("moment", ["as it boots", "as Open vSwitch starts", "as the command runs"])
@pytest.mark.usefixtures("clean")
def test_nothing_is_left_when_the_launcher_is_killed(moment: str) -> None:
    launcher = start()
    guest = wait_for_guest(launcher)
    if moment == "as Open vSwitch starts":
        time.sleep(0.4)
    if moment == "as the command runs":
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"up\n"
    everything = family(guest)
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    assert gone(everything | family(guest))


@pytest.mark.usefixtures("clean")
def test_ctrl_c_ends_it() -> None:
    launcher = start()
    guest = wait_for_guest(launcher)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == b"up\n"
    everything = family(guest)
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait() == 130
    assert gone(everything)


@pytest.mark.usefixtures("clean")
def test_nothing_listens_on_the_host() -> None:
    launcher = start()
    guest = wait_for_guest(launcher)
    try:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"up\n"
        opened = {name for pid in family(guest) for name, _ in opened_by(pid)}
        assert any(name.startswith("pipe:") for name in opened)
        assert not [name for name in opened if name.startswith("socket:") and _listens(name[8:-1])]
    finally:
        launcher.kill()
        launcher.wait()


def _listens(inode: str) -> bool:
    """Whether the socket of that number listens, on any protocol of this host."""
    for table, listening in (("tcp", "0A"), ("tcp6", "0A")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] == inode and fields[3] == listening:
                return True
    return any(
        line.split()[6] == inode and int(line.split()[3], 16) & 0x10000
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]
    )


def test_no_file_that_a_guest_writes_to_has_a_name() -> None:
    """What has no name needs nobody to remove it; the one exception is the lock on the guest's CPU, in the cache."""
    launcher = start()
    guest = wait_for_guest(launcher)
    try:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"up\n"
        written = {name for pid in family(guest) for name in _written(pid)}
    finally:
        launcher.kill()
        launcher.wait()
    named = {name for name in written if name.startswith("/") and not name.endswith(" (deleted)")}
    assert named <= {os.devnull, *(str(path) for path in (cache_folder() / "cpus").iterdir())}
    assert any(name.startswith("/") and name.endswith(" (deleted)") for name in written)  # the guest's memory


def _written(pid: int) -> Iterator[str]:
    """What a process has open for writing, or has mapped so that writing changes a file."""
    for name, flags in opened_by(pid):
        if flags & os.O_ACCMODE != os.O_RDONLY and not flags & os.O_PATH:
            yield name
    with suppress(FileNotFoundError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[1][1] == "w" and fields[1][3] == "s":
                yield fields[5]


@pytest.mark.usefixtures("clean")
def test_a_reader_that_goes_away_ends_the_guest() -> None:
    """As in `exec -- yes | head -1`."""
    command = [sys.executable, "-m", "testbed", "exec", "--no-vswitch", "--", "yes"]
    launcher = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    guest = wait_for_guest(launcher)
    everything = family(guest)
    assert launcher.stdout is not None
    assert launcher.stderr is not None
    assert launcher.stdout.readline() == b"y\n"
    launcher.stdout.close()
    with launcher.stderr:
        said = launcher.stderr.read()
    assert launcher.wait() == 1
    assert b"Traceback" not in said
    assert gone(everything | family(guest))


@pytest.mark.usefixtures("clean")
def test_a_guest_that_is_killed_is_reported() -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-m", "testbed", "exec", "--", "sh", "-c", "echo up; exec sleep 100000000000"],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    guest = wait_for_guest(launcher)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == b"up\n"
    os.kill(guest, signal.SIGKILL)
    _, said = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert b"the guest ended before its command did" in said
