"""What several commands take and need: options, the console, the machine of a guest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from testbed.engine.launch import Machine
from testbed.errors import InputError
from testbed.results import DEFAULT as DEFAULT_RESULTS
from testbed.units import parse_size

LEAST_MEMORY_BYTES = 256 * 10**6
Memory = Annotated[str, typer.Option("--mem", help="Memory of the guest, as in 2GB.")]
Results = Annotated[Path, typer.Option("--results", help="Where results are kept.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Override a key, as in --set fabric.scale=10; may be repeated.")
]

__all__ = ["DEFAULT_RESULTS", "Memory", "Results", "Settings", "console", "machine"]


def console() -> Console:
    """Return the console; where it is no terminal, lines are long enough for the tables."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def machine(mem: str, seed: int, real_time: bool) -> Machine:
    """Return the guest's machine. Raises InputError for a memory that is none or too little."""
    try:
        memory_bytes = parse_size(mem)
    except ValueError as error:
        raise InputError("--mem", str(error)) from error
    if memory_bytes < LEAST_MEMORY_BYTES:
        raise InputError("--mem", f"{mem} is too little for a guest", "give at least 256MB; 2GB is the default")
    return Machine(memory_bytes, seed, real_time)
