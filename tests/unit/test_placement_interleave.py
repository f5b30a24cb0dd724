"""CASSINI as a plug-in: from measured uplinks and planned bytes to the demand of links, and to the better candidate."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.cassini.profile import Profile
from controllers.placement.interleave import Cassini, Traffic, demands_bps
from controllers.placement.orders import Plugin
from controllers.placement.state import Candidate, Placement

ANGLES = 8


def route(source: str, target: str) -> list[str]:
    """Two racks, h1 to h4 and h5 to h8, with one uplink each."""
    rack = {f"h{at}": "tor1" if at <= 4 else "tor2" for at in range(1, 9)}
    up, down = f"{source}->{rack[source]}", f"{rack[target]}->{target}"
    return [up, down] if rack[source] == rack[target] else [up, f"{rack[source]}->{rack[target]}", down]


def ring(workers: int, size: int) -> dict[tuple[int, int], int]:
    return {(rank, (rank + 1) % workers): size for rank in range(workers)}


def burst(begin: int, length: int, rate_bps: float) -> tuple[float, ...]:
    return tuple(rate_bps if begin <= at < begin + length else 0.0 for at in range(ANGLES))


def traffic_of(workers: int, begin: int, length: int, period_s: float = 0.2) -> Traffic:
    return Traffic(period_s, (burst(begin, length, 1e9),) * workers, ring(workers, 1000))


def test_a_ring_that_crosses_racks_loads_both_directions_once() -> None:
    found = demands_bps(traffic_of(4, 2, 3), ("h1", "h2", "h5", "h6"), route)
    assert found["tor1->tor2"].tolist() == [*burst(2, 3, 1e9)]
    assert found["tor2->tor1"].tolist() == [*burst(2, 3, 1e9)]
    assert found["h1->tor1"].tolist() == [*burst(2, 3, 1e9)]


def test_what_stays_on_a_server_is_on_no_link() -> None:
    assert demands_bps(traffic_of(2, 0, 3), ("h1", "h1"), route) == {}
    found = demands_bps(traffic_of(4, 0, 3), ("h1", "h1", "h2", "h2"), route)
    assert set(found) == {"h1->tor1", "tor1->h1", "h2->tor1", "tor1->h2"}
    assert found["h1->tor1"].max() == 1e9  # of two workers only one sends to the other server


def test_bandwidth_is_shared_among_peers_by_their_bytes() -> None:
    everyone = {(a, b): 300 if b == 2 else 100 for a in range(3) for b in range(3) if a != b}
    found = demands_bps(Traffic(0.2, (burst(0, 2, 1e9),) * 3, everyone), ("h1", "h2", "h5"), route)
    assert found["tor1->tor2"].max() == pytest.approx(2 * 0.75e9)
    assert found["h1->tor1"].max() == pytest.approx(1e9)
    assert found["tor1->h2"].max() == pytest.approx(0.25e9 + 0.5e9)


@given(
    st.lists(st.sampled_from(["h1", "h2", "h5"]), min_size=2, max_size=6),
    st.data(),
)
def test_measured_traffic_is_what_the_uplinks_carried(hosts: list[str], data: st.DataObject) -> None:
    pairs = [(a, b) for a in range(len(hosts)) for b in range(len(hosts)) if a != b]
    planned = {pair: data.draw(st.integers(0, 10**6)) for pair in pairs}
    crossing = {host: sum(planned[a, b] for a, b in pairs if hosts[a] == host != hosts[b]) for host in set(hosts)}
    uplinks = {
        host: Profile("j", 0.25, tuple(np.roll(burst(0, 3, float(size)), size % ANGLES)))
        for host, size in crossing.items()
    }
    if not any(crossing.values()):
        return
    found = Traffic.measured(tuple(hosts), uplinks, planned)
    for host, profile in uplinks.items():
        demand = demands_bps(found, tuple(hosts), route).get(route(host, "h8")[0], np.zeros(ANGLES))
        assert demand == pytest.approx(np.array(profile.demand_bps))
    assert Traffic.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_traffic_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="angles"):
        Traffic(0.2, ((1.0,), (1.0, 2.0)), {})
    with pytest.raises(ValueError, match="different workers"):
        Traffic(0.2, ((1.0,), (1.0,)), {(0, 2): 5})
    with pytest.raises(ValueError, match="no host's uplink"):
        Traffic.measured(("h1", "h2"), {}, ring(2, 10))
    with pytest.raises(ValueError, match="carried nothing"):
        Traffic.measured(("h1", "h1"), {"h1": Profile("j", 0.2, burst(0, 1, 1.0))}, ring(2, 10))


def plugin(kinds: dict[str, Traffic], capacity_bps: float = 1e9) -> Cassini:
    links = {link: capacity_bps for a in range(1, 9) for b in range(1, 9) if a != b for link in route(f"h{a}", f"h{b}")}
    return Cassini(lambda job, _placement: kinds[job], route, links)


KINDS = {"a": traffic_of(2, 0, 6), "b": traffic_of(2, 0, 6), "c": traffic_of(2, 0, 2), "d": traffic_of(2, 0, 2)}


def candidate(**placements: str) -> Candidate:
    return Candidate({job: tuple(hosts.split()) for job, hosts in placements.items()})


def test_the_candidate_whose_jobs_interleave_wins_and_its_jobs_are_shifted() -> None:
    made: Plugin = plugin(KINDS)
    clash = candidate(a="h1 h5", b="h2 h6", c="h3 h4", d="h7 h8")
    fits = candidate(a="h1 h5", c="h2 h6", b="h3 h4", d="h7 h8")
    chosen = made.choose([clash, fits])
    assert chosen.index == 1
    assert chosen.expects["score"] == pytest.approx(1.0)
    assert set(chosen.shifts) == {"a", "c"}
    distance_s = (chosen.shifts["c"].time_shift_s - chosen.shifts["a"].time_shift_s) % 0.2
    assert 0.15 - 1e-6 <= distance_s <= 0.15 + 1e-6  # c sends where a does not
    assert chosen.shifts["a"].period_s == pytest.approx(0.2)


def test_jobs_that_cannot_be_told_apart_in_time_run_free() -> None:
    both = candidate(a="h1 h5", b="h2 h6")  # each sends for six eighths of the time
    chosen = plugin(KINDS).choose([both])
    assert chosen.expects["score"] < 0.6
    assert chosen.expects["jobs"]
    assert chosen.shifts == {}


def test_periods_are_stretched_by_what_the_worst_link_lacks() -> None:
    kinds = KINDS | {"e": Traffic(0.2, (burst(0, 3, 0.55e9),) * 2, ring(2, 1000))}
    chosen = plugin(kinds).choose([candidate(a="h1 h5", e="h2 h6")])
    lacks = 1 - chosen.expects["links"][0]["score"]
    assert 0.01 < lacks < 0.2
    if lacks <= 0.05:
        assert {shift.period_s for shift in chosen.shifts.values()} == {pytest.approx(0.2 * (1 + lacks))}
    less = plugin(kinds, 1.45e9).choose([candidate(a="h1 h5", e="h2 h6")])
    lacks = 1 - less.expects["links"][0]["score"]
    assert 0 < lacks <= 0.05
    assert {round(shift.period_s, 9) for shift in less.shifts.values()} == {round(0.2 * (1 + lacks), 9)}


def test_a_job_of_very_short_iterations_is_a_constant_load() -> None:
    kinds = KINDS | {"s": Traffic(0.004, (burst(0, 4, 0.2e9),) * 2, ring(2, 1000))}
    chosen = plugin(kinds, 1.1e9).choose([candidate(c="h1 h5", d="h2 h6", s="h3 h7")])
    assert chosen.expects["score"] == pytest.approx(1.0)  # 1 Gbit/s of c and d in turn, 0.1 of s at all times
    assert set(chosen.shifts) == {"c", "d"}
    assert plugin(kinds, 1.05e9).choose([candidate(c="h1 h5", s="h3 h7")]).expects["score"] < 0.999


def test_of_equally_good_candidates_the_schedulers_first_is_taken() -> None:
    apart = candidate(a="h1 h2", b="h5 h6")
    also = candidate(a="h5 h6", b="h1 h2")
    assert plugin(KINDS).choose([apart, also]).index == 0
    assert plugin(KINDS).choose([apart, also]).shifts == {}


def test_threads_decide_the_same() -> None:
    made = plugin(KINDS)
    candidates = [candidate(a="h1 h5", b="h2 h6", c="h3 h7"), candidate(b="h1 h5", c="h2 h6", d="h3 h7")]
    with ThreadPoolExecutor(2) as pool:
        beside = Cassini(made.traffic, made.route, made.capacity_bps, executor=pool)
        assert beside.choose(candidates) == made.choose(candidates)


def test_a_jobs_traffic_may_depend_on_where_it_is() -> None:
    asked: list[tuple[str, Placement]] = []

    def traffic(job: str, placement: Placement) -> Traffic:
        asked.append((job, placement))
        return KINDS[job]

    made = Cassini(traffic, route, dict.fromkeys(plugin(KINDS).capacity_bps, 1e9))
    both = [candidate(a="h1 h5", b="h2 h6"), candidate(a="h1 h5", b="h3 h7")]
    made.choose(both)
    assert sorted(asked) == [("a", ("h1", "h5")), ("b", ("h2", "h6")), ("b", ("h3", "h7"))]
