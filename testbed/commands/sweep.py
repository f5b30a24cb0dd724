"""`python -m testbed sweep`: all points of a study on a cluster of processes, resumed where it stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from testbed.commands.common import DEFAULT_RESULTS, Memory, Results, Settings, console, machine
from testbed.errors import InputError, NotValid

Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", help="A Dask scheduler, as in tcp://node1:8786; else this machine."),
]
Workers = Annotated[int | None, typer.Option("--workers", help="Use so many CPUs of this machine; else all of them.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run also the points that are there already.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say which points there are, and start nothing.")]


def sweep(
    file: Annotated[str, typer.Argument(help="A scenario with a table study: its name (see list) or a TOML file.")],
    settings: Settings = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    fresh: Fresh = False,
    dry_run: DryRun = False,
    results: Results = DEFAULT_RESULTS,
    mem: Memory = "2GB",
) -> None:
    """Run every point of a grid over scenario keys; what is there already, of the same code and kernel, is kept.

    Leaves results/NAME/results.parquet and a plot for each metric. Exit code 1 when a point failed.
    """
    from testbed import show
    from testbed.engine.commands import ready_kernel
    from testbed.study import board, points, pool
    from testbed.study.run import StudyRun

    if scheduler is not None and workers is not None:
        raise InputError("--workers", "is of this machine, not of a scheduler", "give one of --workers and --scheduler")
    study = points.load(file, tuple(settings or ()))
    if not study.varied:
        raise InputError(str(study.points[0].path), "varies nothing", "add [[study.vary]]: see docs/sweeps.md")
    memory_bytes = machine(mem, 0, real_time=False).memory_bytes
    out = console()
    if dry_run:
        show.grid(out, study)
        return
    where = pool.local(workers) if scheduler is None else pool.existing(scheduler)
    kernel = ready_kernel() if any(point.needs_kernel for point in study.points) else None
    try:
        with board.board(out) as told:
            ran = StudyRun(
                (study,), kernel, results, told, memory_bytes, keep=not fresh, tidy=False, metrics=True, pool=where
            ).run()
    except KeyboardInterrupt:
        out.print("stopped; points that have ended are kept, and are not run again")
        raise typer.Exit(130) from None
    show.swept(out, study, ran, results)
    raise typer.Exit(0 if all(one.valid for one in ran) else NotValid.exit_code)
