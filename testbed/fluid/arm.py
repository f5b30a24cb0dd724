"""The trials of an arm at flow level, and the files it leaves: those of testbed.arm, of what a fluid has.

No links.csv and tables.csv, since there are no switches to be asked, and no packets to capture. Marks and the queues
of full links are estimates (sharing); everything else follows from the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from controllers.sdn.paths import Routes
from testbed.fluid.flows import Key, Plumbing, flows_of, parts, wires
from testbed.fluid.part import Part
from testbed.fluid.programs import Step, in_step, joined, steps
from testbed.fluid.sharing import Flow, Sharing, Wire
from testbed.fluid.traces import Traces
from testbed.fluid.workers import Beat, Crew, Ended, Worker
from testbed.net.topology import Topology
from testbed.telemetry.events import EventLog
from testbed.telemetry.tables import FLOWS, ITERATIONS, MARKS, QUEUES, Value, Writer
from workloads.models.buckets import FRAME_BYTES
from workloads.training.plan import Conduct, JobPlan
from workloads.training.records import Hold

BETWEEN_S = 1.1  # between two trials, as long as counters take to settle in a guest


@dataclass
class Network:
    """What all trials of an arm have in common: links, routes, transport, strict priorities by DSCP."""

    topology: Topology
    dctcp: bool
    ecn: bool
    buffer_bytes: float
    wires: dict[str, Wire] = field(init=False)
    plumbing: Plumbing = field(init=False)
    levels: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.wires = wires(self.topology)
        self.plumbing = Plumbing(self.topology, Routes(self.topology).route)
        bands = max((self.topology.direction(a, b).bands for a, b in self.topology.directed()), key=len)
        self.levels = {dscp: level for level, dscp in enumerate(bands)}

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Network:
        """Read the plan of an arm (testbed.experiment.Experiment.arm_plan)."""
        transport = plan["transport"]
        dctcp = transport["congestion_control"] == "dctcp"
        topology = Topology.from_dict(plan["topology"])
        return cls(topology, dctcp, bool(transport["ecn"]), float(transport["socket_buffer_bytes"]))

    def flows(self, plan: JobPlan) -> dict[Key, Flow]:
        """Return the flows of a job by key."""
        return flows_of(plan, self.plumbing, self.levels.get(plan.dscp, len(self.levels)))

    def sharing(self, flows: list[Flow], *, links_too: bool = True) -> Sharing:
        """Return how these flows share the links."""
        return Sharing(self.wires, flows, self.topology.mtu_bytes, dctcp=self.dctcp, ecn=self.ecn, links_too=links_too)

    def programs(self, plan: JobPlan, flows: Mapping[Key, Flow]) -> list[tuple[Step, ...]]:
        """Return the steps of every worker, of one where all are in step."""
        waits_s = {key: flow.step_s for key, flow in flows.items()}
        if not in_step(plan):
            return [steps(plan, rank, waits_s) for rank in range(plan.workers)]
        alone = self.sharing(list(flows.values()), links_too=False)
        fastest = {key: alone.share(1 << at).bytes_per_s[0] for at, key in enumerate(flows)}
        slow = plan.conduct[0].slow if plan.conduct else 1.0
        return [joined(steps(plan, 0, waits_s), fastest, slow)]

    def crew(self, plan: JobPlan, flows: Mapping[Key, Flow], first: int, hold: Hold | None) -> Crew:
        """Return a job with its workers, its flows numbered from `first` on; nobody has begun."""
        programs = self.programs(plan, flows)
        alone = len(programs) == 1
        members = {key: 1 if alone else len(plan.groups[key[1]]) for key in flows if key[0] == "group"}
        numbers = {key: first + at for at, key in enumerate(flows)}
        crew = Crew(plan.name, numbers, members, lambda *_: None, plan.seed)
        crew.buffer_bytes, crew.last = self.buffer_bytes, plan.iterations - 1
        for rank, program in enumerate(programs):
            conduct = plan.conduct[rank] if plan.conduct else Conduct()
            crew.workers.append(Worker(crew, rank, program, conduct, Beat(hold) if hold else None))
        return crew


class FluidArm:
    """An arm: its plan, the folder it writes to. `iterations` has all rows of iterations.csv."""

    def __init__(self, plan: Mapping[str, Any], out: Path) -> None:
        self.plan, self.out = plan, out
        self.network = Network.of(plan)
        self.jobs = {job["name"]: JobPlan.from_dict(job) for job in plan["jobs"]}
        self.traces = Traces(plan["shared"])
        self.rows: list[list[Value]] = []
        self.carried: dict[tuple[str, str], float] = {}
        self.events = 0

    def run(self) -> None:
        """Play all trials and write the files."""
        now_s = 0.0
        events = EventLog(self.out / "events.jsonl")
        with MARKS.writer(self.out / MARKS.file) as marks:
            for number, starts_s in enumerate(self.plan["trials"]):
                zero_s = now_s + BETWEEN_S + self.plan["lead_s"]
                events.write(zero_s, "trial", trial=str(number), starts_s=starts_s)
                now_s = self._play(str(number), starts_s, zero_s, marks)
                events.write(now_s, "trial done", trial=str(number))
        events.close()
        with ITERATIONS.writer(self.out / ITERATIONS.file) as iterations:
            for row in self.rows:
                iterations.row(*row)
        self._write_queues(now_s)
        self._write_flows(now_s)
        manifest = {"engine": "fluid", "virtual_s": round(now_s, 6), "events": self.events}
        (self.out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")

    def _play(self, trial: str, starts_s: Mapping[str, float], zero_s: float, marks: Writer) -> float:
        """Play a trial; return when its last job ended."""
        plans = {job: self.jobs[job] for job in starts_s}
        flows = {job: self.network.flows(plan) for job, plan in plans.items()}
        touched = {
            job: [link for flow in own.values() for link in (*flow.links, *flow.back)] for job, own in flows.items()
        }
        holds = {job: Hold(zero_s + starts_s[job], **hold) for job, hold in self.plan["holds"].items() if job in plans}
        ended: list[tuple[Crew, Ended]] = []
        played = []
        for names in parts(touched):
            listed = [flow for job in names for flow in flows[job].values()]
            part = Part(self.network.sharing(listed), zero_s)
            first = 0
            for job in names:
                crew = self.network.crew(plans[job], flows[job], first, holds.get(job))
                crew.on_end = lambda crew, one: ended.append((crew, one))
                first += len(flows[job])
                part.add(crew)
                for worker in list(crew.workers):
                    worker.start(part, zero_s + starts_s[job])
            part.play()
            played.append(part)
            self.events += part.played
        end_s = max(part.now_s for part in played)
        self.traces.take(played)
        self._note(trial, plans, ended, zero_s, marks)
        return end_s

    def _note(
        self,
        trial: str,
        plans: Mapping[str, JobPlan],
        ended: list[tuple[Crew, Ended]],
        zero_s: float,
        marks: Writer,
    ) -> None:
        """Write a trial's rows, in the order in which iterations ended."""
        ended.sort(key=lambda both: (both[1].end_s, both[0].name, both[1].rank))
        for job in plans:
            self._note_marks(trial, job, -1, zero_s, marks)
        for crew, one in ended:
            plan = plans[crew.name]
            alone = in_step(plan)
            for rank in range(plan.workers) if alone else (one.rank,):
                self.rows.append(
                    [
                        trial, crew.name, rank, plan.hosts[rank], one.iteration, one.begin_s, one.up_begin_s, one.end_s,
                        round(one.marked / plan.workers), one.held_s, one.lost_s, int(one.lost_s > 0),
                    ]
                )  # fmt: skip
            if one.rank == 0:
                self._note_marks(trial, crew.name, one.iteration, one.end_s, marks)

    def _note_marks(self, trial: str, job: str, iteration: int, t_s: float, marks: Writer) -> None:
        for link in self.plan["shared"]:
            marked = float(self.traces.of_link[link].at("marked", t_s))
            marks.row(trial, job, iteration, t_s, link, round(marked))

    def _write_queues(self, end_s: float) -> None:
        """Write what a sampler of the watched ports would have seen; readings that show nothing new are left out."""
        t_s = np.arange(0.0, end_s + self.plan["queue_interval_s"], self.plan["queue_interval_s"])
        with QUEUES.writer(self.out / QUEUES.file) as queues:
            for link in self.plan["shared"]:
                trace, wire = self.traces.of_link[link], self.network.wires[link]
                size, marked, packets = (np.rint(trace.at(name, t_s)) for name in ("bytes", "marked", "packets"))
                waits = np.diff(trace.at("marked", t_s), prepend=0.0) > 0
                backlog = np.where(waits, wire.marks_at_bytes or 0.0, 0.0)
                new = (np.diff(size, prepend=-1.0) != 0) | (np.diff(backlog, prepend=-1.0) != 0)
                for at in np.flatnonzero(new):
                    queues.row(
                        float(t_s[at]), link, round(backlog[at]), round(backlog[at] / self.network.topology.mtu_bytes),
                        int(size[at]), int(packets[at]), int(marked[at]), 0,
                    )  # fmt: skip

    def _write_flows(self, end_s: float) -> None:
        """Write the bytes of every job on every watched link."""
        every_s = self.plan["controller_interval_s"]
        t_s = np.arange(0.0, end_s + every_s, every_s)
        with FLOWS.writer(self.out / FLOWS.file) as file:
            for row in sorted(self._flow_rows(t_s), key=lambda row: (row[0], row[1], row[2])):
                file.row(*row)

    def _flow_rows(self, t_s: Any) -> Iterator[tuple[float, str, str, int, int, int, int]]:
        frame_bytes = self.network.topology.mtu_bytes + FRAME_BYTES
        for (link, job), trace in self.traces.of_job.items():
            size, marked = (np.rint(trace.at(name, t_s)) for name in ("bytes", "marked"))
            packets = np.rint(trace.at("packets", t_s))
            for at in np.flatnonzero(np.diff(size, prepend=-1.0) != 0):
                ce_bytes = min(int(marked[at]) * frame_bytes, int(size[at]))
                ce, every = int(marked[at]), int(packets[at])
                yield float(t_s[at]), link, job, max(0, every - ce), int(size[at]) - ce_bytes, ce, ce_bytes


def run_arm(plan: Mapping[str, Any], out: Path) -> FluidArm:
    """Run an arm into a folder that is there; return it with what its checks need."""
    arm = FluidArm(plan, out)
    arm.run()
    return arm
