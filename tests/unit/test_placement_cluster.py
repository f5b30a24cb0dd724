"""The life of a cluster: whatever comes in whatever order, accelerators are used once, leases hold, every job ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from cluster_world import World
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.placement.beats import lay
from controllers.placement.cluster import Cluster, Rules
from controllers.placement.goodput import Goodput
from controllers.placement.orders import Beat, Chosen, Retime, Shift, Start, Stop
from controllers.placement.pollux import Pollux
from controllers.placement.random import Random
from controllers.placement.state import Candidate, Job, Scheduler, Server, Timing
from controllers.placement.themis import Themis

GOODPUT = Goodput(0.0, 0.01, 0.02, 0.0, 0.05, 0.01, 1.0, 1e6, 8, 128, 8)


def cluster_of(racks: int, each: int, accelerators: int = 1) -> tuple[Server, ...]:
    return tuple(
        Server(f"h{rack * each + one + 1}", f"tor{rack + 1}", accelerators)
        for rack in range(racks)
        for one in range(each)
    )


def job_of(name: str, arrival_s: float, workers: int, iterations: int, sizes: Sequence[int] = ()) -> Job:
    timings = tuple(
        Timing(size, span, 1.0 if span == "rack" else 1.25)
        for size in {workers, *sizes}
        for span in ("rack", "cluster")
    )
    return Job(name, "vgg16", arrival_s, workers, iterations, iterations, timings, goodput=GOODPUT)


@dataclass
class Last:
    """A plug-in that takes the last candidate and gives all its jobs one beat."""

    period_s: float = 2.0
    name: str = "last"

    def choose(self, candidates: Sequence[Candidate]) -> Chosen:
        index = len(candidates) - 1
        jobs = sorted(candidates[index].placements)
        return Chosen(index, {job: Shift(0.25 * at, self.period_s, jobs[0]) for at, job in enumerate(jobs)})


SCHEDULERS: dict[str, Scheduler] = {
    "themis": Themis(lease_s=20.0, visibility=0.5),
    "pollux": Pollux(restart_s=0.5, population=8, generations=4),
    "random": Random(),
}
TRACES = st.lists(st.tuples(st.integers(0, 40), st.integers(2, 6), st.integers(1, 30)), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(TRACES, st.sampled_from(sorted(SCHEDULERS)), st.booleans(), st.booleans(), st.sampled_from([1, 2]))
def test_every_job_ends_and_none_uses_what_another_has(
    trace: list[tuple[int, int, int]], scheduler: str, plugged: bool, on_change: bool, accelerators: int
) -> None:
    servers = cluster_of(2, 4, accelerators)
    jobs = [job_of(f"j{at}", float(s), workers, count, (2,)) for at, (s, workers, count) in enumerate(trace)]
    rules = Rules(20.0, on_change, restart_s=0.5, lead_s=0.1)
    cluster = Cluster(servers, jobs, SCHEDULERS[scheduler], rules, Last() if plugged else None, seed=3)
    world = World(cluster, servers, {job.name: job for job in jobs}).play()
    assert set(cluster.completed) == {job.name for job in jobs}
    for job in jobs:
        runs = [run for run in world.runs if run.job == job.name]
        done = sum(run.iterations * len(run.placement) / job.workers for run in runs)
        assert job.iterations - 1e-6 <= done < job.iterations + 1
        assert runs[0].begin_s >= job.arrival_s
        assert all(before.end_s + 0.5 <= after.begin_s + 1e-9 for before, after in pairwise(runs))
    if not on_change:
        assert all(abs(one.now_s / 20 - round(one.now_s / 20)) < 1e-9 for one in cluster.rounds)
    json.dumps([one.to_dict() for one in cluster.rounds], allow_nan=False)


@settings(max_examples=25, deadline=None)
@given(TRACES, st.sampled_from([7.0, 20.0, 50.0]), st.booleans())
def test_nobody_leaves_before_its_lease_ends(trace: list[tuple[int, int, int]], lease_s: float, plugged: bool) -> None:
    servers = cluster_of(2, 4)
    jobs = [job_of(f"j{at}", float(s), workers, count, (2,)) for at, (s, workers, count) in enumerate(trace)]
    cluster = Cluster(servers, jobs, Themis(lease_s=lease_s), Rules(20.0), Last() if plugged else None)
    World(cluster, servers, {job.name: job for job in jobs}).play()
    granted: dict[str, float] = {}
    for one in cluster.rounds:
        for job in one.moved:
            assert granted[job] <= one.now_s
        for job in one.placements:
            if granted.get(job, -1.0) <= one.now_s:
                granted[job] = one.now_s + lease_s


def test_the_same_trace_and_seed_give_the_same_rounds() -> None:
    servers, jobs = cluster_of(2, 4), [job_of(f"j{at}", 3.0 * at, 3, 20) for at in range(5)]
    for scheduler in SCHEDULERS.values():
        found = [Cluster(servers, jobs, scheduler, Rules(10.0), Last(), seed=seed) for seed in (1, 1, 2)]
        for one in found:
            World(one, servers, {job.name: job for job in jobs}).play()
        assert found[0].rounds == found[1].rounds
    assert found[0].rounds != found[2].rounds  # random draws by the seed


def test_a_job_waits_until_the_one_before_it_has_left() -> None:
    servers = cluster_of(1, 4)
    jobs = [replace(job_of(*of), timings=(Timing(4, "rack", 1.0),)) for of in (("a", 0.0, 4, 100), ("b", 1.0, 4, 10))]
    cluster = Cluster(servers, jobs, Themis(lease_s=10.0, visibility=1.0), Rules(10.0))
    [start] = cluster.advance(0.0)
    assert isinstance(start, Start)
    assert start.job == "a"
    assert cluster.advance(1.0) == []  # under a lease
    cluster.progressed("a", 10)
    assert cluster.next_s == 10.0
    assert cluster.advance(10.0) == [Stop("a")]
    assert cluster.advance(10.3) == []
    cluster.ended("a", 11, 10.75)
    [start] = cluster.advance(10.75)
    assert isinstance(start, Start)
    assert (start.job, start.iterations) == ("b", 10)
    cluster.ended("b", 10, 20.9)
    [again] = cluster.advance(20.9)
    assert isinstance(again, Start)
    assert (again.job, again.iterations, again.first_iteration) == ("a", 89, 11)


def test_fewer_workers_have_more_iterations_to_do() -> None:
    servers = cluster_of(1, 2)
    cluster = Cluster(servers, [job_of("a", 0.0, 4, 10, (2,))], Themis(), Rules(600.0))
    [start] = cluster.advance(0.0)
    assert isinstance(start, Start)
    assert (len(start.placement), start.iterations) == (2, 20)
    cluster.ended("a", 20, 30.0)
    assert cluster.finished
    assert cluster.next_s is None


def test_pollux_moves_jobs_together_when_others_leave() -> None:
    servers = cluster_of(2, 4)
    jobs = [job_of("a", 0.0, 6, 60, (2, 3)), job_of("b", 0.0, 6, 12, (2, 3))]
    cluster = Cluster(servers, jobs, Pollux(restart_s=0.1), Rules(30.0, restart_s=0.1))
    world = World(cluster, servers, {job.name: job for job in jobs}).play()
    sizes = [len(run.placement) for run in world.runs if run.job == "a"]
    assert sizes[0] < sizes[-1] == 6
    assert sizes == sorted(sizes)


def test_running_jobs_keep_their_beats_where_they_can() -> None:
    running = {"a": Beat(10.0, 2.0), "b": Beat(10.5, 2.0), "x": Beat(11.3, 3.0)}
    shifts = {"a": Shift(0.0, 2.0, "a"), "b": Shift(0.5, 2.0, "a"), "c": Shift(1.0, 2.0, "a"), "x": Shift(1, 4.0, "x")}
    laid = lay(shifts, 21.7, running)
    assert laid == {"a": Beat(10.0, 2.0), "b": Beat(10.5, 2.0), "c": Beat(11.0, 2.0), "x": Beat(22.7, 4.0)}
    assert laid["b"].after(21.7) == Beat(22.5, 2.0)


def test_beats_whose_periods_have_little_in_common_stay_where_they_are() -> None:
    shifts = {"a": Shift(0.0, 0.377, "a"), "b": Shift(0.1, 0.232, "a")}
    beats: dict[str, Beat | None] = dict(lay(shifts, 5.0, {}))
    for now_s in (6.1, 7.9, 23.4):
        assert lay(shifts, now_s, beats) == beats


@given(
    st.lists(st.tuples(st.floats(0, 5), st.sampled_from([1.0, 1.5, 2.0]), st.integers(0, 2)), min_size=1, max_size=6),
    st.floats(0, 100),
    st.lists(st.floats(0, 50), min_size=6, max_size=6),
)
def test_beats_keep_the_distances_asked_for(
    jobs: list[tuple[float, float, int]], now_s: float, begun: list[float]
) -> None:
    references = {part: f"j{at}" for at, (_, _, part) in reversed([*enumerate(jobs)])}
    shifts = {f"j{at}": Shift(shift, period, references[part]) for at, (shift, period, part) in enumerate(jobs)}
    running = {f"j{at}": Beat(begun[at], jobs[at][1]) for at in range(0, len(jobs), 2)}
    laid = lay(shifts, now_s, running)
    for job, beat in laid.items():
        assert now_s - 1e-9 <= beat.after(now_s).start_s < now_s + beat.period_s + 1e-9
        for other, there in laid.items():
            if shifts[job].reference == shifts[other].reference:
                common = 0.5  # of all periods
                asked = shifts[other].time_shift_s - shifts[job].time_shift_s
                off = (there.start_s - beat.start_s - asked) % common
                assert min(off, common - off) == pytest.approx(0.0, abs=1e-6)


def test_a_job_that_comes_retimes_only_who_must_wait_for_it() -> None:
    servers, jobs = cluster_of(2, 4), [job_of("a", 0.0, 4, 50), job_of("b", 0.0, 2, 50), job_of("c", 5.0, 2, 5)]

    class Apart(Last):
        def choose(self, candidates: Sequence[Candidate]) -> Chosen:
            there = sorted(candidates[0].placements)
            return Chosen(0, {job: Shift(0.3 * at, 2.0, there[0]) for at, job in enumerate(there)})

    cluster = Cluster(servers, jobs, Random(), Rules(600.0), Apart())
    first = cluster.advance(0.0)
    assert [type(order) for order in first] == [Start, Start]
    [start] = cluster.advance(5.0)
    assert isinstance(start, Start)
    assert start.beat is not None
    assert start.beat.start_s % 2.0 == pytest.approx(0.6)
    cluster.ended("a", 50, 60.0)
    assert cluster.advance(60.0) == []  # the distance of b and c is as before
    assert len(cluster.rounds) == 3
    cluster.ended("c", 5, 61.0)
    assert cluster.advance(61.0) == []


def test_a_job_that_shares_nothing_any_more_is_free_of_its_beat() -> None:
    @dataclass
    class Once(Last):
        times: int = 0

        def choose(self, candidates: Sequence[Candidate]) -> Chosen:
            self.times += 1
            return super().choose(candidates[:1]) if self.times == 1 else Chosen(0)

    cluster = Cluster(
        cluster_of(2, 4), [job_of("a", 0.0, 4, 50), job_of("b", 0.0, 2, 50)], Random(), Rules(600.0), Once()
    )
    assert all(isinstance(order, Start) and order.beat for order in cluster.advance(0.0))
    cluster.ended("a", 50, 60.0)
    assert cluster.advance(60.0) == [Retime("b", None)]


def test_a_job_that_misses_its_ticks_is_free_until_it_leaves() -> None:
    cluster = Cluster(
        cluster_of(2, 4), [job_of("a", 0.0, 4, 50), job_of("b", 0.0, 2, 50)], Random(), Rules(30.0), Last()
    )
    assert cluster.misses("a") == []  # it has not come
    cluster.advance(0.0)
    assert cluster.misses("b") == [Retime("b", None)]
    assert cluster.misses("b") == []
    assert cluster.advance(30.0) == []  # it is not given a beat again, and the other keeps its own
    cluster.ended("a", 50, 50.0)
    assert cluster.misses("a") == []


def test_a_job_larger_than_the_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Cluster(cluster_of(1, 2), [job_of("a", 0.0, 3, 5)], Random(), Rules(1.0))


@pytest.mark.parametrize(
    "rules", [{"epoch_s": 0.0}, {"epoch_s": 1.0, "restart_s": -1.0}, {"epoch_s": 1.0, "candidates": 0}]
)
def test_rules_that_are_none_are_refused(rules: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="epoch"):
        Rules(**rules)  # type: ignore[arg-type]
