"""The affinity graph: merged links, loops and knots, and shifts that hold on every link."""

from __future__ import annotations

import math

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cassini_circle import square

from controllers.cassini.affinity import SharedLink, affinity_graph, has_loop, knots, merge, time_shifts
from controllers.cassini.profile import Profile

A, B, C = (square(job, 0.1, 0.06, angles=10) for job in "abc")
vertices = st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=2, max_size=3), min_size=1, max_size=8)


def graph_of(sets: list[set[str]]) -> nx.Graph:
    return affinity_graph({f"l{at}": sorted(jobs) for at, jobs in enumerate(sets)})


def test_equal_links_are_merged_and_links_with_one_sender_left_out() -> None:
    silent = Profile("c", 0.1, (0.0,) * 10)
    links = [
        SharedLink("up", 1e9, (A, B)),
        SharedLink("down", 1e9, (B, A, silent)),
        SharedLink("wide", 2e9, (A, B)),
        SharedLink("single", 1e9, (A, silent)),
    ]
    assert [vertex.links for vertex in merge(links)] == [("down", "up"), ("wide",)]
    assert [vertex.jobs for vertex in merge(links[::-1])] == [("a", "b"), ("a", "b")]


def test_half_the_capacity_and_half_the_demand_are_the_same_circle() -> None:
    halves = (square("a", 0.1, 0.06, 5e8, angles=10), square("b", 0.1, 0.06, 5e8, angles=10))
    assert len(merge([SharedLink("x", 1e9, (A, B)), SharedLink("y", 5e8, halves)])) == 1


def test_refuses_what_is_no_link() -> None:
    with pytest.raises(ValueError, match="names a link twice"):
        merge([SharedLink("x", 1e9, (A, B)), SharedLink("x", 1e9, (A, C))])
    with pytest.raises(ValueError, match="two profiles"):
        SharedLink("x", 1e9, (A, A))
    with pytest.raises(ValueError, match="capacity"):
        SharedLink("x", 0.0, (A, B))


@pytest.mark.parametrize(
    ("sets", "loop", "tied"),
    [
        ([{"a", "b"}, {"b", "c"}], False, [("l0",), ("l1",)]),
        ([{"a", "b"}, {"a", "b"}], True, [("l0", "l1")]),  # two jobs on two links
        ([{"a", "b"}, {"b", "c"}, {"a", "c"}, {"c", "d"}], True, [("l0", "l1", "l2"), ("l3",)]),
        ([{"a", "b"}, {"a", "b"}, {"b", "c"}, {"b", "c"}], True, [("l0", "l1"), ("l2", "l3")]),  # joined by a job alone
        ([{"a", "b", "c"}, {"a", "b"}, {"c", "d"}, {"c", "d"}], True, [("l0", "l1"), ("l2", "l3")]),
        ([{"a", "b", "c"}, {"a", "b", "d"}, {"c", "e", "f"}], True, [("l0", "l1"), ("l2",)]),
    ],
)
def test_loops_and_knots(sets: list[set[str]], loop: bool, tied: list[tuple[str, ...]]) -> None:
    assert has_loop(graph_of(sets)) is loop
    assert knots(graph_of(sets)) == tied


@given(vertices)
def test_with_knots_in_the_place_of_links_there_is_no_loop(sets: list[set[str]]) -> None:
    tied = knots(graph_of(sets))
    assert sorted(name for knot in tied for name in knot) == sorted(f"l{at}" for at in range(len(sets)))
    jobs = {knot[0]: sorted(set().union(*(sets[int(name[1:])] for name in knot))) for knot in tied}
    assert not has_loop(affinity_graph(jobs))
    assert has_loop(graph_of(sets)) is any(len(knot) > 1 for knot in tied)


def test_the_papers_traversal() -> None:
    """t_k = (t_j - w(j, l) + w(l, k)) mod iter_k, from the reference a on."""
    delays = {"l1": {"a": 0.010, "b": 0.030}, "l2": {"b": 0.005, "c": 0.001}}
    shifts, references = time_shifts(delays, {"a": 0.04, "b": 0.06, "c": 0.08})
    assert shifts == pytest.approx({"a": 0.0, "b": 0.020, "c": 0.016})
    assert references == dict.fromkeys("abc", "a")


def test_each_component_has_its_own_reference() -> None:
    delays = {"l1": {"d": 0.010, "b": 0.030}, "l2": {"a": 0.005, "c": 0.001}}
    shifts, references = time_shifts(delays, dict.fromkeys("abcd", 0.1))
    assert shifts == pytest.approx({"a": 0.0, "b": 0.0, "c": 0.096, "d": 0.080})
    assert references == {"a": "a", "c": "a", "b": "b", "d": "b"}


def test_contradicting_delays_are_refused() -> None:
    with pytest.raises(ValueError, match="contradict"):
        time_shifts({"l1": {"a": 0.0, "b": 0.1}, "l2": {"a": 0.0, "b": 0.2}}, {"a": 1.0, "b": 1.0})


@settings(deadline=None)
@given(st.data())
def test_theorem_1_modulo_the_common_divisor_of_the_iterations(data: st.DataObject) -> None:
    """On a graph without loops every pair of jobs keeps the distance its link asked for, modulo the gcd."""
    iterations, delays = {"j0": data.draw(st.integers(1, 60))}, {}
    for at in range(data.draw(st.integers(1, 6))):
        new = [f"j{len(iterations) + more}" for more in range(data.draw(st.integers(1, 3)))]
        jobs = [data.draw(st.sampled_from(sorted(iterations))), *new]
        iterations |= {job: data.draw(st.integers(1, 60)) for job in new}
        delays[f"l{at}"] = {job: float(data.draw(st.integers(0, iterations[job] - 1))) for job in jobs}
    shifts, _ = time_shifts(delays, {job: float(length) for job, length in iterations.items()})
    assert shifts["j0"] == 0
    assert all(0 <= shift < iterations[job] for job, shift in shifts.items())
    for asked in delays.values():
        for one in asked:
            for other in asked:
                error = (shifts[one] - shifts[other]) - (asked[one] - asked[other])
                assert error % math.gcd(iterations[one], iterations[other]) == 0
