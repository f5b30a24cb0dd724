"""The pages of the documentation as what a reader would do: the files to write, the commands to type.

A command stands in a fence ```sh (new pages) or in an indented block (older ones), and begins with one of PROGRAMS. A
file is a {code-block} whose caption is its name. Used by the tests of the documentation.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("python", "make", ".", "mkdir", "cat", "apt-get", "scripts/", "git")
FENCE = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)
FILE = re.compile(r"^```\{code-block\} \w+\n:caption: (\S+)\n(.*?)^```", re.M | re.S)
INDENTED = re.compile(r"^    ((?:python -m testbed|make) .*|make)$", re.M)
ELSEWHERE = {  # what needs more than a command and its end, and the test that runs it
    "python -m testbed shell": "tests/guest/test_shell.py",
}


@dataclass(frozen=True)
class Page:
    """A page: the files to write first, the commands in order."""

    name: str
    files: dict[str, str]
    commands: tuple[str, ...]


def pages() -> list[Page]:
    """Return every page that tells to type something."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    made = [_page(path) for path in found if "reference" not in path.parts[-2:]]
    return [page for page in made if page.commands]


def _page(path: Path) -> Page:
    text = re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8"))  # a command over several lines
    lines = [line for fence in FENCE.findall(text) for line in fence.splitlines()]
    lines += [re.split(r"\s{2,}#", line)[0] for line in INDENTED.findall(text)]
    commands = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return Page(str(path.relative_to(ROOT)), dict(FILE.findall(text)), tuple(dict.fromkeys(commands)))


def is_cheap(command: str) -> bool:
    """Return whether a command starts no guest and needs no run that is there."""
    words = shlex.split(command)
    if words[:3] != ["python", "-m", "testbed"] or len(words) < 4:
        return False
    return "--dry-run" in words or words[3] in ("list", "topology", "--help")
