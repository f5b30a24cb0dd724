"""The file of a scenario: found by name or path, read with the settings of --set, checked against a schema.

There are two schemas, of fabrics (testbed.scenario) and of wide-area networks (testbed.geo.keys); here nothing is known
of what they say.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from testbed.errors import InputError
from testbed.files import read_text

FOLDER = Path(__file__).resolve().parents[1] / "scenarios"
Kind = TypeVar("Kind", bound=BaseModel)


def names(wide: bool | None = None) -> list[str]:
    """Return the names of the scenarios that come with the project, sorted; those on wide-area networks alone, or
    all but those, where `wide` says so."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if wide is None or is_wide(path) == wide)


def is_wide(path: Path) -> bool:
    """Return whether a scenario's network is a wide-area one: it has a table `wan` (see testbed.geo.keys)."""
    return "wan" in read(path)


def title(name: str) -> str:
    """Return what a scenario that comes with the project is about."""
    return str(read(find(name)).get("title", ""))


def find(name_or_path: str) -> Path:
    """Return the file of a scenario given by name or by path. Raises InputError when there is none."""
    for path in (FOLDER / f"{name_or_path}.toml", Path(name_or_path)):
        try:
            if path.is_file():
                return path
        except OSError as error:
            raise InputError(name_or_path, f"cannot be read: {error.strerror}") from error
    raise InputError(name_or_path, "no such scenario or file", f"scenarios: {', '.join(names())}")


def read(path: Path, settings: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a scenario file, with overrides; nothing of what it says is checked yet. Raises InputError."""
    try:
        raw = tomllib.loads(read_text(path))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is not TOML: {error}") from error
    for setting in settings:
        _override(raw, setting)
    return raw


def validated(kind: type[Kind], raw: dict[str, Any], path: Path) -> Kind:
    """Return what was read as a scenario of this kind. Raises InputError that names the file and every fault."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise InputError(str(path), explain(error), "all keys: python -m testbed list --keys") from error


def _override(raw: dict[str, Any], setting: str) -> None:
    key, sign, text = setting.partition("=")
    if not sign:
        raise InputError(f"--set {setting}", "is not KEY=VALUE", "as in --set fabric.scale=10")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word or a quantity is a string; quoting it on a command line is a nuisance
    *parts, last = key.strip().split(".")
    places: list[Any] = [raw]
    for part in parts:
        places = [below for place in places for below in _below(place, part, setting)]
    for place in places:
        if not isinstance(place, dict):
            raise InputError(f"--set {setting}", "names a list, not a key", "as in --set job.*.compute_factor=0.8")
        place[last] = value


def _below(place: dict[str, Any] | list[Any], part: str, setting: str) -> list[Any]:
    """Return what part of a key names: a table, or of a list of tables those of that name ("*" is all of them)."""
    if isinstance(place, dict):
        below = place.setdefault(part, {})
        if not isinstance(below, dict) and not (below and isinstance(below, list) and isinstance(below[0], dict)):
            raise InputError(f"--set {setting}", f"{part} is not a table")
        return [below]
    named = [table for table in place if part in ("*", table.get("name"))]
    if not named:
        names = ", ".join(str(table.get("name")) for table in place)
        raise InputError(f"--set {setting}", f"there is no {part!r}", f"there are {names}; * is all of them")
    return named


def explain(error: ValidationError) -> str:
    """Return every fault as "key: what is wrong", the first line alone where there is one only."""
    faults = []
    for fault in error.errors(include_url=False):
        key = ".".join(str(part) for part in fault["loc"]) or "scenario"
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = "unknown key"
        faults.append(f"{key}: {message}")
    return faults[0] if len(faults) == 1 else f"{len(faults)} faults\n  " + "\n  ".join(faults)


def effective(path: Path, settings: tuple[str, ...]) -> str:
    """Return the source text of a scenario as it was run: the file, with the overrides as comments on top of it."""
    overrides = "".join(f"# --set {setting}\n" for setting in settings)
    return overrides + path.read_text(encoding="utf-8")
