"""Jobs that come and go at flow level: what is skipped is what would have been played; groups, pools, the whole run."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_timeline import TOPOLOGY, plan_of

from controllers.cassini.affinity import SharedLink
from controllers.cassini.module import Placement, choose
from controllers.cassini.profile import Profile
from controllers.placement.goodput import Goodput
from controllers.placement.interleave import Cassini, Traffic
from controllers.placement.pool import PoolPollux
from controllers.placement.state import Candidate, ClusterState, Job, Server, Timing
from controllers.sdn.paths import Routes
from testbed.fluid.arm import Network
from testbed.fluid.cluster import Remembering, run_cluster_arm
from testbed.fluid.conductor import FluidConductor
from testbed.fluid.interleaving import GroupedCassini
from testbed.fluid.part import Part
from testbed.fluid.sharing import Sharing
from testbed.fluid.skipping import History, Skipping, turn_s
from testbed.net import fabrics
from testbed.net.scale import Original, Scaling
from testbed.report.cluster.load import HISTORIES_FILE
from workloads.training.plan import Bucket, JobPlan, data_parallel
from workloads.training.records import Hold, IterationRecord

MTU = 9000
SETTINGS = Scaling(Original(rate_bps=10**9, host_delay_s=0.0)).settings
DUMBBELL = fabrics.build("dumbbell(3)", SETTINGS)


def job(name: str, at: int, down_s: float, size_bytes: int, iterations: int) -> JobPlan:
    hosts = f"h{at}", f"h{at + 3}"
    ips = [DUMBBELL.ip(host) for host in hosts]
    return data_parallel(name, hosts, ips, 1, down_s, 0.0, [Bucket(size_bytes, 0.0)], iterations, "dctcp")


def conduct(
    jobs: Sequence[tuple[JobPlan, float, Hold | None]], skipping: Skipping, stop: tuple[str, float] | None = None
) -> tuple[FluidConductor, dict[str, tuple[float, History]]]:
    """Start jobs at their times, and wait for all of them; when each ended, and its history."""
    conductor = FluidConductor(Network(DUMBBELL, True, True, 16e6), skipping, 8)
    ended: dict[str, float] = {}
    orders = sorted([(at_s, plan.name) for plan, at_s, _ in jobs] + ([(stop[1], "")] if stop else []))
    known = {plan.name: (plan, at_s, hold) for plan, at_s, hold in jobs}
    while orders or len(ended) < len(jobs):
        done = conductor.wait(orders[0][0] if orders else None)
        if done is not None:
            ended[done.job] = done.t_s
            conductor.release(done.job)
            continue
        _, name = orders.pop(0)
        if not name and stop is not None:
            conductor.stop(stop[0])
            continue
        plan, at_s, hold = known[name]
        conductor.gather([plan])
        conductor.start(name, at_s + 0.001, plan.iterations, hold)
    return conductor, {name: (ended[name], history) for name, _, history in conductor.finished}


def same(one: History, other: History, close: float) -> None:
    assert one.done == other.done
    assert np.asarray(one.closed()) == pytest.approx(np.asarray(other.closed()), abs=close)
    assert sum(one.marked) == pytest.approx(sum(other.marked), rel=1e-3, abs=1e-6)


def test_a_job_alone_is_skipped_to_its_end_and_ends_when_it_would() -> None:
    plan = job("a", 1, 0.1, 10**7, 5000)
    played, skipped = (conduct([(plan, 0.0, None)], skipping)[1]["a"] for skipping in ("none", "periodic"))
    assert skipped[0] == pytest.approx(played[0], abs=1e-5)
    same(skipped[1], played[1], 1e-7)
    assert played[1].proven == 0
    assert skipped[1].proven > 4900


def test_jobs_of_one_period_that_overlap_are_skipped_exactly() -> None:
    jobs = [(job("a", 1, 0.1, 10**7, 400), 0.0, None), (job("b", 2, 0.1, 10**7, 400), 0.03, None)]
    (_, played), (_, skipped) = conduct(jobs, "none"), conduct(jobs, "periodic")
    for name in "ab":
        same(skipped[name][1], played[name][1], 1e-6)
        assert skipped[name][0] == pytest.approx(played[name][0], abs=1e-5)
        assert skipped[name][1].proven > 300
        assert sum(skipped[name][1].marked) > 0


def test_jobs_held_to_ticks_of_different_periods_repeat_after_their_perimeter() -> None:
    jobs = [
        (job("a", 1, 0.10, 2 * 10**6, 600), 0.0, Hold(0.01, 0.15)),
        (job("b", 2, 0.15, 2 * 10**6, 450), 0.0, Hold(0.05, 0.20)),
    ]
    (_, played), (_, skipped) = conduct(jobs, "none"), conduct(jobs, "periodic")
    for name in "ab":
        same(skipped[name][1], played[name][1], 1e-6)
        assert skipped[name][1].proven > 400
        assert skipped[name][1].waited_s == pytest.approx(played[name][1].waited_s, abs=1e-4)


def test_whoever_comes_goes_or_is_stopped_ends_the_skipping_at_the_right_moment() -> None:
    jobs = [
        (job("a", 1, 0.1, 10**7, 700), 0.0, None),
        (job("b", 2, 0.1, 10**7, 200), 20.013, None),
        (job("c", 3, 0.07, 10**6, 300), 31.5, None),
    ]
    (_, played), (_, skipped) = conduct(jobs, "none", ("a", 60.0)), conduct(jobs, "periodic", ("a", 60.0))
    for name in "abc":
        same(skipped[name][1], played[name][1], 1e-5)
        assert skipped[name][0] == pytest.approx(played[name][0], abs=1e-3)
    assert played["a"][1].done < 700  # it was stopped


@given(st.floats(0.05, 0.2), st.floats(0.05, 0.2), st.integers(10**6, 10**7), st.floats(0, 0.2))
@settings(deadline=None, max_examples=12)
def test_samples_come_close_to_what_is_played(one_s: float, two_s: float, size_bytes: int, apart_s: float) -> None:
    """Jobs whose iterations have nothing in common: whole runs differ by a few per cent at most, the mean by less."""
    jobs = [(job("a", 1, one_s, 10**7, 600), 0.0, None), (job("b", 2, two_s, size_bytes, 600), apart_s, None)]
    (_, played), (_, sampled) = conduct(jobs, "none"), conduct(jobs, "sampled")
    for name in "ab":
        assert sampled[name][1].done == played[name][1].done
        means = [float(np.mean(of[name][1].closed())) for of in (played, sampled)]
        assert means[1] == pytest.approx(means[0], rel=0.05)


def test_samples_leave_held_jobs_on_their_ticks() -> None:
    """Periods whose perimeter (2.4 s) is longer than a window: what is skipped is a multiple of it."""
    holds = {"a": Hold(0.01, 0.15), "b": Hold(0.05, 0.16)}
    jobs = [(job(name, at, 0.1, 2 * 10**6, 900), 0.0, hold) for at, (name, hold) in enumerate(holds.items(), 1)]
    # A third one that nobody holds, and that has nothing in common with them, so that nothing is ever proven.
    jobs.append((job("c", 3, 0.0777, 10**6, 1500), 0.0, None))
    begins: dict[str, list[float]] = {name: [] for name in holds}
    conductor = FluidConductor(Network(DUMBBELL, True, True, 16e6), "sampled", 8)
    conductor.on_record = lambda record: begins[record.job].append(record.begin_s)
    conductor.gather([plan for plan, _, _ in jobs])
    for plan, at_s, hold in jobs:
        conductor.start(plan.name, at_s, plan.iterations, hold)
    for _ in jobs:
        done = conductor.wait()
        assert done is not None
        conductor.release(done.job)
    histories = {name: history for name, _, history in conductor.finished}
    for name, hold in holds.items():
        assert histories[name].sampled > 300
        assert histories[name].done == 900
        off = [(begin_s - hold.start_s) / hold.period_s for begin_s in begins[name]]
        assert off == pytest.approx([round(one) for one in off], abs=1e-4)


def test_ticks_fall_as_before_after_the_perimeter_of_their_periods() -> None:
    def after_s(*periods_s: float) -> float:
        conductor = FluidConductor(Network(DUMBBELL, True, True, 16e6), "none", 8)
        for at, period_s in enumerate(periods_s, 1):
            conductor.gather([job(f"j{at}", at, 0.1, 10**6, 9)])
            conductor.start(f"j{at}", 0.0, 9, Hold(0.0, period_s) if period_s else None)
        part = Part(Sharing({}, [], MTU), 0.0)
        part.crews = {name: placed.crew for name, placed in conductor._jobs.items()}
        return turn_s(part)

    assert after_s(0.0) == 0.0
    assert after_s(0.0, 0.3) == 0.3
    assert after_s(1.03 * 0.255, 1.03 * 0.300, 1.03 * 0.200) == pytest.approx(1.03 * 10.2)
    assert after_s(0.3, 0.1 * 2**0.5) > 1e9


def test_records_of_held_jobs_are_told_and_progress_is_known_while_skipping() -> None:
    conductor = FluidConductor(Network(DUMBBELL, True, True, 16e6), "periodic", 8)
    records: list[IterationRecord] = []
    heard: dict[str, int] = {}
    conductor.on_record = records.append
    conductor.on_iteration = lambda name, iteration: heard.update({name: iteration})
    plan = job("a", 1, 0.1, 10**6, 1000)
    conductor.gather([plan])
    conductor.start("a", 0.0, 1000, Hold(0.0, 0.15))
    assert conductor.wait(75.0) is None
    assert conductor.now_s == 75.0
    assert heard["a"] == pytest.approx(75.0 / 0.15 - 1, abs=1)
    assert records
    assert all(record.held_s > 0 for record in records[1:])


def profile(name: str, period_s: float, up: slice) -> Profile:
    demand = np.zeros(24)
    demand[up] = 1e9
    return Profile(name, period_s, tuple(demand.tolist()))


def test_groups_that_share_no_link_are_decided_as_the_module_decides_them_together() -> None:
    links = (
        SharedLink("l", 1e9, (profile("a", 0.24, slice(0, 8)), profile("b", 0.24, slice(0, 12)))),
        SharedLink("m", 1e9, (profile("c", 0.2, slice(0, 12)), profile("d", 0.2, slice(0, 12)))),
    )
    whole = choose([Placement("p", links)]).best
    plugin = GroupedCassini(lambda *_: Traffic(1.0, ((0.0,),), {}), lambda *_: [], {})
    grouped = plugin._evaluated(Placement("p", links))
    assert [one.score for one in grouped] == pytest.approx([link.score for link in whole.links])
    together = {job.job: (job.reference, job.time_shift_s) for job in whole.jobs}
    assert {job.job: (job.reference, job.time_shift_s) for one in grouped for job in one.jobs} == together
    before = [id(one) for one in grouped]
    assert [id(one) for one in plugin._evaluated(Placement("q", links))] == before  # it remembers


def test_the_grouped_plug_in_takes_the_candidate_that_the_module_takes() -> None:
    topology = fabrics.build("leaf-spine(3, 1, 2)", SETTINGS)
    demand = (*[0.0] * 6, *[9e8] * 18)
    traffic = Traffic(0.25, (demand, demand), {(0, 1): 10**7, (1, 0): 10**7})
    rates = {f"{a}->{b}": topology.direction(a, b).rate_bps for a, b in topology.directed()}
    crossing = Candidate({"a": ("h1", "h3"), "b": ("h2", "h4")})
    apart = Candidate({"a": ("h1", "h2"), "b": ("h3", "h4")})
    arguments = (lambda *_: traffic, Routes(topology).route, rates)
    for kind in (Cassini, GroupedCassini):
        chosen = kind(*arguments, executor=Remembering()).choose([crossing, apart])
        assert chosen.index == 1
        assert chosen.expects["score"] == 1


def pool_job(name: str, sizes: Sequence[int], compute_s: float) -> Job:
    goodput = Goodput(0.0, compute_s, 0.0, 0.0, 0.01, 0.001, 1.0, 1e6, 1, 64, 1)
    timings = tuple(Timing(size, "cluster", compute_s + 0.01) for size in sizes)
    return Job(name, "m", 0.0, sizes[0], 100, 100, timings, goodput=goodput)


@given(st.lists(st.tuples(st.sampled_from([(2,), (3,), (2, 4), (1, 3)]), st.floats(0.05, 0.5)), min_size=1, max_size=4))
@settings(deadline=None, max_examples=30)
def test_a_pool_shares_out_as_well_as_trying_everything_but_for_what_does_not_fit(
    drawn: list[tuple[tuple[int, ...], float]],
) -> None:
    jobs = tuple(pool_job(f"j{at}", sizes, compute_s) for at, (sizes, compute_s) in enumerate(drawn))
    servers = tuple(Server(f"s{at}", f"r{at // 3}") for at in range(6))
    state = ClusterState(0.0, servers, jobs)
    scheduler = PoolPollux()
    proposal = scheduler.propose(state, candidates=3)
    costs = {one.name: scheduler._costs(one, state, 6) for one in jobs}
    best = min(
        sum(costs[one.name][size] for one, size in zip(jobs, sizes, strict=True))
        for sizes in itertools.product(*((0, *one.sizes) for one in jobs))
        if sum(sizes) <= 6
    )
    given_ = {name: len(placement) for name, placement in proposal.candidates[0].placements.items()}
    reached = sum(costs[one.name][given_.get(one.name, 0)] for one in jobs)
    assert sum(given_.values()) <= 6
    assert reached <= best + max(max(of.values()) for of in costs.values())  # one job may have found no room
    for candidate in proposal.candidates:
        state.apply(dataclasses.replace(proposal, candidates=(candidate,)))  # raises where servers are used twice


def test_a_whole_trace_leaves_its_files_and_every_job_ends(tmp_path: Path) -> None:
    cluster, trial = plan_of([(0.0, 2, 300), (1.0, 4, 200), (2.0, 3, 250)])
    cluster |= {"trials": [trial], "skipping": "sampled", "window": 8}
    plan = {
        "topology": TOPOLOGY.to_dict(), "lead_s": 0.5, "cluster": cluster, "slots": dict.fromkeys(TOPOLOGY.hosts, 1),
        "transport": {"congestion_control": "dctcp", "ecn": True, "socket_buffer_bytes": 16_000_000},
    }  # fmt: skip
    said = run_cluster_arm(json.loads(json.dumps(plan)), tmp_path)
    with np.load(tmp_path / HISTORIES_FILE) as arrays:
        assert dict(zip(arrays["jobs"].tolist(), arrays["counts"].tolist(), strict=True)) == {
            "0/j0": 300, "0/j1": 200, "0/j2": 250
        }  # fmt: skip
        assert (arrays["times_s"] > 0.19).all()  # the compute of the plan
    assert sum(said["iterations"].values()) == 750
    assert said["iterations"]["proven"] > 500
    events = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert events.count("left") >= 3


def test_two_jobs_that_end_at_the_same_moment_leave_one_after_the_other() -> None:
    jobs = [(job(name, at, 0.1, 10**7, 50), 0.0, None) for at, name in enumerate("ab", 1)]
    _, ended = conduct(jobs, "sampled")
    assert ended["a"][0] == pytest.approx(ended["b"][0])
    assert [ended[name][1].done for name in "ab"] == [50, 50]
