"""The verdict: every source that lies, falls silent or does not do what it was told is noticed.

counters.csv and queues.csv are made here, from packets that are followed through a dumbbell one by one; then one value
is changed.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.sdn.paths import Routes
from testbed.errors import InputError
from testbed.fidelity import (
    FEW_WINDOWS,
    WINDOW_PACKETS,
    Check,
    Counters,
    check_arm,
    check_drops,
    check_marks,
    check_rates,
    deltas,
)
from testbed.net.fabrics import build
from testbed.net.scale import Original, Scaling
from testbed.telemetry.tables import COUNTERS, QUEUES

TOPOLOGY = build("dumbbell", Scaling(Original(), 50).settings)
BOTTLENECK, BACK, LAST = "s1->s2", "s2->s1", "s2->h3"
FLOWS = (("h1", "h3"), ("h2", "h4"), ("h3", "h1"))
TRIALS = ("0", "1")
INTERVAL_S = 5e-3
RATE_BPS = TOPOLOGY.direction("s1", "s2").rate_bps
PACKET_BYTES = TOPOLOGY.mtu_bytes + 14
RED_MAX_BYTES = 160_000

Row = dict[str, int | None]
Book = dict[tuple[str, str, str], Row]
Break = Callable[[Book], object]


def book(marking: float = 0.3, always: str = "none") -> Book:
    """What all sources say, by (trial, label, link), of packets marked with some probability at every switch's egress.

    Every packet is marked on the links out of the switch `always`. RED counts a packet that is marked already as marked
    again when it meets a long queue.
    """
    draw, routes, switches = random.Random(7), Routes(TOPOLOGY), set(TOPOLOGY.switches)
    now = {f"{a}->{b}": {"tx": 0, "ce_in": 0, "marked": 0, "dropped": 0, "ce_out": 0} for a, b in TOPOLOGY.directed()}
    written: Book = {}
    for trial, label in product(TRIALS, ("begin", "end")):
        for source, destination in FLOWS if label == "end" else ():
            for _ in range(200):
                ce = False
                for link in routes.route(source, destination):
                    switch = link.partition("->")[0]
                    marks = switch in switches and (switch == always or draw.random() < marking)
                    now[link]["tx"] += 1
                    now[link]["ce_in"] += ce
                    now[link]["marked"] += marks
                    ce = ce or marks
                    now[link]["ce_out"] += ce
        for link, counts in now.items():
            source = link.partition("->")[0]
            host = source not in switches
            written[trial, label, link] = counts | ({"tx": None, "ce_in": None} if host else {})
    return written


def write(folder: Path, rows: Book) -> Path:
    with COUNTERS.writer(folder / COUNTERS.file) as writer:
        for (trial, label, link), row in rows.items():
            sent = None if row["tx"] is None else row["tx"] * PACKET_BYTES
            writer.row(trial, label, link, row["tx"], sent, row["ce_in"], row["marked"], row["dropped"], row["ce_out"])
    return folder


def checked(folder: Path, rows: Book, drops_allowed: bool = False) -> list[Check]:
    return check_arm(write(folder, rows), TOPOLOGY, INTERVAL_S, drops_allowed, ())


def faults(checks: list[Check]) -> str:
    return "\n".join(f"{check.what}: {check.found}" for check in checks if not check.ok)


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


# Queues: rates and thresholds


@dataclasses.dataclass
class Link:
    """A watched link: what it carries while a queue stands, and what it holds then."""

    rate_bps: float = RATE_BPS
    backlog_bytes: int = 100_000
    marks: int = 5
    samples: int = 100


def sampled(folder: Path, interval_s: float = INTERVAL_S, **links: Link) -> Path:
    with QUEUES.writer(folder / QUEUES.file) as writer:
        for name, link in links.items():
            for n in range(link.samples):
                sent = int(link.rate_bps / 8 * n * interval_s)
                backlog = link.backlog_bytes if n else 0
                marked = link.marks * n
                writer.row(n * interval_s, name, backlog, backlog // 9014, sent, sent // 9014, marked, 0)
    return folder


def judged(folder: Path, link: Link, interval_s: float = INTERVAL_S) -> list[Check]:
    write(sampled(folder, interval_s, **{BOTTLENECK: link}), book())
    return check_arm(folder, TOPOLOGY, interval_s, False, (BOTTLENECK,))


@pytest.mark.parametrize(("of_set", "said"), [(0.5, ""), (1.009, ""), (1.011, "carried 1011")])
def test_queues_seen_too_rarely_prove_that_no_link_carried_too_much(of_set: float, said: str, tmp_path: Path) -> None:
    write(sampled(tmp_path, INTERVAL_S, **{BOTTLENECK: Link(of_set * RATE_BPS)}), book())
    found = faults(check_arm(tmp_path, TOPOLOGY, INTERVAL_S, False, (BOTTLENECK,), standing=False))
    assert (said in found) if said else found == ""


@pytest.mark.parametrize("of_set", [0.991, 1.0, 1.009])
def test_a_link_that_gives_its_rate_is_valid(of_set: float, tmp_path: Path) -> None:
    checks = judged(tmp_path, Link(of_set * RATE_BPS))
    assert faults(checks) == ""
    assert any("rate of s1->s2, set to 1000.00 Mbit/s, to 1%" in check.what for check in checks)
    assert any("to a standing queue" in check.found for check in checks)


@pytest.mark.parametrize(
    ("of_set", "said"),
    [(1.011, "carried 1011"), (2.0, "carried 2000"), (0.989, "no more than 989"), (0.5, "no more than 500")],
)
def test_a_wrong_rate_is_named(of_set: float, said: str, tmp_path: Path) -> None:
    said_of = faults(judged(tmp_path, Link(of_set * RATE_BPS)))
    assert said_of.startswith("rate of s1->s2, set to 1000.00 Mbit/s")
    assert said in said_of


def test_less_than_its_rate_is_no_fault_of_a_link_without_a_queue(tmp_path: Path) -> None:
    checks = judged(tmp_path, Link(0.3 * RATE_BPS, backlog_bytes=9014))
    assert faults(checks) == ""
    assert any(check.found == "never a standing queue" for check in checks)


def test_more_than_its_rate_is_one_also_without_a_queue(tmp_path: Path) -> None:
    assert "carried 1100" in faults(judged(tmp_path, Link(1.1 * RATE_BPS, backlog_bytes=0)))


@pytest.mark.parametrize(("of_set", "valid"), [(0.951, True), (0.949, False), (1.009, True), (1.011, False)])
def test_coarse_samples_prove_less_and_only_downwards(of_set: float, valid: bool, tmp_path: Path) -> None:
    """100 ms between samples are many times the 1.3 ms in which 160 kB leave at 1 Gbit/s."""
    checks = judged(tmp_path, Link(of_set * RATE_BPS), interval_s=0.1)
    assert (faults(checks) == "") == valid
    assert any("to 5%" in check.what for check in checks)


@pytest.mark.parametrize(("samples", "valid"), [(30, True), (100, False)])
def test_few_windows_prove_less_too(samples: int, valid: bool, tmp_path: Path) -> None:
    """A queue seen at both ends of 5 ms may have been empty between, and few windows may all have had such a moment."""
    checks = judged(tmp_path, Link(0.98 * RATE_BPS, samples=samples))
    assert (faults(checks) == "") == valid
    assert "no more than 940" in faults(judged(tmp_path, Link(0.94 * RATE_BPS, samples=samples)))


def test_a_wrong_rate_for_a_short_time_is_found_among_much_that_is_right(tmp_path: Path) -> None:
    def rows(fast: int) -> Iterator[tuple[float, int]]:
        sent = 0.0
        for n in range(2000):
            yield n * INTERVAL_S, int(sent)
            sent += RATE_BPS / 8 * INTERVAL_S * (1.2 if 1000 <= n < 1000 + fast else 1.0)

    # 1.2 times the rate for 5 ms are 125 kB more: within a window of 200 packets they cannot be overlooked
    for fast, valid in ((0, True), (1, False), (3, False)):
        with QUEUES.writer(tmp_path / QUEUES.file) as writer:
            for t_s, sent in rows(fast):
                writer.row(t_s, BOTTLENECK, 100_000, 11, sent, sent // 9014, 0, 0)
        checks = check_rates(QUEUES.read(tmp_path / QUEUES.file), TOPOLOGY, INTERVAL_S, (BOTTLENECK,))
        assert (faults(checks) == "") == valid


def test_a_link_that_sends_less_than_a_window_proves_nothing(tmp_path: Path) -> None:
    least = WINDOW_PACKETS * PACKET_BYTES * 8 / (99 * INTERVAL_S)
    assert any(c.found == "never a standing queue" for c in judged(tmp_path, Link(0.99 * least, 100_000)))
    assert any("to a standing queue" in c.found for c in judged(tmp_path, Link(1.05 * least, 100_000)))


@pytest.mark.parametrize(("windows", "valid"), [(FEW_WINDOWS - 1, True), (FEW_WINDOWS, False)])
def test_few_windows_show_no_ceiling(windows: int, valid: bool, tmp_path: Path) -> None:
    """At half of 1 Gbit/s 200 packets take six intervals of 5 ms, and the first sample has no queue."""
    assert (faults(judged(tmp_path, Link(0.5 * RATE_BPS, samples=windows + 7))) == "") == valid


@pytest.mark.parametrize(("steady", "valid"), [(0.3, True), (0.7, False)])
def test_bursts_that_run_empty_between_samples_are_no_wrong_rate(steady: float, valid: bool, tmp_path: Path) -> None:
    """A queue at every sample, and less than the rate between: no two windows alike, unless the link gives no more."""
    draw, sent = random.Random(1), 0.0
    with QUEUES.writer(tmp_path / QUEUES.file) as writer:
        for n in range(1000):
            writer.row(n * INTERVAL_S, BOTTLENECK, 100_000, 11, int(sent), int(sent) // 9014, 0, 0)
            slow = n % 100 < 100 * steady
            sent += RATE_BPS / 8 * INTERVAL_S * (0.9 if slow else draw.uniform(0.2, 0.9))
    checks = check_rates(QUEUES.read(tmp_path / QUEUES.file), TOPOLOGY, INTERVAL_S, (BOTTLENECK,))
    assert (faults(checks) == "") == valid


@pytest.mark.parametrize("samples", [0, 1])
def test_a_shared_link_that_nobody_watched_is_a_fault(samples: int, tmp_path: Path) -> None:
    assert "nobody watched it" in faults(judged(tmp_path, Link(samples=samples)))
    write(sampled(tmp_path, **{BACK: Link()}), book())
    assert "rate of s1->s2" in faults(check_arm(tmp_path, TOPOLOGY, INTERVAL_S, False, (BACK, BOTTLENECK)))


def test_a_sampler_that_left_no_file_is_an_error_where_links_are_shared(tmp_path: Path) -> None:
    write(tmp_path, book())
    with pytest.raises(InputError, match=r"queues\.csv"):
        check_arm(tmp_path, TOPOLOGY, INTERVAL_S, False, (BOTTLENECK,))


FULL = RED_MAX_BYTES + 2 * PACKET_BYTES


@pytest.mark.parametrize(
    ("backlog", "marks", "valid"), [(FULL, 1, True), (FULL, 0, False), (FULL - 1, 0, True), (10 * FULL, 0, False)]
)
def test_a_queue_above_the_threshold_must_mark(backlog: int, marks: int, valid: bool, tmp_path: Path) -> None:
    """What is left when RED is taken away: two packets above the threshold, one must have found it above."""
    said = faults(judged(tmp_path, Link(backlog_bytes=backlog, marks=marks)))
    assert (said == "") == valid
    if not valid:
        assert said == f"queues above the threshold marked: s1->s2 held {backlog} B at 0.005 s and marked nothing"


def test_what_cannot_be_marked_is_dropped_by_red_and_that_counts_too(tmp_path: Path) -> None:
    write(tmp_path, book())
    for drops in (0, 1):
        with QUEUES.writer(tmp_path / QUEUES.file) as writer:
            for n in range(2):
                writer.row(n * INTERVAL_S, BOTTLENECK, n * FULL, 0, 0, 0, 0, n * drops)
        checks = check_arm(tmp_path, TOPOLOGY, INTERVAL_S, True, (BOTTLENECK,))
        assert ("marked nothing" in faults(checks)) == (drops == 0)


def test_every_verdict_on_the_way_up_counts(tmp_path: Path) -> None:
    """RED that was there at first and then was not."""
    write(tmp_path, book())
    with QUEUES.writer(tmp_path / QUEUES.file) as writer:
        for n in range(40):
            backlog = FULL if n % 2 else 0
            writer.row(n * INTERVAL_S, BOTTLENECK, backlog, 0, 0, 0, min(n, 30), 0)
    said = faults(check_arm(tmp_path, TOPOLOGY, INTERVAL_S, False, (BOTTLENECK,)))
    assert said.count("marked nothing") == 3
    assert "0.155 s" in said
    assert "and 2 more" in said


@pytest.mark.parametrize("column", ["tx_bytes", "tx_packets", "marked_packets", "dropped_packets"])
def test_a_queue_that_was_replaced_is_noticed(column: str, tmp_path: Path) -> None:
    """Its counters begin anew, and what it had dropped is nowhere any more."""
    write(tmp_path, book())
    with QUEUES.writer(tmp_path / QUEUES.file) as writer:
        for n in range(20):
            counts = dict.fromkeys(("tx_bytes", "tx_packets", "marked_packets", "dropped_packets"), n)
            counts[column] = n if n < 10 else n - 10
            writer.row(n * INTERVAL_S, BOTTLENECK, 0, 0, *counts.values())
    said = faults(check_arm(tmp_path, TOPOLOGY, INTERVAL_S, True, (BOTTLENECK,)))
    assert said == f"counters of watched queues only grow: s1->s2: {column} fell from 9 to 0 at 0.050 s"
