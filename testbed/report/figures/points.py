"""A figure of every point of a study over another: gain over score, marks over threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.errors import InputError
from testbed.report import style

MARKERS = ("o", "s", "^", "D", "v", "P")
TITLES = {
    "score": "compatibility score, predicted",
    "gain": "mean iteration time of the other arm over cassini's",
    "mean-ms": "mean iteration time (ms)",
    "worst-ms": "worst iteration time (ms)",
    "up-ms": "communication time (ms)",
    "ce": "CE packets per iteration of a job",
    "marks": "marked packets per iteration of a job",
    "adjustments": "adjustments per minute and job",
    "lost-ms": "lost by adjustments per iteration (ms)",
}


def over_points(plot: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the figures `y` of all points over `x`, a line each, and one for each value of the label `by`.

    plot: keys of testbed.study.points.PlotKeys. Values that are text are put side by side in the order of the points.
    Raises InputError where no point has such figures.
    """
    made = style.figure(6.4, 3.9, plot["title"])
    axes = made.subplots()
    places = _places([value_of(point, plot["x"]) for point in points])
    lines = 0
    for group in dict.fromkeys(point["at"].get(plot["by"]) for point in points):
        own = [point for point in points if point["at"].get(plot["by"]) == group]
        for name in plot["y"]:
            said = None if group is None else f"{plot['by']} {str(group).lower()}"
            label = ", ".join(part for part in (_short(name, plot["y"]), said) if part is not None)
            lines += _line(axes, own, plot["x"], name, places, label, lines)
    if not lines:
        raise InputError(f"plot {plot['name']}", f"no point has {plot['x']} and {', '.join(plot['y'])}")
    if places:
        axes.set_xticks(list(places.values()), list(places))
    axes.set_xlabel(plot["x_title"] or TITLES.get(plot["x"].partition(".")[0], plot["x"]))
    axes.set_ylabel(plot["y_title"] or TITLES.get(plot["y"][0].partition(".")[0], plot["y"][0]))
    if plot["log"]:
        axes.set_yscale("symlog", linthresh=1)
    if any(name.startswith("gain.") for name in plot["y"]):
        axes.axhline(1, color=style.FAINT, linewidth=0.8)
    if lines > 1:
        axes.legend()
    return made


def value_of(point: Mapping[str, Any], name: str) -> Any:
    """Return a label of a point or the value of one of its figures, None where it has neither."""
    return point["at"][name] if name in point["at"] else point["figures"].get(name, {}).get("value")


def _places(values: Sequence[Any]) -> dict[str, int]:
    """Return the places of values along the axis when one of them is text; none when all are numbers."""
    if not any(isinstance(value, str) for value in values):
        return {}
    return {str(value): place for place, value in enumerate(dict.fromkeys(values)) if value is not None}


def _line(
    axes: Axes,
    points: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    places: Mapping[str, int],
    label: str,
    number: int,
) -> int:
    """Draw a line through the points that have both, intervals as bars; return whether there was one."""
    known = [(value_of(point, x), point["figures"].get(y) or {}, value_of(point, y)) for point in points]
    known = [(places.get(str(at), at), bounds, value) for at, bounds, value in known if None not in (at, value)]
    if not known:
        return 0
    known.sort(key=lambda one: float(one[0]))
    at, values = [float(one[0]) for one in known], [float(one[2]) for one in known]
    colour = style.ARM_COLOURS.get(y.split(".")[1] if "." in y else "", style.JOBS[number % len(style.JOBS)])
    if number >= len(style.ARM_COLOURS) or label.count(","):
        colour = style.JOBS[number % len(style.JOBS)]
    axes.plot(
        at, values, marker=MARKERS[number % len(MARKERS)], markersize=4.5, linewidth=1.1, color=colour, label=label
    )
    for place, bounds, _ in known:
        if bounds.get("low") is not None and bounds.get("high") is not None:
            axes.plot([place, place], [bounds["low"], bounds["high"]], color=colour, linewidth=1, alpha=0.6)
    return 1


def _short(name: str, names: Sequence[str]) -> str | None:
    """Return what tells a figure from the others of the plot."""
    kind, _, rest = name.partition(".")
    return (rest or kind) if all(other.partition(".")[0] == kind for other in names) else name.replace(".", " ")
