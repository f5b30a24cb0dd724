"""Twins of runs in packets: the same scenarios at flow level, in results/fluid, and the page that compares them.

`reproduce` makes them after its own runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from testbed import scenario_file
from testbed.report.reference import fluid
from testbed.study.board import Lines
from testbed.study.points import Study
from testbed.study.run import Ran, StudyRun

FLUID = ("engine=fluid",)
SUMMARY = "summary.json"


def chosen(results: Path, only: Sequence[str] = ()) -> list[str]:
    """Return the scenarios of fabrics that have a run in packets, those of `only` where it names any.

    Raises InputError for a name that is no scenario.
    """
    for name in only:
        scenario_file.find(name)
    there = [name for name in scenario_file.names(wide=False) if (results / name).is_dir()]
    return [name for name in there if not only or name in only]


def of(studies: Sequence[Study], results: Path) -> list[Study]:
    """Return studies with those of their points that have a run in packets, without the studies that have none."""
    found = []
    for study in studies:
        folder = results / study.name
        there = [at for at in study.points if ((folder / at.name if study.varied else folder) / SUMMARY).is_file()]
        if there:
            found.append(replace(study, points=tuple(there), whole=False))
    return found


def run(studies: Sequence[Study], results: Path, told: Lines, *, keep: bool = True) -> list[Ran]:
    """Run every point that has a run in packets; a valid twin of the same code is not run again, unless not `keep`.

    studies: at flow level, as of `reproduce.studies` with the setting FLUID. Twins have no plots and no pages of their
    own; `report` makes them. Raises as StudyRun.run.
    """
    made = tuple(of(studies, results))
    where = results / fluid.TWINS
    return StudyRun(made, None, where, told, keep=keep, tidy=False, drawn=False).run() if made else []


def page(names: Sequence[str], results: Path) -> Path:
    """Write results/reference/fluid.md from all twins that are there; return its path."""
    return fluid.write(results, names)
