"""The fluid engine on cases that can be worked out by hand, and what must hold in every case."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.sdn.paths import Routes
from testbed.fluid.arm import Network
from testbed.fluid.flows import connection_bytes, flows_of, parts, steps_of
from testbed.fluid.part import Part
from testbed.fluid.programs import CALCULATE, in_step, joined, steps
from testbed.fluid.sharing import Flow, Sharing, Wire, max_min
from testbed.fluid.workers import Crew, Ended
from testbed.net import fabrics
from testbed.net.scale import Original, Scaling
from testbed.net.topology import Topology, prioritised
from workloads.training.operations import Op
from workloads.training.plan import Bucket, Conduct, JobPlan, data_parallel
from workloads.training.records import Hold

MTU = 9000
FRAME = 9014 / 8948
"""Bytes on the wire for a byte of payload."""
ANSWERS = 1 + 66 / 9014
RATE_BPS = 1e9
SETTINGS = Scaling(Original(rate_bps=10**9, host_delay_s=0.0)).settings
DUMBBELL = fabrics.build("dumbbell", SETTINGS)
PAYLOAD = RATE_BPS / 8 / FRAME
"""Payload bytes/s of a link that nothing comes back on; divided by ANSWERS where a ring's other half does."""


def sharing(flows: Sequence[Flow], rates: Mapping[str, float], marks_at: float | None = None) -> Sharing:
    return Sharing({link: Wire(rate, marks_at) for link, rate in rates.items()}, flows, MTU)


def payload(flows: Sequence[Flow], rates: Mapping[str, float]) -> list[float]:
    """What each of some flows has, in bit/s on the wire."""
    share = sharing(flows, rates).share((1 << len(flows)) - 1)
    return [8 * rate * FRAME for rate in share.bytes_per_s]


def test_two_flows_on_a_link_have_half_each() -> None:
    assert payload([Flow("a", {"l": 1}), Flow("b", {"l": 1})], {"l": 1e9}) == pytest.approx([5e8, 5e8])


def test_three_flows_on_two_links_are_max_min_fair() -> None:
    """The textbook case: one flow over both links, one on each; the second link is twice as fast."""
    flows = [Flow("both", {"l": 1, "m": 1}), Flow("on-l", {"l": 1}), Flow("on-m", {"m": 1})]
    assert payload(flows, {"l": 1e9, "m": 2e9}) == pytest.approx([5e8, 5e8, 1.5e9])


def test_a_flow_of_two_connections_on_a_link_has_two_shares() -> None:
    assert payload([Flow("a", {"l": 2}), Flow("b", {"l": 1})], {"l": 9e8}) == pytest.approx([3e8, 3e8])


def test_a_collective_goes_at_the_pace_of_its_slowest_connection_and_leaves_the_rest_to_others() -> None:
    flows = [Flow("ring", {"slow": 1, "fast": 1}), Flow("other", {"fast": 1})]
    assert payload(flows, {"slow": 1e8, "fast": 1e9}) == pytest.approx([1e8, 9e8])


def test_higher_levels_are_filled_first() -> None:
    flows = [Flow("low", {"l": 1}, level=1), Flow("high", {"l": 1, "m": 1})]
    assert payload(flows, {"l": 1e9, "m": 7e8}) == pytest.approx([3e8, 7e8])


def test_acknowledgements_of_the_other_direction_take_their_part() -> None:
    there, back = Flow("a", {"l": 1}, frozenset({"m"})), Flow("b", {"m": 1}, frozenset({"l"}))
    assert payload([there, back], {"l": 1e9, "m": 1e9}) == pytest.approx([1e9 / ANSWERS] * 2)
    assert payload([there], {"l": 1e9, "m": 1e9}) == pytest.approx([1e9])


def test_a_flow_that_leaves_no_host_has_no_limit() -> None:
    assert max_min(np.zeros((1, 1)), np.array([1.0])).tolist() == [math.inf]


@st.composite
def networks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    links, flows = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    cells = st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0]), min_size=flows, max_size=flows)
    loads = np.array(draw(st.lists(cells, min_size=links, max_size=links)))
    capacity = np.array(draw(st.lists(st.floats(0.1, 10.0), min_size=links, max_size=links)))
    return loads, capacity


@given(networks())
@settings(deadline=None)
def test_shares_keep_capacities_and_every_flow_has_a_full_link_on_which_none_has_more(
    network: tuple[np.ndarray, np.ndarray],
) -> None:
    """The definition of max-min fairness: nobody can have more without taking from one who has no more."""
    loads, capacity = network
    rates = max_min(loads, capacity)
    finite = np.where(np.isfinite(rates), rates, 0.0)
    used = loads @ finite
    assert (used <= capacity * (1 + 1e-9)).all()
    for flow in range(loads.shape[1]):
        own = np.flatnonzero(loads[:, flow])
        if not len(own):
            assert rates[flow] == math.inf
            continue
        full = [link for link in own if used[link] >= capacity[link] * (1 - 1e-9)]
        assert any(rates[flow] >= finite[loads[link] > 0].max() * (1 - 1e-9) for link in full)


@given(
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3), min_size=1, max_size=14), st.integers(1, 2**14 - 1)
)
@settings(deadline=None)
def test_flows_that_do_not_meet_may_be_solved_apart(drawn: list[list[int]], active: int) -> None:
    flows = [Flow(f"j{at}", {f"l{link}": 1 for link in links}, round_s=1e-5) for at, links in enumerate(drawn)]
    wires = {f"l{link}": Wire(1e9 * (1 + link), 60_000) for link in range(8)}
    active &= (1 << len(flows)) - 1
    apart, whole = (Sharing(wires, flows, MTU, links_too=links_too).share(active) for links_too in (False, True))
    assert apart.flows == whole.flows
    assert apart.bytes_per_s == pytest.approx(whole.bytes_per_s, rel=1e-9)
    assert apart.marked_per_s == pytest.approx(whole.marked_per_s, rel=1e-9, abs=1e-9)


def test_marks_are_those_of_dctcps_steady_state_where_two_connections_fill_a_link_and_else_none() -> None:
    flows = [Flow("a", {"l": 1}, round_s=4e-6), Flow("b", {"l": 1}, round_s=4e-6)]
    two = sharing(flows, {"l": 5e10}, marks_at=120_000)
    window = (5e10 / 8 * 4e-6 + 120_000) / 9014 / 2
    packets = 5e10 / 8 / 9014 / 2
    assert two.share(0b11).marked_per_s == pytest.approx([packets * math.sqrt(2 / window)] * 2)
    assert two.share(0b01).marked_per_s == (0.0,)
    assert sharing(flows, {"l": 5e10}).share(0b11).marked_per_s == (0.0, 0.0)  # a queue that does not mark


def job(name: str, hosts: Sequence[str], down_s: float, size_bytes: int, iterations: int = 3) -> JobPlan:
    ips = [DUMBBELL.ip(host) for host in hosts]
    return data_parallel(name, hosts, ips, 1, down_s, 0.0, [Bucket(size_bytes, 0.0)], iterations, "dctcp")


def play(
    plans: Sequence[JobPlan],
    starts_s: Sequence[float],
    holds: Mapping[str, Hold] | None = None,
    topology: Topology = DUMBBELL,
) -> dict[str, list[Ended]]:
    network = Network(topology, True, True, 16e6)
    flows = [network.flows(plan) for plan in plans]
    part = Part(network.sharing([flow for own in flows for flow in own.values()]), 0.0)
    ended: dict[str, list[Ended]] = {plan.name: [] for plan in plans}

    def note(crew: Crew, one: Ended) -> None:
        ended[crew.name].append(one)

    first = 0
    for plan, own, start_s in zip(plans, flows, starts_s, strict=True):
        crew = network.crew(plan, own, first, (holds or {}).get(plan.name))
        crew.on_end = note
        first += len(own)
        part.add(crew)
        for worker in list(crew.workers):
            worker.start(part, start_s)
    part.play()
    return ended


def up_s(size_bytes: int, sharers: int = 1) -> float:
    """How long a bucket takes on a link that so many jobs share throughout; two workers send it once each way."""
    return size_bytes * sharers * ANSWERS / PAYLOAD


def test_a_job_alone_takes_its_compute_and_its_bytes() -> None:
    ended = play([job("a", ["h1", "h3"], 0.1, 10_000_000)], [0.5])["a"]
    iteration_s = 0.1 + up_s(10_000_000)
    assert [one.begin_s for one in ended] == pytest.approx([0.5 + k * iteration_s for k in range(3)])
    assert [one.up_begin_s - one.begin_s for one in ended] == pytest.approx([0.1] * 3)
    assert [one.end_s for one in ended] == pytest.approx([0.5 + (k + 1) * iteration_s for k in range(3)])


def test_two_jobs_that_start_together_share_the_link_all_the_time() -> None:
    ended = play([job("a", ["h1", "h3"], 0.1, 10**7), job("b", ["h2", "h4"], 0.1, 10**7)], [0.0, 0.0])
    for name in "ab":
        assert [one.end_s for one in ended[name]] == pytest.approx([(k + 1) * (0.1 + up_s(10**7, 2)) for k in range(3)])


def test_two_jobs_that_overlap_in_part_are_slowed_down_by_the_overlap() -> None:
    """Up alone lasts U. Begun d apart, the first ends at 2U - d, the second at 2U: the distance stays."""
    whole_s, apart_s = up_s(10**7), 0.03
    ended = play([job("a", ["h1", "h3"], 0.1, 10**7, 1), job("b", ["h2", "h4"], 0.1, 10**7, 1)], [0.0, apart_s])
    assert ended["a"][0].end_s == pytest.approx(0.1 + 2 * whole_s - apart_s)
    assert ended["b"][0].end_s == pytest.approx(0.1 + 2 * whole_s)


def test_two_jobs_shifted_past_each_other_are_alone() -> None:
    plans = [job("a", ["h1", "h3"], 0.1, 10**7), job("b", ["h2", "h4"], 0.1, 10**7)]
    ended = play(plans, [0.0, up_s(10**7) + 0.001])
    for name in "ab":
        assert [one.end_s - one.begin_s for one in ended[name]] == pytest.approx([0.1 + up_s(10**7)] * 3)


def test_workers_are_held_for_their_ticks_and_wait_for_the_next_when_they_have_drifted() -> None:
    plan = job("a", ["h1", "h3"], 0.1, 10**7)
    alone_s = 0.1 + up_s(10**7)
    held = play([plan], [0.0], {"a": Hold(0.0, alone_s + 0.01)})["a"]
    assert [one.begin_s for one in held] == pytest.approx([k * (alone_s + 0.01) for k in range(3)])
    assert [one.held_s for one in held] == pytest.approx([0.0, 0.01, 0.01])
    late = play([plan], [0.0], {"a": Hold(0.0, alone_s - 0.02, tolerance=0.05)})["a"]
    assert late[1].begin_s == pytest.approx(2 * (alone_s - 0.02))
    assert late[1].lost_s == pytest.approx(alone_s - 0.04)


def test_a_straggler_holds_up_the_ring() -> None:
    plan = job("a", ["h1", "h3"], 0.1, 10**7, 2)
    slow = JobPlan(**{**vars_of(plan), "conduct": (Conduct(), Conduct(slow=1.5))})
    ended = play([slow], [0.0])["a"]
    assert {one.rank for one in ended} == {0, 1}
    assert [one.end_s for one in ended if one.rank == 0] == pytest.approx([k * (0.15 + up_s(10**7)) for k in (1, 2)])
    assert ended[0].up_begin_s - ended[0].begin_s == pytest.approx(0.1)  # it began to send, and waited


def vars_of(plan: JobPlan) -> dict[str, object]:
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}


def pipeline(size_bytes: int) -> JobPlan:
    """Stage 0 computes and sends; stage 1 awaits it, computes and sends back, which stage 0 awaits."""
    hosts = ("h1", "h3")
    first = (Op("compute", 0.1), Op("send", size_bytes=size_bytes, peer=1, after=(0,)),
             Op("receive", size_bytes=size_bytes, peer=1, after=(1,)), Op("compute", 0.05, after=(2,)))  # fmt: skip
    second = (Op("receive", size_bytes=size_bytes, peer=0), Op("compute", 0.2, after=(0,)),
              Op("send", size_bytes=size_bytes, peer=0, after=(1,)))  # fmt: skip
    return JobPlan("p", hosts, tuple(map(DUMBBELL.ip, hosts)), 1, 2, "dctcp", (), (first, second))


def test_messages_are_awaited_in_order_and_a_pipeline_takes_the_sum_of_its_stages() -> None:
    ended = play([pipeline(10**6)], [0.0])["p"]
    one_way_s = 10**6 / PAYLOAD
    first = [one for one in ended if one.rank == 0]
    assert first[0].end_s == pytest.approx(0.1 + one_way_s + 0.2 + one_way_s + 0.05)
    assert first[1].end_s == pytest.approx(2 * first[0].end_s)


def test_strict_priority_lets_one_job_go_first() -> None:
    plans = [job("a", ["h1", "h3"], 0.1, 10**7, 1), job("b", ["h2", "h4"], 0.1, 10**7, 1)]
    plans[1] = JobPlan(**{**vars_of(plans[1]), "dscp": 2})
    ended = play(plans, [0.0, 0.0], topology=prioritised(DUMBBELL, [2, 1]))
    assert ended["b"][0].end_s == pytest.approx(0.1 + up_s(10**7))
    assert ended["a"][0].end_s == pytest.approx(0.1 + 2 * up_s(10**7))


def test_a_collective_becomes_one_flow_that_counts_connections_on_every_link() -> None:
    topology = fabrics.build("leaf-spine(2, 1, 2)", SETTINGS)
    network = Network(topology, True, True, 16e6)
    hosts = ("h1", "h2", "h3", "h4")
    ips = [topology.ip(host) for host in hosts]
    ring = data_parallel("r", hosts, ips, 1, 0.1, 0.0, [Bucket(1000, 0.0)], 1, "dctcp")
    (flow,) = network.flows(ring).values()
    assert flow.links == {
        "h1->leaf1": 1, "leaf1->h2": 1, "h2->leaf1": 1, "leaf1->spine1": 1, "spine1->leaf2": 1, "leaf2->h3": 1,
        "h3->leaf2": 1, "leaf2->h4": 1, "h4->leaf2": 1, "leaf2->spine1": 1, "spine1->leaf1": 1, "leaf1->h1": 1,
    }  # fmt: skip
    exchange = JobPlan(
        "x", hosts, tuple(ips), 1, 1, "dctcp", ((0, 1, 2, 3),), ((Op("all-to-all", size_bytes=400, group=0),),)
    )
    (flow,) = network.flows(exchange).values()
    assert flow.links["leaf1->spine1"] == 4  # of two hosts to two others
    assert flow.links["h1->leaf1"] == 3


@given(
    st.sampled_from(["all-reduce", "reduce-scatter", "all-gather", "all-to-all"]),
    st.integers(2, 9),
    st.integers(1, 10**9),
)
def test_a_flows_bytes_are_those_of_the_collective(kind: str, workers: int, size_bytes: int) -> None:
    group = tuple(range(workers))
    op = Op(kind, size_bytes=size_bytes, group=0)
    share = {"all-reduce": 2 * (workers - 1) / workers, "all-to-all": 1 / workers}.get(kind, (workers - 1) / workers)
    assert connection_bytes(op, [group]) == pytest.approx(share * size_bytes, abs=2 * workers)
    assert steps_of(op, [group]) == {"all-reduce": 2 * (workers - 1), "all-to-all": 1}.get(kind, workers - 1)


def test_buckets_that_cannot_wait_are_joined_and_others_are_not() -> None:
    hosts = ("h1", "h3")
    buckets = [Bucket(10**7, 0.0), Bucket(10**6, 0.01, (0,)), Bucket(10**6, 0.5, (1,))]
    plan = data_parallel("j", hosts, [DUMBBELL.ip(host) for host in hosts], 1, 0.1, 0.6, buckets, 1, "dctcp")
    network = Network(DUMBBELL, True, True, 16e6)
    flows = network.flows(plan)
    program = steps(plan, 0, dict.fromkeys(flows, 0.0))
    made = joined(program, dict.fromkeys(flows, PAYLOAD / ANSWERS))
    sizes = [step.amount for step in made if step.kind != CALCULATE]
    assert sizes == [1.1e7, 10**6]  # the second is ready while the first is sent, the third long after


@given(st.lists(st.tuples(st.integers(1, 10**7), st.floats(0, 0.2)), min_size=1, max_size=6), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_joined_buckets_take_as_long_as_single_ones_alone_and_beside_another_job(
    drawn: list[tuple[int, float]], sharers: int
) -> None:
    buckets = [Bucket(size, ready, (at - 1,) if at else ()) for at, (size, ready) in enumerate(drawn)]
    hosts, ips = ("h1", "h3"), [DUMBBELL.ip("h1"), DUMBBELL.ip("h3")]
    plan = data_parallel("a", hosts, ips, 1, 0.05, 0.2, buckets, 2, "dctcp")
    assert in_step(plan)
    # Workers that are not known to be in step are played one by one, and nothing is joined.
    alike = JobPlan(**{**vars_of(plan), "programs": plan.programs * 2})
    other = job("b", ["h2", "h4"], 0.03, 3_000_000 * sharers)
    one, two = play([plan, other], [0.0, 0.01]), play([alike, other], [0.0, 0.01])
    ends = [[at.end_s for at in ended["a"] if at.rank == 0] for ended in (one, two)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)


def test_jobs_that_share_no_link_are_parts_of_their_own() -> None:
    assert parts({"a": ["l"], "b": ["m"], "c": ["l", "n"], "d": ["n"]}) == [["a", "c", "d"], ["b"]]


def test_flows_follow_the_routes_of_the_fabric() -> None:
    network = Network(DUMBBELL, True, True, 16e6)
    (flow,) = flows_of(job("a", ["h1", "h3"], 0.1, 1000), network.plumbing).values()
    routes = Routes(DUMBBELL)
    assert set(flow.links) == {*routes.route("h1", "h3"), *routes.route("h3", "h1")}
    assert flow.back == frozenset(flow.links)
