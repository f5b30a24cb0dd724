"""Up phases counted in a series of rates, and the page's section on the four pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.report.reference import pictures
from testbed.report.reference.pictures import APART_S, PICTURES, SHORT_SHARE, up_phases
from testbed.scenario_file import find

LINE_BPS, BIN_S = 50e9, 2e-3


def series(*stretches: tuple[float, float]) -> np.ndarray:
    """Rates in Gbit/s, each for so many ms."""
    return np.concatenate([np.full(round(ms / 1e3 / BIN_S), gbps * 1e9) for gbps, ms in stretches])


def test_three_small_peaks_and_a_heavy_one_are_four() -> None:
    rates = series((0, 20), (10, 6), (0, 40), (8, 6), (0, 40), (10, 6), (0, 60), (50, 60))
    found = up_phases(rates, BIN_S, LINE_BPS)
    assert [round(1e3 * length) for _, length in found] == [6, 6, 6, 60]
    assert found[-1][0] == pytest.approx(50e9)


def test_short_downs_part_nothing_and_little_is_down() -> None:
    """Between two all-reduces of a layer there is compute; acknowledgements are no Up phase."""
    rates = series((25, 100), (0, 2), (25, 100), (1.9, 60), (25, 20), (0, 70))
    assert [round(1e3 * length) for _, length in up_phases(rates, BIN_S, LINE_BPS)] == [202, 20]
    assert up_phases(series((1.9, 100)), BIN_S, LINE_BPS) == []
    assert up_phases(series((25, 100)), BIN_S, LINE_BPS) == [(25e9, 0.1)]


def test_a_phase_across_the_end_is_one_and_a_moment_is_none() -> None:
    rates = series((50, 2), (0, 60), (20, 2), (0, 60), (50, 80))
    assert [round(1e3 * length) for _, length in up_phases(rates, BIN_S, LINE_BPS)] == [82]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=8))
def test_as_many_as_are_long_and_far_enough_apart(ups: list[tuple[int, int]]) -> None:
    stretches: list[tuple[float, float]] = []
    for length, more in ups:
        stretches += [(0, 1e3 * APART_S + 1 + 2 * more), (20, 2 * length)]
    whole_ms = sum(length for _, length in stretches)
    found = up_phases(series(*stretches), BIN_S, LINE_BPS)
    assert [round(1e3 * length) for _, length in found] == [
        2 * length for length, _ in ups if 2 * length >= SHORT_SHARE * whole_ms
    ]


def test_pictures_that_were_not_drawn_say_so(tmp_path: Path) -> None:
    lines = list(pictures.section(tmp_path, tmp_path))
    assert sum("not run" in line for line in lines) == len(PICTURES)
    assert not list(tmp_path.iterdir())


def test_every_picture_has_its_scenario() -> None:
    for picture in PICTURES:
        assert find(picture.scenario).is_file()
