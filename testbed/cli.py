"""The command line: what a user types, and nothing else. Every error leaves here, with its exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from testbed.commands.capture import capture
from testbed.commands.clean import clean
from testbed.commands.common import DEFAULT_RESULTS, Memory, Settings
from testbed.commands.common import console as _console
from testbed.commands.common import machine as _machine
from testbed.commands.compare import compare
from testbed.commands.fingerprint import fingerprint
from testbed.commands.report import report
from testbed.commands.sweep import sweep
from testbed.commands.twins import twins
from testbed.commands.watch import watch
from testbed.engine.kernel import Kernel
from testbed.errors import InputError, NotValid, OrreryError, lacks
from testbed.progress import progress_bar

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False,
    help="Orrery: a clockwork testbed for communication scheduling in machine-learning clusters.",
)  # fmt: skip
kernel_app = typer.Typer(no_args_is_help=True, help="The guest's kernel: build it, say where it is.")
app.add_typer(kernel_app, name="kernel")
for own in (fingerprint, report, clean, sweep, compare, watch, capture, twins):
    app.command()(own)

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all the guest's entropy.")]
Vswitch = Annotated[bool, typer.Option(help="Have Open vSwitch up first (takes 10 s of a wall-clock guest).")]
Home = Annotated[bool, typer.Option("--home", help="Let the guest see your home folder.")]
Write = Annotated[Path | None, typer.Option("--write", help="The one folder of the host the guest may write to.")]


@app.command()
def run(
    scenario: Annotated[str, typer.Argument(help="A scenario's name (see list) or a TOML file.")],
    settings: Settings = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be run, and start nothing.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Full length: as cluster.shortened=1, or sync.shortened=1.")
    ] = False,
    plugin: Annotated[
        Path | None,
        typer.Option("--plugin", help="A Python file with schedulers of your own (arms own-NAME). It is run."),
    ] = None,
    only: Annotated[str | None, typer.Option("--point", help="Of a study, run this point alone.")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="virtual (packets in a guest), fluid (flow level) or native (this kernel, as root)."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Where results are kept.")] = DEFAULT_RESULTS,
    mem: Memory = "2GB",
) -> None:
    """Run a scenario: all its arms, the verdict, the comparison, the plots. Exit code 1 when the run is not valid."""
    from testbed import show
    from testbed.study import points

    console = _console()
    chosen = (f"engine={engine}",) if engine else ()
    study = points.load(scenario, (*(settings or ()), *chosen))
    if full and not any(point.has_full_length for point in study.points):
        raise InputError("--full", f"{study.name} is not shortened: it is no cluster and no wide-area network")
    if full:
        study = points.load(scenario, (*(settings or ()), *chosen, *points.full_length(scenario)))
    if plugin:
        study = study.with_plugin(plugin)
    if only:
        study = study.only(only)
    machine = _machine(mem, 0, real_time=False)
    if dry_run:
        show.study(console, study)
        return
    from testbed import progress
    from testbed.engine.commands import ready_kernel
    from testbed.study import board, work

    kernel = ready_kernel() if any(point.needs_kernel for point in study.points) else None
    try:
        if study.varied:
            from testbed.study.run import StudyRun

            with board.board(console) as told:
                ran = StudyRun((study,), kernel, results, told, machine.memory_bytes).run()
        else:
            with progress.watcher(console) as watcher:
                outcome = work.alone(study.points[0], kernel, results, watcher, machine.memory_bytes)
    except KeyboardInterrupt:
        console.print("stopped; earlier results are as they were")
        raise typer.Exit(130) from None
    if not study.varied:
        show.any_outcome(console, outcome)
        raise typer.Exit(0 if outcome.valid else NotValid.exit_code)
    show.ran(console, study, ran, results)
    raise typer.Exit(0 if all(one.valid for one in ran) else NotValid.exit_code)


@app.command()
def reproduce(
    only: Annotated[list[str] | None, typer.Option("--only", help="Run this scenario; may be repeated.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Full length, where scenarios are shortened.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run also what is there already.")] = False,
    report_only: Annotated[bool, typer.Option("--report", help="Run nothing, write the page.")] = False,
    results: Annotated[Path, typer.Option(help="Where results are kept.")] = DEFAULT_RESULTS,
) -> None:
    """Run the papers' experiments and write results/reference/cassini.md and netstorm.md, their figures beside ours.

    What has run on a fabric is run at flow level too, and put beside it: results/reference/fluid.md.
    It may be stopped and begun again: runs that are there, valid and of the same scenario and code, are kept.
    """
    from testbed import show
    from testbed.engine.commands import ready_kernel
    from testbed.study import board, twins
    from testbed.study import reproduce as whole
    from testbed.study.run import Ran, StudyRun

    console, names, ran = _console(), whole.chosen(only or ()), list[Ran]()
    if not report_only:
        studies = whole.studies(names, full)
        try:
            with board.board(console) as told:
                ran = StudyRun(
                    studies, ready_kernel(), results, told, keep=not fresh,
                    done=lambda study, ended: show.points(console, ended, study.title),
                ).run()  # fmt: skip
                fabrics = [name for name in names if name in twins.chosen(results)]
                ran += twins.run(whole.studies(fabrics, full, twins.FLUID), results, told, keep=not fresh)
        except KeyboardInterrupt:
            console.print("stopped; what is done is kept, and is not run again")
            raise typer.Exit(130) from None
    there = twins.chosen(results)
    both = [twins.page(there, results)] if set(names) & set(there) else []
    for path in (*whole.pages(results, names), *both):
        console.print(f"written: {path}", highlight=False)
    raise typer.Exit(0 if all(one.valid for one in ran) else NotValid.exit_code)


@app.command()
def profile(
    models: Annotated[list[str], typer.Argument(help="Models, as in gpt2 (a wrong one lists those that there are).")],
    workers: Annotated[int, typer.Option(min=2, help="Workers of each.")] = 2,
    batch: Annotated[int | None, typer.Option(min=1, help="Samples per worker.")] = None,
    strategy: Annotated[str | None, typer.Option(help="How workers share the model, as in 'pipeline(4)'.")] = None,
    settings: Settings = None,
    results: Annotated[Path, typer.Option(help="Where profiles are kept.")] = DEFAULT_RESULTS / "profiles",
    mem: Memory = "2GB",
) -> None:
    """Measure jobs one by one on an empty fabric: iteration and Up time, and what each worker sends (plots/, JSON)."""
    from tempfile import TemporaryDirectory

    from testbed import campaign, profiling, progress, scenario, scenario_file, show
    from testbed.engine.commands import ready_kernel
    from testbed.experiment import build

    keys = {"batch": batch, "strategy": strategy}
    text = profiling.source(models, workers, {key: value for key, value in keys.items() if value is not None})
    with TemporaryDirectory() as folder:
        path = Path(folder) / "profile.toml"
        path.write_text(text)
        loaded = scenario.load(str(path), tuple(settings or ()))
        text = scenario_file.effective(path, tuple(settings or ()))
    made = build(loaded, "profile")
    console = _console()
    machine = _machine(mem, loaded.measure.seed, real_time=False)
    with progress.watcher(console) as watcher:
        outcome = campaign.Campaign(made, text, ready_kernel(), results, watcher, machine.memory_bytes).run()
    show.profiles(console, list(profiling.rows(outcome.folder, made.scaling.scale)))
    show.outcome(console, outcome)
    raise typer.Exit(0 if outcome.valid else NotValid.exit_code)


@app.command("list")
def list_(
    keys: Annotated[bool, typer.Option("--keys", help="List every scenario key with its default.")] = False,
) -> None:
    """List the scenarios that come with the project, or every key a scenario may have."""
    from testbed import scenario_file

    console = _console()
    if keys:
        from testbed.geo.keys import WideScenario
        from testbed.schema import schema

        of_both = dict.fromkeys([*schema(), *schema(WideScenario)])
        for key, kind, default in of_both:
            console.print(f"{key:<34} {kind:<28} {default}", highlight=False, markup=False, soft_wrap=True)
        return
    for name in scenario_file.names():
        console.print(f"{name:<22} {scenario_file.title(name)}", highlight=False, soft_wrap=True)


@app.command()
def topology(
    name: Annotated[str, typer.Argument(help="A fabric, as in 'leaf-spine(4, 2, 8)', or a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="Draw it into this .png or .svg file instead.")] = None,
) -> None:
    """Draw a fabric: as text, PNG or SVG."""
    from testbed.net import draw, fabric_file
    from testbed.net.scale import Original, Scaling

    made = fabric_file.build(name, Scaling(Original()).settings)
    if out is None:
        typer.echo(draw.text(made))
        return
    if out.suffix not in (".png", ".svg"):
        raise InputError("--out", f"{out} is neither .png nor .svg", f"as in --out {out.with_suffix('.png')}")
    if not out.parent.is_dir():
        raise InputError("--out", f"there is no folder {out.parent}", f"mkdir -p {out.parent}")
    draw.picture(made, out)


@app.command()
def doctor() -> None:
    """Say what this machine has and lacks for each engine, with the command that mends it."""
    from testbed import show
    from testbed.engine import doctor as machine

    checks = machine.checks()
    show.machine(_console(), checks)
    if not machine.usable(checks, "virtual"):
        raise typer.Exit(3)


@kernel_app.command("build")
def kernel_build(force: Annotated[bool, typer.Option(help="Build it even if it is there.")] = False) -> None:
    """Build the guest's kernel into the user's cache, unless it is there already."""
    from testbed.engine.kernel import build

    console = _console()
    with progress_bar(console) as told:
        kernel = build(told, force=force)
    _tell(console, kernel)


@kernel_app.command("info")
def kernel_info() -> None:
    """Say which kernel guests run on, and how it was built."""
    from testbed.engine.commands import ready_kernel

    _tell(_console(), ready_kernel())


@kernel_app.command("path")
def kernel_path() -> None:
    """Print the kernel's path alone."""
    from testbed.engine.commands import ready_kernel

    typer.echo(ready_kernel().path)


def _tell(console: Console, kernel: Kernel) -> None:
    mode = "seccomp" if kernel.seccomp else "ptrace (slower: sources from 6.16 on have seccomp)"
    console.print(f"kernel {kernel.version}, {mode}\n{kernel.path}", highlight=False)
    for key, value in kernel.info.items():
        if key not in ("version", "key", "seccomp"):
            console.print(f"  {key}: {value}", highlight=False)


@app.command("exec", context_settings=PASS_ON)
def exec_(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")],
    real_time: Annotated[bool, typer.Option("--real-time", help="A wall-clock guest instead of virtual time.")] = False,
    mem: Memory = "2GB",
    seed: Seed = 1,
    write: Write = None,
    home: Home = False,
    vswitch: Vswitch = True,
) -> None:
    """Run any command in a guest, as in `exec -- mn --topo tree,3 --switch ovsk --test pingall`."""
    from testbed.engine.commands import execute

    raise typer.Exit(execute(command, _machine(mem, seed, real_time), write, vswitch, home))


@app.command(context_settings=PASS_ON)
def shell(
    command: Annotated[list[str] | None, typer.Argument(help="What to run instead of bash, after --.")] = None,
    virtual_time: Annotated[
        bool, typer.Option("--virtual-time", help="Virtual time: an idle guest's clock runs ahead of your fingers.")
    ] = False,
    mem: Memory = "2GB",
    seed: Seed = 1,
    write: Write = None,
    home: Home = False,
    vswitch: Vswitch = True,
) -> None:
    """An interactive shell in a guest (or a command of yours, such as `shell -- mn`)."""
    from testbed.engine.commands import interact

    machine = _machine(mem, seed, not virtual_time)
    raise typer.Exit(interact(command or ["/bin/bash", "-l"], machine, write, vswitch, home))


def main() -> None:
    """Entry point of `python -m testbed`: turns errors into one message and an exit code."""
    try:
        app(standalone_mode=True)
    except OrreryError as error:
        sys.stderr.write(f"orrery: {error}\n")
        sys.exit(error.exit_code)
    except OSError as error:
        lack = lacks(error)
        sys.stderr.write(f"orrery: {lack}\n")
        sys.exit(lack.exit_code)
