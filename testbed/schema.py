"""Every key that a scenario file may have, with its kind and its default, as `list --keys` shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from testbed.part import Part
from testbed.scenario import Scenario
from testbed.units import parse_delay, parse_delays, parse_rate, parse_size, show_delay, show_rate, show_size

QUANTITIES: dict[Any, str] = {parse_rate: "rate", parse_size: "size", parse_delay: "delay", parse_delays: "delay"}


def schema(kind: type[BaseModel] = Scenario) -> list[tuple[str, str, str]]:
    """Return (key, type, default) of everything a scenario file of that kind may say, in the schema's order."""
    return list(_keys(kind, ""))


def _keys(part: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in part.model_fields.items():
        key = f"{prefix}{name}"
        inner = part_of(field.annotation)
        if inner is not None:
            yield from _keys(inner, f"{key}[]." if _several(field.annotation) else f"{key}.")
            continue
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        yield key, _kind(field), "required" if field.is_required() else _shown(default, _quantity(field))


def _several(annotation: Any) -> bool:
    """Return whether a key holds a list of tables."""
    return any(get_origin(one) is tuple for one in (annotation, *get_args(annotation)))


def _quantity(field: FieldInfo) -> str | None:
    """Return "rate", "size" or "delay" for a key that is a quantity with a unit."""
    for note in (*field.metadata, *(note for inner in get_args(field.annotation) for note in get_args(inner)[1:])):
        if isinstance(note, BeforeValidator) and note.func in QUANTITIES:
            return QUANTITIES[note.func]
    return None


def _kind(field: FieldInfo) -> str:
    if quantity := _quantity(field):
        return quantity
    plain: dict[Any, str] = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    if field.annotation in plain:
        return plain[field.annotation]
    choices = [choice for inner in (field.annotation, *get_args(field.annotation)) for choice in get_args(inner)]
    if all(isinstance(choice, str) for choice in choices) and choices:
        return " | ".join(choices)
    lists = [inner for inner in (field.annotation, *choices) if get_origin(inner) is tuple]
    if int in choices and not lists:
        return "whole number"
    return "text" if str in choices else "list"


def _shown(value: Any, quantity: str | None) -> str:
    if value is None:
        return "none"
    show = {"rate": show_rate, "size": show_size, "delay": show_delay}.get(quantity or "")
    return show(value) if show else json.dumps(value)


def part_of(annotation: Any) -> type[Part] | None:
    """Return the table that a key holds, or a list of; None for a plain value."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Part):
            return candidate
    return None
