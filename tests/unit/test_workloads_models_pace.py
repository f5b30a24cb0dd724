"""Jobs sized by parameters: never more bytes than the model has, and Up as long as published."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_shapes import shape

from testbed.errors import InputError
from workloads.models import (
    MODELS,
    SNAPSHOTS,
    STEP_LATENCY_S,
    ddp_buckets,
    goodput_bps,
    job_plan,
    paced_for,
    up_alone_s,
)
from workloads.models.buckets import resized, ring_s
from workloads.models.compute import compute_s
from workloads.models.pace import CHUNK_BYTES
from workloads.training.plan import Bucket, JobPlan

DATA_PARALLEL = [name for name, model in MODELS.items() if model.strategy == "data parallel"]
JOBS = [(number, job) for number, jobs in SNAPSHOTS.items() for job in jobs]


def plan_of(model: str, workers: int = 2, **rest: Any) -> JobPlan:
    hosts = [f"h{i + 1}" for i in range(workers)]
    ips = [f"10.0.0.{i + 1}" for i in range(workers)]
    return job_plan(model, name="a", hosts=hosts, fabric_ips=ips, dscp=10, iterations=3, sizing="parameters", **rest)


def up_s(plan: JobPlan, scale: float = 1.0) -> float:
    network = goodput_bps(50e9 / scale, 9000), STEP_LATENCY_S * scale
    return up_alone_s(shape(plan).buckets, shape(plan).backward_s, plan.workers, *network)


@pytest.mark.parametrize("scale", [1.0, 50.0])
@pytest.mark.parametrize("factor", [0.8, 1.0, 1.2])
@pytest.mark.parametrize(("number", "job"), JOBS)
def test_the_communication_times_of_all_snapshots_are_reached(
    number: int, job: Any, factor: float, scale: float
) -> None:
    rest = {"batch": job.batch, "communication_s": job.communication_s}
    plan = plan_of(job.model, compute_factor=factor, scale=scale, **rest)
    assert up_s(plan, scale) == pytest.approx(job.communication_s, abs=1e-9)
    assert shape(plan).total_bytes * scale == pytest.approx(MODELS[job.model].gradient_bytes, abs=scale)
    assert shape(plan).buckets[0].ready_s == 0.0, number


@pytest.mark.parametrize("workers", [2, 3, 4, 8, 12])
@pytest.mark.parametrize("model", DATA_PARALLEL)
def test_bytes_follow_from_parameters_and_workers(model: str, workers: int) -> None:
    plan = plan_of(model, workers, batch=MODELS[model].batches[1])
    own = 2 * (workers - 1) / workers * MODELS[model].gradient_bytes
    assert plan.sent_bytes(0) == pytest.approx(own, abs=2 * workers * len(shape(plan).buckets))
    assert f"each sends {plan.sent_bytes(0)} B" in plan.note
    assert up_s(plan) >= own * 8 / 50e9


@pytest.mark.parametrize("model", DATA_PARALLEL)
def test_bytes_never_leave_before_their_gradients_exist(model: str) -> None:
    batch = MODELS[model].batches[1]
    whole = plan_of(model, batch=batch)
    ready = gradients_by(shape(whole).buckets, shape(whole).forward_s)
    plan = plan_of(model, batch=batch, communication_s=1.1 * up_s(whole))
    offset = 0
    for piece in shape(plan).buckets:
        assert shape(plan).forward_s + piece.ready_s >= ready(offset + piece.size_bytes) - 1e-9
        offset += piece.size_bytes
    # It begins no later than it must: some piece leaves the very moment it can.
    slack, offset = [], 0
    for piece in shape(plan).buckets:
        offset += piece.size_bytes
        slack.append(shape(plan).forward_s + piece.ready_s - ready(offset))
    assert min(slack) == pytest.approx(0.0, abs=1e-9)


def gradients_by(buckets: Sequence[Bucket], begin_s: float) -> Any:
    """When the first so many bytes of gradients exist, in seconds after the iteration began."""

    def ready(offset: int) -> float:
        total = 0
        for bucket in buckets:
            total += bucket.size_bytes
            if total >= offset:
                return begin_s + bucket.ready_s
        raise AssertionError(offset)

    return ready


@pytest.mark.parametrize("model", DATA_PARALLEL)
def test_every_batch_and_factor_makes_a_job(model: str) -> None:
    # Rounding once put a bucket behind the end of the backward pass.
    low, high = MODELS[model].batches
    for batch in range(low, high + 1, max(1, (high - low) // 24)):
        for factor in (0.8, 1.0, 1.2):
            plan = plan_of(model, batch=batch, compute_factor=factor)
            assert max(bucket.ready_s for bucket in shape(plan).buckets) == pytest.approx(shape(plan).backward_s)


def test_all_compute_is_in_the_iteration() -> None:
    for factor in (0.8, 1.0, 1.2):
        whole = plan_of("vgg19", batch=1400, compute_factor=factor)
        plan = plan_of("vgg19", batch=1400, compute_factor=factor, communication_s=0.166)
        assert shape(plan).forward_s + 0.166 >= shape(whole).forward_s + shape(whole).backward_s


def test_pieces_by_hand() -> None:
    # At 8 bit/s a byte lasts 1 s; two workers take two steps of half of it: 1 s per byte. 10 s of bytes in 19 s.
    buckets = (Bucket(4, 1.0), Bucket(6, 9.0, (0,)))
    before_s, pieces = paced_for(buckets, 19.0, 2, 8.0, 0.0, scale=CHUNK_BYTES)
    assert [piece.size_bytes for piece in pieces] == [2, 2, 2, 2, 2]
    # The last piece takes 2 s and begins at 17 s; the others' turns are 17/8 times as long as they take.
    assert [piece.ready_s for piece in pieces] == [0.0, 4.25, 8.5, 12.75, 17.0]
    assert [piece.after for piece in pieces] == [(), (0,), (1,), (2,), (3,)]
    # The second bucket is ready at 9 s and has its turn at 8.5 s, but the first cannot begin before 1 s.
    assert before_s == 1.0
    assert paced_for((buckets[0], Bucket(6, 10.0, (0,))), 19.0, 2, 8.0, 0.0, scale=CHUNK_BYTES)[0] == 1.5


@given(
    st.lists(st.integers(1, 1 << 25), min_size=1, max_size=9),
    st.integers(2, 24),
    st.floats(1.0, 30.0),
    st.sampled_from([1.0, 50.0]),
)
def test_paced_pieces_last_as_long_as_wished(sizes: list[int], workers: int, slower: float, scale: float) -> None:
    buckets = [Bucket(size, 0.0) for size in sizes]
    network = goodput_bps(50e9 / scale, 9000), STEP_LATENCY_S * scale
    steps = sum(-(-size // max(1, int(workers * CHUNK_BYTES / scale))) for size in sizes)
    shortest_s = ring_s(sum(sizes), workers, *network) + (steps - 1) * ring_s(0, workers, *network)
    wished_s = 1.000001 * slower * shortest_s
    before_s, pieces = paced_for(buckets, wished_s, workers, *network, scale)
    assert before_s == 0.0
    assert sum(piece.size_bytes for piece in pieces) == sum(sizes)
    assert max(piece.size_bytes for piece in pieces) <= max(1, workers * CHUNK_BYTES / scale)
    if len(pieces) > 1:
        assert up_alone_s(pieces, 0.0, workers, *network) == pytest.approx(wished_s)
    assert all(earlier.ready_s <= later.ready_s for earlier, later in pairwise(pieces))
    with pytest.raises(InputError, match=r"cannot be reached .the bytes alone take"):
        paced_for(buckets, 0.999 * shortest_s, workers, *network, scale)


@given(st.lists(st.integers(1, 1 << 30), min_size=1, max_size=30), st.floats(0.001, 3.0))
def test_resizing_keeps_the_sum(sizes: list[int], factor: float) -> None:
    found = [bucket.size_bytes for bucket in resized([Bucket(size, 0.0) for size in sizes], factor)]
    assert min(found) >= 1
    assert abs(sum(found) - sum(sizes) * factor) <= len(sizes)
    assert all(abs(after - before * factor) <= 1 for before, after in zip(sizes, found, strict=True))


def test_vgg16_by_parameters_has_the_published_iteration_and_its_own_bytes() -> None:
    plan = plan_of("vgg16")
    assert shape(plan).forward_s == 0.141
    assert up_s(plan) == pytest.approx(0.114)
    assert shape(plan).total_bytes == MODELS["vgg16"].gradient_bytes
    assert "38.8 Gbit/s on average" in plan.note
    # Three workers send a third more, and that takes longer than 114 ms.
    with pytest.raises(
        InputError, match=r"job a, communication time: 114 ms .* 119\.\d+ ms at line rate with 3 workers"
    ):
        plan_of("vgg16", 3)


def test_without_a_communication_time_buckets_leave_at_line_rate() -> None:
    plan = plan_of("resnet50", batch=1600)
    whole = ddp_buckets(MODELS["resnet50"].sample_layers, compute_s(MODELS["resnet50"], 1600)[1])
    assert shape(plan).buckets == tuple(replace(each, ready_s=round(each.ready_s, 12)) for each in whole)
    assert "at line rate as soon as DDP has them" in plan.note


def test_the_volume_can_be_the_architectures() -> None:
    paper, own = (plan_of("roberta", batch=12, volume=volume) for volume in ("published", "architecture"))
    assert (shape(paper).total_bytes, shape(own).total_bytes) == (800_000_000, 4 * 124_645_632)
    assert (shape(paper).forward_s, shape(paper).backward_s) == (shape(own).forward_s, shape(own).backward_s)
    assert "1.605 times the architecture's" in paper.note


@pytest.mark.parametrize(
    ("model", "rest", "told"),
    [
        ("bert", {}, "job a, batch: bert needs one .give 8 to 32 samples"),
        ("bert", {"batch": 33}, "job a, model bert, batch: 33"),
        ("bert", {"batch": 8, "compute_factor": 0.0}, "job a, model bert, compute_factor: 0.0"),
        ("vgg16", {"compute_factor": 1.2}, "job a, compute_factor: 1.2, but without a batch"),
        ("bert", {"batch": 8, "volume": "all"}, "job a, volume: 'all'"),
        ("bert", {"batch": 8, "communication_s": 0.0}, "job a, communication time: 0 ms cannot be reached"),
        ("bert", {"batch": 8, "communication_s": float("inf")}, "job a, communication time: inf ms cannot"),
        ("bert", {"batch": 8, "communication_s": float("nan")}, "job a, communication time: nan ms cannot"),
    ],
)
def test_what_cannot_be_a_job_is_refused(model: str, rest: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        plan_of(model, **rest)
