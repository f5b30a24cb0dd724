"""The command line: what a user types, and nothing else. Every error leaves here, with its exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from testbed.engine.launch import Machine
from testbed.errors import InputError, OrreryError
from testbed.units import parse_size

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False,
    help="Orrery: a clockwork testbed for communication scheduling in machine-learning clusters.",
)  # fmt: skip
kernel_app = typer.Typer(no_args_is_help=True, help="The guest's kernel: build it, say where it is.")
app.add_typer(kernel_app, name="kernel")

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
Memory = Annotated[str, typer.Option("--mem", help="Memory of the guest, as in 2GB.")]
Seed = Annotated[int, typer.Option(help="Seed of all the guest's entropy.")]
Vswitch = Annotated[bool, typer.Option(help="Have Open vSwitch up first (takes 10 s of a wall-clock guest).")]
Write = Annotated[Path | None, typer.Option("--write", help="The one folder of the host the guest may write to.")]


def _machine(mem: str, seed: int, real_time: bool) -> Machine:
    try:
        memory_bytes = parse_size(mem)
    except ValueError as error:
        raise InputError("--mem", str(error)) from error
    if memory_bytes < 256 << 20:
        raise InputError("--mem", f"{mem} is too little for a guest", "give at least 256MB; 2GB is the default")
    return Machine(memory_bytes, seed, real_time)


@app.command("exec", context_settings=PASS_ON)
def exec_(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")],
    real_time: Annotated[bool, typer.Option("--real-time", help="A wall-clock guest instead of virtual time.")] = False,
    mem: Memory = "2GB",
    seed: Seed = 1,
    write: Write = None,
    vswitch: Vswitch = True,
) -> None:
    """Run any command in a guest, as in `exec -- mn --topo tree,3 --switch ovsk --test pingall`."""
    from testbed.engine.commands import execute

    raise typer.Exit(execute(command, _machine(mem, seed, real_time), write, open_vswitch=vswitch))


@app.command(context_settings=PASS_ON)
def shell(
    command: Annotated[list[str] | None, typer.Argument(help="What to run instead of bash, after --.")] = None,
    virtual_time: Annotated[
        bool, typer.Option("--virtual-time", help="Virtual time: an idle guest's clock runs ahead of your fingers.")
    ] = False,
    mem: Memory = "2GB",
    seed: Seed = 1,
    write: Write = None,
    vswitch: Vswitch = True,
) -> None:
    """An interactive shell in a guest (or a command of yours, such as `shell -- mn`)."""
    from testbed.engine.commands import interact

    raise typer.Exit(interact(command or ["/bin/bash", "-l"], _machine(mem, seed, not virtual_time), write, open_vswitch=vswitch))


def main() -> None:
    """Entry point of `python -m testbed`: turns errors into one message and an exit code."""
    try:
        app(standalone_mode=True)
    except OrreryError as error:
        sys.stderr.write(f"orrery: {error}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
