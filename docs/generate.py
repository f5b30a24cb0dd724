"""The reference pages: keys out of the schema, commands out of the command line. Called by conf.py."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from pydantic import BaseModel

from testbed import cli
from testbed.geo.keys import WideScenario
from testbed.scenario import Scenario
from testbed.schema import part_of, schema
from testbed.study.points import StudyKeys


def write(folder: Path) -> None:
    """Write keys.md and commands.md."""
    folder.mkdir(exist_ok=True)
    (folder / "keys.md").write_text(keys(), encoding="utf-8")
    (folder / "commands.md").write_text(commands(), encoding="utf-8")


def keys() -> str:
    """Return the page of scenario keys, a table for each table of a scenario file."""
    parts = ["# Scenario keys\n\nMade of the schema, as `python -m testbed list --keys` shows it.\n"]
    kinds: tuple[tuple[str, type[BaseModel]], ...] = (
        ("Scenarios", Scenario),
        ("Wide-area scenarios", WideScenario),
        ("Studies: the table `study`", StudyKeys),
    )
    for title, kind in kinds:
        parts.append(f"## {title}\n")
        words = dict(_docstrings(kind, ""))
        for prefix, rows in groupby(schema(kind), key=lambda row: row[0].rpartition(".")[0]):
            heading = f"`{prefix}`" if prefix else "Outside all tables"
            parts.append(f"### {heading}\n\n{words.get(prefix, '')}\n")
            parts.append("| key | kind | default |\n|---|---|---|")
            parts += [f"| `{key}` | {_cell(what)} | `{_cell(default)}` |" for key, what, default in rows]
            parts.append("")
    return "\n".join(parts)


def _docstrings(kind: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the beginning of every table's keys, as the schema writes them, with what its class says of it."""
    yield prefix, _words(kind)
    for name, field in kind.model_fields.items():
        inner = part_of(field.annotation)
        if inner is not None:
            several = any(get_origin(one) is tuple for one in (field.annotation, *get_args(field.annotation)))
            yield from _docstrings(inner, f"{prefix}{'.' if prefix else ''}{name}{'[]' if several else ''}")


def _words(kind: type[BaseModel]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").replace("[[", "\\[\\[")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def commands() -> str:
    """Return the page of commands with their arguments and options."""
    parts = ["# Commands\n\nEach is typed as `python -m testbed COMMAND`; `--help` shows the same.\n"]
    parts += _command(typer.main.get_command(cli.app), "")
    return "\n".join(parts) + "\n"


def _command(command: Any, name: str) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is not None:
        for one in sorted(inner):
            yield from _command(inner[one], f"{name} {one}".strip())
        return
    yield f"## {name}\n\n{inspect.cleandoc(command.help or '')}\n"
    for parameter in command.params:
        words = getattr(parameter, "help", None) or ""
        if parameter.param_type_name == "argument":
            yield f"- `{parameter.name.upper()}`: {words}"
        elif parameter.name != "help":
            given = parameter.default
            plain = given is None or given is False or callable(given) or isinstance(given, Path)
            yield f"- `{', '.join(parameter.opts)}`: {words}{'' if plain else f' ({given})'}"
    yield ""
