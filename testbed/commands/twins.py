"""`python -m testbed twins`: runs in packets that are there, again at flow level, and the page that compares them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from testbed.commands.common import DEFAULT_RESULTS, Results, console
from testbed.errors import NotValid


def twins(
    only: Annotated[list[str] | None, typer.Option("--only", help="Of this scenario; may be repeated.")] = None,
    report_only: Annotated[bool, typer.Option("--report", help="Run nothing, write the page.")] = False,
    results: Results = DEFAULT_RESULTS,
) -> None:
    """Run the twin at flow level of every run in packets that is there, and write results/reference/fluid.md."""
    from testbed.study import twins as fluid

    out = console()
    names = fluid.chosen(results, only or ())
    say = partial(out.print, highlight=False, markup=False)
    missed = [] if report_only else fluid.run(names, results, say)
    out.print(f"written: {fluid.page(names, results)}", highlight=False)
    raise typer.Exit(NotValid.exit_code if missed else 0)
