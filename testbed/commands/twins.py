"""`python -m testbed twins`: runs in packets that are there, again at flow level, and the page that compares them."""

from __future__ import annotations

from typing import Annotated

import typer

from testbed.commands.common import DEFAULT_RESULTS, Results, console
from testbed.errors import NotValid


def twins(
    only: Annotated[list[str] | None, typer.Option("--only", help="Of this scenario; may be repeated.")] = None,
    report_only: Annotated[bool, typer.Option("--report", help="Run nothing, write the page.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run also what is there already.")] = False,
    results: Results = DEFAULT_RESULTS,
) -> None:
    """Run the twin at flow level of every run in packets that is there, and write results/reference/fluid.md."""
    from testbed.study import board, reproduce
    from testbed.study import twins as fluid
    from testbed.study.run import Ran

    out, names, ran = console(), fluid.chosen(results, only or ()), list[Ran]()
    if not report_only:
        try:
            with board.board(out) as told:
                ran = fluid.run(reproduce.studies(names, settings=fluid.FLUID), results, told, keep=not fresh)
        except KeyboardInterrupt:
            out.print("stopped; what is done is kept, and is not run again")
            raise typer.Exit(130) from None
    out.print(f"written: {fluid.page(fluid.chosen(results), results)}", highlight=False)
    raise typer.Exit(0 if all(one.valid for one in ran) else NotValid.exit_code)
