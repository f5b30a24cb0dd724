"""Does what time-shifts gain hold as clusters grow: the scenario cluster-growth as a table and its figure."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.report.reference.table import shown
from testbed.report.study import FILE, PLOTS, load

GROWTH = "cluster-growth"
PICTURE = f"{GROWTH}-gain.png"
SCHEDULERS = ("themis", "pollux")
FIGURES = {"relative": "iteration time, per job", "p99": "99th percentile", "completion": "completion time"}

ABOUT = """\
The Poisson trace of `cassini-poisson` in full length, at flow level, on racks of four accelerators with two uplinks
(2:1 oversubscribed). What grows is the number of racks, and with it the number of jobs. Ratios are without CASSINI over
with it, so above 1 is a gain; intervals are over traces (95 %, bootstrap), each drawn by a seed of its own.
"""


def section(place: Path, results: Path) -> Iterator[str]:
    """Yield the lines of the section, and copy its figure to `place`; nothing where the study was not run."""
    folder = results / GROWTH
    if not (folder / FILE).is_file():
        return
    study = load(folder)
    yield from ("", "## Does the gain hold as clusters grow?", "", ABOUT)
    columns = [f"{scheduler}: {what}" for scheduler in SCHEDULERS for what in FIGURES.values()]
    yield f"| accelerators | jobs a trace, traces | {' | '.join(columns)} |"
    yield f"|--:|---|{'---|' * len(columns)}"
    for point in study["points"]:
        yield _row(folder, point)
    drawn = folder / PLOTS / "gain.png"
    if drawn.is_file():
        shutil.copyfile(drawn, place / PICTURE)
        yield from ("", f"![{study['plots'][0]['title']}]({PICTURE})")


def _row(folder: Path, point: Mapping[str, Any]) -> str:
    names = [f"ratio.{one}/{one}+cassini.{figure}" for one in SCHEDULERS for figure in FIGURES]
    cells = [shown(point["figures"][name]) if name in point["figures"] else "–" for name in names]
    return f"| {point['at']['accelerators']:.0f} | {_traces(folder / point['folder'])} | {' | '.join(cells)} |"


def _traces(run: Path) -> str:
    """Return how many jobs a trace had and how many traces there were."""
    if not (run / "summary.json").is_file():
        return "not run"
    arm = json.loads((run / "summary.json").read_text(encoding="utf-8"))["arms"]["themis"]
    return f"{len(arm['jobs']) // arm['trials']}, {arm['trials']}"
