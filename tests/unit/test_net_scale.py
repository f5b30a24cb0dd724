"""Dimension scaling keeps what it promises to keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError
from testbed.net.scale import Original, Scaling


def test_scale_1_changes_nothing() -> None:
    scaling = Scaling(Original())
    s, o = scaling.settings, scaling.original
    assert (s.rate_bps, s.host_delay_s, s.fabric_delay_s) == (o.rate_bps, o.host_delay_s, o.fabric_delay_s)
    assert scaling.rto_min_s == o.rto_min_s
    assert scaling.size_bytes(12_345) == 12_345
    assert all(row.scaled == pytest.approx(row.original) for row in scaling.rows())


def test_scale_50_of_cassini() -> None:
    scaling = Scaling(Original(host_rate_bps=100_000_000_000), 50)
    s = scaling.settings
    assert (s.rate_bps, s.host_rate_bps, s.host_delay_s) == (1_000_000_000, 2_000_000_000, 1e-4)
    assert (s.mtu_bytes, s.queue_bytes, s.red) == (9000, 16_000_000, scaling.original.red)
    assert scaling.rto_min_s == pytest.approx(0.2)
    assert scaling.size_bytes(691_000_000) == 13_820_000


@given(scale=st.floats(1, 1000), rate=st.integers(10**9, 10**11), delay=st.floats(1e-6, 1e-2))
def test_packets_in_flight_and_phase_lengths_stay(scale: float, rate: int, delay: float) -> None:
    scaling = Scaling(Original(rate_bps=rate, host_delay_s=delay), scale)
    s = scaling.settings
    assert s.rate_bps % 8 == 0
    assert s.rate_bps * s.host_delay_s == pytest.approx(rate * delay, rel=1e-3)
    # A phase that moves 1 GB takes as long as in the original.
    assert scaling.size_bytes(1e9) / s.rate_bps == pytest.approx(1e9 / rate, rel=1e-5)


@given(scale=st.floats(1, 1000), size=st.floats(0, 1e12))
def test_no_job_scales_to_nothing(scale: float, size: float) -> None:
    assert Scaling(Original(), scale).size_bytes(size) >= 1


@pytest.mark.parametrize("scale", [0, 0.5, -1, float("nan"), float("inf")])
def test_a_scale_that_would_speed_up_is_refused(scale: float) -> None:
    with pytest.raises(InputError, match="scale"):
        Scaling(Original(), scale)


def test_every_setting_of_the_original_has_a_row() -> None:
    rows = {row.key: row for row in Scaling(Original(), 50).rows()}
    assert {"rate", "host_rate", "host_delay", "fabric_delay", "rto_min", "loss", "mtu", "queue"} <= set(rows)
    assert {"red.min", "red.max", "red.probability", "job bytes"} <= set(rows)
    product = rows["bandwidth-delay product"]
    assert product.original == pytest.approx(product.scaled)
    assert not any(row.key.startswith("red") for row in Scaling(Original(red=None), 50).rows())
