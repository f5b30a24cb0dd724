"""`python -m testbed reproduce`: all scenarios of the paper's experiments, and the page that puts them beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from testbed import scenario
from testbed.campaign import Watcher
from testbed.engine.kernel import Kernel
from testbed.report.reference import table
from testbed.study import points
from testbed.study.run import Ran, StudyRun

PREFIX = "cassini-"
FULL = ("cluster.shortened=1",)


def chosen(only: Sequence[str] = ()) -> list[str]:
    """Return the names of the scenarios to run, those of `only` where it names any (with or without the prefix)."""
    names = [name for name in scenario.names() if name.startswith(PREFIX)]
    if not only:
        return names
    wanted = [name if name.startswith(PREFIX) else f"{PREFIX}{name}" for name in only]
    for name in wanted:
        scenario.find(name)
    return [name for name in names if name in wanted]


def run_all(
    names: Sequence[str],
    kernel: Kernel,
    results: Path,
    watcher: Watcher,
    *,
    full: bool = False,
    fresh: bool = False,
    done: Callable[[list[Ran]], None] = lambda _: None,
) -> list[Ran]:
    """Run the scenarios one after another and tell `done` what became of each; return what became of all points.

    What is there already, valid and of the same scenario and code, is not run again unless `fresh`.
    """
    ended: list[Ran] = []
    for name in names:
        study = points.load(name)
        if full and all(point.scenario.cluster is not None for point in study.points):
            study = points.load(name, FULL)
        watcher.stage(f"{name}: {study.title}")
        ran = StudyRun(study, kernel, results, watcher, keep=not fresh).run()
        done(ran)
        ended += ran
    return ended


def page(results: Path) -> Path:
    """Write the page of all scenarios, from the results that are there; return its path."""
    return table.write(results, chosen())
