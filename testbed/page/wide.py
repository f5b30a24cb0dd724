"""The page of a wide-area run: its systems, the trees on the map, links over time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.page import content, figures, frames, maps
from testbed.page.blocks import Checks, Folded, Network, Page, Plot, Section, Shown, Source, Tree
from testbed.page.numbers import Cell, cell, count, plain, seconds, size, times
from workloads.paramsync.records import ROUNDS

SYSTEM_FIGURES = (
    ("mean round (s)", "mean_round_s", seconds),
    ("mean synchronisation (s)", "mean_sync_s", seconds),
    ("speed-up over the baseline", "speed_up", times),
    ("rounds", "rounds", count),
    ("bytes over the network", "wan_bytes", size),
    ("packets marked", "wan_marks", count),
    ("packets dropped", "wan_drops", count),
)
WORDS = {
    "nodes": "Transmission, blocking and aggregation at each site",
    "roots": "Each root's share, and when it was done",
    "choices": "Roots that were chosen, and better ones",
    "ranks": "How well each prediction orders the systems",
}


def wide(folder: Path, manifest: Mapping[str, Any], summary: Mapping[str, Any], validation: Mapping[str, Any]) -> Page:
    """Return the page of a wide-area run from its files."""
    verdict, plots = content.verdict(manifest), figures.load(folder / "plots")
    best = min(summary["groups"].items(), key=lambda item: item[1]["mean_s"])
    source = Source("scenario.toml", (folder / "scenario.toml").read_text(encoding="utf-8"))
    sections = [
        Section("arms", "Systems side by side", list(_systems(summary))),
        Section("network", "Trees on the map, links over time", list(_network(folder, manifest, summary))),
        Section("plots", "Plots", [Plot(one) for one in plots]),
        Section("predictions", "Predictions and measurements", list(_predictions(validation))),
        Section("manifest", "What it was made of", [
            Folded("The scenario as it was run", [source]),
            Folded(f"All {verdict.total} fidelity checks", [Checks(arm, of) for arm, of in verdict.checks.items()]),
            *(Folded(one.caption, [Shown(one)]) for one in content.manifest_tables(manifest)),
        ]),
    ]  # fmt: skip
    return Page(
        summary["scenario"], manifest["scenario"]["title"], "wide", verdict.valid,
        f"{verdict.total - len(verdict.faults)} of {verdict.total} fidelity checks hold",
        f"Shortest mean round: {best[0]}, {seconds(best[1]['mean_s'])} s, {times(best[1]['speed_up'])}× as fast as "
        f"{summary['baseline']}.",
        verdict.faults, [one for one in sections if one.blocks],
    )  # fmt: skip


def _systems(summary: Mapping[str, Any]) -> Iterator[Any]:
    systems = {one["system"]: one for one in summary["systems"]}
    raw = {"systems": dict(enumerate(summary["systems"]))}
    rows = []
    for label, key, show in SYSTEM_FIGURES:
        cells = []
        for number in raw["systems"]:
            found = cell(raw["systems"][number], key, show)
            cells.append(Cell(found.text, found.value, f"systems|{number}|{key}"))
        if any(one.value is not None for one in cells):
            rows.append((label, cells))
    yield Shown(content.Table("Figures of each system", list(systems), rows))
    groups = [{"system": name} | dict(of) for name, of in summary["groups"].items()]
    if any(of.get("runs", 1) > 1 for of in groups) and (table := content.plain_table("By group of systems", groups)):
        yield Shown(table)
    roots = [{"system": name, "roots": plain(of.get("roots"))} for name, of in systems.items()]
    if table := content.plain_table("Roots of the trees", roots):
        yield Folded(table.caption, [Shown(table)])


def _network(folder: Path, manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> Iterator[Any]:
    drawn, wan = maps.wan(manifest["wan"]), manifest["wan"]
    switch = {site["name"]: f"s{number}" for number, site in enumerate(wan["sites"], 1)}
    rates: dict[str, float] = {}
    ours: dict[str, str] = {}
    for link in wan["links"]:
        for a, b, way in ((link["a"], link["b"], "a_to_b"), (link["b"], link["a"], "b_to_a")):
            name = f"{switch[a]}->{switch[b]}"
            rates[name], ours[name] = float(link[way]["rate_bps"]), f"{a}->{b}"
    arms, trees = [], {}
    for one in summary["systems"]:
        arm = folder / one["system"]
        seen = frames.of(arm, rates, _rounds(arm), lost="dropped_packets")
        if seen is None:
            continue
        named = [{ours[link]: of for link, of in part.items()} for part in (seen.used, seen.marked)]
        arms.append(frames.Frames(seen.edges_s, named[0], named[1], seen.spans).to_dict(one["system"]))
        trees[one["system"]] = list(_trees(arm / "plan.json", drawn))
    if arms:
        measures = [["used", "share of the first rate in use"], ["marked", "share of packets dropped"]]
        yield Network(drawn, {"measures": measures, "arms": arms}, {}, trees)


def _predictions(validation: Mapping[str, Any]) -> Iterator[Any]:
    if predicted := content.predictions(validation):
        yield Shown(predicted)
    for key, found in validation.items():
        if key != "rounds" and isinstance(found, list) and (table := content.plain_table(WORDS.get(key, key), found)):
            yield Folded(table.caption, [Shown(table)])


def _rounds(arm: Path) -> tuple[frames.Span, ...]:
    found = frames.spans_of(arm / ROUNDS.file, ROUNDS, "round")
    return tuple(frames.Span(f"round {one.name}", one.begin_s, one.end_s) for one in found)


def _trees(plan: Path, drawn: maps.Map) -> Iterator[Tree]:
    """Yield the trees that sums are pushed along, root by root, out of an arm's plan."""
    sync = json.loads(plan.read_text(encoding="utf-8")).get("sync", {})
    sites: Sequence[str] = sync.get("sites", ())
    at = {node.name: (node.x, node.y) for node in drawn.nodes}
    for way in sync.get("policy", {}).get("ways", ()):
        parents = way["push"]["parents"]
        pairs = [(sites[child], sites[parent]) for child, parent in enumerate(parents) if parent is not None]
        root = sites[way["push"]["root"]]
        arrows = [_arrow(at[child], at[parent]) for child, parent in pairs]
        yield Tree(f"root {root}", "; ".join(f"{child} to {parent}" for child, parent in pairs), arrows)


def _arrow(child: maps.Point, parent: maps.Point) -> str:
    """Return the path of a bent arrow between two sites, so that it hides no link."""
    (ax, ay), (bx, by) = child, parent
    length = math.hypot(bx - ax, by - ay) or 1.0
    ux, uy = (bx - ax) / length, (by - ay) / length
    begin, end = maps.SITE_RADIUS + 2, maps.SITE_RADIUS + 7
    bend = 0.12 * length
    middle = (ax + bx) / 2 - uy * bend, (ay + by) / 2 + ux * bend
    return (
        f"M{ax + begin * ux:.1f} {ay + begin * uy:.1f} Q{middle[0]:.1f} {middle[1]:.1f} "
        f"{bx - end * ux:.1f} {by - end * uy:.1f}"
    )
