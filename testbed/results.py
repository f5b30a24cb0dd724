"""Where results lie, and how a run becomes one: written beside its place, renamed into it when it is valid.

results/two-jobs/            the last valid run
results/two-jobs.invalid/    the last run whose results must not be believed, kept to find out why
results/.two-jobs.k3x9/      a run in progress, locked by its launcher; the next run sweeps what a dead one left
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.errors import InputError

DEFAULT = Path(__file__).resolve().parents[1] / "results"


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
    """Put a finished run in its place, in place of an earlier one; return the place."""
    old = folder.with_name(folder.name + ".old")
    with suppress(FileNotFoundError):
        place.rename(old)
    folder.rename(place)
    shutil.rmtree(old, ignore_errors=True)
    return place


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
