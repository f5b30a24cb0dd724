"""What all tests share: how properties are tried, where the project is, and how its command line is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
LONGEST_S = 600
"""A command that takes longer than this hangs; no test says how long one should take."""

# A test that fails must fail again, and a slow machine is no fault.
settings.register_profile("orrery", deadline=None, derandomize=True, database=None)
settings.load_profile("orrery")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def orrery() -> Run:
    """`python -m testbed ARGUMENTS` as a user types it: run to its end, output captured as text."""

    def run(
        *arguments: str | Path, stdin: str | None = None, env: Mapping[str, str] | None = None, cwd: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "testbed", *map(str, arguments)],
            cwd=cwd,
            env=os.environ | (env or {}),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )

    return run


NOBODY = 65534
SET_USER = (
    "setpriv",
    f"--reuid={NOBODY}",
    f"--regid={NOBODY}",
    "--clear-groups",
    "--no-new-privs",
    "--bounding-set=-all",
)


@dataclass(frozen=True)
class User:
    """Somebody without any right on this machine but to a folder: `home`, with a cache that has the kernel."""

    home: Path
    uid: int

    def run(self, *arguments: str | Path, tree: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Run `python -m testbed ARGUMENTS` of the project in `tree` as that user, to its end."""
        command = [sys.executable, "-m", "testbed", *map(str, arguments)]
        environment = {"HOME": str(self.home), "ORRERY_CACHE": str(self.home / "cache"), "PATH": os.environ["PATH"]}
        return subprocess.run(
            [*(SET_USER if self.uid != os.getuid() else ()), *command],
            cwd=tree,
            env=environment | {"PYTHONDONTWRITEBYTECODE": "1", "USER": "somebody", "SHELL": "/bin/false"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )

    def own(self, folder: Path) -> Path:
        """Give a folder and all that is in it to the user."""
        for path in (folder, *folder.rglob("*")):
            if self.uid != os.getuid():
                os.chown(path, self.uid, self.uid, follow_symlinks=False)
        return folder


@pytest.fixture(scope="session")
def somebody() -> Iterator[User]:
    """An ordinary user: `nobody` where root runs the tests, else whoever runs them."""
    from testbed.engine.commands import ready_kernel

    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory(prefix="orrery-user-", dir="/var/tmp") as name:
        user = User(Path(name), NOBODY if root else os.getuid())
        kernel = ready_kernel().path.parent
        shutil.copytree(kernel, user.home / "cache" / "kernel" / kernel.name)
        user.own(user.home)
        if root:
            looked = subprocess.run([*SET_USER, sys.executable, "-c", "import typer"], cwd=ROOT, check=False)
            if looked.returncode != 0:
                pytest.skip(f"an ordinary user may not look into {ROOT} or {sys.prefix}")
        yield user
