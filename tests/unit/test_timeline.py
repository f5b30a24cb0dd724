"""Jobs that come and go, driven through a coordinator that only keeps time: orders, DSCPs, beats, the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from controllers.placement.interleave import Traffic
from controllers.placement.layout import Layout
from controllers.placement.state import ClusterState, Job, Server, Timing
from testbed.net import fabrics
from testbed.net.scale import Original, Scaling
from testbed.timeline import Kinds, Timeline, cluster_of
from workloads.training.plan import Bucket, JobPlan, data_parallel
from workloads.training.records import AgentSocket, Hold, IterationRecord

TOPOLOGY = fabrics.build("leaf-spine(2, 1, 4)", Scaling(Original(), 100).settings)
SERVERS = tuple(Server(host, f"leaf{1 + at // 4}") for at, host in enumerate(TOPOLOGY.hosts))
ZERO_S = 1000.0
ITERATION_S = 0.25


def sort_of(workers: int) -> dict[str, Any]:
    hosts = TOPOLOGY.hosts[:workers]
    ips = [TOPOLOGY.ip(host) for host in hosts]
    plan = data_parallel("kind", hosts, ips, 1, 0.1, 0.1, [Bucket(1000, 0.0)], 5, "dctcp")
    ring = {(rank, (rank + 1) % workers): 1000 for rank in range(workers)}
    demand = (*[0.0] * 5, *[5e8] * 3)
    traffic = Traffic(ITERATION_S, (demand,) * workers, ring).to_dict()
    return {"plan": plan.to_dict(), "traffic": {"rack": traffic, "cluster": traffic}}


def plan_of(arrivals: Sequence[tuple[float, int, int]], **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A cluster's plan and trial, through JSON, for jobs (arrival in s, workers, iterations)."""
    jobs = tuple(
        Job(
            f"j{at}", "kind", arrival_s, workers, count, count,
            tuple(Timing(workers, span, ITERATION_S) for span in ("rack", "cluster")),
        )
        for at, (arrival_s, workers, count) in enumerate(arrivals)
    )  # fmt: skip
    plan = {
        "scheduler": "themis", "plugin": None, "epoch_s": 10.0, "lease_s": 10.0, "restart_s": 0.5, "lead_s": 0.05,
        "on_change": True, "candidates": 5, "aggregate": "mean", "angles": 8,
        "kinds": {f"w{workers}": sort_of(workers) for workers in {job.workers for job in jobs}},
    } | more  # fmt: skip
    sorts = {job.name: {str(job.workers): f"w{job.workers}"} for job in jobs}
    trial = {"seed": 1, "state": ClusterState(0.0, SERVERS, jobs).to_dict(), "sorts": sorts}
    return json.loads(json.dumps(plan)), json.loads(json.dumps(trial))


@dataclass
class Done:
    job: str
    iterations: int
    t_s: float


@dataclass
class On:
    plan: JobPlan
    begin_s: float = 0.0
    end_s: float = 0.0
    first: int = 0
    running: bool = False
    hold: Hold | None = None


@dataclass
class Clockwork:
    """A coordinator whose jobs take `ITERATION_S` an iteration, or a period where they are held."""

    now_s: float = ZERO_S
    jobs: dict[str, On] = field(default_factory=dict)
    told: list[tuple[float, str, str, object]] = field(default_factory=list)
    timeline: Timeline | None = None

    def gather(self, jobs: Sequence[JobPlan]) -> list[AgentSocket]:
        for plan in jobs:
            assert plan.name not in self.jobs
            others = [host for on in self.jobs.values() for host in on.plan.hosts]
            assert not set(plan.hosts) & set(others), "an accelerator is used twice"
            assert plan.dscp not in {on.plan.dscp for on in self.jobs.values()}
            self.jobs[plan.name] = On(plan)
        self.now_s += 0.003  # connections are made by packets
        return [AgentSocket(plan.name, 0, "", "", "", True, True, plan.dscp, 0, 0, 0, 0.0) for plan in jobs]

    def start(
        self,
        job: str,
        start_s: float,
        iterations: int | None = None,
        hold: Hold | None = None,
        first_iteration: int = 0,
    ) -> None:
        assert start_s > self.now_s
        assert iterations is not None
        on = self.jobs[job]
        assert not on.running
        period_s = hold.period_s if hold else ITERATION_S
        self.jobs[job] = On(on.plan, start_s, start_s + iterations * period_s, first_iteration, True, hold)
        self.told.append((self.now_s, "start", job, start_s))

    def hold(self, job: str, hold: Hold | None) -> None:
        assert self.jobs[job].running
        self.jobs[job].hold = hold
        self.told.append((self.now_s, "hold", job, hold))

    def stop(self, job: str) -> None:
        on = self.jobs[job]
        assert on.running
        left = max(0.0, on.end_s - self.now_s)
        on.end_s = min(on.end_s, self.now_s + left % ITERATION_S + ITERATION_S)
        self.told.append((self.now_s, "stop", job, None))

    def wait(self, until_s: float | None = None) -> Done | None:
        running = {name: on for name, on in self.jobs.items() if on.running}
        first = min(running, key=lambda name: (running[name].end_s, name), default=None)
        if first is None or (until_s is not None and running[first].end_s > until_s):
            assert until_s is not None, "nothing runs, and nothing is to come"
            self.now_s = max(self.now_s, until_s)
            self._progress(running)
            return None
        on = running[first]
        self.now_s = max(self.now_s, on.end_s)
        self._progress(running)
        on.running = False
        period_s = on.hold.period_s if on.hold else ITERATION_S
        return Done(first, round((on.end_s - on.begin_s) / period_s), on.end_s)

    def release(self, job: str) -> None:
        assert not self.jobs.pop(job).running

    def _progress(self, running: dict[str, On]) -> None:
        assert self.timeline is not None
        for name, on in running.items():
            done = int((min(self.now_s, on.end_s) - on.begin_s) / ITERATION_S)
            if done > 0:
                self.timeline.on_iteration(name, on.first + done - 1)


def play(
    arrivals: Sequence[tuple[float, int, int]], **more: Any
) -> tuple[Clockwork, Timeline, list[tuple[float, str, dict[str, Any]]]]:
    plan, trial = plan_of(arrivals, **more)
    cluster, kinds = cluster_of(plan, trial, TOPOLOGY)
    clockwork, log = Clockwork(), list[tuple[float, str, dict[str, Any]]]()

    def write(t_s: float, event: str, **details: Any) -> None:
        log.append((t_s, event, json.loads(json.dumps(details, allow_nan=False))))

    timeline = Timeline(cluster, kinds, TOPOLOGY, clockwork, ZERO_S, write, [1, 2, 3, 4], lambda: clockwork.now_s)
    clockwork.timeline = timeline
    timeline.run()
    return clockwork, timeline, log


@pytest.mark.parametrize("scheduler", ["themis", "random"])
@pytest.mark.parametrize("plugin", [None, "cassini"])
def test_every_job_comes_and_goes(scheduler: str, plugin: str | None) -> None:
    arrivals = [(0.0, 4, 60), (0.0, 3, 20), (2.5, 4, 30), (3.0, 2, 8), (11.0, 6, 12)]
    clockwork, timeline, log = play(arrivals, scheduler=scheduler, plugin=plugin)
    assert clockwork.jobs == {}
    assert timeline.dscps() == {}
    complete = [details["job"] for _, event, details in log if event == "left" and details["complete"]]
    assert sorted(complete) == ["j0", "j1", "j2", "j3", "j4"]
    for job, (arrival_s, _, count) in enumerate(arrivals):
        own = [(t_s, event, details) for t_s, event, details in log if details.get("job") == f"j{job}"]
        assert sum(details["iterations"] for _, event, details in own if event == "left") == count
        begun_s = [t_s for t_s, event, _ in own if event == "start"]
        assert min(begun_s) >= arrival_s + 0.05
    assert {details["scheduler"] for _, event, details in log if event == "round"} == {
        scheduler + (f"+{plugin}" if plugin else "")
    }


def test_a_dscp_is_used_again() -> None:
    _, timeline, log = play([(float(at), 4, 3) for at in range(0, 240, 3)])
    dscps = {details["dscp"] for _, event, details in log if event == "start"}
    assert dscps <= {1, 2}
    assert len(timeline.sockets) == 80


def test_rounds_are_held_to_the_moment() -> None:
    _, _, log = play([(0.0, 4, 100), (2.5, 2, 10)])
    rounds = [t_s for t_s, event, _ in log if event == "round"]
    assert rounds[0] == 0.0
    assert 2.5 in rounds
    assert 10.0 in rounds
    assert 20.0 in rounds


def test_jobs_that_share_a_link_are_held_apart_and_told_when_that_changes() -> None:
    clockwork, _, log = play([(0.0, 4, 40), (1.0, 4, 20)], scheduler="random", plugin="cassini", candidates=1)
    shifted = [details for _, event, details in log if event == "round" and details["shifts"]]
    assert shifted
    assert shifted[0]["expects"]["score"] == pytest.approx(1.0)
    assert shifted[0]["expects"]["score_unshifted"] <= 1.0
    starts = {details["job"]: details["beat"] for _, event, details in log if event == "start"}
    held = [(what, job) for _, what, job, hold in clockwork.told if what == "hold"]
    assert starts["j1"] is not None
    assert ("hold", "j0") in held
    beats = [details["beat"] for _, event, details in log if event == "retime" and details["job"] == "j0"]
    assert beats[0]["period_s"] == pytest.approx(ITERATION_S)
    assert beats[-1] is None  # j1 has left
    apart_s = (starts["j1"]["start_s"] - beats[0]["start_s"]) % ITERATION_S
    assert min(apart_s, ITERATION_S - apart_s) > 3 / 8 * ITERATION_S - 0.01


def test_traffic_of_a_span_that_was_not_measured_is_that_of_the_widest() -> None:
    plan, trial = plan_of([(0.0, 4, 5)])
    kinds = Kinds.of(plan["kinds"], trial["sorts"])
    layout = Layout(SERVERS)
    del plan["kinds"]["w4"]["traffic"]["rack"]
    fewer = Kinds.of(plan["kinds"], trial["sorts"])
    rack, wide = ("h1", "h2", "h3", "h4"), ("h1", "h2", "h5", "h6")
    assert kinds.traffic_of("j0", rack, layout) == kinds.traffic["w4"]["rack"]
    assert fewer.traffic_of("j0", rack, layout) == fewer.traffic_of("j0", wide, layout)


def test_a_job_that_misses_two_ticks_in_a_row_is_let_free() -> None:
    plan, trial = plan_of([(0.0, 4, 40), (0.0, 4, 40)], scheduler="random", plugin="cassini", candidates=1)
    cluster, kinds = cluster_of(plan, trial, TOPOLOGY)
    clockwork, log = Clockwork(), list[str]()
    timeline = Timeline(
        cluster, kinds, TOPOLOGY, clockwork, ZERO_S, lambda _t_s, event, **_: log.append(event), [1, 2],
        lambda: clockwork.now_s,
    )  # fmt: skip
    clockwork.timeline = timeline

    def wait(until_s: float | None = None) -> Done | None:
        held = [name for name, on in clockwork.jobs.items() if on.running and on.hold]
        for name in held:
            for rank, adjusted in ((0, 1), (1, 1), (0, 0), (0, 1), (0, 1), (0, 1)):
                timeline.on_record(IterationRecord(name, rank, "h1", 0, 0.0, 0.0, 0.0, 0, 0.0, 0.2, adjusted))
        return Clockwork.wait(clockwork, until_s)

    clockwork.wait = wait  # type: ignore[method-assign]
    timeline.run()
    freed = [job for _, what, job, hold in clockwork.told if what == "hold" and hold is None]
    assert sorted(freed) == ["j0", "j1"]
    assert log.count("misses") == 2
