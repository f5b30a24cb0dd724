"""The documentation: it is built without a warning, its commands do what they say, its links lead somewhere.

Commands that start guests are run by tests/e2e/test_docs.py, page by page. Targets of make are looked up with make -n.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pages
import pytest

from testbed import cli
from testbed.schema import schema

PAGES = pages.pages()
CHEAP = [(page, command) for page in PAGES for command in page.commands if pages.is_cheap(command)]


def words(command: str) -> list[str]:
    return shlex.split(command)


@pytest.mark.parametrize(("page", "command"), CHEAP, ids=[f"{page.name}: {command}" for page, command in CHEAP])
def test_a_command_that_starts_nothing_ends_well(
    page: pages.Page, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "chakra" in command:
        pytest.skip("needs a trace that is not ours to give")
    for name, text in page.files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["python -m testbed", *words(command)[3:]])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code, capsys.readouterr().err


def test_there_are_commands_and_each_is_run_somewhere() -> None:
    every = [(page.name, command) for page in PAGES for command in page.commands]
    assert len(every) > 40
    assert {"docs/tutorial.md", "docs/howto/scheduler.md", "docs/howto/topology.md", "README.md"} <= {
        at for at, _ in every
    }
    strange = [(at, command) for at, command in every if not command.startswith(pages.PROGRAMS)]
    assert strange == []


def test_every_target_of_make_that_is_told_exists() -> None:
    targets = {words(command)[1] for page in PAGES for command in page.commands if command.startswith("make ")}
    assert {"setup", "smoke", "test"} <= targets
    for target in sorted(targets | {"docs"}):
        made = subprocess.run(["make", "-n", target], cwd=pages.ROOT, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr


def test_links_between_pages_lead_to_files_that_are_there() -> None:
    for path in [pages.ROOT / "README.md", *(pages.ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            made = "results/reference/" in target or target.startswith(("reference/", "../reference/"))
            if not made and not target.startswith("http"):  # made: by `make reproduce` and by the documentation itself
                assert (path.parent / target).exists(), f"{path}: {target}"


def test_the_page_of_keys_has_every_key() -> None:
    spec = importlib.util.spec_from_file_location("generate", pages.ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    text = generate.keys()
    for key, _, _ in schema():
        assert f"`{key}`" in text, key
    assert "This is no" not in text
    said = generate.commands()
    for name in ("run", "report", "kernel build", "topology"):
        assert f"## {name}\n" in said
    assert "`--plugin`" in said


def test_the_documentation_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="sphinx is not installed (requirements-docs.txt)")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(pages.ROOT / "docs"), str(tmp_path)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    for name in ("index", "tutorial", "howto/scheduler", "reference/keys", "limits"):
        text = (tmp_path / f"{name}.html").read_text()
        assert "<h1>" in text
        assert not re.findall(r'<(?:script|link)[^>]+(?:src|href)="https?://', text)  # readable without a network
