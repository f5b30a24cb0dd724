"""Where results lie, and how a run becomes one: written beside its place, renamed into it when it is valid.

results/two-jobs/            the last valid run
results/two-jobs.invalid/    the last run whose results must not be believed, kept to find out why
results/.two-jobs.k3x9/      a run in progress, locked by its launcher; the next run sweeps what a dead one left
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import InputError

DEFAULT = Path(__file__).resolve().parents[1] / "results"
AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""From the Linux headers fcntl.h and fs.h."""


@contextmanager
def in_progress(results: Path, name: str) -> Iterator[Path]:
    """Yield a new folder for a run of the scenario `name`; what is left of it at the end is removed.

    Raises InputError when `results` cannot be written to.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
        _sweep(results, name)
        folder = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=results))
    except OSError as error:
        raise InputError(str(results), f"cannot be written to: {error.strerror}", "choose another --results") from error
    folder.chmod(0o755)
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def publish(folder: Path, place: Path) -> Path:
    """Put a finished run in its place, in place of an earlier one; return the place.

    At every moment one of the two is there. The earlier one is then where the run was, and goes with it.
    """
    try:
        folder.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        _exchange(folder, place)
    return place


def _exchange(folder: Path, place: Path) -> None:
    paths = os.fsencode(folder), os.fsencode(place)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0:
        return
    if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):  # a file system that cannot
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder), None, str(place))
    aside = folder.with_name(folder.name + ".old")
    place.rename(aside)
    folder.rename(place)
    shutil.rmtree(aside, ignore_errors=True)


def running(where: Path) -> list[Path]:
    """Return the work folders of runs in progress: of the run or study `where`, or in a folder of results."""
    near = [where, *where.glob(".*.*"), *where.glob("*/.*.*"), *where.parent.glob(f".{where.name}.*")]
    return sorted({folder for folder in near if folder.name.startswith(".") and _held(folder)})


def _held(folder: Path) -> bool:
    """Return whether a launcher holds the lock of a work folder."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _sweep(results: Path, name: str) -> None:
    """Remove what runs that were killed have left: folders whose lock nobody holds any more."""
    for folder in results.glob(f".{name}.*"):
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
