"""The page of a run folder, put together from its files and written into it as report.html."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from testbed.errors import InputError
from testbed.net.topology import Topology
from testbed.page import content, figures, frames, maps
from testbed.page.blocks import Chart, Checks, Folded, Network, Page, Plot, Points, Prose, Section, Shown, Source
from testbed.page.figures import Figure
from testbed.page.wide import wide
from testbed.report import study, style
from testbed.report.cluster.summary import ordered
from testbed.report.load import ARMS
from testbed.telemetry import tables

FILE = "report.html"
HERE = Path(__file__).parent


def write(folder: Path) -> Path:
    """Write FOLDER/report.html and return its path. Raises InputError where the folder is neither run nor study."""
    if (folder / study.FILE).is_file():
        page = _study(folder)
    else:
        manifest, summary, validation = (
            read(folder / f"{name}.json") for name in ("manifest", "summary", "validation")
        )
        try:
            kind = wide if "wan" in manifest else _run
            page = kind(folder, manifest, summary, validation)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(str(folder), f"has files of another kind or version: {error!r}", "run it again") from error
    path = folder / FILE
    path.write_text(render(page), encoding="utf-8")
    return path


def read(path: Path) -> Any:
    """Return a JSON file's content. Raises InputError where it is missing or none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            str(path), f"is no file of a run: {error}", "give a run's folder, as in results/two-jobs"
        ) from error


def render(page: Page) -> str:
    """Return a page as HTML: style, script and everything else are in it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["css"] = figures.css
    static = {name: (HERE / "static" / f"page.{name}").read_text(encoding="utf-8") for name in ("css", "js")}
    return environment.get_template("page.html.j2").render(page=page, style=static["css"], script=static["js"])


def _run(folder: Path, manifest: Mapping[str, Any], summary: Mapping[str, Any], validation: Any) -> Page:
    """Return the page of a run whose jobs have places of their own, or are placed by schedulers."""
    verdict, plots = content.verdict(manifest), figures.load(folder / "plots")
    clusters = summary.get("kind") == "cluster"
    sections = [
        Section("arms", "Arms side by side", list(_arms(summary, plots, clusters))),
        Section("network", "The network over time", list(_network(folder, manifest, summary))),
        Section("decisions", "Decisions", list(_decisions(folder, plots, clusters))),
        Section("time", "Phases and queues", [Plot(one) for one in plots if one.place == "time"]),
        Section("predictions", "Predictions and measurements", list(_predictions(validation))),
        Section("more", "More plots", [Plot(one) for one in plots if one.place == "more"]),
        Section("manifest", "What it was made of", list(manifest_blocks(folder, manifest, verdict))),
    ]
    return Page(
        summary["scenario"], manifest["scenario"]["title"], "cluster" if clusters else "run", verdict.valid,
        f"{verdict.total - len(verdict.faults)} of {verdict.total} fidelity checks hold", content.headline(summary),
        verdict.faults, [one for one in sections if one.blocks],
    )  # fmt: skip


def _arms(summary: Mapping[str, Any], plots: Sequence[Figure], clusters: bool) -> Iterator[Any]:
    lines, end_s = content.chart(summary)
    yield Chart(lines, end_s, "Ticks are the means of single trials; thick: the 95 % interval of the mean over trials.")
    yield Shown(content.arms_table(summary, content.CLUSTER_FIGURES if clusters else content.RUN_FIGURES))
    if ratios := content.ratios_table(summary):
        yield Shown(ratios)
    yield from (Plot(one) for one in plots if one.place == "arms")
    parts = [content.parts_table(summary, "models" if clusters else "jobs")]
    if not clusters:
        parts += [one for one in (content.waits_table(summary), content.links_table(summary)) if one]
    yield from (Folded(one.caption, [Shown(one)]) for one in parts)


def _network(folder: Path, manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> Iterator[Any]:
    clusters = summary.get("kind") == "cluster"
    arms = [arm for arm in (ordered(summary["arms"]) if clusters else ARMS) if (folder / arm).is_dir()]
    files = {arm: folder / arm / "plan.json" for arm in arms}
    plans = {arm: read(file) for arm, file in files.items() if file.is_file()}
    known = [arm for arm, plan in plans.items() if "topology" in plan]
    if not known:
        return
    topology = Topology.from_dict(plans[known[0]]["topology"])
    rates = {f"{a}->{b}": float(topology.direction(a, b).rate_bps) for a, b in topology.directed()}
    seen = {arm: frames.of(folder / arm, rates, _trials(folder / arm)) for arm in known}
    arms_data = [found.to_dict(arm) for arm, found in seen.items() if found]
    if not arms_data:
        return
    jobs = manifest["report_setting"].get("jobs", {})
    colours = style.job_colours(list(jobs))
    measures = [["used", "share of the rate in use"], ["marked", "share of packets marked CE"]]
    yield Network(maps.fabric(topology, jobs), {"measures": measures, "arms": arms_data}, colours, {})


def _trials(arm: Path) -> tuple[frames.Span, ...]:
    found = frames.spans_of(arm / tables.ITERATIONS.file, tables.ITERATIONS, "trial")
    return tuple(frames.Span(f"trial {one.name}", one.begin_s, one.end_s) for one in found)


def _decisions(folder: Path, plots: Sequence[Figure], clusters: bool) -> Iterator[Any]:
    path = folder / "decision.json"
    decided = read(path) if path.is_file() else []
    decided = decided if isinstance(decided, list) else [decided]
    yield from (Prose(one["statement"]) for one in decided)
    yield from (Plot(one) for one in plots if one.place == "decisions")
    if table := content.decided_table(decided):
        yield Shown(table)
    if clusters:
        for arm in ordered(path.name for path in folder.iterdir() if path.is_dir()):
            if rounds := _rounds(folder / arm / "events.jsonl"):
                yield Folded(f"{arm}: rounds of scheduling", [Shown(rounds)])


def _rounds(path: Path) -> content.Table | None:
    """Return the rounds of scheduling of an arm; None where it held none."""
    if not path.is_file():
        return None
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = [
        {
            "time (s)": round(one["now_s"], 2), "trial": one["trial"], "candidates": one.get("candidates"),
            "chosen": one.get("chosen"), "moved": one.get("moved"), "waiting": one.get("waiting"),
            "score, unshifted": one["expects"].get("score_unshifted"), "score, shifted": one["expects"].get("score"),
            "time-shifts (ms)": _shifts(one["shifts"]),
        }
        for one in events
        if one["event"] == "round"
    ]  # fmt: skip
    return content.plain_table("Rounds of scheduling", found)


def _shifts(shifts: Any) -> Any:
    """Return the time-shifts of a round in ms by job; the fluid engine tells how many there are."""
    return (
        {job: round(1e3 * of["time_shift_s"], 1) for job, of in shifts.items()} if isinstance(shifts, dict) else shifts
    )


def _predictions(validation: Any) -> Iterator[Any]:
    if table := content.predictions(validation):
        yield Shown(table)
    for key, caption in (
        ("ranks", "Rank correlation of predicted and measured"),
        ("links", "Every shared link and trial"),
    ):
        if table := content.plain_table(caption, validation.get(key, [])):
            yield Folded(caption, [Shown(table)])


def manifest_blocks(folder: Path, manifest: Mapping[str, Any], verdict: content.Verdict) -> Iterator[Any]:
    """Yield the scenario's text, every check, and everything else the manifest holds."""
    source = folder / "scenario.toml"
    if source.is_file():
        yield Folded("The scenario as it was run", [Source("scenario.toml", source.read_text(encoding="utf-8"))])
    if verdict.total:
        checks = [Checks(arm, of) for arm, of in verdict.checks.items()]
        yield Folded(f"All {verdict.total} fidelity checks", checks)
    yield from (Folded(one.caption, [Shown(one)]) for one in content.manifest_tables(manifest))


def _study(folder: Path) -> Page:
    """Return the page of a study: its plots, and a table of its points with their pages."""
    found = study.load(folder)
    heads = list(dict.fromkeys(name for plot in found["plots"] for name in (plot["x"], *plot["y"])))
    heads = heads or list(dict.fromkeys(label for point in found["points"] for label in point["at"]))
    rows = [
        (
            point["name"],
            f"{point['folder']}/{FILE}" if point["figures"] and (folder / point["folder"] / FILE).is_file() else "",
            bool(point["valid"]),
            [study.cell(point, name) for name in heads],
        )
        for point in found["points"]
    ]
    valid = sum(ok for _, _, ok, _ in rows)
    settings = [{"point": point["name"], "settings": point["settings"]} for point in found["points"]]
    every = content.plain_table("Settings of the points", settings)
    sections = [
        Section("plots", "Plots", [Plot(one) for one in figures.load(folder / study.PLOTS)]),
        Section("points", "Points", [Points(heads, rows), *([Folded(every.caption, [Shown(every)])] if every else [])]),
    ]
    faults = [
        ("point", point["name"], point["error"] or "not valid") for point in found["points"] if not point["valid"]
    ]
    return Page(
        found["name"], found["title"], "study", valid == len(rows), f"{valid} of {len(rows)} points are valid",
        f"{len(rows)} points, each a run with a page of its own.", faults, [one for one in sections if one.blocks],
    )  # fmt: skip
