"""`python -m testbed watch`: runs in progress, from another terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from testbed import live, results
from testbed.commands.common import DEFAULT_RESULTS, console
from testbed.errors import InputError

LOOK_EVERY_S = 1.0
PRINT_EVERY_S = 5.0
LINKS = 4
"""So many links are shown of each arm: those that are used the most."""


def watch(
    where: Annotated[
        Path, typer.Argument(help="A run as in results/two-jobs, a study, or a folder of results.")
    ] = DEFAULT_RESULTS,
    once: Annotated[bool, typer.Option("--once", help="Show what there is now, and end.")] = False,
) -> None:
    """Watch runs in progress: arms, virtual time, utilisation of links, marks. Ends when they have; changes nothing."""
    out = console()
    if not shown(where):
        raise InputError(str(where), "no run is in progress there", "start one: python -m testbed run two-jobs")
    try:
        if once:
            out.print(render(shown(where)))
        elif out.is_terminal:
            _on_terminal(out, where)
        else:
            _in_lines(out, where)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def shown(where: Path) -> dict[Path, dict[str, Any]]:
    """Return the work folder of every run in progress at `where`, and what it says."""
    said = {folder: live.read(folder) for folder in results.running(where)}
    return {folder: status for folder, status in said.items() if status is not None}


def _on_terminal(out: Console, where: Path) -> None:
    seen = shown(where)
    with Live(render(seen), console=out, refresh_per_second=2) as screen:
        while seen:
            screen.update(render(seen))
            time.sleep(LOOK_EVERY_S)
            seen = shown(where)
    out.print("all runs have ended")


def _in_lines(out: Console, where: Path) -> None:
    while seen := shown(where):
        for status in seen.values():
            for line in lines(status):
                out.print(line, highlight=False, markup=False, soft_wrap=True)
        time.sleep(PRINT_EVERY_S)
    out.print("all runs have ended")


def lines(status: dict[str, Any]) -> list[str]:
    """Return a run in progress as text, a line for each arm."""
    said = []
    for name, arm in status["arms"].items():
        busy = ", ".join(f"{link} {100 * of['utilisation']:.0f} % {of['marks']} marks" for link, of in _busiest(arm))
        parts = [f"{arm['done']} of {arm['of']}", f"{arm['virtual_s']:.1f} s virtual", *([busy] if busy else [])]
        said.append(f"{status['name']}, {name} ({arm['state']}): {', '.join(parts)}")
    return said or [f"{status['name']}: {status['stage']}"]


def render(seen: dict[Path, dict[str, Any]]) -> Group:
    """Return all runs in progress as tables."""
    return Group(*(_table(status) for _, status in sorted(seen.items())))


def _table(status: dict[str, Any]) -> Table:
    minutes, seconds = divmod(int(max(0.0, time.time() - status["began_s"])), 60)
    title = f"{status['name']}: {minutes} min {seconds} s of wall time, process {status['pid']}; {status['stage']}"
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in ("arm", "state", "", "iterations", "virtual time", "busiest links: in use, marks so far"):
        made.add_column(column, justify="right" if column in ("iterations", "virtual time") else "left")
    for name, arm in status["arms"].items():
        share = min(1.0, arm["done"] / arm["of"]) if arm["of"] else 0.0
        links = [f"{link} {100 * of['utilisation']:3.0f} % {of['marks']:>6}" for link, of in _busiest(arm)]
        counts = f"{arm['done']} of {arm['of']}", f"{arm['virtual_s']:.2f} s"
        bar = ProgressBar(1.0, share, width=20)
        made.add_row(Text(name), Text(arm["state"]), bar, *counts, Text("\n".join(links) or "-"))
    return made


def _busiest(arm: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    links: dict[str, dict[str, Any]] = arm["links"]
    return sorted(links.items(), key=lambda one: (-one[1]["utilisation"], -one[1]["marks"], one[0]))[:LINKS]
