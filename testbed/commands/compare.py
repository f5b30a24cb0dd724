"""`python -m testbed compare`: any runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.commands.common import console
from testbed.errors import InputError


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, as in results/two-jobs; points of studies too.")],
    page: Annotated[
        Path | None, typer.Option("--page", help="Write the comparison as this .html file as well.")
    ] = None,
) -> None:
    """Put runs side by side: arms with intervals, marks, verdicts, and what differs in their scenarios."""
    from testbed.report import compare as report

    if len(runs) < 2:
        raise InputError("compare", "one run has nothing beside it", "give two folders of runs or more")
    found = report.load(runs)
    out = console()
    for table in report.tables(found):
        if table.row_count:
            out.print(table)
    if page is not None:
        out.print(f"written: {report.page(found, page)}", highlight=False)
