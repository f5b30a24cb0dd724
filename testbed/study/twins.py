"""Twins of runs in packets: the same scenarios at flow level, in results/fluid, and the page that compares them.

`reproduce` calls `run` and `page` after its own runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from testbed import scenario_file
from testbed.errors import OrreryError
from testbed.live import Watcher
from testbed.report.reference import fluid
from testbed.study import points, work

FLUID = ("engine=fluid",)


class Silent(Watcher):
    """A watcher that shows nothing: a twin takes seconds."""

    def arm(self, arm: str, iterations: int) -> None:
        """Show nothing."""

    def message(self, arm: str, message: dict[str, object]) -> None:
        """Show nothing."""

    def stage(self, text: str) -> None:
        """Show nothing."""


def chosen(results: Path, only: Sequence[str] = ()) -> list[str]:
    """Return the scenarios of fabrics that have a run in packets, those of `only` where it names any.

    Raises InputError for a name that is no scenario.
    """
    for name in only:
        scenario_file.find(name)
    there = [name for name in scenario_file.names(wide=False) if (results / name).is_dir()]
    return [name for name in there if not only or name in only]


def run(names: Sequence[str], results: Path, told: Callable[[str], None]) -> list[str]:
    """Run the twin of every point that has a run in packets; return the names of those that are not valid."""
    missed = []
    for name in names:
        study = points.load(name, FLUID)
        below = results / fluid.TWINS / name if study.varied else results / fluid.TWINS
        for point in study.points:
            place = f"{name}/{point.name}" if study.varied else point.name
            if not (results / place / "summary.json").is_file():
                continue
            try:
                outcome = work.alone(point, None, below, Silent(), 0)
            except OrreryError as error:
                told(f"{place}: {error}")
                missed.append(place)
                continue
            told(f"{place}: {outcome.wall_s['whole']['total']:.1f} s of wall time")
            missed += [] if outcome.valid else [place]
    return missed


def page(names: Sequence[str], results: Path) -> Path:
    """Write results/reference/fluid.md from all twins that are there; return its path."""
    return fluid.write(results, names)
