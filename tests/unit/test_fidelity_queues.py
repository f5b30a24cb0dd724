"""The verdict on queues: rates that are not those set, thresholds that do not mark, counters that began anew."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from fidelity_book import (
    BACK,
    BOTTLENECK,
    INTERVAL_S,
    PACKET_BYTES,
    RATE_BPS,
    RED_MAX_BYTES,
    TOPOLOGY,
    book,
    faults,
    write,
)

from testbed.errors import InputError
from testbed.fidelity import (
    FEW_WINDOWS,
    WINDOW_PACKETS,
    Check,
    check_arm,
    check_rates,
)
from testbed.telemetry.tables import QUEUES


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
