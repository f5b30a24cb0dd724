"""What a study varies: its points, each a scenario file and settings on top of it, as `run --set` takes them.

The scenario may be of jobs on a fabric or of servers on a wide-area network (testbed.geo.keys).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from testbed import scenario, scenario_file
from testbed.errors import InputError
from testbed.geo import keys as wide
from testbed.geo.keys import WideScenario
from testbed.part import Name, Part
from testbed.scenario import Scenario

MOST_POINTS = 1000
Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]
AnyScenario = Scenario | WideScenario
SEEDS = ("measure.seed", "cluster.seeds")
"""Keys whose values make repetitions of the same point, unless `repeats` says which labels do."""
LONGEST_NAME = 120
Label = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,20}$")]


RESERVED = ("run", "valid", "error", "wall-s", "figure", "metric", "arm", "part", "value", "low", "high")
"""What the columns of results.parquet are called (testbed.report.parquet), beside the labels."""


class PointKeys(Part):
    """A point that stands by itself: settings of its own, of another scenario file if it says so (`of`).

    `at` is what plots have for it, by label, beside what is varied.
    """

    name: Name
    of: str | None = None
    set: dict[str, Value] = Field(default_factory=dict)
    at: dict[Label, float | str] = Field(default_factory=dict)


class VaryKeys(Part):
    """Keys that take one of `values` together, one point each. Plots and names of points call it `label`."""

    label: Label
    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    values: Annotated[tuple[Value, ...], Field(min_length=1)]


class PlotKeys(Part):
    """A plot over points: `x` and `y` are labels or figures (testbed.report.study), `by` makes a line per value."""

    name: Name
    title: str
    x: str
    y: Annotated[tuple[str, ...], Field(min_length=1)]
    by: str | None = None
    x_title: str | None = None
    y_title: str | None = None
    log: bool = False


class StudyKeys(Part):
    """All points: every one of `point` (or the file itself) with every combination of what is varied.

    `metrics` are the figures that `sweep` plots (testbed.report.sweep), `repeats` the labels whose values make
    repetitions of a point, over which confidence bands are drawn: those that vary a seed alone, if not given.
    """

    point: tuple[PointKeys, ...] = ()
    vary: tuple[VaryKeys, ...] = ()
    plot: tuple[PlotKeys, ...] = ()
    metrics: tuple[str, ...] = ()
    repeats: tuple[Label, ...] | None = None

    @model_validator(mode="after")
    def _something(self) -> StudyKeys:
        if not self.point and not self.vary:
            raise ValueError("give [[study.point]] or [[study.vary]]")
        labels = [vary.label for vary in self.vary]
        if len(set(labels)) != len(labels):
            raise ValueError("two vary have the same label")
        reserved = (*RESERVED, "point") if self.point else RESERVED
        taken = [label for label in (*labels, *(label for one in self.point for label in one.at)) if label in reserved]
        if taken:
            raise ValueError(f"{taken[0]} is a column of the results: give another label")
        foreign = [label for label in self.repeats or () if label not in labels]
        if foreign:
            raise ValueError(f"repeats: nothing is varied as {foreign[0]!r}; labels are {', '.join(labels) or 'none'}")
        return self

    @property
    def repeated(self) -> tuple[str, ...]:
        """The labels whose values make repetitions of the same point."""
        seeds = tuple(vary.label for vary in self.vary if set(vary.keys) <= set(SEEDS))
        return seeds if self.repeats is None else self.repeats


@dataclass(frozen=True)
class Point:
    """One run of a study: the file it is of, `settings` as for `--set`, and what is `at` it by label.

    `source` is the text that the run keeps as its scenario, as it was when the study was read.
    """

    name: str
    path: Path
    settings: tuple[str, ...]
    scenario: AnyScenario
    source: str
    at: dict[str, Any] = field(default_factory=dict)
    plugin: Path | None = None
    """The file with the user's schedulers."""

    @property
    def has_cluster(self) -> bool:
        """Whether its jobs come and go."""
        return isinstance(self.scenario, Scenario) and self.scenario.cluster is not None

    @property
    def has_full_length(self) -> bool:
        """Whether it may have been shortened."""
        return self.has_cluster or isinstance(self.scenario, WideScenario)

    @property
    def needs_kernel(self) -> bool:
        """Whether it is run in guests."""
        return not isinstance(self.scenario, Scenario) or self.scenario.engine == "virtual"

    @property
    def in_real_time(self) -> bool:
        """Whether whatever runs beside it changes it."""
        return isinstance(self.scenario, Scenario) and self.scenario.engine == "native"


@dataclass(frozen=True)
class Study:
    """A scenario file as points. One without [study] has the one point that is the file, named as the scenario.

    `labels` are those of what is varied, in order (`point` last, where points have settings of their own), `repeats`
    those of them that make repetitions. `whole` is whether all its points are there, so that they may be put beside
    each other.
    """

    name: str
    title: str
    points: tuple[Point, ...]
    plots: tuple[PlotKeys, ...] = ()
    labels: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    varied: bool = True
    whole: bool = True

    def with_plugin(self, file: Path) -> Study:
        """Return the study whose points have the user's schedulers of a file. Raises InputError where none asks."""
        fabrics = [point.scenario for point in self.points if isinstance(point.scenario, Scenario)]
        arms = [arm for one in fabrics if one.cluster for arm in one.cluster.arms]
        if not any(arm.startswith("own-") for arm in arms):
            raise InputError("--plugin", f"no arm of {self.name} is called own-…", 'as in cluster.arms = ["own-mine"]')
        return replace(self, points=tuple(replace(point, plugin=file) for point in self.points))

    def only(self, name: str) -> Study:
        """Return the point of that name as a study without others. Raises InputError when there is none."""
        found = [point for point in self.points if point.name == name]
        if not found:
            raise InputError("--point", f"{self.name} has no point {name!r}", ", ".join(at.name for at in self.points))
        return replace(self, points=tuple(found), whole=False)


def full_length(name_or_path: str) -> tuple[str, ...]:
    """Return the settings that give a scenario its full length."""
    wide_area = scenario_file.is_wide(scenario_file.find(name_or_path))
    return ("sync.shortened=1",) if wide_area else ("cluster.shortened=1",)


def load(name_or_path: str, settings: tuple[str, ...] = ()) -> Study:
    """Read a scenario file as a study; `settings` go to every point, after its own.

    Raises InputError that names the file, the key and what would be right.
    """
    path = scenario_file.find(name_or_path)
    raw = scenario_file.read(path)
    if "study" not in raw:
        made = _point("", path, settings, {})
        one = replace(made, name=made.scenario.name)
        return Study(one.scenario.name, one.scenario.title, (one,), varied=False)
    try:
        keys = StudyKeys.model_validate(raw["study"])
    except ValidationError as error:
        raise InputError(
            str(path), f"study: {scenario_file.explain(error)}", "see docs/scenarios.md, Studies"
        ) from error
    if not all(isinstance(raw.get(key), str) for key in ("name", "title")):
        raise InputError(str(path), "a study needs a name and a title", 'as in name = "compute"')
    many = max(1, len(keys.point)) * math.prod(len(vary.values) for vary in keys.vary)
    if many > MOST_POINTS:
        raise InputError(str(path), f"study: {many} points", f"at most {MOST_POINTS}")
    points = tuple(_points(path, keys, settings))
    twice = sorted({point.name for point in points if [other.name for other in points].count(point.name) > 1})
    if twice:
        raise InputError(str(path), f"study: two points are called {twice[0]}", "give them other names or labels")
    labels = (*(vary.label for vary in keys.vary), *(["point"] if keys.point else []))
    return Study(raw["name"], raw["title"], points, keys.plot, labels, keys.repeated, keys.metrics)


def _points(path: Path, keys: StudyKeys, settings: tuple[str, ...]) -> Iterator[Point]:
    for own in keys.point or (None,):
        of = path if own is None or own.of is None else _other(own.of, path)
        for values in itertools.product(*(vary.values for vary in keys.vary)):
            chosen = list(zip(keys.vary, values, strict=True))
            names = ([own.name] if own else []) + [f"{vary.label}-{_plain(value)}" for vary, value in chosen]
            made = [f"{key}={json.dumps(value)}" for key, value in (own.set if own else {}).items()]
            made += [f"{key}={json.dumps(value)}" for vary, value in chosen for key in vary.keys]
            at = dict(own.at) | {"point": own.name} if own else {}
            at |= {vary.label: " ".join(map(str, v)) if isinstance(v, tuple) else v for vary, v in chosen}
            yield _point("_".join(names), of, (*made, *settings), at)


def _point(name: str, path: Path, settings: tuple[str, ...], at: dict[str, Any]) -> Point:
    if len(name) > LONGEST_NAME:  # a folder's name
        name = f"{name[: LONGEST_NAME - 9]}-{sha256(name.encode()).hexdigest()[:8]}"
    made = wide.load(path, settings) if scenario_file.is_wide(path) else scenario.load(str(path), settings)
    return Point(name, path, settings, made, scenario_file.effective(path, settings), at)


def _other(name: str, path: Path) -> Path:
    beside = path.parent / f"{name}.toml"
    return beside if beside.is_file() else scenario_file.find(name)


def _plain(value: Value) -> str:
    """Return a value as a part of a folder's name."""
    if isinstance(value, tuple):
        return "-".join(map(_plain, value))
    text = f"{value:g}" if isinstance(value, float) else str(value).lower()
    return "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in text)
