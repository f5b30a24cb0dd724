"""What all tests share: how properties are tried, where the project is, and how its command line is run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
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
