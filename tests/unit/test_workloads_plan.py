"""Plans of jobs: what is refused, what is sent, how long they compute, and that plain data keep everything."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError
from workloads.training.plan import Bucket, Conduct, JobPlan, Op, data_parallel
from workloads.training.schedule import ADD, COLLECTIVES, SEND, chunk_bounds, moves, sent_to

PLACES: dict[str, Any] = {
    "name": "job-a",
    "hosts": ("h1", "h2", "h3"),
    "fabric_ips": ("10.0.0.1", "10.0.0.2", "10.0.0.3"),
    "dscp": 10,
    "iterations": 30,
    "congestion_control": "dctcp",
    "note": "where the sizes come from",
}
PASSES: dict[str, Any] = {
    "forward_s": 0.141,
    "backward_s": 0.1,
    "buckets": (Bucket(1000, 0.01), Bucket(2001, 0.1, (0,))),
}
PLAN = data_parallel(**PLACES, **PASSES)
# Rank 0 and 1 share a host. Two stages: 0 and 1 each send rank 2 activations, which sends gradients back.
STAGES = JobPlan(
    **PLACES | {"hosts": ("h1", "h1", "h2"), "fabric_ips": ("10.0.0.1", "10.0.0.1", "10.0.0.2")},
    groups=((0, 1), (2, 0, 1)),
    programs=(
        (
            Op("compute", 1.0),
            Op("send", size_bytes=10, peer=2, after=(0,)),
            Op("receive", size_bytes=30, peer=2),
            Op("compute", 2.0, after=(2,)),
            Op("all-reduce", size_bytes=8, group=0, after=(3,)),
            Op("all-to-all", size_bytes=9, group=1),
        ),
        (
            Op("compute", 1.5),
            Op("send", size_bytes=20, peer=2, after=(0,)),
            Op("receive", size_bytes=40, peer=2),
            Op("all-reduce", size_bytes=8, group=0),
            Op("all-to-all", size_bytes=9, group=1),
        ),
        (
            Op("receive", size_bytes=10, peer=0),
            Op("receive", size_bytes=20, peer=1),
            Op("compute", 4.0, after=(0, 1)),
            Op("send", size_bytes=30, peer=0, after=(2,)),
            Op("send", size_bytes=40, peer=1),
            Op("all-to-all", size_bytes=9, group=1),
        ),
    ),
    conduct=(Conduct(), Conduct(0.03, 1.2, 0.5), Conduct()),
    seed=7,
)


@pytest.mark.parametrize("plan", [PLAN, STAGES])
def test_a_plan_survives_json(plan: JobPlan) -> None:
    assert JobPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("name", "two words", "name 'two words' is not a word"),
        ("hosts", ("h1",), "a job on the network needs at least two"),
        ("hosts", ("h1", "h1", "h2"), "the host's one address for every worker"),
        ("hosts", ("h1", [], "h2"), "not names of hosts"),
        ("fabric_ips", ("10.0.0.1", "10.0.0.2"), "one address for every worker"),
        ("fabric_ips", ("10.0.0.1", "10.0.0.2", "10.0.0.2"), "one address for every worker"),
        ("fabric_ips", ("10.0.0.1", "10.0.0.2", "h3"), "fabric_ips: Expected 4 octets"),
        ("dscp", 64, "from 0 to 63"),
        ("dscp", True, "from 0 to 63"),
        ("iterations", 0, "iterations: 0"),
        ("congestion_control", "", "congestion_control"),
        ("seed", 0.5, "seed: 0.5"),
        ("groups", ((0, 1, 3),), r"groups\[0\]: \[0, 1, 3\] .*from 0 to 2"),
        ("groups", ((0, 1, 1),), r"groups\[0\]: \[0, 1, 1\] .*different ranks"),
        ("groups", ((0,),), r"groups\[0\]: \[0\] .*two or more"),
        ("conduct", (Conduct(),), "conduct: 1 entries .give one for each of 3 workers"),
        ("conduct", (Conduct(jitter=0.4),) * 3, r"conduct\[0\].jitter: 0.4"),
        ("conduct", (Conduct(), Conduct(slow=0.0), Conduct()), r"conduct\[1\].slow: 0.0"),
        ("conduct", (Conduct(late_s=-1.0),) * 3, r"conduct\[0\].late_s: -1.0"),
        ("programs", (), "programs: there are 0"),
        ("programs", ((),), "nothing is sent"),
        ("programs", ((Op("wait"),),), r"programs\[0\]\[0\].kind: 'wait' .give one of compute, all-reduce"),
        ("programs", ((Op("compute", float("nan")),),), r"programs\[0\]\[0\].duration_s: nan"),
        ("programs", ((Op("compute", 1.0, after=(0,)),),), r"programs\[0\]\[0\].after: \[0\] .*earlier"),
        ("programs", ((Op("all-reduce", size_bytes=0, group=0),),), r"programs\[0\]\[0\].size_bytes: 0"),
        ("programs", ((Op("all-reduce", size_bytes=1, group=1),),), r"programs\[0\]\[0\].group: 1 .there are 1 groups"),
        ("programs", ((Op("all-gather", size_bytes=1),),), r"programs\[0\]\[0\].group: None"),
        ("programs", ((Op("send", size_bytes=1, peer=3),),), r"programs\[0\]\[0\].peer: 3 .*another rank"),
        ("programs", ((Op("send", size_bytes=1, peer=1),),), r"programs\[0\]\[0\].peer: 1"),  # rank 1 itself
    ],
)
def test_what_cannot_run_is_refused(key: str, value: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        replace(PLAN, **{key: value})


SEND_1, RECEIVE_1 = Op("send", size_bytes=1, peer=1), Op("receive", size_bytes=1, peer=0)
REDUCE = Op("all-reduce", size_bytes=4, group=0)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ((SEND_1,), (), "rank 0 sends rank 1 1 B that it does not receive"),
        ((), (RECEIVE_1,), r"rank 1 waits for ever in operation 0 .receive"),
        ((SEND_1,), (replace(RECEIVE_1, size_bytes=2),), "rank 1, operation 0 awaits 2 B, sent are 1 B"),
        ((REDUCE,), (), r"rank 0 waits for ever in operation 0 .all-reduce"),
        ((REDUCE,), (replace(REDUCE, size_bytes=5),), "all-reduce of 5 B, another member's is all-reduce of 4 B"),
        ((REDUCE, SEND_1), (RECEIVE_1, REDUCE), "rank 0 waits for ever in operation 0"),
        ((SEND_1, REDUCE), (REDUCE, RECEIVE_1), "rank 1 receives in another order than rank 0 sends"),
    ],
)
def test_programs_that_do_not_fit_together_are_refused(
    first: tuple[Op, ...], second: tuple[Op, ...], told: str
) -> None:
    places = {**PLACES, "hosts": ("h1", "h2"), "fabric_ips": ("10.0.0.1", "10.0.0.2")}
    with pytest.raises(InputError, match=told):
        JobPlan(**places, groups=((0, 1),), programs=(first, second))


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("forward_s", -0.1, "forward_s: -0.1"),
        ("forward_s", float("nan"), "forward_s: nan"),
        ("backward_s", float("inf"), "backward_s: inf"),
        ("backward_s", "1", "backward_s: '1'"),
        ("buckets", (), "a job without traffic"),
        ("buckets", (Bucket(0, 0.0),), r"buckets\[0\].size_bytes: 0"),
        ("buckets", (Bucket(1, 0.11),), r"buckets\[0\].ready_s: 0.11 .*within the backward pass"),
        ("buckets", (Bucket(1, 0.0, (0,)),), r"buckets\[0\].after: \[0\] .*earlier"),
    ],
)
def test_passes_that_cannot_be_are_refused(key: str, value: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        data_parallel(**PLACES, **PASSES | {key: value})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"extra": 1}, "unknown keys extra"),
        ({"hosts": "h1"}, "hosts: 'h1' is not a list"),
        ({"programs": [3]}, r"programs\[0\]: 3 is not a list"),
        ({"programs": [[3]]}, r"programs\[0\]\[0\]: is not a table"),
        ({"programs": [[{"size_bytes": 3}]]}, r"programs\[0\]\[0\]: keys missing: kind"),
        ({"programs": [[{"kind": "compute", "after": 1}]]}, "is not a list"),
        ({"groups": [0]}, r"groups\[0\]: 0 is not a list"),
        ({"conduct": [{"speed": 0}]}, r"conduct\[0\]: unknown keys speed"),
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


# What is sent


@given(st.integers(0, 10**6), st.integers(2, 12))
def test_chunks_cover_a_buffer(size: int, workers: int) -> None:
    bounds = chunk_bounds(size, workers)
    assert [begin for begin, _ in bounds] == [0, *(end for _, end in bounds[:-1])]
    assert bounds[-1][1] == size
    assert max(end - begin for begin, end in bounds) - min(end - begin for begin, end in bounds) <= 1


@given(st.sampled_from(COLLECTIVES), st.integers(1, 10**6), st.integers(2, 12))
def test_what_a_collective_sends_in_all(kind: str, size: int, workers: int) -> None:
    sent = [sent_to(kind, size, rank, workers) for rank in range(workers)]
    in_all = {"all-reduce": 2 * (workers - 1), "all-gather": workers - 1, "reduce-scatter": workers - 1}
    whole = workers * size - sum(end - begin for begin, end in chunk_bounds(size, workers))  # less what each keeps
    assert sum(sum(each.values()) for each in sent) == (whole if kind == "all-to-all" else in_all[kind] * size)
    assert all(rank not in each for rank, each in enumerate(sent))


@given(st.integers(2, 12))
def test_what_a_rank_sends_the_next_awaits_and_only_what_it_has(workers: int) -> None:
    made = [list(moves("all-reduce", rank, workers)) for rank in range(workers)]
    holds = [{(rank, chunk): {rank} for chunk in range(workers)} for rank in range(workers)]
    for step in range(2 * (workers - 1)):
        sent = [made[rank][2 * step] for rank in range(workers)]
        sums = [holds[rank][rank, chunk] for rank, (_, _, chunk) in enumerate(sent)]
        for rank, ((what, following, chunk), summed) in enumerate(zip(sent, sums, strict=True)):
            assert (what, following) == (SEND, (rank + 1) % workers)
            receives, previous, received = made[following][2 * step + 1]
            assert (previous, received) == (rank, chunk)
            before = holds[following][following, chunk]
            assert not (receives == ADD and before & summed), "a gradient would be added twice"
            holds[following][following, chunk] = before | summed if receives == ADD else summed
    assert all(parts == set(range(workers)) for held in holds for parts in held.values())


@given(st.integers(2, 12))
def test_an_all_to_all_sends_and_receives_every_pair_once(workers: int) -> None:
    made = [list(moves("all-to-all", rank, workers)) for rank in range(workers)]
    sent = {(rank, peer, chunk) for rank, own in enumerate(made) for what, peer, chunk in own if what == SEND}
    received = {(peer, rank, chunk) for rank, own in enumerate(made) for what, peer, chunk in own if what != SEND}
    assert sent == received == {(a, b, b) for a in range(workers) for b in range(workers) if a != b}


def test_sent_bytes_of_a_plan_are_those_of_its_buckets() -> None:
    # Each passes on all chunks but one, twice: 1000 B are chunks of 333, 333 and 334 B, 2001 B of 667 B.
    expected = [667 + 666 + 4 * 667, 666 + 667 + 4 * 667, 667 + 667 + 4 * 667]
    assert [PLAN.sent_bytes(rank) for rank in range(3)] == expected
    assert PLAN.traffic() == {(rank, (rank + 1) % 3): expected[rank] for rank in range(3)}
    assert PLAN.connections() == [(0, 1), (1, 2), (2, 0)]
    assert PLAN.total_bytes == 2 * 2 * 3001


def test_traffic_of_stages_by_hand() -> None:
    # The all-reduce of 8 B among two sends 8 B each way; the all-to-all of 9 B sends 3 B to everybody else.
    expected = {(0, 1): 8 + 3, (0, 2): 10 + 3, (1, 0): 8 + 3, (1, 2): 20 + 3, (2, 0): 30 + 3, (2, 1): 40 + 3}
    assert STAGES.traffic() == expected
    assert STAGES.total_bytes == sum(expected.values())


def test_a_connection_without_bytes_is_none() -> None:
    # One byte among three in a ring is all of chunk 2, which rank 1 holds and rank 0 need not pass on.
    assert replace(PLAN, programs=((Op("all-gather", size_bytes=1, group=0),),)).connections() == [(1, 2), (2, 0)]


# How long it computes


def test_compute_of_a_data_parallel_job_is_that_of_its_passes() -> None:
    assert PLAN.compute_s == pytest.approx(0.241)
    assert PLAN.down_s == pytest.approx(0.151)
    assert [op.kind for op in PLAN.program(2)] == ["compute", "compute", "all-reduce", "compute", "all-reduce"]


def test_compute_of_stages_is_the_longest_path_through_all_workers() -> None:
    # Rank 1's activations at 1.5 s, rank 2's gradients at 5.5 s, rank 0's last piece until 7.5 s.
    assert STAGES.compute_s == 7.5
    assert STAGES.down_s == 1.0


def test_buckets_that_are_ready_out_of_order_wait_on_the_wire() -> None:
    plan = data_parallel(**PLACES, forward_s=1.0, backward_s=3.0, buckets=(Bucket(9, 2.0), Bucket(9, 1.0)))
    computed = [op.duration_s for op in plan.program(0) if op.kind == "compute"]
    assert computed == [1.0, 2.0, 0.0, 1.0]
    assert plan.compute_s == 4.0
