"""What the host lends a guest: one CPU of its own while there are any, and a folder for its memory file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.errors import EnvironmentLacks


def cache_folder() -> Path:
    """Return this project's cache folder: $ORRERY_CACHE, else $XDG_CACHE_HOME/orrery, else ~/.cache/orrery."""
    if chosen := os.environ.get("ORRERY_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "orrery"


@contextmanager
def cpu_slot() -> Iterator[tuple[int, int | None]]:
    """Yield (CPU, descriptor): a CPU that no other guest of this user has; when all are taken, one of them in turn.

    The descriptor holds the CPU's lock and is to be inherited by the guest, so that the CPU is free again at the
    moment the guest is gone, however it went. It is None where no lock can be had (no writable cache folder, or more
    guests than CPUs): the guest then shares a CPU, which makes it slower and changes nothing else.
    """
    cpus = sorted(os.sched_getaffinity(0))
    folder = cache_folder() / "cpus"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.close(_opened(folder, "turn"))
    except OSError:  # no cache, one that cannot be written, or a full disk
        yield cpus[os.getpid() % len(cpus)], None
        return
    for cpu in reversed(cpus):  # the first CPU is where the rest of the machine's work tends to be
        try:
            descriptor = _opened(folder, str(cpu))
        except OSError:
            break
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            continue
        try:
            yield cpu, descriptor
        finally:
            os.close(descriptor)
        return
    yield _next_in_turn(folder, cpus), None


def _opened(folder: Path, name: str) -> int:
    return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _next_in_turn(folder: Path, cpus: list[int]) -> int:
    """Return the CPU after the one that was last shared, counted in a small locked file."""
    descriptor, turn = _opened(folder, "turn"), os.getpid()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(ValueError, OSError):  # a torn file, or a full disk: any CPU will do
            turn = int(os.read(descriptor, 20) or b"0")
            os.pwrite(descriptor, b"%-19d" % ((turn + 1) % 10**9), 0)
    finally:
        os.close(descriptor)
    return cpus[turn % len(cpus)]


def memory_folder(size_bytes: int) -> Path:
    """Return a folder where a nameless memory file of `size_bytes` fits and may be executed from.

    Raises EnvironmentLacks when there is none.
    """
    seen = []
    for folder in (Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"), cache_folder()):
        try:
            state = os.statvfs(folder)
        except OSError:
            continue
        free_bytes = state.f_bavail * state.f_frsize
        seen.append(f"{folder} has {free_bytes >> 20} MB")
        if not state.f_flag & os.ST_NOEXEC and free_bytes >= size_bytes and os.access(folder, os.W_OK):
            return folder
    raise EnvironmentLacks(
        f"no folder can hold the guest's memory of {size_bytes >> 20} MB ({', '.join(seen)})",
        "give less with --mem, or enlarge /dev/shm: mount -o remount,size=4G /dev/shm",
    )
