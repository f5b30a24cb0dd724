"""From a scenario to arms: which hosts, which links are shared, when everything starts, and what a guest is told."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_texts import FINE
from test_workloads_chakra import SMALL, encoded
from training_shapes import shape

from controllers.sdn.paths import Routes
from testbed import cluster, experiment, scenario, scenario_file
from testbed.errors import InputError
from testbed.experiment import Experiment, pairs
from testbed.net.topology import Topology
from workloads import models
from workloads.training.plan import Conduct, JobPlan

ROOT = Path(__file__).resolve().parents[2]
PLACED = """\
name = "placed"
title = "Where do the workers go?"
[fabric]
topology = "{topology}"
scale = 50
{jobs}
[require]
shared_links = false
"""


def build(*settings: str, name: str = "smoke") -> Experiment:
    return experiment.build(scenario.load(name, settings), name)


def document(name: str) -> dict[str, Any]:
    return scenario_file.read(scenario_file.find(name))


def placed(tmp_path: Path, topology: str, *workers: object) -> Experiment:
    jobs = "".join(
        f'[[job]]\nname = "job{number}"\nmodel = "vgg16"\nworkers = {json.dumps(each)}\n'
        for number, each in enumerate(workers)
    )
    path = tmp_path / "placed.toml"
    path.write_text(PLACED.format(topology=topology, jobs=jobs))
    return build(name=str(path))


@pytest.mark.parametrize("name", [name for name in scenario_file.names(wide=False) if "study" not in document(name)])
def test_every_scenario_that_comes_along_makes_sense(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if scenario.load(name).cluster is not None:
        assert cluster.build(scenario.load(name), name, scenario_file.FOLDER).servers
        return
    traces = {job.trace for job in scenario.load(name).job if job.trace}
    for trace in traces:  # real ones are no part of the project
        (tmp_path / trace).write_bytes(encoded(SMALL))
    monkeypatch.setenv("ORRERY_TRACES", str(tmp_path))
    made = build(name=name)
    assert made.scenario.name == name
    assert made.scenario.title
    assert made.shared
    assert set(made.shared) <= set(made.used)
    for arm in made.scenario.measure.arms:
        trials = made.trials(arm, {job.name: 0.1 for job in made.jobs})
        assert trials
        json.dumps(made.arm_plan(arm, trials), allow_nan=False)


def test_the_two_jobs_share_what_the_scenario_says() -> None:
    made = build(name="two-jobs")
    assert list(made.shared) == ["tor1->agg1", "agg1->tor1", "tor2->agg3", "agg3->tor2"]
    routes = Routes(made.topology)
    for link, names in made.shared.items():
        assert names == ["vgg16-a", "vgg16-b"]
        for job in made.jobs:
            assert any(link in routes.route(*pair) for pair in pairs(job))
    assert made.captured == tuple(made.shared)


def test_a_ring_goes_round() -> None:
    job = build().jobs[0]
    assert pairs(job) == [("h1", "h3"), ("h3", "h1")]


# Placement


def test_workers_by_number_stand_in_different_racks(tmp_path: Path) -> None:
    made = placed(tmp_path, "cassini-48", 6, 6, 12)
    taken = [host for job in made.jobs for host in job.hosts]
    assert len(set(taken)) == 24
    rack = {host: made.topology.uplink(host) for host in made.topology.hosts}
    for job in made.jobs:
        assert all(rack[a] != rack[b] for a, b in pairwise(job.hosts))
    assert {rack[host] for host in made.jobs[0].hosts} == {f"tor{n}" for n in range(1, 7)}


def test_named_hosts_are_kept_from_the_others_even_of_earlier_jobs(tmp_path: Path) -> None:
    made = placed(tmp_path, "dumbbell(2)", 2, ["h3", "h1"])
    assert [job.hosts for job in made.jobs] == [("h2", "h4"), ("h3", "h1")]


def test_the_last_free_host_can_be_had_and_none_beyond(tmp_path: Path) -> None:
    assert len(placed(tmp_path, "dumbbell(2)", ["h1", "h2"], 2).jobs) == 2
    with pytest.raises(InputError, match="3 workers, but only 2 of 4 hosts are free"):
        placed(tmp_path, "dumbbell(2)", ["h1", "h2"], 3)
    with pytest.raises(InputError, match="2 workers, but only 0 of 4 hosts are free"):
        placed(tmp_path, "dumbbell(2)", 4, 2)


@given(st.lists(st.integers(2, 6), min_size=1, max_size=6))
def test_placement_gives_every_worker_a_host_of_its_own(sizes: list[int]) -> None:
    text = {"name": "x", "title": "x", "fabric": {"topology": "leaf-spine(3, 2, 4)", "scale": 50}}
    jobs = [{"name": f"job{n}", "model": "vgg16", "workers": size} for n, size in enumerate(sizes)]
    read = scenario.Scenario.model_validate(text | {"job": jobs, "require": {"shared_links": False}})
    if sum(sizes) > 12:
        with pytest.raises(InputError, match="hosts are free"):
            experiment.build(read, "x")
        return
    made = experiment.build(read, "x")
    hosts = [host for job in made.jobs for host in job.hosts]
    assert [job.workers for job in made.jobs] == sizes
    assert len(set(hosts)) == len(hosts) == sum(sizes)
    assert set(hosts) <= set(made.topology.hosts)


def test_every_job_has_a_dscp_of_its_own(tmp_path: Path) -> None:
    made = placed(tmp_path, "cassini-48", *[2] * 12)
    assert sorted(job.dscp for job in made.jobs) == list(range(1, 13))


# Trials


def starts(made: Experiment, arm: str, **shifts_s: float) -> list[dict[str, float]]:
    return [trial.starts_s for trial in made.trials(arm, {name.replace("_", "-"): s for name, s in shifts_s.items()})]


def test_trials_of_the_arms_without_chance() -> None:
    made = build("measure.trials.alone=2", "measure.trials.together=3", "measure.trials.cassini=2")
    assert starts(made, "alone") == [{"vgg16-a": 0.0}, {"vgg16-b": 0.0}] * 2
    assert starts(made, "together") == [{"vgg16-a": 0.0, "vgg16-b": 0.0}] * 3
    assert starts(made, "cassini", vgg16_a=0.0, vgg16_b=0.125) == [{"vgg16-a": 0.0, "vgg16-b": 0.125}] * 2


def test_a_job_of_short_iterations_does_more_of_them() -> None:
    made = build("measure.iterations=8", "job.*.iterations_factor=1.3")
    assert {job.iterations for job in made.jobs} == {11}
    assert {job.iterations for job in build("measure.iterations=8", "job.*.iterations_factor=1.25").jobs} == {10}


def test_random_starts_come_from_the_seed_and_nothing_else() -> None:
    first, again = build("measure.trials.random=40"), build("measure.trials.random=40", "measure.iterations=3")
    assert starts(first, "random") == starts(again, "random")
    assert starts(first, "random")[:5] == starts(build(), "random")
    other = build("measure.trials.random=40", "measure.seed=2")
    assert all(a != b for a, b in zip(starts(first, "random"), starts(other, "random"), strict=True))


def test_random_starts_fill_one_iteration() -> None:
    made = build("measure.trials.random=400")
    for job in made.jobs:
        length_s = job.compute_s
        drawn = [trial[job.name] for trial in starts(made, "random")]
        assert 0 <= min(drawn) < 0.05 * length_s
        assert 0.95 * length_s < max(drawn) < length_s
        assert abs(sum(drawn) / len(drawn) / length_s - 0.5) < 0.05
        assert len(set(drawn)) > 390


# How workers depart from their plans


def test_conduct_is_for_all_workers_or_for_each(tmp_path: Path) -> None:
    text = FINE.replace(
        'workers = ["h1", "h3"]', 'workers = ["h1", "h3"]\njitter = 0.03\nslow = [1, 1.5]\nlate = ["0 s", "20 ms"]'
    )
    (tmp_path / "tiny.toml").write_text(text)
    first, second = experiment.build(scenario.load(str(tmp_path / "tiny.toml")), "x").jobs
    assert first.conduct == (Conduct(0.03, 1.0, 0.0), Conduct(0.03, 1.5, 0.02))
    assert first.seed == 1
    assert second.conduct == ()


def test_conduct_of_another_number_of_workers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(FINE.replace('"h3"]', '"h3"]\nslow = [1, 1, 2]'))
    with pytest.raises(InputError, match=r"job\.first\.slow: 3 values for 2 workers .give one for each"):
        experiment.build(scenario.load(str(tmp_path / "tiny.toml")), "x")


# What a guest is told


def test_a_plan_says_everything_and_reads_back() -> None:
    made = build("fabric.scale=100", "telemetry.capture.links=shared", "telemetry.queue_interval=1 ms")
    plan: dict[str, Any] = json.loads(json.dumps(made.arm_plan("together", made.trials("together", {}))))
    assert Topology.from_dict(plan["topology"]) == made.topology
    assert tuple(JobPlan.from_dict(job) for job in plan["jobs"]) == made.jobs
    assert plan["trials"] == [{"vgg16-a": 0.0, "vgg16-b": 0.0}]
    assert plan["shared"] == plan["capture"]["links"] == ["s1->s2", "s2->s1"]
    assert plan["queue_interval_s"] == 1e-3
    assert plan["transport"] == {
        "congestion_control": "dctcp", "ecn": True, "rto_min_s": 0.4, "socket_buffer_bytes": 16_000_000,
            "quick_ack": True,
    }  # fmt: skip


def test_a_guest_is_told_of_the_ticks_that_jobs_keep_to() -> None:
    made = build()
    trials = made.trials("cassini", {"vgg16-a": 0.0, "vgg16-b": 0.1})
    assert made.arm_plan("cassini", trials)["holds"] == {}
    told = made.arm_plan("cassini", trials, {"vgg16-b": 0.256})
    assert told["holds"] == {"vgg16-b": {"period_s": 0.256, "tolerance": 0.05}}
    assert told["slots"] == dict.fromkeys([*made.jobs[0].hosts, *made.jobs[1].hosts], 1)
    assert build("measure.hold=false").arm_plan("cassini", trials, {"vgg16-b": 0.256})["holds"] == {}


def test_a_plan_does_not_tell_where_anything_lies(tmp_path: Path) -> None:
    """The same scenario gives the same bytes in whichever folder it lies: a guest must not know."""
    plans = []
    for folder in (tmp_path / "a", tmp_path / "somewhere" / "else"):
        folder.mkdir(parents=True)
        (folder / "tiny.toml").write_text(FINE)
        made = build(name=str(folder / "tiny.toml"))
        plans.append(json.dumps(made.arm_plan("alone", made.trials("alone", {}))))
    assert plans[0] == plans[1]
    assert str(tmp_path) not in plans[0]
    assert str(ROOT) not in plans[0]


def test_scale_divides_rates_and_bytes_and_keeps_times() -> None:
    one, fifty = build("fabric.scale=1"), build("fabric.scale=50")
    assert one.topology.direction("s1", "s2").rate_bps == 50 * fifty.topology.direction("s1", "s2").rate_bps
    assert one.topology.direction("s1", "s2").aqm == fifty.topology.direction("s1", "s2").aqm
    for a, b in zip(one.jobs, fifty.jobs, strict=True):
        assert (a.down_s, a.compute_s) == (b.down_s, b.compute_s)
        # not exactly: the steps' latency grows with the scale, and Up keeps its length
        assert a.sent_bytes(0) / b.sent_bytes(0) == pytest.approx(50, rel=0.01)


# Models


def test_a_job_of_a_snapshot_takes_its_batch_and_communication_time(tmp_path: Path) -> None:
    text = FINE.replace('["h1", "h3"]', '["h1", "h3"]\nbatch = 1400\ncommunication = "148 ms"\nsizing = "parameters"')
    (tmp_path / "tiny.toml").write_text(text)
    given = experiment.build(scenario.load(str(tmp_path / "tiny.toml")), "x").jobs[0]
    own = models.job_plan(
        "vgg16", name="first", hosts=given.hosts, fabric_ips=given.fabric_ips, dscp=given.dscp, iterations=8,
        scale=200, batch=1400, communication_s=0.148, sizing="parameters",
    )  # fmt: skip
    assert given == own
    (tmp_path / "tiny.toml").write_text(text.replace('"148 ms"', '"10 ms"'))
    with pytest.raises(InputError, match="communication time: 10 ms cannot be reached"):
        experiment.build(scenario.load(str(tmp_path / "tiny.toml")), "x")


# Traces


def test_text_workloads_are_traces_too(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text("DATA\n1\nconv -1 100 NONE 0 100 NONE 0 300 ALLREDUCE 4000000 0\n")
    lines = 'trace = "net.txt"\ntrace_format = "astra-sim"\nclock_hz = 1e3'
    (tmp_path / "tiny.toml").write_text(FINE.replace('model = "vgg16"', lines))
    job = experiment.build(scenario.load(str(tmp_path / "tiny.toml")), "x", tmp_path).jobs[0]
    assert job.compute_s == pytest.approx(0.4)
    assert job.sent_bytes(0) == 4_000_000 / 200


def test_a_trace_is_looked_for_beside_the_scenario_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = FINE.replace('model = "vgg16"', 'trace = "mine.et"')
    kept, beside = tmp_path / "kept", tmp_path / "beside"
    for folder in (kept, beside):
        folder.mkdir()
    (beside / "tiny.toml").write_text(text)
    (kept / "mine.et").write_bytes(encoded(SMALL))
    monkeypatch.setenv("ORRERY_TRACES", f"{tmp_path}:{kept}")
    read = scenario.load(str(beside / "tiny.toml"))
    assert len(shape(experiment.build(read, "x", beside).jobs[0]).buckets) == 2
    (beside / "mine.et").write_bytes(encoded(SMALL[:-2]))
    assert len(shape(experiment.build(read, "x", beside).jobs[0]).buckets) == 1
    (beside / "mine.et").write_bytes(b"\0" * 50)
    with pytest.raises(InputError, match=r"^x: .*mine\.et"):
        experiment.build(read, "x", beside)


@pytest.mark.parametrize("number", models.SNAPSHOTS)
def test_every_snapshot_of_the_paper_can_be_written_as_a_scenario(number: int) -> None:
    jobs = [
        {
            "name": f"job{index}", "model": job.model, "workers": [f"h{index + 1}", f"h{index + 5}"],
            "sizing": "parameters", "batch": job.batch, "communication": f"{1e3 * job.communication_s:g} ms",
        }
        for index, job in enumerate(models.SNAPSHOTS[number])
    ]  # fmt: skip
    read = scenario.Scenario.model_validate({"name": "x", "title": "x", "fabric": {"scale": 50}, "job": jobs})
    for made, job in zip(experiment.build(read, "x").jobs, models.SNAPSHOTS[number], strict=True):
        assert f"last {1e3 * job.communication_s:.3f} ms alone" in made.note
        down_s, backward_s = models.compute_s(models.MODELS[job.model], job.batch)
        assert made.compute_s < down_s + backward_s + job.communication_s


def traced(folder: Path, name: str, **keys: object) -> JobPlan:
    job = {"name": "a", "trace": name, "workers": ["h1", "h5"], **keys}
    raw = {"name": "x", "title": "x", "job": [job], "require": {"shared_links": False}}
    return experiment.build(scenario.Scenario.model_validate(raw), "x", folder).jobs[0]


def test_whose_a_trace_is_is_told_by_its_contents_or_by_the_key(tmp_path: Path) -> None:
    (tmp_path / "load.txt").write_text("DATA\n1\nfc -1 1000 NONE 0 2000 NONE 0 3000 ALLREDUCE 4000 5\n")
    (tmp_path / "load.et").write_bytes(encoded(SMALL))
    assert traced(tmp_path, "load.txt").note.startswith("ASTRA-sim workload load.txt")
    assert traced(tmp_path, "load.txt", trace_format="aicb").note.startswith("AICB workload load.txt")
    assert traced(tmp_path, "load.et").note.startswith("Chakra trace load.et")
    for name, other in (("load.txt", "chakra"), ("load.et", "aicb")):
        with pytest.raises(InputError, match=rf"^x: .*{name}"):
            traced(tmp_path, name, trace_format=other)
    with pytest.raises(InputError, match="x: job a, clock_hz: the times of a Chakra trace are microseconds"):
        traced(tmp_path, "load.et", clock_hz=1e9)
