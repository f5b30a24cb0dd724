"""One page: each of the paper's figures, ours, the ratio, why they differ, and the scenario that made ours."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from testbed.report import style
from testbed.report.correlation import correlations
from testbed.report.figures.ranks import ranks
from testbed.report.links import rows
from testbed.report.load import arms_of
from testbed.report.reference import fire, pictures, systems
from testbed.report.study import FILE, Figures, figures, load

ROWS = Path(__file__).parent / "cassini.toml"
TITLE, PLOT = "CASSINI (NSDI 2024) and what Orrery measures", "cassini-ranks"


@dataclass(frozen=True)
class Run:
    """A finished run: of a scenario, or of one `point` of a study (empty without)."""

    scenario: str
    point: str
    folder: Path
    wall_s: float
    figures: Figures

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What it was run on."""
        found: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        return found

    @property
    def code(self) -> str:
        """The version of the code that made it."""
        return str(self.manifest["code"])

    @property
    def setting(self) -> dict[str, Any]:
        """What the report knows of its scenario (testbed.report.load.Setting)."""
        return dict(self.manifest.get("report_setting", {}))


def runs_of(results: Path, names: Sequence[str]) -> list[Run]:
    """Return every valid run of the scenarios named, points of a study in its order."""
    found = []
    for name in names:
        points = [("", results / name)]
        if (results / name / FILE).is_file():
            points = [(at["name"], results / name / at["folder"]) for at in load(results / name)["points"]]
        for point, folder in points:
            if (folder / "manifest.json").is_file():
                if not json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["valid"]:
                    continue
                wall_s = json.loads((folder / "wall.json").read_text(encoding="utf-8"))["whole"]["total"]
                found.append(Run(name, point, folder, float(wall_s), figures(folder)))
    return found


def write(results: Path, names: Sequence[str], rows_file: Path = ROWS) -> Path:
    """Write results/reference/PAPER.md, and the plots it shows beside it; return its path. The paper is that which
    the file of rows is called after, CASSINI where it says no title."""
    place = results / "reference"
    place.mkdir(parents=True, exist_ok=True)
    said = tomllib.loads(rows_file.read_text(encoding="utf-8"))
    runs = runs_of(results, names)
    pages = [*_head(said, runs), *_tables(said["group"], runs)]
    if any(name == picture.scenario for name in names for picture in pictures.PICTURES):
        pages += pictures.section(place, results)
    pages += [*_ranks(place, runs), *systems.sections(place, runs), *fire.section(results, names)]
    pages += [*_plots(place, results, names), *_walls(runs, names)]
    path = place / f"{rows_file.stem if 'title' in said else 'cassini'}.md"
    path.write_text("\n".join(pages) + "\n", encoding="utf-8")
    return path


def _head(said: Mapping[str, Any], runs: Sequence[Run]) -> Iterator[str]:
    yield from (f"# {said.get('title', TITLE)}", "", said["about"].strip(), "")
    codes = sorted({run.code for run in runs})
    yield f"Made by `make reproduce`; code {', '.join(codes) or 'none'}."
    yield ""


def _tables(groups: Sequence[Mapping[str, Any]], runs: Sequence[Run]) -> Iterator[str]:
    for group in groups:
        yield from (f"## {group['title']}", "")
        if "about" in group:
            yield from (group["about"].strip(), "")
        yield "| figure | paper | here | here / paper | scenario | why they differ |"
        yield "|---|---:|---:|---:|---|---|"
        for row in group["row"]:
            yield _row(row, runs)
        yield ""


def _row(row: Mapping[str, Any], runs: Sequence[Run]) -> str:
    """Return a row. A figure that no run has says so: nothing is put in its place."""
    run = next((run for run in runs if (run.scenario, run.point) == (row["scenario"], row.get("point", ""))), None)
    of = _figure(row, run.figures) if run else None
    paper = row.get("paper")
    here = "not run" if run is None else "not measured" if of is None else shown(of)
    value = of.get("value") if of else None
    ratio = f"{value / paper:.2f}" if isinstance(paper, int | float) and value is not None else "–"
    scenario = f"`{row['scenario']}`" + (f" {row['point']}" if row.get("point") else "")
    told = row.get("unpublished", "–") if paper is None else f"{paper}"
    return f"| {row['what']} | {told} | {here} | {ratio} | {scenario} | {row.get('why', '')} |"


def _figure(row: Mapping[str, Any], of: Figures) -> Mapping[str, Any] | None:
    """Return the figure of a row, over another one of the same run where the row says so; None where one is missing."""
    found = of.get(row["figure"])
    if "over" not in row or found is None:
        return found
    below = of.get(row["over"])
    return None if below is None or not below["value"] else {"value": found["value"] / below["value"]}


def shown(of: Mapping[str, Any]) -> str:
    """Return a figure with its interval as text; of a ratio whose lower count is 0 both counts."""
    if of.get("value") is None:
        return f"{_number(of['above'])} : {_number(of['below'])}" if of.get("above") is not None else "–"
    interval = f" [{_number(of['low'])}, {_number(of['high'])}]" if of.get("low") is not None else ""
    return f"{_number(of['value'])}{interval}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 100 else f"{value:.3g}"


def link_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return what every run predicted of its links and what was measured (testbed.report.links)."""
    found: list[dict[str, Any]] = []
    for run in runs:
        if (run.folder / "profiles.json").is_file() and "shared_links" in (setting := run.setting):
            found += rows(run.folder, setting["rate_bps"], arms_of(run.folder))
    return found


def _ranks(place: Path, runs: Sequence[Run]) -> Iterator[str]:
    seen = link_rows(runs)
    if not seen:
        return
    yield from ("## Predictions against measurements, link by link", "")
    yield "Every shared link in every trial of every run above that has profiles; ties are counted as ties (tau-b)."
    yield from (
        "",
        "| predicted | measured | rows | scores | tied pairs | Spearman | Kendall |",
        "|---|---|--:|--:|--:|--:|--:|",
    )
    for one in correlations(seen):
        ties = f"{one['ties']['predicted']}, {one['ties']['measured']}"
        values = [f"{one[key]:.2f}" if one[key] is not None else "–" for key in ("spearman", "kendall")]
        counts = f"{one['rows']} | {one['scores']} | {ties}"
        yield f"| {one['predicted']} | {one['measured']} | {counts} | {' | '.join(values)} |"
    with style.styled():
        style.save(ranks(seen), place / PLOT)
    yield from ("", f"![]({PLOT}.png)", "")


def _plots(place: Path, results: Path, names: Sequence[str]) -> Iterator[str]:
    """Copy the plots of studies and yield their pictures."""
    yield from ("## Plots", "")
    for name in names:
        if (results / name / FILE).is_file():
            yield f"`{name}`:"
            for plot in load(results / name)["plots"]:
                copied = f"{name}-{plot['name']}.png"
                shutil.copyfile(results / name / "plots" / f"{plot['name']}.png", place / copied)
                yield f"![{plot['title']}]({copied})"
            yield ""


def _walls(runs: Sequence[Run], names: Sequence[str]) -> Iterator[str]:
    yield from ("## Wall time", "", "| scenario | points | wall time (s), summed over points |", "|---|--:|--:|")
    for name in names:
        own = [run.wall_s for run in runs if run.scenario == name]
        yield f"| `{name}` | {len(own)} | {sum(own):.0f} |" if own else f"| `{name}` | – | not run |"
