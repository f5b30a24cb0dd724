"""The pages of the documentation, done as they say: files written, commands typed in order, all of them in one folder.

A command that an earlier page has told as well is not typed again: what it left is still there.
"""

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
LARGE = ("reproduce", "sweep", "cassini-", "netstorm-", "two-jobs-50g", "watch", "fingerprint", "my-file")
"""Scenarios with tests of their own, or of hours; `my-file` stands for a file of the reader's."""
SMOKE = "python -m testbed run smoke"


def told(page: pages.Page) -> list[str]:
    """Return the commands of a page that are to be typed here, and before them the run of which it tells."""
    first = (SMOKE,) if "results/smoke" in str(page.commands) else ()
    return [
        command
        for command in (*first, *page.commands)
        if not command.startswith(DONE_BY_THE_TESTS)
        and command not in pages.ELSEWHERE
        and not any(name in command for name in LARGE)
    ]


PAGES = [page for page in pages.pages() if page.name.startswith(("docs/tutorial", "docs/howto")) and told(page)]
PAGES.sort(key=lambda page: not page.name.endswith("tutorial.md"))  # the others build on what it leaves


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which everything is typed."""
    made = tmp_path_factory.mktemp("pages")
    (made / "results").mkdir()
    return made


@pytest.fixture(scope="module")
def typed() -> set[str]:
    """What has been typed already."""
    return set()


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_page_can_be_followed(page: pages.Page, folder: Path, typed: set[str]) -> None:
    for name, text in page.files.items():
        (folder / name).write_text(text)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    for command in told(page):
        if command in typed:
            continue
        here = f"{command} --results results" if " run " in command or " profile " in command else command
        made = subprocess.run(
            ["bash", "-c", here], cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST_S,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert made.returncode == 0, f"{command}\n{made.stdout[-1500:]}\n{made.stderr[-1500:]}"
        typed.add(command)
