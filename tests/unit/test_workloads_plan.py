"""Plans of jobs: what is refused, and that plain data keep everything."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError
from workloads.training.plan import Bucket, JobPlan
from workloads.training.schedule import chunk_bounds, ring_steps, sent_bytes

PLAN = JobPlan(
    name="job-a",
    hosts=("h1", "h2", "h3"),
    fabric_ips=("10.0.0.1", "10.0.0.2", "10.0.0.3"),
    dscp=10,
    forward_s=0.141,
    backward_s=0.1,
    buckets=(Bucket(1000, 0.01), Bucket(2001, 0.1, (0,))),
    iterations=30,
    congestion_control="dctcp",
    note="where the sizes come from",
)


def test_a_plan_survives_json() -> None:
    assert JobPlan.from_dict(json.loads(json.dumps(PLAN.to_dict()))) == PLAN


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("name", "two words", "name 'two words' is not a word"),
        ("hosts", ("h1",), "a ring needs at least two"),
        ("hosts", ("h1", "h1", "h2"), "not names of different hosts"),
        ("hosts", ("h1", [], "h2"), "not names of different hosts"),
        ("fabric_ips", ("10.0.0.1", "10.0.0.2"), "one address per host"),
        ("fabric_ips", ("10.0.0.1", "10.0.0.2", "10.0.0.2"), "one address per host"),
        ("fabric_ips", ("10.0.0.1", "10.0.0.2", "h3"), "fabric_ips: Expected 4 octets"),
        ("dscp", 64, "from 0 to 63"),
        ("dscp", True, "from 0 to 63"),
        ("forward_s", -0.1, "forward_s: -0.1"),
        ("forward_s", float("nan"), "forward_s: nan"),
        ("backward_s", float("inf"), "backward_s: inf"),
        ("backward_s", "1", "backward_s: '1'"),
        ("iterations", 0, "iterations: 0"),
        ("buckets", (), "a job without traffic"),
        ("buckets", (Bucket(0, 0.0),), r"buckets\[0\].size_bytes: 0"),
        ("buckets", (Bucket(1, 0.11),), r"buckets\[0\].ready_s: 0.11 .*within the backward pass"),
        ("buckets", (Bucket(1, 0.0, (0,)),), r"buckets\[0\].after: \[0\] .*earlier"),
        ("congestion_control", "", "congestion_control"),
    ],
)
def test_what_cannot_run_is_refused(key: str, value: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        replace(PLAN, **{key: value})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"extra": 1}, "unknown keys extra"),
        ({"hosts": "h1"}, "hosts: 'h1' is not a list"),
        ({"buckets": [3]}, r"buckets\[0\]: is not a table"),
        ({"buckets": [{"size_bytes": 3}]}, r"buckets\[0\]: keys missing: ready_s"),
        ({"buckets": [{"size_bytes": 3, "ready_s": 0, "after": 1}]}, "is not a list"),
    ],
)
def test_what_is_not_a_plan_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        JobPlan.from_dict(PLAN.to_dict() | change)


def test_a_missing_key_is_named() -> None:
    data = PLAN.to_dict()
    del data["dscp"]
    with pytest.raises(InputError, match="job job-a: keys missing: dscp"):
        JobPlan.from_dict(data)


@given(st.integers(0, 10**6), st.integers(2, 12))
def test_chunks_cover_a_buffer_and_a_ring_sends_2_n_minus_1_of_it(size: int, workers: int) -> None:
    bounds = chunk_bounds(size, workers)
    assert [begin for begin, _ in bounds] == [0, *(end for _, end in bounds[:-1])]
    assert bounds[-1][1] == size
    assert max(end - begin for begin, end in bounds) - min(end - begin for begin, end in bounds) <= 1
    assert sum(sent_bytes(size, rank, workers) for rank in range(workers)) == 2 * (workers - 1) * size


@given(st.integers(2, 12))
def test_what_a_rank_sends_the_next_awaits_and_only_what_it_has(workers: int) -> None:
    steps = [list(ring_steps(rank, workers)) for rank in range(workers)]
    holds = [{(rank, chunk): {rank} for chunk in range(workers)} for rank in range(workers)]
    for step in range(2 * (workers - 1)):
        moving = [(rank, steps[rank][step][0]) for rank in range(workers)]
        sums = [holds[rank][rank, chunk] for rank, chunk in moving]
        for (rank, chunk), summed in zip(moving, sums, strict=True):
            following = (rank + 1) % workers
            _, received, add = steps[following][step]
            assert received == chunk
            before = holds[following][following, chunk]
            assert not (add and before & summed), "a gradient would be added twice"
            holds[following][following, chunk] = before | summed if add else summed
    assert all(parts == set(range(workers)) for held in holds for parts in held.values())


def test_sent_bytes_of_a_plan_are_those_of_its_buckets() -> None:
    assert [PLAN.sent_bytes(rank) for rank in range(3)] == [
        sent_bytes(1000, rank, 3) + sent_bytes(2001, rank, 3) for rank in range(3)
    ]
    assert PLAN.total_bytes == 3001
