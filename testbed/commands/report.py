"""`python -m testbed report`: a run's plots and page again from its files, and its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.commands.common import console


def report(
    folder: Annotated[Path, typer.Argument(help="A run's or a study's folder, as in results/two-jobs.")],
) -> None:
    """Draw a run's plots again from its files, write its page (report.html), and show its tables."""
    from testbed import show
    from testbed.page import write
    from testbed.report.rerun import redraw

    paths = redraw(folder)
    page = write.write(folder)
    show.saved(console(), folder)
    typer.echo("\n".join(str(path) for path in [*paths, page]))
