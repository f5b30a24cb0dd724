"""A scenario with a cluster made concrete: what is measured alone, which jobs come, what each arm is told."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from scenario_texts import CLUSTER

from controllers.placement.interleave import Traffic
from controllers.placement.pollux import Pollux
from controllers.placement.state import ClusterState, Span
from controllers.placement.themis import Themis
from testbed import scenario
from testbed.cluster import ClusterExperiment, Measured, build
from testbed.cluster_campaign import jobs_of
from testbed.errors import InputError

TWO_KINDS = (
    CLUSTER
    + """
[[cluster.kind]]
name = "resnet"
model = "resnet50"
batch = 1600
workers = 2
sizes = [4]
arrives = true
count = 2
"""
)


def built(tmp_path: Path, text: str = TWO_KINDS, *settings: str) -> ClusterExperiment:
    path = tmp_path / "coming.toml"
    path.write_text(text)
    return build(scenario.load(str(path), settings), str(path), tmp_path)


def measured(made: ClusterExperiment, iteration_s: float = 0.25) -> Measured:
    """What the arm alone would have found if every iteration took as long."""
    times: dict[tuple[str, Span], float] = {}
    traffic: dict[tuple[str, Span], Traffic] = {}
    for job in made.alone.jobs:
        sort, span = made.measured_as[job.name]
        times[sort.name, span] = iteration_s
        traffic[sort.name, span] = Traffic(iteration_s, ((1e8, 0.0),) * job.workers, job.traffic())
    return Measured(times, traffic)


def test_every_sort_is_measured_in_every_span_it_may_have(tmp_path: Path) -> None:
    made = built(tmp_path, TWO_KINDS, "cluster.arrivals=dynamic", "fabric.topology=leaf-spine(3, 1, 3)")
    found = {name: job.hosts for name, job in ((job.name, job) for job in made.alone.jobs)}
    assert found["resnet-w2-b1600.rack"] == ("h1", "h2")
    assert found["resnet-w2-b1600.cluster"] == ("h1", "h4")
    assert found["resnet-w4-b1600.cluster"] == ("h1", "h2", "h4", "h5")
    assert "resnet-w4-b1600.rack" not in found  # four do not fit three servers
    assert not [name for name in found if name.endswith(".server")]
    assert made.alone.shared["h4->leaf2"] == [name for name, hosts in found.items() if "h4" in hosts]
    assert made.alone.scenario.measure.arms == ("alone",)


def test_accelerators_of_one_server_are_a_span_of_their_own(tmp_path: Path) -> None:
    settings = ("cluster.accelerators=2", "fabric.topology=leaf-spine(3, 1, 2)", "cluster.arrivals=dynamic")
    made = built(tmp_path, TWO_KINDS, *settings)
    found = {job.name: job.hosts for job in made.alone.jobs}
    assert found["resnet-w2-b1600.server"] == ("h1", "h1")
    assert found["resnet-w2-b1600.rack"] == ("h1", "h2")
    assert found["resnet-w4-b1600.rack"] == ("h1", "h1", "h2", "h2")
    assert all(count <= 2 for hosts in found.values() for count in Counter(hosts).values())


def test_lengths_are_divided_and_nothing_else(tmp_path: Path) -> None:
    settings = ("cluster.arrivals=dynamic", "cluster.at=100 s")
    full, short = (built(tmp_path, TWO_KINDS, *settings, *more) for more in ((), ("cluster.shortened=20",)))
    jobs = [[job for _, job in made.jobs(measured(made), 1)] for made in (full, short)]
    assert [job.name for job in jobs[0]] == [job.name for job in jobs[1]] == ["01-vgg", "02-resnet", "03-resnet"]
    for long, brief in zip(*jobs, strict=True):
        assert brief.arrival_s == long.arrival_s / 20
        assert brief.iterations == max(2, round(long.iterations / 20))
        assert (brief.workers, brief.timings, brief.goodput) == (long.workers, long.timings, long.goodput)
    plans = [made.arm_plan("pollux", measured(made))["cluster"] for made in (full, short)]
    assert plans[1]["epoch_s"] == plans[0]["epoch_s"] / 20 == 30.0
    assert plans[1]["restart_s"] == plans[0]["restart_s"] / 20
    assert short.alone.jobs == full.alone.jobs


def test_poisson_comes_at_its_load_by_measured_times(tmp_path: Path) -> None:
    made = built(tmp_path, CLUSTER, "cluster.jobs=400", "cluster.load=0.8")
    for iteration_s in (0.2, 0.8):
        jobs = [job for _, job in made.jobs(measured(made, iteration_s), 1)]
        busy = sum(job.workers * job.iterations * iteration_s for job in jobs) / 24
        assert busy / jobs[-1].arrival_s == pytest.approx(0.8, rel=0.15)


def test_a_file_of_arrivals_is_read(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "arrival_s,model,workers,batch,iterations\n5,resnet,3,800,40\n0,vgg,2,1200,100\n7,resnet,3,1600,40\n"
    )
    text = TWO_KINDS.replace('model = "vgg16"', 'model = "vgg16"\nsizing = "parameters"')
    made = built(tmp_path, text, "cluster.arrivals=jobs.csv", "cluster.shortened=10")
    jobs = [job for _, job in made.jobs(measured(made), 1)]
    assert [(job.name, job.arrival_s, job.workers, job.iterations) for job in jobs] == [
        ("01-vgg", 0.0, 2, 10), ("02-resnet", 0.5, 3, 4), ("03-resnet", 0.7, 3, 4),
    ]  # fmt: skip
    assert jobs[1].sizes == (3, 4)
    assert {sort.name for sort, _ in made.measured_as.values()} == {
        "vgg-w2-b1200", "resnet-w3-b800", "resnet-w4-b800", "resnet-w3-b1600", "resnet-w4-b1600",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (("cluster.arrivals=nowhere.csv",), "cluster.arrivals: 'nowhere.csv' is not there"),
        (("cluster.arrivals=dynamic", "fabric.topology=dumbbell(1)"), "workers, not 2 to 2"),
        (("cluster.arrivals=dynamic", "fabric.topology=ring"), "fabric.topology"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, settings: tuple[str, ...], what: str) -> None:
    text = TWO_KINDS.replace("workers = 2\nmost_workers = 4", "workers = 4")
    with pytest.raises(InputError) as caught:
        built(tmp_path, text, *settings)
    assert what in str(caught.value)


def test_the_plan_of_an_arm_goes_through_json_and_schedulers_take_its_jobs(tmp_path: Path) -> None:
    made = built(tmp_path, TWO_KINDS, "cluster.arrivals=dynamic", "cluster.seeds=[1, 2]")
    plan = json.loads(json.dumps(made.arm_plan("themis+cassini", measured(made)), allow_nan=False))
    assert (plan["arm"], plan["cluster"]["scheduler"], plan["cluster"]["plugin"]) == (
        "themis+cassini", "themis", "cassini",
    )  # fmt: skip
    assert "tor1->agg1" in plan["shared"]
    assert not [link for link in plan["shared"] if link.startswith("h")]
    assert plan["capture"]["links"] == []
    whole = built(tmp_path, TWO_KINDS, "cluster.arrivals=dynamic", 'telemetry.capture.links="shared"')
    all_of_them = whole.arm_plan("themis", measured(whole))
    assert all_of_them["capture"]["links"] == all_of_them["shared"] == plan["shared"]
    assert [trial["seed"] for trial in plan["cluster"]["trials"]] == [1, 2]
    trial = plan["cluster"]["trials"][0]
    state = ClusterState.from_dict(trial["state"])
    assert {job.name for job in state.jobs} == set(trial["sorts"])
    for scheduler in (Themis(), Pollux(population=6, generations=3)):
        proposal = scheduler.propose(state)
        for job, hosts in proposal.candidates[0].placements.items():
            assert str(len(hosts)) in trial["sorts"][job]


def test_every_job_of_a_trace_knows_what_it_was_measured_with(tmp_path: Path) -> None:
    settings = ("cluster.accelerators=2", "fabric.topology=leaf-spine(3, 1, 2)", "cluster.arrivals=dynamic")
    made = built(tmp_path, TWO_KINDS, *settings, "cluster.seeds=[3, 4]")
    jobs = json.loads(json.dumps(jobs_of(made, measured(made, 0.4))))
    assert [job["trial"] for job in jobs] == ["0"] * 3 + ["1"] * 3
    assert {job["measured_as"] for job in jobs} <= set(made.measured_as)
    assert {job["ideal_s"] for job in jobs} == {0.4}
    assert "resnet-w2-b1600.server" in {job["measured_as"] for job in jobs}  # as close together as it gets
