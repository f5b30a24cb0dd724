"""The verdict: every source that lies, falls silent or does not do what it was told is noticed.

counters.csv and queues.csv are made here, from packets that are followed through a dumbbell one by one; then one value
is changed.
"""

from __future__ import annotations

import dataclasses
from itertools import product
from pathlib import Path

import pytest
from fidelity_book import (
    BACK,
    BOTTLENECK,
    INTERVAL_S,
    LAST,
    TOPOLOGY,
    Book,
    Break,
    book,
    checked,
    faults,
    write,
)
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError
from testbed.events.seen import History
from testbed.fidelity import (
    Check,
    Counters,
    check_arm,
    check_drops,
    check_marks,
    deltas,
)
from testbed.net.fabrics import build
from testbed.net.scale import Original, Scaling
from testbed.telemetry.tables import COUNTERS


def test_an_honest_run_is_valid_and_says_what_was_held_against_what(tmp_path: Path) -> None:
    rows = book()
    checks = checked(tmp_path, rows)
    assert faults(checks) == ""
    assert [check.what for check in checks] == [
        "all sources counted every link in every trial",
        "CE marks: queues, switches and hosts agree on every link",
        "CE packets into every switch go on from it",
        "CE packets at the receivers add up",
        "no packet was dropped",
    ]
    # The world above is one in which it matters: marked again, marked on entry, by several queues.
    both = [c for c in deltas(COUNTERS.read(tmp_path / COUNTERS.file)) if c.ce_in_packets and c.marked_packets]
    assert any(c.ce_out_packets < c.ce_in_packets + c.marked_packets for c in both)


def test_a_run_without_a_mark_is_valid(tmp_path: Path) -> None:
    assert faults(checked(tmp_path, book(marking=0.0))) == ""


# (came marked, queue marked, left marked): the bounds of trap 12 and one packet beyond each.
AGREE = [(0, 0, 0), (0, 5, 5), (3, 0, 3), (3, 5, 5), (3, 5, 8), (5, 3, 5), (5, 3, 8), (5, 5, 5), (5, 5, 10), (3, 5, 6)]
DISAGREE = [
    (0, 0, 1),
    (0, 5, 4),
    (0, 5, 6),
    (3, 0, 2),
    (3, 0, 4),
    (3, 5, 4),
    (3, 5, 9),
    (5, 3, 4),
    (5, 3, 9),
    (0, 1, 0),
]


def one(came: int, marked: int, left: int, dropped: int = 0, link: str = BOTTLENECK) -> Counters:
    return Counters("0", link, 100, came, marked, dropped, left)


@pytest.mark.parametrize(("came", "marked", "left"), AGREE)
def test_marks_within_the_bounds_agree(came: int, marked: int, left: int) -> None:
    assert check_marks([one(came, marked, left)], TOPOLOGY)[0].ok


@pytest.mark.parametrize(("came", "marked", "left"), DISAGREE)
def test_marks_beyond_the_bounds_are_named(came: int, marked: int, left: int) -> None:
    check = check_marks([one(came, marked, left)], TOPOLOGY)[0]
    assert not check.ok
    assert check.found == f"s1->s2, trial 0: {came} came marked, the queue marked {marked}, but {left} left marked"


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=50))
def test_packets_that_are_really_followed_always_agree(packets: list[tuple[bool, bool]]) -> None:
    came, marked = sum(ce for ce, _ in packets), sum(mark for _, mark in packets)
    left = sum(ce or mark for ce, mark in packets)
    assert check_marks([one(came, marked, left)], TOPOLOGY)[0].ok
    for wrong in (max(came, marked) - 1, came + marked + 1):
        assert not check_marks([one(came, marked, wrong)], TOPOLOGY)[0].ok


def test_packets_that_the_queue_dropped_may_be_missing_and_no_more() -> None:
    assert check_marks([one(5, 3, 3, dropped=2)], TOPOLOGY)[0].ok
    assert not check_marks([one(5, 3, 2, dropped=2)], TOPOLOGY)[0].ok
    assert not check_marks([one(5, 3, 9, dropped=2)], TOPOLOGY)[0].ok


def test_packets_that_a_lossy_link_lost_before_its_queue_may_be_missing_and_no_marks() -> None:
    lossy = build("dumbbell", dataclasses.replace(Scaling(Original(), 50).settings, loss=0.01))
    assert check_marks([one(5, 3, 3)], lossy)[0].ok
    assert not check_marks([one(5, 3, 2)], lossy)[0].ok
    assert not check_marks([one(5, 3, 9)], lossy)[0].ok


def test_rules_that_a_cut_took_away_took_counts_along_but_no_switch_sends_what_it_did_not_receive() -> None:
    cut = History(cut=True)
    into, onwards = one(0, 9, 9, link="h1->s1"), one(5, 0, 9)
    assert not check_marks([into, onwards], TOPOLOGY)[0].ok
    assert check_marks([into, onwards], TOPOLOGY, cut)[0].ok
    assert not check_marks([into, one(5, 0, 10)], TOPOLOGY, cut)[0].ok
    assert not check_marks([one(0, 9, 9, link="s1->h1"), one(0, 0, 1, link="h1->s1")], TOPOLOGY, cut)[0].ok


def test_many_faults_are_counted_and_three_shown() -> None:
    check = check_marks([one(0, 0, n) for n in range(1, 8)], TOPOLOGY)[0]
    assert check.found.count("left marked") == 3
    assert check.found.endswith("(and 4 more)")


def change(link: str, column: str, by: int, label: str = "end", trial: str = "1") -> Break:
    def broken(rows: Book) -> None:
        value = rows[trial, label, link][column]
        assert value is not None
        rows[trial, label, link][column] = value + by

    return broken


def silence(column: str, into: str = "", out_of: str = "", label: str = "end") -> Break:
    """One source of one node says nothing any more in the last trial: its counters stand still."""

    def broken(rows: Book) -> None:
        for (trial, when, link), row in rows.items():
            a, _, b = link.partition("->")
            if (trial, when) == ("1", label) and (b == into or a == out_of):
                row[column] = rows[trial, "begin", link][column]

    return broken


def forget(*key: str) -> Break:
    return lambda rows: rows.pop(key)  # type: ignore[call-overload]


def blank(link: str, column: str, label: str = "end") -> Break:
    return lambda rows: rows["1", label, link].update({column: None})


BREAKS: dict[str, tuple[Break, str]] = {
    "a mark lost by the queue": (change(LAST, "marked", -100_000), "s2->h3, trial 1: "),
    "one mark too many at the bottleneck": (change(BOTTLENECK, "marked", 1), "s1->s2, trial 1: 0 came marked"),
    "one mark too few at the bottleneck": (change(BOTTLENECK, "marked", -1), "s1->s2, trial 1: 0 came marked"),
    "one arrival lost by the switch": (change(BOTTLENECK, "ce_out", -1), "s1->s2, trial 1: 0 came marked"),
    "one arrival lost within the bounds": (change(LAST, "ce_in", -1), "s2, trial 1: "),
    "one arrival invented within the bounds": (change(LAST, "ce_in", 1), "s2, trial 1: "),
    "a host heard one more than all sent": (change(LAST, "ce_out", 1000), "at the receivers add up: "),
    "the table that counts is lost": (silence("ce_out", into="s2"), "s1->s2, trial 1: 0 came marked"),
    "the table that forwards is lost": (silence("ce_in", out_of="s2"), "s2, trial 1: "),
    "a host's own count is lost": (silence("ce_out", into="h3"), "s2->h3, trial 1: "),
    "a queue's marks are lost": (silence("marked", out_of="s1"), "s1->s2, trial 1: 0 came marked"),
    "a counter began anew": (change(BOTTLENECK, "ce_out", -1000), "s1->s2, trial 1: 0 came marked"),
    "a count that came too late for the begin": (change(BOTTLENECK, "ce_out", -1, "begin"), "s1->s2, trial 1: "),
    "a link is not there at the end": (forget("1", "end", "s2->h4"), "s2->h4, trial 1: 0 counts at its end"),
    "a link is not there at the begin": (forget("1", "begin", "h2->s1"), "h2->s1, trial 1: 0 counts at its begin"),
    "a switch does not say what came in": (blank(BOTTLENECK, "ce_out"), "s1->s2: s2 did not say what it received"),
    "a switch does not say what went on": (blank(LAST, "ce_in"), "s2->h3: s2 did not say what it forwarded"),
    "a packet dropped": (change(BACK, "dropped", 1), "no packet was dropped: s2->s1, trial 1: 1 dropped"),
    "drops that began anew": (change(BACK, "dropped", -1), "no packet was dropped: s2->s1, trial 1: -1 dropped"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BREAKS)
def test_what_is_broken_makes_the_run_invalid(kind: str, tmp_path: Path) -> None:
    broken, said = BREAKS[kind]
    rows = book()
    broken(rows)
    assert said in faults(checked(tmp_path, rows))


def test_any_single_switch_that_loses_its_counts_is_noticed(tmp_path: Path) -> None:
    for switch, (column, where) in product(TOPOLOGY.switches, (("ce_out", "into"), ("ce_in", "out_of"))):
        rows = book()
        silence(column, **{where: switch})(rows)
        assert switch in faults(checked(tmp_path, rows))


def test_a_queue_that_marks_everything_hides_no_switch_that_lost_its_counts(tmp_path: Path) -> None:
    """The bounds of its own link then allow any count of what came in marked."""
    rows = book(always="s2")
    silence("ce_in", out_of="s2")(rows)
    said = faults(checked(tmp_path, rows))
    assert said.startswith("CE packets into every switch go on from it: s2, trial 1: ")
    assert said.endswith(" 0 went on")


def test_drops_may_be_allowed(tmp_path: Path) -> None:
    rows = book()
    change(BACK, "dropped", 3)(rows)
    checks = checked(tmp_path, rows, drops_allowed=True)
    assert faults(checks) == ""
    assert Check("drops (allowed)", True, "s2->s1, trial 1: 3 dropped") in checks
    assert check_drops([one(0, 0, 0)], allowed=True) == [Check("drops (allowed)", True, "none")]


def test_a_run_in_which_nothing_was_counted_is_not_valid(tmp_path: Path) -> None:
    assert "no trial was counted" in faults(checked(tmp_path, {}))


def test_a_trial_counted_twice_is_not_valid(tmp_path: Path) -> None:
    file = write(tmp_path, book()) / COUNTERS.file
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines, lines[-1]]))
    assert "2 counts at its end" in faults(check_arm(tmp_path, TOPOLOGY, INTERVAL_S, False, ()))


@pytest.mark.parametrize("content", [None, "", "trial,label\n", "cut"])
def test_files_that_are_not_there_or_not_whole_are_errors(content: str | None, tmp_path: Path) -> None:
    file = write(tmp_path, book()) / COUNTERS.file
    if content is None:
        file.unlink()
    else:
        file.write_text(file.read_text()[:-3] if content == "cut" else content)
    with pytest.raises(InputError, match=r"counters\.csv"):
        check_arm(tmp_path, TOPOLOGY, INTERVAL_S, False, ())
