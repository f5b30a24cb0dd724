"""What a study showed, point by point: study.json, a table, and plots over the points.

    {"name", "title", "plots": [...],
     "points": [{"name", "at": {label: value}, "settings", "valid", "error", "folder", "wall_s",
                 "figures": {figure: {"value", "low", "high"}}}]}

Figures of a point, each with its interval where there is one: `score` and `score-unshifted` (lowest of its links),
`score-mean`, `gain.ARM` (mean iteration time of an arm over that of the arm cassini), and by arm, or by arm and job
(`mean-ms.ARM`, `mean-ms.ARM.JOB`): `mean-ms`, `worst-ms`, `up-ms`, `marks`, `ce` (packets per iteration of a job),
`peak-kB` (of the shared links); by arm alone `lost-ms` and `padding-ms` per iteration and `adjustments` per minute and
job, `ce-ratio.JOB` (CE packets in the arm random over those in cassini). Of a cluster: `mean-ms`, `p99-ms`, `marks` and
`ce` by arm or arm and model, and `ratio.A/B.F` with F of `mean`, `p99`, `marks`, `ce` and `completion`, or `F.MODEL`.
Of data centres: those of testbed.report.wide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from testbed.errors import InputError
from testbed.report import style, wide
from testbed.report.figures.points import over_points

FILE, PLOTS = "study.json", "plots"
RATIOS = {
    "mean": "mean",
    "p99": "p99",
    "ce": "ce_packets_per_iteration",
    "marks": "marked_packets_per_iteration",
    "completion": "completion_s",
    "relative": "relative",
}
Figures = dict[str, dict[str, Any]]


def summarise(folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what study.json holds. about: the same without figures. Points that did not end have none."""
    points = [
        dict(point) | {"figures": figures(folder / point["folder"]) if _ended(folder, point) else {}}
        for point in about["points"]
    ]
    return dict(about) | {"points": points}


def _ended(folder: Path, point: Mapping[str, Any]) -> bool:
    """Return whether its folder is of this run: a point that did not end leaves that of an earlier one as it was."""
    return bool(point["valid"] or point["folder"] != point["name"]) and (folder / point["folder"]).is_dir()


def load(folder: Path) -> dict[str, Any]:
    """Return what study.json holds. Raises InputError where there is none."""
    try:
        found: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(str(folder), f"has no {FILE} that can be read", "run the study") from error
    return found


def figures(run: Path) -> Figures:
    """Return the figures of one run, from its summary.json and decision.json."""
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    if summary.get("kind") == wide.KIND:
        validation = json.loads((run / "validation.json").read_text(encoding="utf-8"))
        return {name: _bounds(of) for name, of in wide.figures(summary, validation)}
    found = {name: _bounds(of) for name, of in _figures(summary)}
    decisions = run / "decision.json"
    if decisions.is_file():
        decided = json.loads(decisions.read_text(encoding="utf-8"))
        for name, key in (("score", "score"), ("score-unshifted", "score_unshifted")):
            found[name] = _bounds(min((one[key] for one in decided), default=1.0))
        found["score-mean"] = _bounds(sum(one["score"] for one in decided) / len(decided) if decided else 1.0)
    return found


def _figures(summary: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for arms, of in summary["ratios"].items():
        above, _, below = arms.partition("/")
        yield from _ratios(arms, of)
        if below == "cassini":
            yield f"gain.{above}", of["mean"]
    if {"alone", "cassini"} <= summary["arms"].keys():
        alone, cassini = (summary["arms"][arm]["iteration_s"]["mean"]["value"] for arm in ("alone", "cassini"))
        yield "gain.alone", alone / cassini
    if {"random", "cassini"} <= summary["arms"].keys():
        yield from _marked(*(summary["arms"][arm]["jobs"] for arm in ("random", "cassini")))
    parts = "models" if summary.get("kind") == "cluster" else "jobs"
    for arm, of in summary["arms"].items():
        yield from _figures_of(arm, of)
        for part, own in of[parts].items():
            yield from _figures_of(f"{arm}.{part}", own)
        if of.get("links"):
            yield f"peak-kB.{arm}", max(link["peak_backlog_bytes"] / 1e3 for link in of["links"].values())
        if parts == "jobs":
            yield from _waits(arm, of)


def _marked(random: Mapping[str, Any], cassini: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield how many more CE packets each job received in the arm random; both counts, a ratio only where it is one."""
    for job in cassini.keys() & random.keys():
        above, below = (of[job]["ce_packets_per_iteration"]["value"] for of in (random, cassini))
        yield f"ce-ratio.{job}", {"value": above / below if below else None, "above": above, "below": below}


def _ratios(arms: str, of: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, key in RATIOS.items():
        if key in of:
            yield f"ratio.{arms}.{name}", of[key]
        for model, own in of.get("models", {}).items():
            if key in own:
                yield f"ratio.{arms}.{name}.{model}", own[key]


def _figures_of(name: str, of: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in ("mean", "p99", "worst"):
        if key in of["iteration_s"]:
            yield f"{key}-ms.{name}", _times(1e3, _bounds(of["iteration_s"][key]))
    for figure, key in (("ce", "ce_packets_per_iteration"), ("marks", "marked_packets_per_iteration")):
        if of.get(key) is not None:
            yield f"{figure}.{name}", of[key]
    if "up_s" in of:
        yield f"up-ms.{name}", _times(1e3, of["up_s"])


def _waits(arm: str, of: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    jobs = [job for job in of["jobs"].values() if "adjustments" in job]
    iterations = sum(job["iterations"] for job in jobs)
    if iterations:
        minutes = sum(job["iterations"] * job["iteration_s"]["mean"]["value"] for job in jobs) / 60
        yield f"adjustments.{arm}", sum(job["adjustments"] for job in jobs) / minutes
        for name, key in (("lost-ms", "lost_s"), ("padding-ms", "padding_s")):
            yield f"{name}.{arm}", 1e3 * sum(job[key] * job["iterations"] for job in jobs) / iterations


def _bounds(of: Any) -> dict[str, Any]:
    known = of if isinstance(of, Mapping) else {"value": of}
    return {key: known[key] for key in ("value", "low", "high", "above", "below") if key in known}


def _times(factor: float, of: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if value is None else value * factor for key, value in _bounds(of).items()}


def draw(folder: Path) -> list[Path]:
    """Draw every plot that study.json asks for into STUDY/plots; return the paths.

    Raises InputError for a plot of a figure that no point has.
    """
    study = load(folder)
    (folder / PLOTS).mkdir(exist_ok=True)
    with style.styled():
        return [
            path
            for plot in study["plots"]
            for path in style.save(over_points(plot, study["points"]), folder / PLOTS / plot["name"])
        ]


def table(study: Mapping[str, Any], shown: Sequence[str] = ()) -> Table:
    """Return a table with a row per point; shown: figures, those of the plots without."""
    columns = list(shown) or list(dict.fromkeys(name for plot in study["plots"] for name in (plot["x"], *plot["y"])))
    title = study["title"]
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, min_width=len(title))
    made.add_column("point")
    for name in columns:
        made.add_column(name, justify="right")
    for point in study["points"]:
        cells = [cell(point, name) for name in columns]
        made.add_row(point["name"] if point["valid"] else f"{point['name']} (not valid)", *cells)
    return made


def cell(point: Mapping[str, Any], name: str) -> str:
    """Return a label or a figure of a point as text, "-" where it has none."""
    if name in point["at"]:
        return str(point["at"][name])
    value = point["figures"].get(name, {}).get("value")
    return "-" if value is None else f"{value:.4g}"
