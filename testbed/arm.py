"""One arm, inside its guest: network, controller, agents, telemetry, and every trial of it, into one folder.

    python -m testbed.arm FOLDER

FOLDER holds `plan.json` (testbed.experiment.Experiment.arm_plan) and receives the arm's files (docs/results.md).
Progress goes as JSON lines to the file that ORRERY_STATUS names.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controllers.sdn.config import Config
from testbed.controller import Controller
from testbed.errors import NotValid, exit_code
from testbed.events.plan import Event
from testbed.events.play import Player
from testbed.net import ovs, tc
from testbed.net.emulation import MANAGEMENT_IP, Emulation
from testbed.net.topology import Topology
from testbed.net.transport import Transport
from testbed.programs import ENDS_WITHIN_S, Status, beside
from testbed.telemetry import netstat
from testbed.telemetry.capture import Capture, CaptureSettings
from testbed.telemetry.events import EventLog
from testbed.telemetry.tables import COUNTERS, EVENTS, ITERATIONS, MACHINE, MARKS, QUEUES, Value, Writer
from workloads.training.coordinator import Coordinator, Done, Slot, start_agents
from workloads.training.plan import JobPlan
from workloads.training.records import AgentSocket, Hold, IterationRecord, SocketTerms

COORDINATOR_PORT = 7000
CONTROLLER_PORT = 6653
SCRATCH = Path("/run/orrery")
SETTLE_S = 1.1
"""Open vSwitch hands its datapath's counters to the rules about every half second."""


class Arm:
    """The running parts of one arm. Use `run_arm`, which starts and ends them in order."""

    def __init__(self, plan: dict[str, Any], out: Path, status: Status) -> None:
        self.plan, self.out, self.status = plan, out, status
        self.topology = Topology.from_dict(plan["topology"])
        self.transport = Transport(**plan["transport"])
        self.jobs = [JobPlan.from_dict(job) for job in plan["jobs"]]
        self.events = [Event.from_dict(event) for event in plan.get("events", ())]
        self.net = Emulation(self.topology, self.transport, CONTROLLER_PORT)
        self.epoch_s = 0.0
        self.trial = ""
        self.sockets: dict[str, list[AgentSocket]] = {}
        self.captures: dict[str, dict[str, Any]] = {}
        self._marks: Writer | None = None
        self._player: Player | None = None
        self._spawners: list[subprocess.Popen[bytes]] = []

    @property
    def now_s(self) -> float:
        """Virtual seconds since the arm's epoch."""
        return time.time() - self.epoch_s

    def run(self) -> None:
        """Run all trials. Raises NotValid (FabricMismatch among them) when the results could not be believed."""
        with ExitStack() as stack:
            self.net.start()  # and never closed: the guest's end takes it away, much faster
            self.status.say(stage="network")
            controller = stack.enter_context(Controller(self._controller_config(), SCRATCH / "sdn.json"))
            self.status.say(stage="controller")
            readings = self.net.read_back()
            self.status.say(stage="read back")
            self.epoch_s = time.time()
            controller.set_epoch(self.epoch_s)
            events = EventLog(self.out / "events.jsonl")
            stack.callback(events.close)
            self._marks = stack.enter_context(MARKS.writer(self.out / MARKS.file))
            iterations = stack.enter_context(ITERATIONS.writer(self.out / ITERATIONS.file))
            counters = stack.enter_context(COUNTERS.writer(self.out / COUNTERS.file))
            with self._machine(), self._sampler(), self._captures(), self._agents() as coordinator:
                self.status.say(stage="agents")
                if self.events:
                    happened = stack.enter_context(EVENTS.writer(self.out / EVENTS.file))
                    self._player = Player(self.net, self.events, coordinator, controller, happened, self.epoch_s)
                counted = self._count(controller)
                for number, trial in enumerate(self.trials):
                    self.trial = str(number)
                    self._write_counts("begin", counted, counters)
                    self.play(trial, coordinator, events, iterations)
                    counted = self._count(controller)  # also what the next trial begins with: nothing moves in between
                    self._write_counts("end", counted, counters)
                self.status.say(stage="trials")
            self.net.read_back()  # nobody may have changed a link while it was measured
            if lost := ovs.lost_packets():
                what = f"the switches lost {lost} packets while they made flows for them"
                raise NotValid(f"{what}: a larger fabric.scale leaves them more time")
            self._write_manifest(readings)
            self.status.say(stage="files")

    @property
    def trials(self) -> list[Any]:
        """What `play` is given, one after the other."""
        trials: list[Any] = self.plan["trials"]
        return trials

    @property
    def slots(self) -> list[Slot]:
        """The accelerators that have an agent."""
        return [Slot(host, index) for host, count in self.plan["slots"].items() for index in range(count)]

    @property
    def dscps(self) -> dict[str, int]:
        """What the controller tells apart, by name."""
        return {job.name: job.dscp for job in self.jobs}

    def play(self, trial: Any, coordinator: Coordinator, events: EventLog, iterations: Writer) -> None:
        """One trial: all of its jobs, given with their starts in s, from their starts to their ends."""
        starts_s: dict[str, float] = trial
        # New connections: a trial must not inherit windows from the one before.
        if lost := coordinator.lost():
            self._spawn(lost)
        for job in starts_s:
            self.sockets[job] = []
        for found in coordinator.gather([job for job in self.jobs if job.name in starts_s]):
            self.sockets[found.job].append(found)
        zero_s = time.time() + self.plan["lead_s"]
        absolute_s = {job: zero_s + start_s for job, start_s in starts_s.items()}
        events.write(zero_s - self.epoch_s, "trial", trial=self.trial, starts_s=starts_s)
        for job in starts_s:
            self._note_marks(job, -1)
        holds = {job: Hold(absolute_s[job], **hold) for job, hold in self.plan["holds"].items() if job in absolute_s}
        if self._player is not None:
            self._player.begin(self.trial, zero_s)
        records = coordinator.run(absolute_s, holds=holds)
        if self._player is not None:
            self._player.end()
            self._tell_failures(self._player, coordinator.failures, events)
        for record in _whole(records, coordinator.failures):
            self.write_iteration(iterations, record)
        for job in starts_s:
            coordinator.release(job)
        events.write(self.now_s, "trial done", trial=self.trial)

    def _tell_failures(self, player: Player, failures: Iterable[Done], events: EventLog) -> None:
        for done in failures:
            player.note(done.t_s, "job-failed", done.job, done.failed)
            told = {"trial": self.trial, "job": done.job, "iterations": done.iterations, "why": done.failed}
            events.write(done.t_s - self.epoch_s, "job failed", **told)

    def write_iteration(self, iterations: Writer, record: IterationRecord) -> None:
        """Write a row of iterations.csv."""
        iterations.row(
            self.trial, record.job, record.rank, record.host, record.iteration,
            record.begin_s - self.epoch_s, record.up_begin_s - self.epoch_s, record.end_s - self.epoch_s,
            record.ce_packets, record.held_s, record.lost_s, record.adjusted,
        )  # fmt: skip

    def on_iteration(self, job: str, iteration: int, t_s: float) -> None:
        """Take note that rank 0 of a job has ended an iteration at time.time() = `t_s`."""
        packets, links = self._note_marks(job, iteration)
        told = {"trial": self.trial, "job": job, "iteration": iteration, "packets": packets, "links": links}
        self.status.say(progress=round(t_s - self.epoch_s, 3), **told)

    def on_record(self, record: IterationRecord) -> None:
        """Take note of an iteration of any worker, as it is reported."""

    def _note_marks(self, job: str, iteration: int) -> tuple[int, list[tuple[int, int]]]:
        """Write what every shared link has marked so far, at a job's iteration boundary.

        Returns the packets of them all, and of each the bytes sent and the packets marked.
        """
        assert self._marks is not None
        packets, links = 0, []
        for link in self.plan["shared"]:
            interface = self.net.interfaces[link]
            queue = self.net.place(interface.node).qdiscs.read_queue(interface.ifindex, self._handles(link))
            self._marks.row(self.trial, job, iteration, self.now_s, link, queue.marked)
            packets += queue.packets
            links.append((queue.bytes, queue.marked))
        return packets, links

    def _count(self, controller: Controller) -> list[tuple[Value, ...]]:
        """Return what all sources say of every directed link, named first, once their counters have settled."""
        time.sleep(SETTLE_S)
        links = controller.snapshot()["links"]
        queues = self._queues()
        received = {host: netstat.read(self.net.pid(host)).ce for host in self.topology.hosts}
        counted = []
        for a, b in self.topology.directed():
            link = f"{a}->{b}"
            seen = links.get(link, {})
            ce_out = received[b] if b in received else seen.get("ce_out_packets")
            sent = (seen.get(column) for column in ("tx_packets", "tx_bytes", "ce_in_packets"))
            counted.append((link, *sent, *queues[link], ce_out))
        return counted

    def _write_counts(self, label: str, counted: Iterable[tuple[Value, ...]], counters: Writer) -> None:
        """Write what was counted at one end of the trial."""
        for of_link in counted:
            counters.row(self.trial, label, *of_link)

    def _handles(self, link: str) -> tuple[str, ...]:
        """The qdiscs in which packets of a directed link wait."""
        return tc.queues(self.topology.direction(*link.split("->")))

    def _queues(self) -> dict[str, tuple[int, int]]:
        """Return (marked, dropped) packets of every directed link's egress."""
        totals = {}
        for link, interface in self.net.interfaces.items():
            place = self.net.place(interface.node)
            marked = place.qdiscs.read_queue(interface.ifindex, self._handles(link)).marked
            totals[link] = marked, place.qdiscs.read(interface.ifindex, "2:").drops
        return totals

    def _controller_config(self) -> Config:
        return Config(
            self.topology, self.dscps, self.out, SCRATCH / "sdn.sock",
            interval_s=self.plan["controller_interval_s"], port=CONTROLLER_PORT,
        )  # fmt: skip

    @contextmanager
    def _sampler(self) -> Iterator[None]:
        """Watch all shared links, by a program for each network that holds egresses of them: switches', and hosts'."""
        ports: dict[str | None, list[str]] = {}
        for link in self.plan["shared"]:
            interface = self.net.interfaces[link]
            node = interface.node if interface.node in self.net.places else None
            ports.setdefault(node, []).append(f"--port={link}={','.join((interface.name, *self._handles(link)))}")
        command = ["-m", "testbed.telemetry.sampler", f"--interval={self.plan['queue_interval_s']}"]
        command.append(f"--epoch={self.epoch_s!r}")
        files = [self.out / (QUEUES.file if not at else f"{at}-{QUEUES.file}") for at in range(len(ports))]
        with ExitStack() as stack:
            for (node, watched), file in zip(ports.items(), files, strict=True):
                with self.net.place(node or "").namespace.entered():
                    stack.enter_context(beside("the sampler", [*command, *watched, f"--out={file}"]))
            yield
        for file in files[1:]:  # one file of all links, whoever watched them
            with files[0].open("a", encoding="utf-8") as whole:
                whole.writelines(file.read_text(encoding="utf-8").splitlines(keepends=True)[1:])
            file.unlink()

    @contextmanager
    def _machine(self) -> Iterator[None]:
        """In real time, watch whether the machine keeps up."""
        if not self.plan.get("real_time"):
            yield
            return
        command = ["-m", "testbed.telemetry.lag", f"--epoch={self.epoch_s!r}", f"--out={self.out / MACHINE.file}"]
        with beside("the watch on the machine", command):
            yield

    @contextmanager
    def _captures(self) -> Iterator[None]:
        wanted = self.plan["capture"]
        settings = CaptureSettings(wanted["snap_bytes"], wanted["packets"], wanted["size_bytes"])
        with ExitStack() as stack:
            for link in wanted["links"]:
                interface = self.net.interfaces[link]
                with self.net.inside(interface.node):
                    capture = Capture(link, interface.name, self.out, SCRATCH, settings)
                stack.callback(self._end_capture, link, capture)
            yield

    def _end_capture(self, link: str, capture: Capture) -> None:
        self.captures[link] = capture.stop().told()

    @contextmanager
    def _agents(self) -> Iterator[Coordinator]:
        terms = SocketTerms(self.transport.ecn, least_buffer_bytes=self.transport.socket_buffer_bytes)
        bind = MANAGEMENT_IP, COORDINATOR_PORT
        contain = bool(self.events)
        made = Coordinator(bind, self.slots, self.on_iteration, terms, on_record=self.on_record, contain=contain)
        with made as coordinator:
            self._spawn(self.slots)
            yield coordinator
        for spawner in self._spawners:
            # With events agents may have been killed: what that did to their jobs is on file.
            if spawner.wait(ENDS_WITHIN_S) != 0 and not self.events:
                raise NotValid(f"an agent ended with exit code {spawner.returncode}")

    def _spawn(self, slots: Iterable[Slot]) -> None:
        places = [(slot.host, slot.index, self.net.pid(slot.host)) for slot in slots]
        self._spawners.append(start_agents((MANAGEMENT_IP, COORDINATOR_PORT), places))

    def _write_manifest(self, readings: Iterable[dict[str, Any]]) -> None:
        """What this arm really ran on, as read back: kernel, programs, links, sockets."""
        manifest = {
            "scenario": self.plan["scenario"],
            "arm": self.plan["arm"],
            "kernel": platform.release(),
            "python": platform.python_version(),
            "open_vswitch": _first_line("ovs-vswitchd", "--version"),
            "virtual_s": round(self.now_s, 6),
            "jobs": [asdict(job) for job in self.jobs],
            "sockets": [asdict(socket) for of_job in self.sockets.values() for socket in of_job],
            "captures": self.captures,
            "readings": list(readings),
        }
        (self.out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def _whole(records: list[IterationRecord], failures: Iterable[Done]) -> Iterator[IterationRecord]:
    """The records but those of iterations that a job which failed did not end with all of its workers."""
    ended = {done.job: done.iterations for done in failures}
    yield from (record for record in records if record.iteration < ended.get(record.job, record.iteration + 1))


def _first_line(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.partition("\n")[0]


def run_arm(kind: type[Arm], arguments: list[str]) -> int:
    """Run the arm of the folder named by the arguments; the exit code says whether its files may be believed."""
    (out,) = map(Path, arguments)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    arm = kind(json.loads((out / "plan.json").read_text()), out, Status(os.environ.get("ORRERY_STATUS")))
    return exit_code(arm.run)


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code."""
    return run_arm(Arm, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
