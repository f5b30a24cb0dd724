"""Coordinator and agents, as real processes on loopback addresses: whole runs, and jobs that come and go."""

import math
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from training_stage import of, plan, soon, stage

from workloads.training.coordinator import Done, Slot
from workloads.training.pace import compute_factor
from workloads.training.plan import Conduct, JobPlan, Op
from workloads.training.records import Hold


def test_two_jobs_run_from_their_start_times_to_their_ends() -> None:
    jobs = plan("a", workers=3, block=1), plan("b", workers=2, block=2, iterations=2)
    with stage(*jobs) as made:
        spawner = made.start()
        found = made.gather()
        starts = {"a": soon(), "b": soon() + 0.05}
        records = made.coordinator.run(starts)
        made.coordinator.close()
        assert spawner.wait(timeout=30) == 0
    assert Counter((each.job, each.rank, each.host, each.direction) for each in found) == Counter(
        (job.name, rank, f"{job.name}{rank + 1}", direction)
        for job in jobs
        for rank in range(job.workers)
        for direction in (f"to rank {(rank + 1) % job.workers}", f"from rank {(rank - 1) % job.workers}")
    )
    assert len(records) == 3 * 3 + 2 * 2
    for job in jobs:
        for rank in range(job.workers):
            own = of(records, job.name, rank)
            assert [record.iteration for record in own] == list(range(job.iterations))
            assert own[0].begin_s == starts[job.name]
            assert all(later.begin_s == earlier.end_s for earlier, later in pairwise(own))
            for record in own:
                assert record.host == f"{job.name}{rank + 1}"
                assert record.up_begin_s >= record.begin_s + job.down_s
                assert record.end_s >= record.begin_s + job.compute_s
                assert record.ce_packets >= 0
    rank_0 = [(r.job, r.iteration, r.end_s) for r in records if r.rank == 0]
    assert made.calls == rank_0


def test_agents_stay_for_more_trials_and_jobs_may_rest() -> None:
    with stage(plan("a", block=1), plan("b", block=2)) as made:
        made.start()
        made.gather()
        alone = made.coordinator.run({"b": soon()}, iterations=1)
        both = made.coordinator.run({"a": soon(), "b": soon()})
        with pytest.raises(ValueError, match="no such jobs: c"):
            made.coordinator.run({"a": soon(), "c": soon()})
    assert [(record.job, record.iteration) for record in alone] == [("b", 0)] * 2
    assert Counter(record.job for record in both) == {"a": 6, "b": 6}


def sockets_of(pid: int) -> set[str]:
    names = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    return {name for name in names if name.startswith("socket:")}


def test_gathering_again_replaces_the_connections_and_keeps_the_agents() -> None:
    with stage(plan()) as made:
        agent = made.start_alone("a1")
        made.start("a2")
        first = made.gather()
        made.coordinator.run({"a": soon()})
        before = sockets_of(agent.pid)
        again = made.gather()
        after = sockets_of(agent.pid)
        records = made.coordinator.run({"a": soon()})
    assert len(before) == len(after) == 3  # to the coordinator, to the peer, from the peer
    assert len(before & after) == 1
    assert [found.host for found in again] == [found.host for found in first]
    assert len(records) == 2 * 3


def test_no_worker_ends_an_iteration_before_all_have_begun_to_send() -> None:
    """An all-reduce needs everybody, so the slowest paces all."""
    with stage(plan("a", workers=5)) as made:
        made.start()
        made.gather()
        records = made.coordinator.run({"a": soon()})
    for iteration in range(3):
        own = [record for record in records if record.iteration == iteration]
        assert min(record.end_s for record in own) >= max(record.up_begin_s for record in own)


def test_an_agent_started_by_its_command_line_works() -> None:
    with stage(plan()) as made:
        agents = [made.start_alone(host) for host in ("a1", "a2")]
        made.gather()
        made.coordinator.run({"a": soon()})
        made.coordinator.close()
        assert [agent.wait(timeout=30) for agent in agents] == [0, 0]


# Jobs that come and go


STAGES = (
    # Rank 0 and 1 share a host; they send rank 2 something, get something back, and all exchange at the end.
    (
        Op("compute", 0.01),
        Op("send", size_bytes=100_000, peer=2, after=(0,)),
        Op("receive", size_bytes=30_000, peer=2),
        Op("all-to-all", size_bytes=90_001, group=0, after=(2,)),
    ),
    (
        Op("compute", 0.02),
        Op("send", size_bytes=200_000, peer=2, after=(0,)),
        Op("receive", size_bytes=40_000, peer=2),
        Op("all-to-all", size_bytes=90_001, group=0),
    ),
    (
        Op("receive", size_bytes=100_000, peer=0),
        Op("receive", size_bytes=200_000, peer=1),
        Op("compute", 0.01, after=(0, 1)),
        Op("send", size_bytes=30_000, peer=0, after=(2,)),
        Op("send", size_bytes=40_000, peer=1),
        Op("all-to-all", size_bytes=90_001, group=0),
    ),
)


def staged(iterations: int = 3) -> JobPlan:
    made = plan("s", workers=3, block=3, iterations=iterations)
    ips = made.fabric_ips
    return replace(
        made, hosts=("s1", "s1", "s2"), fabric_ips=(ips[0], ips[0], ips[1]), groups=((0, 1, 2),), programs=STAGES
    )


def test_workers_of_one_host_and_of_different_programs_run() -> None:
    job = staged()
    with stage(job) as made:
        assert made.slots == [Slot("s1", 0), Slot("s1", 1), Slot("s2", 0)]
        made.start()
        found = made.gather()
        records = made.coordinator.run({"s": soon()})
        assert made.coordinator.free("s1") == []
        made.coordinator.release("s")
        assert made.coordinator.free("s1") == [Slot("s1", 0), Slot("s1", 1)]
    assert len(found) == 2 * len(job.connections()) == 12
    assert Counter(record.rank for record in records) == {0: 3, 1: 3, 2: 3}
    assert job.compute_s == pytest.approx(0.03)
    # Rank 2 needs what rank 1 has after 20 ms, and computes for 10 ms; nobody ends before it has sent its share.
    assert all(record.end_s - record.begin_s >= 0.029 for record in records)


def test_slots_serve_one_job_after_another() -> None:
    first, second = plan("a", workers=3), replace(plan("b", workers=2), hosts=("a3", "a1"))
    second = replace(second, fabric_ips=(first.fabric_ips[2], first.fabric_ips[0]))
    with stage(first) as made:
        made.start()
        conductor = made.coordinator
        conductor.gather([first])
        with pytest.raises(ValueError, match="job b, rank 0: a3 has no free accelerator"):
            conductor.gather([second])
        conductor.start("a", soon())
        with pytest.raises(ValueError, match="job a runs"):
            conductor.release("a")
        done = conductor.wait()
        conductor.release("a")
        conductor.gather([second])
        again = conductor.run({"b": soon()}, iterations=1)
        with pytest.raises(ValueError, match="no such jobs: a"):
            conductor.start("a", soon())
    assert done == Done("a", 3, max(record.end_s for record in conductor.records if record.job == "a"))
    assert sorted((record.job, record.rank, record.host) for record in again) == [("b", 0, "a3"), ("b", 1, "a1")]


def test_waiting_ends_when_it_was_to_end() -> None:
    with stage(plan("a", iterations=1000)) as made:
        made.start()
        made.gather()
        until_s = time.time() + 0.1
        assert made.coordinator.wait(until_s) is None
        assert time.time() >= until_s
        assert made.coordinator.wait() is None  # nothing runs
        made.coordinator.start("a", soon())
        assert made.coordinator.wait(soon() + 0.3) is None
        assert made.calls


@pytest.mark.parametrize("when", ["before it begins", "while it runs"])
def test_a_job_is_stopped_after_an_iteration_that_all_its_workers_did(when: str) -> None:
    with stage(plan("a", workers=4, iterations=10_000)) as made:
        made.start()
        made.gather()
        made.coordinator.start("a", soon(), first_iteration=7)
        if when == "while it runs":
            assert made.coordinator.wait(soon() + 0.3) is None
            assert made.coordinator.records
        made.coordinator.stop("a")
        done = made.coordinator.wait()
        assert done is not None
        seen = list(made.coordinator.records)
        again = made.coordinator.run({"a": soon()}, iterations=2)
    assert {max(record.iteration for record in of(seen, "a", rank)) for rank in range(4)} == {6 + done.iterations}
    assert seen[0].iteration == 7
    assert [record.iteration for record in of(again, "a", 3)] == [0, 1]


def test_a_job_keeps_to_its_ticks_and_says_what_it_waited() -> None:
    with stage(plan("a", iterations=4)) as made:
        made.start()
        made.gather()
        start_s = soon()
        records = made.coordinator.run({"a": start_s}, holds={"a": Hold(start_s, 0.25, 0.1)})
    for rank in range(2):
        own = of(records, "a", rank)
        for record in own:
            turns = (record.begin_s - start_s) / 0.25
            assert turns - math.floor(turns + 1e-6) <= 0.1 + 1e-6
        for earlier, later in pairwise(own):
            assert later.begin_s == pytest.approx(earlier.end_s + later.held_s + later.lost_s, abs=1e-6)
    assert any(record.held_s > 0 for record in records)


def test_a_job_that_is_too_slow_for_its_ticks_adjusts_and_loses_time() -> None:
    with stage(plan("a", iterations=4)) as made:
        made.start()
        made.gather()
        start_s = soon()
        records = made.coordinator.run({"a": start_s}, holds={"a": Hold(start_s, 0.04, 0.05)})  # it computes for 50 ms
    own = of(records, "a", 0)
    assert own[0].adjusted == 0
    for record in own[1:]:
        assert record.adjusted == 1
        assert 0 < record.lost_s <= 0.04
        turns = (record.begin_s - start_s) / 0.04
        assert turns == pytest.approx(round(turns), abs=1e-3)


def test_a_running_job_can_be_given_another_time_shift() -> None:
    with stage(plan("a", iterations=10_000)) as made:
        made.start()
        made.gather()
        start_s = soon()
        made.coordinator.start("a", start_s)
        made.coordinator.wait(start_s + 0.2)
        made.coordinator.hold("a", Hold(start_s + 0.11, 0.3, 0.2))
        made.coordinator.wait(start_s + 2.0)
        made.coordinator.stop("a")
        assert made.coordinator.wait() is not None
    last = of(made.coordinator.records, "a", 0)[-1]
    turns = (last.begin_s - start_s - 0.11) / 0.3
    assert turns - math.floor(turns + 1e-6) <= 0.2 + 1e-6
    assert any(record.held_s > 0.1 for record in made.coordinator.records)


def test_workers_can_be_late_slow_and_unsteady() -> None:
    conduct = (Conduct(), Conduct(jitter=0.1, slow=2.0, late_s=0.2))
    job = replace(plan("a", iterations=6), conduct=conduct, seed=3)
    with stage(job) as made:
        made.start()
        made.gather()
        start_s = soon()
        records = made.coordinator.run({"a": start_s})
    late = of(records, "a", 1)
    assert late[0].begin_s == pytest.approx(start_s + 0.2)
    for record in late:
        factor = compute_factor(0.1, 2.0, 3, "a", 1, record.iteration)
        assert record.up_begin_s - record.begin_s >= job.down_s * factor - 1e-6
        assert record.end_s - record.begin_s >= job.compute_s * factor - 1e-6
    assert all(record.end_s >= late[0].up_begin_s for record in of(records, "a", 0))
