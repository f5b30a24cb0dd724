"""Runs side by side: figures, verdicts, what differs, and a page that needs nothing else."""

from __future__ import annotations

import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.commands.compare import compare as command
from testbed.errors import InputError
from testbed.report import compare


def made(
    folder: Path, mean_s: float, *, valid: bool = True, arms: tuple[str, ...] = ("together",), **keys: Any
) -> Path:
    """Leave a run with what comparing needs."""
    folder.mkdir(parents=True)
    times = {"mean": {"value": mean_s, "low": mean_s - 0.01, "high": mean_s + 0.01}, "worst": {"value": 2 * mean_s}}
    arm = {
        "iteration_s": times,
        "jobs": {},
        "marked_packets_per_iteration": {"value": 1600.0, "low": None, "high": None},
    }
    (folder / "summary.json").write_text(json.dumps({"arms": dict.fromkeys(arms, arm), "ratios": {}}))
    scenario = {"name": "tiny", "fabric": {"scale": 50.0}, "job": [{"name": "a", "workers": ["h1"]}]} | keys
    checks = [{"what": "marks <agree>", "ok": valid, "found": "3 & 4"}]
    manifest = {"valid": valid, "verdict": {"together": checks}, "scenario": scenario, "code": "c0de", "python": "3.11"}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"kernel": {"version": "7.3"}}))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    other = {"fabric": {"scale": 100.0}, "job": [{"name": "a", "workers": ["h2"]}, {"name": "b", "workers": 2}]}
    return [
        made(tmp_path / "x" / "tiny", 0.3),
        made(tmp_path / "y" / "tiny", 0.6, valid=False, arms=("together", "cassini"), **other),
    ]


def test_figures_are_beside_the_first_runs(runs: list[Path]) -> None:
    loaded = compare.load(runs)
    assert [run.name for run in loaded] == ["x/tiny", "y/tiny"]
    assert loaded[1].faults == ("together: marks <agree>: 3 & 4",)
    rows = {(row.metric, row.arm): row for row in compare.rows(loaded)}
    both = rows["mean-ms", "together"]
    assert [compare.shown(of) for of in both.values] == ["300 [290, 310]", "600 [590, 610]"]
    assert both.ratios == (1.0, pytest.approx(2))
    alone = rows["mean-ms", "cassini"]
    assert (compare.shown(alone.values[0]), alone.ratios) == (compare.MISSING, (None, None))
    assert compare.shown(rows["marks", "together"].values[0]) == "1600"
    said = io.StringIO()
    for table in compare.tables(loaded):
        Console(file=said, width=160).print(table)
    assert "600 [590, 610]  2.000×" in said.getvalue()
    assert "marks <agree>: 3 & 4" in said.getvalue()


def test_what_differs_is_named_by_key(runs: list[Path]) -> None:
    assert compare.differences(compare.load(runs)) == {
        "fabric.scale": ["50.0", "100.0"], "job.a.workers": ['["h1"]', '["h2"]'], "job.b": ["–", "workers 2"],
    }  # fmt: skip


class Page(HTMLParser):
    """The texts of a page's cells, and everything that it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [
            f"{tag} {name}" for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_the_page_stands_alone_and_escapes_what_it_shows(runs: list[Path], tmp_path: Path) -> None:
    path = compare.page(compare.load(runs), tmp_path / "both.html")
    page = Page()
    page.feed(path.read_text())
    assert page.fetched == []
    assert {"600 [590, 610]", "2.000×", "fabric.scale", "100.0", "together: marks <agree>: 3 & 4"} <= set(page.texts)
    assert "<agree>" not in path.read_text()
    assert path.read_text().count("<svg") == 1


def test_what_is_no_run_is_said(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "study" / "seed-1").mkdir(parents=True)
    (tmp_path / "study" / "study.json").write_text("{}")
    (tmp_path / "study" / "seed-1" / "manifest.json").write_text("{}")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{}")
    for bad, said in (
        ([runs[0]], "one run has nothing beside it"),
        ([runs[0], runs[0]], "is given twice"),
        ([runs[0], tmp_path / "nonesuch"], "is not a run's folder"),
        ([runs[0], tmp_path / "broken"], "is not a run's folder"),
        ([runs[0], tmp_path / "study"], r"is a study, not a run .*study/seed-1"),
    ):
        with pytest.raises(InputError, match=said):
            command(bad)
    for page, said in ((tmp_path / "x.pdf", "is no .html file"), (tmp_path / "no" / "x.html", "cannot be written")):
        with pytest.raises(InputError, match=said):
            command(runs, page=page)
