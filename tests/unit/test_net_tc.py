"""What is said to the kernel about an egress decodes to what was meant, and differences are found."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.net import filters, tc
from testbed.net.readback import FabricMismatch, expect_qdiscs
from testbed.net.topology import MAX_RATE_BPS, Direction, Red
from testbed.telemetry.qdisc import Qdisc, decode, handle_number, handle_text, total

PLAIN = Direction(50_000_000_000, 0.0, 0.0, 16_000_000, 18_028, Red(80_000, 160_000, 1.0))
HOST = dataclasses.replace(PLAIN, delay_s=2e-6, aqm=None)

reds = st.builds(
    lambda low, width, p, keeps: Red(low, low + width, p, keeps),
    st.integers(1, 10_000_000),
    st.integers(0, 5_000_000),
    st.floats(0, 1),
    st.booleans(),
)
directions = st.builds(
    Direction,
    rate_bps=st.integers(12_500, MAX_RATE_BPS // 8).map(lambda n: 8 * n),
    delay_s=st.one_of(st.just(0.0), st.floats(1e-9, 10)),
    loss=st.one_of(st.just(0.0), st.floats(1e-9, 0.999)),
    queue_bytes=st.integers(16_000_000, 2**31 - 1),
    burst_bytes=st.integers(9014, 100_000),
    aqm=st.one_of(st.none(), reds),
)


def _shown(d: Direction) -> list[Qdisc]:
    return [decode(request.body) for request in tc.requests(7, "s1-eth1", d)]


@given(d=directions)
def test_requests_decode_to_what_is_wanted(d: Direction) -> None:
    shown = _shown(d)
    expect_qdiscs("s1-eth1", tc.wanted(d), shown)
    assert {q.ifindex for q in shown} == {7}


@given(d=directions)
def test_the_order_is_delay_rate_queue(d: Direction) -> None:
    kinds = [(q.kind, q.handle, q.parent) for q in _shown(d)]
    delay = [("netem", "1:", "root")] if d.delay_s or d.loss else []
    queue = "red" if d.aqm else "bfifo"
    assert kinds == [*delay, ("tbf", "2:", "1:1" if delay else "root"), (queue, "3:", "2:1")]


@given(d=directions)
def test_numbers_are_exact(d: Direction) -> None:
    shown = {q.kind: q.options for q in _shown(d)}
    assert shown["tbf"]["rate_bytes_per_s"] * 8 == d.rate_bps
    if "netem" in shown:
        assert shown["netem"]["latency_ns"] == round(d.delay_s * 1e9)
        assert shown["netem"]["loss_2e32"] == pytest.approx(d.loss * 2**32, abs=1)
    if d.aqm:
        red = shown["red"]
        assert (red["limit_bytes"], red["min_bytes"], red["wlog"]) == (d.queue_bytes, d.aqm.min_bytes, 0)
        assert red["max_bytes"] == max(d.aqm.max_bytes, d.aqm.min_bytes + 1)
        assert red["max_probability_2e32"] == pytest.approx(d.aqm.probability * 2**32, abs=1)
        assert red["flags"] == (9 if d.aqm.keeps else 1)
    else:
        assert shown["bfifo"] == {"limit_bytes": d.queue_bytes}


def test_100_gbit_per_s_needs_more_than_32_bits() -> None:
    (tbf,) = (q for q in _shown(dataclasses.replace(PLAIN, rate_bps=MAX_RATE_BPS)) if q.kind == "tbf")
    assert tbf.options["rate_bytes_per_s"] == 12_500_000_000 > 1 << 32


def test_a_step_is_one_byte_wide_and_certain() -> None:
    red = _shown(dataclasses.replace(PLAIN, aqm=Red(65_000, 65_000, 1.0)))[-1].options
    assert (red["min_bytes"], red["max_bytes"], red["max_probability_2e32"]) == (65_000, 65_001, 2**32 - 1)


@given(rate=st.integers(1, 10**10).map(lambda n: 8 * n), delay=st.floats(1e-6, 1))
def test_the_delay_line_holds_a_full_line_and_a_full_queue(rate: int, delay: float) -> None:
    d = dataclasses.replace(PLAIN, rate_bps=rate, delay_s=delay)
    limit = tc.wanted(d)[0].options["limit_packets"]
    assert limit * 60 >= min(rate * delay / 8 + d.queue_bytes, 2**32 * 60 - 60)


@given(number=st.integers(0, 2**32 - 1))
def test_handles_are_written_as_tc_writes_them(number: int) -> None:
    assert handle_number(handle_text(number)) == number


def test_handles_known_to_everybody() -> None:
    assert [handle_text(n) for n in (0x20000, 0x10001, 0xFFFFFFFF)] == ["2:", "1:1", "root"]


@pytest.mark.parametrize("direction", [PLAIN, HOST])
def test_every_changed_number_is_found_and_named(direction: Direction) -> None:
    wanted, found = tc.wanted(direction), _shown(direction)
    for i, q in enumerate(found):
        for name in q.options:
            changed = list(found)
            changed[i] = dataclasses.replace(q, options={**q.options, name: q.options[name] + 2})
            with pytest.raises(FabricMismatch, match=f"s1-eth1: {q.kind} {name}") as caught:
                expect_qdiscs("s1-eth1", wanted, changed)
            assert caught.value.port == "s1-eth1"
            assert caught.value.found == q.options[name] + 2


def test_the_kernels_rounding_of_a_burst_is_no_difference() -> None:
    found = _shown(PLAIN)
    found[0] = dataclasses.replace(
        found[0], options={**found[0].options, "buffer_ticks": found[0].options["buffer_ticks"] - 1}
    )
    expect_qdiscs("s1-eth1", tc.wanted(PLAIN), found)


def test_a_missing_or_misplaced_discipline_is_found() -> None:
    found = _shown(HOST)
    with pytest.raises(FabricMismatch, match="h1-eth0: qdiscs should be"):
        expect_qdiscs("h1-eth0", tc.wanted(HOST), found[1:])
    with pytest.raises(FabricMismatch, match="parent of bfifo"):
        expect_qdiscs("h1-eth0", tc.wanted(HOST), [*found[:2], dataclasses.replace(found[2], parent="1:1")])


# Bands of priority


BANDED = dataclasses.replace(PLAIN, bands=(5, 9, 63))


def test_bands_have_a_queue_each_below_one_limiter() -> None:
    tree = [(w.kind, w.handle, w.parent) for w in tc.wanted(BANDED)]
    assert tree == [
        ("tbf", "2:", "root"), ("prio", "4:", "2:1"), ("red", "3:", "4:1"), ("red", "5:", "4:2"), ("red", "6:", "4:3"),
    ]  # fmt: skip
    assert tc.queues(BANDED) == ("3:", "5:", "6:")
    assert tc.queues(PLAIN) == ("3:",)
    assert {tuple(w.options.items()) for w in tc.wanted(BANDED) if w.kind == "red"} == {
        tuple(tc.wanted(PLAIN)[-1].options.items())
    }


def test_what_is_asked_of_bands_and_filters_decodes_to_what_is_wanted() -> None:
    made = tc.requests(7, "s1-eth1", BANDED)
    shown = [decode(request.body) for request in made if request.kind != filters.RTM_NEWTFILTER]
    expect_qdiscs("s1-eth1", tc.wanted(BANDED), sorted(shown, key=lambda q: q.handle))
    sorting = [filters.decode(request.body) for request in made if request.kind == filters.RTM_NEWTFILTER]
    assert sorting == tc.wanted_filters(BANDED)
    assert [(f.band, f.dscp) for f in tc.wanted_filters(BANDED)] == [("4:1", 5), ("4:2", 9), ("4:3", 63)]
    assert tc.wanted_filters(PLAIN) == []


def test_a_filter_of_another_selector_is_none_of_ours() -> None:
    body = filters.request(7, "s1-eth1", tc.PRIO, filters.Filter(1, "4:1", 5)).body
    other = body.replace(bytes.fromhex("00fc0000"), bytes.fromhex("00ff0000"))
    assert other != body
    found = filters.decode(other)
    assert found is not None
    assert found.dscp == -1


def test_what_waits_in_bands_is_added_up() -> None:
    first = Qdisc(7, "red", "3:", "4:1", {}, 100, 1, 10, 2, 0, 4)
    second = Qdisc(7, "red", "5:", "4:2", {}, 50, 2, 20, 3, 6, 1)
    assert total([first, second]) == Qdisc(7, "red", "3:", "4:1", {}, 150, 3, 30, 5, 6, 5)
