"""What every system of every run on a wide-area network did, as tables, and the runs' pictures."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

HEAD = (
    "| system | mean round (s) | over the baseline: means | bests | defaults | lower bound × | simulation | metric |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)


class Run(Protocol):
    """A finished run, as testbed.report.reference.table knows it."""

    @property
    def scenario(self) -> str:
        """Of this scenario."""

    @property
    def point(self) -> str:
        """Of this point of a study, "" without."""

    @property
    def folder(self) -> Path:
        """Where its files are."""

    @property
    def figures(self) -> Mapping[str, Mapping[str, Any]]:
        """What came of it."""


def sections(place: Path, runs: Sequence[Run]) -> Iterator[str]:
    """Yield a table for each run of several systems, and its pictures, which are copied to `place`."""
    wide = [run for run in runs if sum(name.startswith("speed-up.") for name in run.figures) > 1]
    if not wide:
        return
    yield from ("## Every system of every run", "")
    yield (
        "Intervals: the best and the worst root, where every site was the root in turn; the errors of the simulation "
        "and of the published metric are against the packets, in percent of a round without computing."
    )
    for run in wide:
        yield from ("", f"`{run.scenario}` {run.point}".rstrip() + ":", "", *HEAD)
        groups = [name.removeprefix("speed-up.") for name in run.figures if name.startswith("speed-up.")]
        for group in groups:
            yield _row(group, run.figures)
        yield ""
        for picture in sorted((run.folder / "plots").glob("*.png")):
            name = "-".join(part for part in (run.scenario, run.point, picture.name) if part)
            shutil.copyfile(picture, place / name)
            yield f"![{picture.stem} of {run.scenario} {run.point}]({name})"
    yield ""


def _row(group: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    speeds = [
        f"{figures[f'{name}.{group}']['value']:.2f}" for name in ("speed-up", "speed-up-best", "speed-up-default")
    ]
    errors = [_interval(figures.get(f"{name}.{group}"), "+.1f") for name in ("error", "error-metric")]
    cells = [_interval(figures[f"round-s.{group}"], ".2f"), *speeds, _interval(figures.get(f"bound.{group}"), ".2f")]
    return f"| {group} | {' | '.join([*cells, *errors])} |"


def _interval(of: Mapping[str, Any] | None, form: str) -> str:
    if of is None:
        return "–"
    value = format(of["value"], form)
    if of.get("low") is None or of["low"] == of["high"]:
        return value
    return f"{value} [{format(of['low'], form)}, {format(of['high'], form)}]"
