"""Where built kernels lie: one folder for each key, written beside its place and renamed into it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.engine.host import cache_folder
from testbed.errors import EnvironmentLacks

Progress = Callable[[float, str], None]
"""Told the fraction done (0 to 1) and what is being done."""

SOURCE_VARIABLE = "KERNEL_SOURCE"
"""Environment variable: a kernel tree or tarball to build instead of what apt offers."""

BINARY, INFO = "linux", "info.json"
WORKSPACE_PREFIX = "orrery-kernel-"


@dataclass(frozen=True)
class Kernel:
    """A built guest kernel. `seccomp`: it runs programs under seccomp, faster than under ptrace."""

    path: Path
    version: str
    key: str
    seccomp: bool

    @property
    def info(self) -> dict[str, Any]:
        """What was noted when it was built: source, compiler, wall and CPU seconds."""
        noted: dict[str, Any] = json.loads((self.path.parent / INFO).read_text())
        return noted


@dataclass(frozen=True)
class Recipe:
    """What is ours in a kernel: its options and its patches."""

    config: Path
    patches: tuple[Path, ...]

    def digest(self) -> str:
        """Return 12 hex digits that change with any byte of the options or the patches."""
        state = hashlib.sha256()
        for path in (self.config, *self.patches):
            content = path.read_bytes()
            state.update(f"{path.name} {len(content)}\n".encode() + content)
        return state.hexdigest()[:12]

    def key(self, version: str) -> str:
        """Return the name of the folder of this recipe's kernel from the source of that version."""
        return f"{re.sub(r'[^A-Za-z0-9.+~-]', '_', version)}-{self.digest()}"


_HERE = Path(__file__).parent
RECIPE = Recipe(_HERE / "kernel.config", tuple(sorted((_HERE / "patches").glob("*.patch"))))


def kernels_folder() -> Path:
    """Return the folder that holds the built kernels, the lock and the log of the last build."""
    return cache_folder() / "kernel"


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers in a version in order, so that versions compare as numbers: 6.9 is before 6.12."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def given_source() -> Path | None:
    """Return the kernel tree or tarball that the user asks for, made absolute, or None."""
    value = os.environ.get(SOURCE_VARIABLE)
    return Path(value).resolve() if value else None


def find(recipe: Recipe = RECIPE) -> Kernel | None:
    """Return the newest kernel built from this recipe, or None; a user's own source counts alone where there is one.

    Reads a few small files and never the network.
    """
    asked, digest, found = given_source(), recipe.digest(), []
    for info_path in kernels_folder().glob(f"*-{digest}/{INFO}"):
        kernel = _read(info_path.parent)
        if kernel and (asked is None or kernel.info["source"] == str(asked)):
            found.append(kernel)
    return max(found, key=lambda kernel: numbers(kernel.version), default=None)


def cached(version: str, recipe: Recipe = RECIPE) -> Kernel | None:
    """Return the kernel of exactly this source version and recipe, or None."""
    return _read(kernels_folder() / recipe.key(version))


def store(binary: Path, version: str, recipe: Recipe, info: dict[str, Any]) -> Kernel:
    """Put a kernel into the cache and return it.

    The binary is in its place before its `info.json` is, each by an atomic rename, and a kernel without
    `info.json` is not there: whoever looks finds the whole kernel or none.
    """
    key = recipe.key(version)
    folder = kernels_folder() / key
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
        fresh = Path(scratch)
        shutil.copyfile(binary, fresh / BINARY)
        (fresh / BINARY).chmod(0o755)
        (fresh / INFO).write_text(json.dumps({"version": version, "key": key} | info, indent=2) + "\n")
        for name in (BINARY, INFO):
            with (fresh / name).open("rb") as written:
                os.fsync(written.fileno())
            (fresh / name).replace(folder / name)
    return Kernel(folder / BINARY, version, key, bool(info["seccomp"]))


@contextmanager
def exclusive(progress: Progress) -> Iterator[None]:
    """Hold the one lock under which kernels are built; wait for it while another process builds.

    Raises EnvironmentLacks when the cache folder cannot be written.
    """
    folder = kernels_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError as error:
        raise EnvironmentLacks(
            f"the cache folder cannot be written: {error}", "choose another one: export ORRERY_CACHE=FOLDER"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(0.0, "waiting for another process that builds a kernel")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def workspace(base: Path) -> Iterator[Path]:
    """Yield an empty folder in `base` that is gone afterwards, and sweep away what killed builds have left there.

    The folder's own lock says whether its builder still lives: the system lets go of it when the process
    ends.
    """
    for remains in base.glob(f"{WORKSPACE_PREFIX}*"):
        if remains.is_dir() and not remains.is_symlink() and remains.stat().st_uid == os.getuid():
            _sweep(remains)
    folder = Path(tempfile.mkdtemp(prefix=WORKSPACE_PREFIX, dir=base))
    try:
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(remains: Path) -> None:
    """Remove a workspace unless its builder still holds its lock."""
    try:
        with (remains / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    shutil.rmtree(remains, ignore_errors=True)


def _read(folder: Path) -> Kernel | None:
    if not (folder / BINARY).is_file() or not (folder / INFO).is_file():
        return None
    info = json.loads((folder / INFO).read_text())
    return Kernel(folder / BINARY, info["version"], info["key"], info["seccomp"])
