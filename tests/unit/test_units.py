"""Quantities: what is written is what is meant, and what is not written so is refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.units import (
    DELAY_UNITS,
    RATE_UNITS,
    SIZE_UNITS,
    parse_delay,
    parse_rate,
    parse_size,
    show_delay,
    show_rate,
    show_size,
)

SIX_DIGITS = 5e-6
"""What is shown has six significant digits: it differs by at most half of the last one, relatively."""
PARSERS = {"rate": (parse_rate, RATE_UNITS), "size": (parse_size, SIZE_UNITS), "delay": (parse_delay, DELAY_UNITS)}
TEXTS = st.text(max_size=20) | st.from_regex(r"[-+0-9._e]{0,9} ?[a-zA-Zµ/]{0,6}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [("50 Gbit/s", 50 * 10**9), ("1 bit/s", 1), ("1.5 Mbit/s", 1_500_000), ("1_000kbit/s", 10**6)],
)  # fmt: skip
def test_rates(text: str, value: int) -> None:
    assert parse_rate(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("80 kB", 80_000), ("1 KiB", 1024), ("1 MiB", 2**20), ("2 GiB", 2**31), (" 16 MB ", 16 * 10**6), ("0 B", 0)],
)
def test_sizes(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("2 us", 2e-6), ("3 µs", 3e-6), ("9 ns", 9e-9), ("100 ns", 1e-7), ("1.5 ms", 0.0015), ("1e+1 s", 10), ("0 s", 0)],
)  # fmt: skip
def test_delays_are_the_nearest_float(text: str, value: float) -> None:
    """0.1 ms is 0.0001 s and not 0.1 * 0.001."""
    assert parse_delay(text) == value


@given(digits=st.integers(1, 999_999), power=st.integers(0, 5))
def test_whole_quantities_of_six_digits_survive_being_shown(digits: int, power: int) -> None:
    value = digits * 10**power
    assert parse_rate(show_rate(value)) == value
    assert parse_size(show_size(value)) == value


@given(digits=st.integers(0, 999_999), power=st.integers(-9, 2))
def test_delays_of_six_digits_survive_being_shown(digits: int, power: int) -> None:
    value = float(f"{digits}e{power}")
    assert parse_delay(show_delay(value)) == value


@given(st.integers(1, 10**12))
def test_what_is_shown_means_what_was_meant_up_to_six_digits(value: int) -> None:
    assert math.isclose(parse_rate(show_rate(value)), value, rel_tol=SIX_DIGITS)
    assert math.isclose(parse_size(show_size(value)), value, rel_tol=SIX_DIGITS)


@given(st.floats(1e-9, 1e7))
def test_shown_delays_mean_what_was_meant_up_to_six_digits(value: float) -> None:
    assert math.isclose(parse_delay(show_delay(value)), value, rel_tol=SIX_DIGITS)


@given(number=st.floats(0.001, 1000), unit=st.sampled_from(sorted(DELAY_UNITS)))
def test_a_delay_is_number_times_unit(number: float, unit: str) -> None:
    assert math.isclose(parse_delay(f"{number:.6f} {unit}"), round(number, 6) * float(DELAY_UNITS[unit]), rel_tol=1e-12)


WRONG = [
    50, 5.0, True, None, ["50 Gbit/s"], {}, "", " ", "50", "Gbit/s", "-1 Gbit/s", "-1 s", "- 1 B", "+1 s", "1 s s",
    "1 s 2", "one s", "1,5 ms", "1.5.0 s", ".5 s", "5. s", "0x10 B", "inf s", "nan s", "1e B", "1e2.5 B", "1 GBIT/S",
    "1 gbit/s", "1 KB", "1 kb", "1 MS", "1 US", "1 Gbps", "1 min", "٣ s", "1e999 B", "1e400 s", "1e999999999 B",
    "9" * 5000 + " B",
]  # fmt: skip


@pytest.mark.parametrize("parse", [parse_rate, parse_size, parse_delay])
@pytest.mark.parametrize("text", WRONG, ids=lambda text: repr(text)[:20])
def test_anything_else_is_refused_with_an_example(parse: Callable[[object], float], text: object) -> None:
    with pytest.raises(ValueError, match=r'as in "|beyond'):
        parse(text)


@pytest.mark.parametrize("kind", PARSERS)
@given(text=TEXTS)
def test_any_text_gives_a_sane_value_or_the_one_error(kind: str, text: str) -> None:
    parse, units = PARSERS[kind]
    try:
        value = parse(text)
    except ValueError:
        return
    assert 0 <= value < 1e18
    assert any(text.strip().endswith(unit) for unit in units)


@pytest.mark.parametrize(("parse", "unit"), [(parse_rate, "80 kB"), (parse_size, "2 us"), (parse_delay, "50 Gbit/s")])
def test_a_unit_of_another_kind_is_named_as_wrong(parse: Callable[[object], float], unit: str) -> None:
    with pytest.raises(ValueError, match=r"is not one of the units"):
        parse(unit)


def test_a_negative_quantity_is_called_so() -> None:
    with pytest.raises(ValueError, match=r"'-2 us' is negative"):
        parse_delay("-2 us")


@pytest.mark.parametrize("text", ["0 Gbit/s", "0.5 bit/s"])
def test_a_rate_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"at least 1 bit/s"):
        parse_rate(text)
