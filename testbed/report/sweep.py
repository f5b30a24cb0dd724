"""What a sweep showed: every metric over what is varied, with a band over the repetitions (seeds) of each point.

A line is an arm (or a system), along the first label that is varied; other labels make panels, and beyond the second
files. A band is the 95 % interval of the mean over repetitions (testbed.report.stats), claimed from three on. Without
repetitions the interval of each point's own trials is drawn, where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table

from testbed.errors import InputError
from testbed.report import stats, style
from testbed.report.figures.bands import Line, Panel, bands
from testbed.report.parquet import split

METRICS = {
    "mean-ms": "mean iteration time (ms)",
    "p99-ms": "99th percentile of iteration times (ms)",
    "worst-ms": "longest iteration (ms)",
    "gain": "mean iteration time over cassini's",
    "marks": "marked packets per iteration of a job",
    "ce": "CE packets per iteration of a job",
    "peak-kB": "longest queue (kB)",
    "score": "compatibility score, predicted",
    "lost-ms": "lost by adjustments per iteration (ms)",
    "round-s": "mean round (s)",
    "speed-up": "speed-up over the baseline",
    "bound": "time without computing over the least that any schedule takes",
    "accuracy": "accuracy at the end",
}
"""What is plotted where a study has it and names no other `metrics`, and what the axis says."""
ALL = "all"


@dataclass(frozen=True)
class Cell:
    """A metric of one arm where all labels but those of repetitions have the values `at`: mean and interval."""

    arm: str
    at: tuple[Any, ...]
    mean: float
    low: float | None
    high: float | None
    count: int


def labels(study: Mapping[str, Any]) -> list[str]:
    """Return the labels that make lines, panels and files: those varied but for repetitions; at least one."""
    varied = [label for label in study["labels"] if label not in study["repeats"]]
    return varied or list(study["labels"])


def cells(study: Mapping[str, Any], metric: str) -> list[Cell]:
    """Return the metric by arm and point, repetitions put together; points that are not valid are left out."""
    along = labels(study)
    found: dict[tuple[str, tuple[Any, ...]], list[Mapping[str, Any]]] = {}
    for point in study["points"]:
        if not point["valid"]:
            continue
        at = tuple(point["at"].get(label) for label in along)
        for name, of in point["figures"].items():
            kind, arm, part = split(name)
            if kind == metric and part is None and of.get("value") is not None:
                found.setdefault((arm or ALL, at), []).append(of)
    return [_cell(arm, at, own) for (arm, at), own in found.items()]


def _cell(arm: str, at: tuple[Any, ...], own: Sequence[Mapping[str, Any]]) -> Cell:
    values = [float(of["value"]) for of in own]
    if len(own) == 1:
        return Cell(arm, at, values[0], own[0].get("low"), own[0].get("high"), 1)
    made = stats.estimate([values], fmean)
    return Cell(arm, at, made["value"], made["low"], made["high"], len(values))


def metrics(study: Mapping[str, Any]) -> list[str]:
    """Return the metrics to plot: those the study names, else those of METRICS that it has.

    Raises InputError for one that no point has.
    """
    figures = [(split(name), of) for point in study["points"] for name, of in point["figures"].items()]
    known = {kind for (kind, _, part), of in figures if part is None and of.get("value") is not None}
    foreign = [name for name in study["metrics"] if name not in known]
    if foreign and known:
        raise InputError(f"study.metrics of {study['name']}", f"no point has {foreign[0]}", ", ".join(sorted(known)))
    return [name for name in study["metrics"] or METRICS if name in known]


def draw(study: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw each metric into FOLDER/METRIC.png and .svg (several where more than two labels are varied)."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with style.styled():
        for metric in metrics(study):
            of_metric = cells(study, metric)
            files = dict.fromkeys(cell.at[2:] for cell in of_metric)
            for file in files:
                own = [cell for cell in of_metric if cell.at[2:] == file]
                named = [f"{label} {value}" for label, value in zip(labels(study)[2:], file, strict=True)]
                base = folder / "_".join([metric, *(part.replace(" ", "-").replace("/", "-") for part in named)])
                made = bands(_panels(study, own), *_titles(study, metric, named, own))
                # with_suffix would take a point in a value for a suffix
                paths += style.save(made, base.with_name(base.name.replace(".", "_")))
    return paths


def _titles(
    study: Mapping[str, Any], metric: str, named: Sequence[str], own: Sequence[Cell]
) -> tuple[str, str, str, str]:
    count = max(cell.count for cell in own)
    of = f"mean of {count} repetitions ({', '.join(study['repeats'])})" if count > 1 else "one run at each point"
    band = "band: 95 % interval of the mean" if count >= stats.FEWEST_TRIALS else "bars: 95 % interval over trials"
    banded = any(cell.low is not None for cell in own)
    below = ", ".join([of, *([band] if banded else []), *named])
    title = METRICS.get(metric, metric)
    return f"{study['title']}: {metric}", below, labels(study)[0], title


def _panels(study: Mapping[str, Any], own: Sequence[Cell]) -> list[Panel]:
    second = labels(study)[1] if len(labels(study)) > 1 else None
    panels = []
    for value in dict.fromkeys(cell.at[1] if second else None for cell in own):
        inside = [cell for cell in own if second is None or cell.at[1] == value]
        lines = []
        for arm in dict.fromkeys(cell.arm for cell in own):
            points = [(cell.at[0], cell.mean, cell.low, cell.high) for cell in inside if cell.arm == arm]
            lines.append(Line(arm, tuple(points), any(cell.count > 1 for cell in inside)))
        panels.append(Panel(f"{second} {value}" if second else "", tuple(lines)))
    return panels


def table(study: Mapping[str, Any]) -> Table | None:
    """Return the first metric by point and arm, as mean ± half of its interval; None where no point has any."""
    named = metrics(study)
    if not named:
        return None
    of_metric = cells(study, named[0])
    arms = list(dict.fromkeys(cell.arm for cell in of_metric))
    title = f"{study['title']}: {METRICS.get(named[0], named[0])}"
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in (*labels(study), "runs", *arms):
        made.add_column(name, justify="right")
    for at in dict.fromkeys(cell.at for cell in of_metric):
        own = {cell.arm: cell for cell in of_metric if cell.at == at}
        count = str(max(cell.count for cell in own.values()))
        made.add_row(*map(str, at), count, *(_shown(own.get(arm)) for arm in arms))
    return made


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    interval = "" if cell.low is None or cell.high is None else f" [{cell.low:.4g}, {cell.high:.4g}]"
    return f"{cell.mean:.4g}{interval}"
