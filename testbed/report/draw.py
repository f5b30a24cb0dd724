"""All plots of a run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from controllers.cassini.decision import Decision
from testbed.errors import InputError
from testbed.report import series, style
from testbed.report.figures.affinity import affinity
from testbed.report.figures.circles import circles
from testbed.report.figures.iterations import cdf, gantt
from testbed.report.figures.links import queue, utilisation
from testbed.report.figures.marks import ce_marks
from testbed.report.figures.traffic import ports, traffic
from testbed.report.load import Setting, arms_of


def draw_all(run_dir: Path, scenario: Mapping[str, Any]) -> list[Path]:
    """Draw every plot the files of a run allow into RUN/plots, as PNG and SVG; return the paths, in order.

    scenario: keys as in `testbed.report.load.Setting`. The affinity graph and the circles, two for each decision, need
    decision.json, the plots over time an arm with more than one job; they show the link of the first decision. Raises
    InputError for files that are missing or foreign.
    """
    setting, arms = Setting.of(scenario), arms_of(run_dir)
    wanted: dict[str, Callable[[], Figure]] = {"iteration-times": lambda: cdf(arms, setting)}
    if list(arms) == ["alone"]:
        watched = {job for job in setting.jobs if ports(setting, job)}
        wanted |= {f"traffic-{job}": partial(traffic, arms["alone"], setting, job) for job in sorted(watched)}
    decisions = decisions_of(run_dir)
    if any(name != "alone" for name in arms):
        wanted |= {"phases": lambda: gantt(arms, setting), "ce-marks": lambda: ce_marks(arms, setting)}
        if setting.shared_links:
            link = decisions[0].link if decisions else series.busiest(arms, setting)
            wanted |= {
                "utilisation": lambda: utilisation(arms, setting, link),
                "queue": lambda: queue(arms, setting, link),
            }
    if decisions:
        wanted["affinity"] = lambda: affinity(decisions)
    for number, decision in enumerate(decisions, 1):
        wanted["circles" if number == 1 else f"circles-{number}"] = partial(circles, decision)
    folder = run_dir / "plots"
    folder.mkdir(exist_ok=True)
    with style.styled():
        return [path for name, draw in wanted.items() for path in style.save(draw(), folder / name)]


def decisions_of(run_dir: Path) -> list[Decision]:
    """Return what decision.json holds, one decision or a list of them; none where there is no such file."""
    path = run_dir / "decision.json"
    if not path.is_file():
        return []
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return [Decision.from_dict(one) for one in (raw if isinstance(raw, list) else [raw])]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(str(path), f"is not a decision: {error}", "run the arm cassini again") from error
