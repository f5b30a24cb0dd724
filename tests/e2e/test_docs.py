"""Every page of the documentation, done as it says: its files written, its commands typed in order, in one folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "unit"))

import pages  # noqa: E402

pytestmark = pytest.mark.e2e
LONGEST_S = 3000
DONE_BY_THE_TESTS = ("make", ". .venv", "git", "apt-get", "scripts/")
LARGE = ("reproduce", "sweep", "cassini-", "netstorm-", "two-jobs-50g", "watch", "my-file")
"""Scenarios with tests of their own, or of hours; `my-file` stands for a file of the reader's."""


def told(page: pages.Page) -> list[str]:
    """Return the commands of a page that are to be typed here."""
    return [
        command
        for command in page.commands
        if not command.startswith(DONE_BY_THE_TESTS)
        and command not in pages.ELSEWHERE
        and not any(name in command for name in LARGE)
    ]


PAGES = [page for page in pages.pages() if page.name.startswith(("docs/tutorial", "docs/howto")) and told(page)]


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_page_can_be_followed(page: pages.Page, tmp_path: Path) -> None:
    for name, text in page.files.items():
        (tmp_path / name).write_text(text)
    results = Path("results")
    (tmp_path / results).mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    for command in (
        ["python -m testbed run smoke", *told(page)] if "results/smoke" in str(page.commands) else told(page)
    ):
        typed = f"{command} --results results" if " run " in command or " profile " in command else command
        made = subprocess.run(
            ["bash", "-c", typed], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONGEST_S,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert made.returncode == 0, f"{command}\n{made.stdout[-1500:]}\n{made.stderr[-1500:]}"
