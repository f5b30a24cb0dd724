"""Runs side by side: their figures, verdicts, and what differs in their scenarios. As tables, and as a page.

Figures are those of studies (testbed.report.study), of whole arms; every one is put beside the first run's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from rich.table import Table

from testbed.errors import InputError
from testbed.report import style
from testbed.report.figures.points import MARKERS
from testbed.report.parquet import split
from testbed.report.study import FILE as STUDY_FILE
from testbed.report.study import Figures, figures
from testbed.report.sweep import ALL, METRICS

MISSING = "–"
TOLD = 4
"""So many keys are told of a table that another scenario has not."""


@dataclass(frozen=True)
class Run:
    """A run: `scenario` by key, `faults` of its verdict (empty when it is valid), what it was run by."""

    name: str
    folder: Path
    valid: bool
    faults: tuple[str, ...]
    figures: Figures
    scenario: dict[str, Any]
    made_by: dict[str, str]


@dataclass(frozen=True)
class Row:
    """One figure of an arm in every run, the others' as multiples of the first's; None where a run has none."""

    metric: str
    arm: str
    values: tuple[Mapping[str, Any] | None, ...]
    ratios: tuple[float | None, ...]


def load(folders: Sequence[Path]) -> list[Run]:
    """Read the runs in these folders. Raises InputError where one is none, or is named twice."""
    places = [folder.resolve() for folder in folders]
    twice = [folder for number, folder in enumerate(places) if folder in places[:number]]
    if twice:
        raise InputError(str(twice[0]), "is given twice", "compare different runs")
    return [_load(folder, name) for folder, name in zip(folders, _names(places), strict=True)]


def _names(places: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that tell the runs apart."""
    for length in range(1, max(len(place.parts) for place in places) + 1):
        names = ["/".join(place.parts[-length:]) for place in places]
        if len(set(names)) == len(names):
            return names
    return [str(place) for place in places]


def _load(folder: Path, name: str) -> Run:
    if (folder / STUDY_FILE).is_file():
        points = sorted(path.name for path in folder.iterdir() if (path / "manifest.json").is_file())
        raise InputError(
            str(folder), "is a study, not a run", f"name points of it, as in {folder / (points or ['POINT'])[0]}"
        )
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        found = figures(folder)
        verdict = manifest["verdict"]
        faults = tuple(_faults(verdict))
        kernel = manifest.get("kernel") or {}
        made_by = {
            "engine": str(manifest.get("engine", "packets")), "code": str(manifest.get("code", MISSING)),
            "kernel": str(kernel.get("version", MISSING)), "Python": str(manifest.get("python", MISSING)),
        }  # fmt: skip
        return Run(name, folder, bool(manifest["valid"]), faults, found, flat(manifest["scenario"]), made_by)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(str(folder), "is not a run's folder", "as in results/two-jobs") from error


def _faults(verdict: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    for arm, checks in verdict.items():
        for check in checks:
            if not check["ok"]:
                yield f"{arm}: {check['what']}: {check.get('found', check.get('detail', ''))}"


def flat(value: Any, key: str = "") -> dict[str, Any]:
    """Return a scenario's keys with their values; tables in lists go by their names, as in job.vgg16-a.workers."""
    if isinstance(value, Mapping):
        return {
            name: of
            for inner, below in value.items()
            for name, of in flat(below, f"{key}.{inner}" if key else inner).items()
        }
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        named = [(str(one.get("name", number)), one) for number, one in enumerate(value)]
        return {name: of for inner, below in named for name, of in flat(below, f"{key}.{inner}").items()}
    return {key: value}


def differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return every key that is not the same in all scenarios, with its value in each; then what they were run by.

    A table that a scenario has not at all, such as a job, is one row.
    """
    keys = dict.fromkeys(key for run in runs for key in run.scenario)
    found: dict[str, list[str]] = {}
    for key in keys:
        table = ".".join(key.split(".")[:2])
        if table != key and not all(_has(run, table) for run in runs):
            found[table] = [_told(run, table) for run in runs]
        else:
            found[key] = [_text(run.scenario.get(key, MISSING)) for run in runs]
    found |= {key: [run.made_by[key] for run in runs] for key in runs[0].made_by}
    return {key: values for key, values in found.items() if len(set(values)) > 1}


def _has(run: Run, table: str) -> bool:
    return any(key.startswith(f"{table}.") for key in run.scenario)


def _told(run: Run, table: str) -> str:
    """Return what a table is about: the first keys of it that have a value."""
    own = [(key.removeprefix(f"{table}."), value) for key, value in run.scenario.items() if key.startswith(f"{table}.")]
    said = [f"{key} {_text(value)}" for key, value in own if value is not None and key != "name"]
    return ", ".join(said[:TOLD]) or MISSING


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def rows(runs: Sequence[Run]) -> list[Row]:
    """Return the figures of whole arms that METRICS names, in its order."""
    known = dict.fromkeys(name for run in runs for name in run.figures if split(name)[2] is None)
    found = []
    for metric in METRICS:
        for name in known:
            if split(name)[0] == metric:
                values = tuple(_known(run.figures.get(name)) for run in runs)
                if any(values):
                    found.append(Row(metric, split(name)[1] or ALL, values, _ratios(values)))
    return found


def _known(of: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return of if of is not None and of.get("value") is not None else None


def _ratios(values: Sequence[Mapping[str, Any] | None]) -> tuple[float | None, ...]:
    first = values[0]["value"] if values[0] else None
    return tuple(of["value"] / first if of and first else None for of in values)


def shown(of: Mapping[str, Any] | None) -> str:
    """Return a figure with its interval as text."""
    if of is None:
        return MISSING
    interval = (
        f" [{of['low']:.4g}, {of['high']:.4g}]" if of.get("low") is not None and of.get("high") is not None else ""
    )
    return f"{of['value']:.4g}{interval}"


def tables(runs: Sequence[Run]) -> list[Table]:
    """Return the comparison as tables for the terminal."""
    beside = _table("Side by side; × is against the first run", ("metric", "arm", *(run.name for run in runs)))
    for row in rows(runs):
        cells = [_cell(number, of, row.ratios[number]) for number, of in enumerate(row.values)]
        beside.add_row(row.metric, row.arm, *cells)
    verdicts = _table("Verdicts", ("run", "valid", "what is wrong"))
    for run in runs:
        first = (
            run.faults[0] + (f" (and {len(run.faults) - 1} more)" if len(run.faults) > 1 else "") if run.faults else ""
        )
        verdicts.add_row(run.name, "yes" if run.valid else "NO", first)
    differing = _table("What differs in the scenarios", ("key", *(run.name for run in runs)))
    for key, values in differences(runs).items():
        differing.add_row(key, *values)
    return [beside, verdicts, differing]


def _cell(number: int, of: Mapping[str, Any] | None, ratio: float | None) -> str:
    return shown(of) + (f"  {ratio:.3f}×" if number and ratio is not None else "")


def _table(title: str, columns: Sequence[str]) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def page(runs: Sequence[Run], path: Path) -> Path:
    """Write the comparison as one HTML file that needs no other; return its path. Raises InputError."""
    if path.suffix != ".html":
        raise InputError("--page", f"{path} is no .html file", "as in --page compare.html")
    made = Environment(
        loader=PackageLoader("testbed.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    ).get_template("compare.html")
    cells = [
        (row, [(shown(of), row.ratios[number] if number else None) for number, of in enumerate(row.values)])
        for row in rows(runs)
    ]
    text = made.render(runs=runs, rows=cells, differences=differences(runs), titles=METRICS, picture=_svg(runs))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError("--page", f"{path} cannot be written: {error.strerror}") from error
    return path


def _svg(runs: Sequence[Run]) -> str:
    """Return the first metric of all runs as an SVG element, "" where there is none."""
    made = rows(runs)
    if not made:
        return ""
    own = [row for row in made if row.metric == made[0].metric]
    text = StringIO()
    with style.styled():
        _draw(runs, own).savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _draw(runs: Sequence[Run], own: Sequence[Row]) -> Figure:
    height = 1.1 + 0.22 * len(own) * (len(runs) + 1)
    made = style.figure(7.2, height, METRICS[own[0].metric], "lines: 95 % intervals")
    axes = made.subplots()
    for number, run in enumerate(runs):
        colour = style.JOBS[number % len(style.JOBS)]
        for place, row in enumerate(own):
            of, at = row.values[number], place * (len(runs) + 1) + number
            if of is None:
                continue
            label = run.name if place == 0 else None
            axes.plot([of["value"]], [at], MARKERS[number % len(MARKERS)], color=colour, markersize=5, label=label)
            if of.get("low") is not None and of.get("high") is not None:
                axes.plot([of["low"], of["high"]], [at, at], color=colour, linewidth=1.4)
    middle = (len(runs) - 1) / 2
    axes.set_yticks([place * (len(runs) + 1) + middle for place in range(len(own))], [row.arm for row in own])
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return made
