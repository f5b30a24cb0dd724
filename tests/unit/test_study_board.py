"""What a sweep says of itself: how far it is, how long it will take, what failed."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from testbed.study.board import Bars, Board, Lines, board, spell


def test_the_time_to_go_counts_what_is_done_now_and_not_what_was_kept() -> None:
    made = Board(total=24, kept=4, began_s=100.0)
    assert made.to_go_s(110.0) is None
    made.end("a", valid=True)
    made.hear({"point": "b", "share": 0.5, "text": "alone: boots"})
    made.hear({"point": "c", "share": 0.5, "text": "alone: boots"})
    assert made.share == pytest.approx(2 / 20)
    assert made.to_go_s(110.0) == pytest.approx(90)
    assert made.line(110.0) == "5 of 24 points, 4 kept, about 1 min 30 s to go"
    made.lose(["b"])  # begins anew
    assert made.to_go_s(110.0) == pytest.approx(10 * (1 - 0.075) / 0.075)
    made.end("c", valid=False)
    assert "1 failed" in made.line(110.0)


def test_nothing_to_run_is_all_done() -> None:
    made = Board(total=3, kept=3)
    assert (made.share, made.to_go_s(5.0)) == (1.0, 0.0)
    assert made.line(5.0) == "3 of 3 points, 3 kept"


def test_spans_are_spelt() -> None:
    assert [spell(s) for s in (0.4, 59, 61, 3599, 3600, 7320)] == [
        "0 s", "59 s", "1 min 1 s", "59 min 59 s", "1 h 0 min", "2 h 2 min"
    ]  # fmt: skip


@pytest.mark.parametrize("terminal", [False, True])
def test_points_that_end_are_said(terminal: bool) -> None:
    said = io.StringIO()
    with board(Console(file=said, force_terminal=terminal, width=120)) as told:
        assert isinstance(told, Bars) == terminal
        assert isinstance(told, Lines)
        told.begin(2, 0)
        told.hear({"point": "[a]", "share": 0.25, "text": "alone: boots"})
        told.lost("tcp://127.0.0.1:1", ["[a]"])
        told.ended(SimpleNamespace(name="[a]", valid=True, wall_s=2.0, error=""))
        told.ended(SimpleNamespace(name="b", valid=False, wall_s=1.0, error="arm together: burst"))
    text = said.getvalue()
    assert "the worker at tcp://127.0.0.1:1 is lost; [a] runs elsewhere" in text
    assert "[a]: valid, 2.0 s (1 of 2 points" in text
    assert "b: arm together: burst, 1.0 s (2 of 2 points, 1 failed)" in text
