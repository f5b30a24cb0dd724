"""A metric over what is varied: a line with its band for each arm, panels side by side for a second label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.report import style

ABREAST = 4
PANEL_IN = (3.1, 2.7)
QUANTITY = re.compile(r"([0-9.]+) *([A-Za-z/%]+)")
Value = tuple[Any, float, float | None, float | None]


@dataclass(frozen=True)
class Line:
    """An arm's values along the axis: (where, mean, low, high); `banded` if intervals are bands, else bars."""

    name: str
    values: tuple[Value, ...]
    banded: bool


@dataclass(frozen=True)
class Panel:
    """Lines that share axes, and what they have in common."""

    title: str
    lines: tuple[Line, ...]


def bands(panels: Sequence[Panel], title: str, subtitle: str, x_title: str, y_title: str) -> Figure:
    """Draw the panels with common axes and one legend. Values along the axis that are text stand in their order."""
    columns = min(ABREAST, len(panels))
    rows = -(-len(panels) // columns)
    width = max(6.4, PANEL_IN[0] * columns + 0.6)
    made = style.figure(width, PANEL_IN[1] * rows + 1.2, title, subtitle)
    grid = made.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    places, unit = _places(panels), _unit(panels)
    colours = _colours(panels)
    for number, axes in enumerate(grid.flat):
        if number >= len(panels):
            axes.set_visible(False)
            continue
        for line in panels[number].lines:
            _draw(axes, line, colours[line.name], places)
        axes.set_title(panels[number].title)
        if number % columns == 0:
            axes.set_ylabel(y_title)
        if number + columns >= len(panels):
            axes.set_xlabel(f"{x_title} ({unit})" if unit else x_title)
            axes.tick_params(labelbottom=True)
        if places:
            axes.set_xticks(list(places.values()), list(places))
    if len(colours) > 1:
        handles, names = grid.flat[0].get_legend_handles_labels()
        made.legend(handles, names, loc="outside lower center", ncols=min(6, len(names)))
    return made


def _unit(panels: Sequence[Panel]) -> str | None:
    """Return the unit that all values along the axis have, "" where they are plain numbers, None where one is none."""
    units = {_number(at)[1] for panel in panels for line in panel.lines for at, *_ in line.values}
    return units.pop() if len(units) == 1 else None


def _number(value: Any) -> tuple[float, str | None]:
    """Return a value as a number with its unit, as in "25 Gbit/s"; (0, None) where it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), ""
    found = QUANTITY.fullmatch(value) if isinstance(value, str) else None
    return (float(found[1]), found[2]) if found else (0.0, None)


def _places(panels: Sequence[Panel]) -> dict[str, int]:
    """Return the places of values along the axis when they are no numbers of one unit; none when they are."""
    if _unit(panels) is not None:
        return {}
    values = [at for panel in panels for line in panel.lines for at, *_ in line.values]
    return {str(value): place for place, value in enumerate(dict.fromkeys(values))}


def _along(at: Any, places: dict[str, int]) -> float:
    return float(places[str(at)]) if places else _number(at)[0]


def _colours(panels: Sequence[Panel]) -> dict[str, str]:
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    others = [name for name in names if name not in style.ARM_COLOURS]
    return {name: style.ARM_COLOURS.get(name) or style.JOBS[others.index(name) % len(style.JOBS)] for name in names}


def _draw(axes: Axes, line: Line, colour: str, places: dict[str, int]) -> None:
    known = [(_along(at, places), mean, low, high) for at, mean, low, high in line.values]
    known.sort()
    at, means = [one[0] for one in known], [one[1] for one in known]
    axes.plot(at, means, marker="o", markersize=3.5, linewidth=1.3, color=colour, label=line.name)
    bounded = [(x, low, high) for x, _, low, high in known if low is not None and high is not None]
    if line.banded and len(bounded) > 1:
        x, low, high = ([one[part] for one in bounded] for part in range(3))
        axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    else:
        for place, lowest, highest in bounded:
            axes.plot([place, place], [lowest, highest], color=colour, linewidth=1, alpha=0.6)
