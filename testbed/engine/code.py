"""What a guest runs of ours: a compiled copy of our packages, the same files with the same bytes for everybody.

Where a project lies, who owns it, in which order its folders list their files and whether Python has left byte-code
there must not be seen in a packet. So a guest is shown a copy of the sources from the user's cache, kept by a hash of
them and of the Python that compiled them, with byte-code that Python takes unchecked. It is written beside its place
and renamed into it; of old copies the last few are kept.
"""

from __future__ import annotations

import compileall
import fcntl
import importlib.util
import os
import py_compile
import shutil
import sys
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from testbed.engine.host import cache_folder

PACKAGES = ("controllers", "testbed", "workloads")
PROJECT_IN_GUEST = "/run/orrery/project"
"""Where a guest sees the copy; its byte-code names the files by this path."""
STAMP_S = 1_700_000_000
"""When every file of a copy was last changed: when a guest's clock starts."""
KEPT = 8
"""So many copies stay in the cache, those used last. One that a guest runs from is not removed."""


def digest(project: Path) -> str:
    """Return 16 hex digits that change with any file of our packages, and with the Python that compiles them."""
    state = sha256(sys.version.encode() + importlib.util.MAGIC_NUMBER)
    for path in files(project):
        content = path.read_bytes()
        state.update(f"{path.relative_to(project)} {os.access(path, os.X_OK)} {len(content)}\n".encode() + content)
    return state.hexdigest()[:16]


def files(project: Path) -> list[Path]:
    """Return the files of our packages but for byte-code, in order."""
    found = []
    for package in PACKAGES:
        for folder, folders, names in os.walk(project / package):
            folders[:] = [name for name in folders if name != "__pycache__"]
            ours = (Path(folder, name) for name in names if not name.endswith(".pyc"))
            found += [path for path in ours if path.is_file()]  # an editor may keep a link to nowhere beside a file
    return sorted(found)


def compiled(project: Path) -> Path:
    """Return the folder with the compiled copy of the project's packages, made if it is not there yet.

    Where the cache cannot be written, the project itself is returned: guests run all the same.
    """
    kept = cache_folder() / "code"
    place = kept / digest(project)
    if not place.is_dir():
        try:
            kept.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".new-", dir=kept) as scratch:
                fresh = Path(scratch) / "copy"
                _copy(project, fresh)
                with suppress(OSError):  # somebody else was faster: theirs is the same
                    fresh.rename(place)
        except OSError:
            return project
    with suppress(OSError):  # a cache that cannot be written
        os.utime(place)
        _prune(kept)
    return place if place.is_dir() else project


def _copy(project: Path, fresh: Path) -> None:
    for path in files(project):
        copy = fresh / path.relative_to(project)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copy.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
    compileall.compile_dir(
        fresh, quiet=2, stripdir=str(fresh), prependdir=PROJECT_IN_GUEST,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip
    for folder, _, names in os.walk(fresh, topdown=False):
        Path(folder).chmod(0o755)
        for path in (*(Path(folder, name) for name in names), Path(folder)):
            os.utime(path, (STAMP_S, STAMP_S))


def _prune(kept: Path) -> None:
    """Remove all copies but those used last, and what makers that were killed have left."""
    copies = sorted((path for path in kept.iterdir() if path.name[0] != "."), key=lambda path: path.stat().st_mtime)
    left = [path for path in kept.glob(".new-*") if path.stat().st_mtime < copies[-1].stat().st_mtime - 600]
    for path in (*copies[:-KEPT], *left):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # a guest runs from it
            continue
        finally:
            os.close(folder)
