"""`python -m testbed reproduce`: all scenarios of two papers' experiments, and a page of each paper beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed import scenario_file
from testbed.errors import InputError
from testbed.report.reference import table
from testbed.study import points
from testbed.study.points import Study

PAPERS = ("cassini", "netstorm")
PICTURES = "traffic-"  # CASSINI's pictures of traffic


def chosen(only: Sequence[str] = ()) -> list[str]:
    """Return the names of the scenarios to run, those of `only` where it names any, with or without the paper before
    it; a paper stands for all of its own. Raises InputError for what is no scenario."""
    names = [name for name in scenario_file.names() if paper_of(name)]
    wanted = {name for one in only for name in _meant(one, names)}
    return [name for name in names if not only or name in wanted]


def paper_of(name: str) -> str:
    """Return the paper whose experiment a scenario is, "" for none."""
    if name.startswith(PICTURES):
        return "cassini"
    return next((paper for paper in PAPERS if name.startswith(f"{paper}-")), "")


def _meant(one: str, names: Sequence[str]) -> list[str]:
    if one in PAPERS:
        return [name for name in names if paper_of(name) == one]
    found = [name for name in names if one in (name, name.removeprefix(f"{paper_of(name)}-"))]
    if not found:
        scenario_file.find(one)
        raise InputError("--only", f"{one} is no experiment of a paper", f"one of {', '.join(names)}")
    return found


def studies(names: Sequence[str], full: bool = False, settings: tuple[str, ...] = ()) -> tuple[Study, ...]:
    """Return the scenarios as studies; `full` gives jobs that come and go, and wide-area runs, their full length.

    Those of one point come first: they cannot be shared out, and what has many points fills the CPUs at the end.
    """
    return tuple(sorted((_study(name, full, settings) for name in names), key=lambda study: len(study.points) > 1))


def _study(name: str, full: bool, settings: tuple[str, ...]) -> Study:
    study = points.load(name, settings)
    lengthened = full and all(point.has_full_length for point in study.points)
    return points.load(name, (*points.full_length(name), *settings)) if lengthened else study


def pages(results: Path, names: Sequence[str]) -> list[Path]:
    """Write the pages of these scenarios' papers, each from all results that are there; return their paths."""
    papers = dict.fromkeys(map(paper_of, names))
    return [table.write(results, chosen([paper]), table.ROWS.with_stem(paper)) for paper in papers]
