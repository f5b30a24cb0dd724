"""Quantities as people write them: "50 Gbit/s", "2 us", "80 kB". A number without its unit is an error.

Decimal prefixes throughout (1 kB = 1000 B), binary ones where they are asked for (1 KiB = 1024 B).
"""

from __future__ import annotations

import re
from decimal import Decimal, Overflow
from typing import Annotated, Any

from pydantic import BeforeValidator

_NUMBER = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)\s*([^\s0-9].*?)\s*")
_BEYOND = Decimal("1e18")
RATE_UNITS = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9}
SIZE_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
DELAY_UNITS = {
    unit: Decimal(f"1e{power}") for unit, power in (("ns", -9), ("us", -6), ("µs", -6), ("ms", -3), ("s", 0))
}


def _parse(text: Any, units: dict[str, Any], example: str) -> Decimal:
    if not isinstance(text, str):
        raise ValueError(f'write the unit too, as in "{example}"')
    found = _NUMBER.fullmatch(text)
    if found is None or found[2] not in units:
        if text.strip().startswith("-"):
            raise ValueError(f'{text!r} is negative; write it as in "{example}"')
        raise ValueError(f'{text!r} is not one of the units {", ".join(units)}; write it as in "{example}"')
    try:
        number: Decimal = Decimal(found[1].replace("_", "")) * units[found[2]]
    except Overflow:
        number = _BEYOND
    if number >= _BEYOND:
        raise ValueError(f"{text[:40]!r} is beyond what can be emulated")
    return number


def parse_rate(text: Any) -> int:
    """Return bits per second. Raises ValueError on anything but a positive rate with its unit."""
    rate = _parse(text, RATE_UNITS, "50 Gbit/s")
    if rate < 1:
        raise ValueError("a rate must be at least 1 bit/s")
    return int(rate)


def parse_size(text: Any) -> int:
    """Return bytes. Raises ValueError on anything but a size with its unit."""
    return int(_parse(text, SIZE_UNITS, "80 kB"))


def parse_delay(text: Any) -> float:
    """Return seconds. Raises ValueError on anything but a time with its unit."""
    return float(_parse(text, DELAY_UNITS, "2 us"))


def parse_delays(value: Any) -> float | tuple[float, ...]:
    """Return seconds, or a tuple of them from a list. Raises ValueError as `parse_delay` does."""
    return tuple(map(parse_delay, value)) if isinstance(value, list | tuple) else parse_delay(value)


def show_rate(rate_bps: float) -> str:
    """Return a rate as people write it."""
    for unit in ("Gbit/s", "Mbit/s", "kbit/s"):
        if rate_bps >= RATE_UNITS[unit]:
            return f"{rate_bps / RATE_UNITS[unit]:g} {unit}"
    return f"{rate_bps:g} bit/s"


def show_delay(delay_s: float) -> str:
    """Return a time as people write it."""
    for unit, seconds in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if delay_s >= seconds:
            return f"{delay_s / seconds:g} {unit}"
    return f"{delay_s * 1e9:g} ns"


def show_size(size_bytes: float) -> str:
    """Return a size as people write it."""
    for unit in ("GB", "MB", "kB"):
        if size_bytes >= SIZE_UNITS[unit]:
            return f"{size_bytes / SIZE_UNITS[unit]:g} {unit}"
    return f"{size_bytes:g} B"


Rate = Annotated[int, BeforeValidator(parse_rate)]
Size = Annotated[int, BeforeValidator(parse_size)]
Delay = Annotated[float, BeforeValidator(parse_delay)]
Delays = Annotated[float | tuple[float, ...], BeforeValidator(parse_delays)]
