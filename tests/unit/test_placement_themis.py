"""Themis: who is invited, who wins, what the winners keep, and that all candidates are equally fair."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.cassini.decision import decide
from controllers.cassini.profile import Profile
from controllers.placement.auction import Bid, Table, clear, payments, realise
from controllers.placement.layout import Layout
from controllers.placement.state import Candidate, ClusterState, Job, Server, Span, Timing
from controllers.placement.themis import Fairness, Themis, visible


def cluster(*racks: tuple[int, ...]) -> tuple[Server, ...]:
    """Servers of racks, each given by the accelerators of its servers."""
    return tuple(
        Server(f"h{rack}{server}", f"tor{rack}", room)
        for rack, row in enumerate(racks)
        for server, room in enumerate(row)
    )


def job(name: str, workers: int, rack_s: float, cluster_s: float, *, arrival_s: float = 0.0, left: float = 500) -> Job:
    timings: list[Timing] = []
    for size in range(1, workers + 1):
        times: tuple[tuple[Span, float], ...] = (("server", rack_s), ("rack", rack_s), ("cluster", cluster_s))
        timings += [Timing(size, span, one_s) for span, one_s in times]
    return Job(name, "vgg16", arrival_s, workers, 1000, left, tuple(timings))


def gang(one: Job) -> Job:
    return replace(one, timings=tuple(timing for timing in one.timings if timing.workers == one.workers))


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    racks = draw(st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3))
    servers = cluster(*racks)
    slots = [server.name for server in servers for _ in range(server.accelerators)]
    jobs = []
    for index in range(draw(st.integers(0, 5))):
        rack_s = draw(st.floats(0.1, 1.0))
        one = job(
            f"j{index}",
            draw(st.integers(1, min(3, sum(server.accelerators for server in servers)))),
            rack_s,
            rack_s * draw(st.floats(1, 3)),
            arrival_s=-draw(st.floats(0, 3000)),
            left=draw(st.floats(1, 1000)),
        )
        if draw(st.booleans()) and len(slots) >= one.workers:
            taken, slots = slots[: one.workers], slots[one.workers :]
            one = replace(one, placement=tuple(taken), lease_end_s=draw(st.sampled_from([-1.0, 0.0, 100.0])))
        jobs.append(one)
    return ClusterState(0.0, servers, tuple(jobs))


def test_the_winner_changes_with_the_placement() -> None:
    near = gang(job("near", 2, 0.1, 0.4))  # suffers where it is spread over racks
    any_where = gang(job("anywhere", 2, 0.2, 0.2))
    one_rack, two_racks = cluster((1, 1)), cluster((1,), (1,))
    winners = []
    for servers in (one_rack, two_racks):
        proposal = Themis(visibility=1.0).propose(ClusterState(0.0, servers, (near, any_where)))
        winners.append([*proposal.candidates[0].placements])
        assert proposal.exact
    assert winners == [["near"], ["anywhere"]]


def test_accelerators_go_where_they_help_most_and_nobody_starves() -> None:
    jobs = (job("big", 4, 0.1, 0.1), job("small", 2, 0.1, 0.1))
    proposal = Themis(visibility=1.0).propose(ClusterState(0.0, cluster((1, 1, 1, 1)), jobs))
    assert {name: len(workers) for name, workers in proposal.candidates[0].placements.items()} == {"big": 2, "small": 2}


def test_rho_is_the_published_ratio() -> None:
    layout = Layout(cluster((1, 1), (1, 1)))
    one = Fairness(replace(job("a", 2, 0.1, 0.4, arrival_s=-50.0, left=500), contention=2.0), 0.0, layout)
    assert one.ideal_s == pytest.approx(2 * 1000 * 0.1)
    assert one.rho(2, "rack") == pytest.approx((50 + 500 * 0.1) / 200)
    assert one.rho(1, "server") == pytest.approx((50 + 1000 * 0.1) / 200)  # half the workers, twice the iterations
    assert one.rho(2, "cluster") == pytest.approx((50 + 500 * 0.4) / 200)
    assert one.rho(3, "rack") is None
    assert one.waiting > 10 * max(one.rho(2, "cluster") or 0, one.rho(1, "cluster") or 0)


def test_a_wider_span_is_never_taken_to_be_faster() -> None:
    noisy = Job("a", "vgg16", 0, 2, 10, 10, (Timing(2, "rack", 0.3), Timing(2, "cluster", 0.2)))
    assert noisy.iteration_s(2, "cluster") == 0.3
    assert noisy.iteration_s(2, "server") == 0.3
    assert replace(noisy, timings=(Timing(2, "rack", 0.3),)).iteration_s(2, "cluster") is None


@given(states(), st.floats(0.05, 1.0), st.floats(1, 5000))
def test_a_job_that_gets_worse_off_never_loses_visibility(
    state: ClusterState, fraction: float, longer_s: float
) -> None:
    layout = Layout(state.servers)
    before = visible([Fairness(one, 0.0, layout) for one in state.jobs], fraction)
    for lucky in before:
        worse = replace(lucky.job, arrival_s=lucky.job.arrival_s - longer_s)
        jobs = [Fairness(worse if one.name == worse.name else one, 0.0, layout) for one in state.jobs]
        assert worse.name in [one.job.name for one in visible(jobs, fraction)]
    rho = {one.name: Fairness(one, 0.0, layout).now() for one in state.jobs}
    seen = {one.job.name for one in before}
    assert min((rho[name] for name in seen), default=0) >= max(
        (rho[name] for name in rho if name not in seen), default=0
    )


@settings(deadline=None, max_examples=60)
@given(states(), st.sampled_from([0.2, 0.6, 1.0]), st.booleans(), st.integers(0, 3))
def test_what_holds_of_every_candidate(state: ClusterState, fraction: float, pay: bool, seed: int) -> None:
    scheduler = Themis(visibility=fraction, hidden_payments=pay)
    proposal = scheduler.propose(state, seed=seed)
    assert scheduler.propose(state, seed=seed) == proposal
    assert 1 <= len(proposal.candidates) <= 10
    layout = Layout(state.servers)
    shapes = set()
    for choice, candidate in enumerate(proposal.candidates):
        after = state.apply(proposal, choice)  # raises where an accelerator is given twice
        for was, now in zip(state.jobs, after.jobs, strict=True):
            assert len(now.placement) in (0, *now.sizes)
            if was.leased(0.0):
                assert (now.placement, now.lease_end_s) == (was.placement, was.lease_end_s)
            elif now.placement:
                assert now.lease_end_s == 600.0
            fairness = Fairness(was, 0.0, layout)
            assert fairness.placed(layout.counts(now.placement) if now.placement else None) == proposal.merit[was.name]
        shapes.add(tuple(tuple(sorted(Counter(workers).items())) for workers in candidate.placements.values()))
    assert len(shapes) == len(proposal.candidates)
    idle = state.accelerators - sum(len(workers) for workers in proposal.candidates[0].placements.values())
    waiting = [one for one in state.jobs if one.name not in proposal.candidates[0].placements]
    assert not waiting or idle == 0  # every job here may run with a single worker
    json.dumps(proposal.to_dict())


def test_leases_expire_and_the_worst_off_come_next() -> None:
    jobs = (gang(job("a", 2, 0.1, 0.1)), gang(job("b", 2, 0.1, 0.1)))
    state = ClusterState(0.0, cluster((1, 1)), jobs)
    scheduler = Themis(visibility=0.5)
    state = state.apply(scheduler.propose(state))
    [first] = [one.name for one in state.jobs if one.placement]
    still = state.apply(scheduler.propose(replace(state, now_s=599.0)))
    assert [one.name for one in still.jobs if one.placement] == [first]
    later = state.apply(scheduler.propose(replace(state, now_s=600.0)))
    assert [one.name for one in later.jobs if one.placement] != [first]


tables = st.lists(
    st.lists(
        st.tuples(
            st.integers(1, 3), st.sampled_from(["server", "rack", "cluster"]), st.integers(0, 3), st.floats(0.5, 5)
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(tables, st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_brute_force_agrees_and_greedy_stays_below_its_bound(
    raw: list[list[tuple[int, Span, int, float]]], free_list: list[int]
) -> None:
    layout, free = Layout(cluster((2, 2), (2, 2))), np.array(free_list)
    auction = []
    for index, rows in enumerate(raw):
        bids = tuple(
            Bid(workers, span, {"server": at, "rack": at % 2, "cluster": -1}[span], rho)
            for workers, span, at, rho in rows
        )
        auction.append(Table(f"j{index}", bids, 100 * max(bid.rho for bid in bids)))
    best = 0.0
    for choice in product(*[(None, *table.bids) for table in auction]):
        awards = {table.job: bid for table, bid in zip(auction, choice, strict=True) if bid is not None}
        try:
            realise(awards, layout, free)
        except ValueError:
            continue
        best = max(best, sum(table.gain(awards.get(table.job)) for table in auction))
    exact, greedy = clear(auction, layout, free), clear(auction, layout, free, exact_rows=0)
    assert exact.exact
    assert exact.value == pytest.approx(best, abs=2e-4)
    assert greedy.value - 2e-4 <= best <= greedy.bound + 2e-4
    for outcome in (exact, greedy):
        placed = realise(outcome.awards, layout, free)
        assert (sum(placed.values(), np.zeros_like(free)) <= free).all()
    kept = payments(auction, exact, layout, free)
    assert all(0 <= fraction <= 1 for fraction in kept.values())


def test_who_takes_nothing_from_anybody_pays_nothing() -> None:
    layout = Layout(cluster((1, 1, 1)))
    modest, greedy = (
        Table("a", (Bid(1, "server", -1, 2.0),), 200.0),
        Table("b", (Bid(1, "server", -1, 4.0), Bid(2, "cluster", -1, 2.0), Bid(3, "cluster", -1, 1.5)), 400.0),
    )
    outcome = clear([modest, greedy], layout, layout.capacity)
    assert payments([modest, greedy], outcome, layout, layout.capacity) == {"a": pytest.approx(0.75), "b": 1.0}


def test_cassini_chooses_among_the_candidates_without_themis_knowing() -> None:
    """Four jobs, each too large for a rack: which of them share the uplinks of one differs, and so does the score."""
    square = {"a": (0.0, 0.5), "b": (0.0, 0.5), "c": (0.0, 0.9), "d": (0.0, 0.9)}
    profiles = {
        name: Profile(name, 0.1, tuple(1e9 if low <= at / 72 < high else 0.0 for at in range(72)))
        for name, (low, high) in square.items()
    }
    racks = cluster(*[(1, 1)] * 6)
    state = ClusterState(0.0, racks, tuple(gang(job(name, 3, 0.1, 0.1)) for name in square))
    proposal = Themis(visibility=1.0).propose(state)
    assert len(proposal.candidates) == 10

    def score(candidate: Candidate) -> float:
        rack_of = {server.name: server.rack for server in racks}
        on: dict[str, list[Profile]] = {rack: [] for rack in rack_of.values()}
        for name, workers in candidate.placements.items():
            for rack in {rack_of[worker] for worker in workers}:
                on[rack].append(profiles[name])
        shared = [decide(rack, both, 1e9).score for rack, both in on.items() if len(both) > 1]
        return sum(shared) / len(shared) if shared else 1.0

    scores = [score(candidate) for candidate in proposal.candidates]
    assert max(scores) > min(scores) + 0.1


def test_what_is_wrong_is_said() -> None:
    servers = cluster((1, 1))
    with pytest.raises(ValueError, match="is there twice"):
        ClusterState(0.0, servers, (job("a", 1, 1, 1), job("a", 1, 1, 1)))
    with pytest.raises(ValueError, match="2 workers are placed on h00, which has 1"):
        ClusterState(0.0, servers, (replace(job("a", 2, 1, 1), placement=("h00", "h00")),))
    with pytest.raises(ValueError, match="no size it was profiled with fits"):
        Themis().propose(ClusterState(0.0, servers, (gang(job("a", 3, 1, 1)),)))
    with pytest.raises(ValueError, match="fraction of 0"):
        Themis(visibility=0).propose(ClusterState(0.0, servers, (job("a", 1, 1, 1),)))
    near_only = replace(job("a", 2, 1, 1), timings=(Timing(2, "server", 1.0), Timing(2, "cluster", 1.0)))
    state = ClusterState(0.0, servers, (replace(near_only, placement=("h00", "h01")),))
    assert ClusterState.from_dict(json.loads(json.dumps(state.to_dict()))) == state
