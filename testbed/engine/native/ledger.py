"""What a native run changes outside of its namespaces, on file meanwhile: two settings that only a whole machine has.

The file says what each setting was. It is written before anything changes, and removed when the settings are put back:
at the run's end, or, when its launcher was killed, by the next run or by `python -m testbed clean`. Nothing that is not
named in it is touched.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import EnvironmentLacks

FOLDER = Path("/run/orrery-native")
SETTINGS = ("net/ipv4/tcp_allowed_congestion_control", "net/core/netdev_max_backlog")
"""The settings that testbed.net changes of the whole machine, below /proc/sys."""
PROC_SYS = Path("/proc/sys")


@contextmanager
def kept(folder: Path = FOLDER, proc_sys: Path = PROC_SYS) -> Iterator[None]:
    """After the block the machine's settings are put back, and before it what a killed run left of them is.

    Only one run at a time. Raises EnvironmentLacks when there is another one, or a setting is not there.
    """
    with _alone(folder):
        _put_back(folder, proc_sys)
        try:
            before = {name: _words(proc_sys / name) for name in SETTINGS}
        except OSError as error:
            what = f"{error.filename} is not there: this is not the machine's first network namespace"
            raise EnvironmentLacks(what, "run on the machine itself, not in a container") from error
        _write(folder, before)
        try:
            yield
        finally:
            _put_back(folder, proc_sys)


def clean(folder: Path = FOLDER, proc_sys: Path = PROC_SYS) -> list[str]:
    """Put back the settings that a killed run has left, and return their names.

    Raises EnvironmentLacks when a run goes on, or for somebody who may not.
    """
    try:
        if not (folder / "ledger.json").exists():
            return []
        with _alone(folder):
            return _put_back(folder, proc_sys)
    except PermissionError as error:
        raise EnvironmentLacks(f"{error.filename}: {error.strerror}", "sudo python -m testbed clean") from error


def _put_back(folder: Path, proc_sys: Path) -> list[str]:
    try:
        before: dict[str, str] = json.loads((folder / "ledger.json").read_text())
    except FileNotFoundError:
        return []
    changed = [name for name, value in before.items() if _words(proc_sys / name) != value]
    for name in changed:
        (proc_sys / name).write_text(before[name])
    (folder / "ledger.json").unlink()
    return changed


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            what = "another native run goes on: both would be wrong"
            raise EnvironmentLacks(what, "wait until it is over") from error
        yield
    finally:
        os.close(lock)


def _write(folder: Path, before: dict[str, str]) -> None:
    """Whole or not at all."""
    new = folder / "ledger.new"
    new.write_text(json.dumps(before) + "\n")
    new.rename(folder / "ledger.json")


def _words(path: Path) -> str:
    return " ".join(path.read_text().split())
