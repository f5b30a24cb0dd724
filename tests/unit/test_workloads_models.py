"""Models: real layer lists, PyTorch's buckets, and sizes that fill the wished-for time."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_shapes import shape

from testbed.errors import InputError
from workloads.models import (
    MODELS,
    STEP_LATENCY_S,
    VGG16,
    ddp_buckets,
    goodput_bps,
    job_plan,
    sized_for,
    up_alone_s,
)
from workloads.training.plan import JobPlan

BACKWARD_S = 0.1
TRUE = ddp_buckets(VGG16.layers, BACKWARD_S)


def vgg16(workers: int, scale: float = 1.0) -> JobPlan:
    hosts = [f"h{i + 1}" for i in range(workers)]
    ips = [f"10.0.0.{i + 1}" for i in range(workers)]
    return job_plan("vgg16", name="a", hosts=hosts, fabric_ips=ips, dscp=10, iterations=3, scale=scale)


def test_vgg16_has_its_published_parameters_and_arithmetic() -> None:
    assert VGG16.gradient_bytes == 4 * 138_357_544  # torchvision's vgg16; 528 MiB in CASSINI's table
    assert round(VGG16.gradient_bytes / 2**20) == 528
    assert sum(layer.macs for layer in VGG16.layers) == 15_470_264_320


def test_the_rule_gives_the_buckets_of_a_recorded_resnet50_run() -> None:
    # The same five numbers stand in MLCommons Chakra's sample trace of ResNet-50 under DDP.
    sizes = [bucket.size_bytes for bucket in ddp_buckets(MODELS["resnet50"].layers, 0.2)]
    assert sizes == [8196000, 31502336, 26255360, 26550272, 9724160]


def test_vgg16_in_buckets() -> None:
    sizes = [bucket.size_bytes for bucket in TRUE]
    assert sizes == [16388000, 67125248, 411058176, 28317696, 28319744, 2221312]
    assert sum(sizes) == VGG16.gradient_bytes
    assert [bucket.after for bucket in TRUE] == [(), (0,), (1,), (2,), (3,), (4,)]


def test_buckets_are_ready_in_order_and_the_last_with_the_backward_pass() -> None:
    ready = [bucket.ready_s for bucket in TRUE]
    assert all(earlier < later for earlier, later in pairwise(ready))
    assert ready[-1] == BACKWARD_S
    # Fully connected layers: 89 % of the gradients, 0.8 % of the arithmetic.
    fully_connected = sum(layer.macs for layer in VGG16.layers[-3:]) * 2
    total = 2 * sum(layer.macs for layer in VGG16.layers) - VGG16.layers[0].macs
    assert ready[2] == pytest.approx(BACKWARD_S * fully_connected / total)


@given(st.integers(2, 24), st.sampled_from([1.0, 10.0, 50.0]), st.floats(0.11, 1.0))
def test_sized_buckets_last_as_long_as_wished_and_keep_their_shares(workers: int, scale: float, up_s: float) -> None:
    rate_bps, latency_s = 50e9 / scale, STEP_LATENCY_S * scale
    sized = sized_for(TRUE, 0.1, up_s, rate_bps, workers, step_latency_s=latency_s)
    lasts_s = up_alone_s(sized, 0.1, workers, goodput_bps(rate_bps, 9000), latency_s)
    rounding_s = len(TRUE) * 2 * 8 / rate_bps
    assert lasts_s == pytest.approx(up_s, abs=rounding_s + 1e-9)
    factor = sized[2].size_bytes / TRUE[2].size_bytes
    for made, true in zip(sized, TRUE, strict=True):
        assert abs(made.size_bytes - true.size_bytes * factor) <= 1 + true.size_bytes / TRUE[2].size_bytes
        assert replace(made, size_bytes=true.size_bytes) == true


@pytest.mark.parametrize("up_s", [0.0, 0.05, 0.1])
def test_up_cannot_be_shorter_than_the_backward_pass(up_s: float) -> None:
    with pytest.raises(InputError, match="cannot be reached"):
        sized_for(TRUE, 0.1, up_s, 50e9, 2)


def test_an_up_phase_by_hand() -> None:
    # At 8 bit/s a byte lasts 1 s: two workers take two steps of half of it, and wait 0.25 s in each.
    buckets = (replace(TRUE[0], size_bytes=1, ready_s=1.0), replace(TRUE[1], size_bytes=2, ready_s=2.0))
    assert up_alone_s(buckets, 3.0, 2, 8.0, 0.25) == 1.0 + (1 + 0.5) + (2 + 0.5)
    assert up_alone_s(buckets, 30.0, 2, 8.0, 0.25) == 30.0


def test_goodput_leaves_headers_and_acknowledgements_out() -> None:
    assert goodput_bps(9080.0, 9000) == 8948.0


@pytest.mark.parametrize(("workers", "ratio"), [(2, "1.268"), (3, "0.951"), (8, "0.724")])
def test_the_note_tells_both_volumes_truly(workers: int, ratio: str) -> None:
    plan = vgg16(workers)
    own = 2 * (workers - 1) / workers * VGG16.gradient_bytes
    assert f"each sends {plan.sent_bytes(0)} B" in plan.note
    assert f"{own:.0f} B: this is {ratio} times" in plan.note
    assert f"{plan.sent_bytes(0) / own:.3f}" == ratio


def test_the_job_of_the_shipped_scenarios_never_changes() -> None:
    plan = vgg16(2, scale=50.0)
    assert [bucket.size_bytes for bucket in shape(plan).buckets] == [413547, 1693888, 10372942, 714589, 714641, 56054]
    assert (shape(plan).forward_s, shape(plan).backward_s, shape(plan).buckets[-1].ready_s) == (0.141, 0.1, 0.1)
    assert plan.note == (
        "vgg16, 2 workers: each sends 13965661 B per iteration (698283050 B unscaled), sized so that Up alone"
        " lasts 114 ms at 50 Gbit/s; the model's own gradients are 553430176 B (528 MiB), of which a ring"
        " would send 2(n-1)/n = 553430176 B: this is 1.262 times as much. Compute of the backward pass: 100"
        " ms, an assumption."
    )


def test_scaling_divides_bytes_and_keeps_times() -> None:
    full, scaled = vgg16(2), vgg16(2, scale=50.0)
    small, large = shape(scaled), shape(full)
    assert (small.forward_s, small.backward_s) == (large.forward_s, large.backward_s) == (0.141, 0.1)
    assert [bucket.ready_s for bucket in small.buckets] == [bucket.ready_s for bucket in large.buckets]
    assert small.total_bytes * 50 == pytest.approx(large.total_bytes, rel=0.01)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model": "vgg61"}, "job a, model: 'vgg61' is not known .known are bert, camembert, dlrm, gpt1, .* vgg16"),
        ({"scale": 0.0}, "job a, scale: 0.0"),
        ({"hosts": ["h1"]}, "job a, hosts: 1 workers"),
        ({"batch": 1400, "sizing": "published-up"}, "job a, sizing: published-up has one size"),
        ({"sizing": "as-you-like"}, "job a, sizing: 'as-you-like'"),
        ({"model": "bert", "sizing": "published-up"}, "job a, sizing: no iteration of bert is published"),
    ],
)
def test_what_cannot_be_a_job_is_refused(change: dict[str, object], told: str) -> None:
    given_: dict[str, object] = {
        "model": "vgg16",
        "name": "a",
        "hosts": ["h1", "h2"],
        "fabric_ips": ["10.0.0.1", "10.0.0.2"],
        "dscp": 0,
        "iterations": 1,
    }
    with pytest.raises(InputError, match=told):
        job_plan(**(given_ | change))  # type: ignore[arg-type]
