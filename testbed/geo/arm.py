"""One system on a wide-area network, inside its guest: underlay, controller, tunnels, programs, all rounds.

    python -m testbed.geo.arm FOLDER

FOLDER holds `plan.json` (testbed.geo.experiment) and receives the arm's files (docs/results.md).
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from controllers.sdn.config import Config
from controllers.sdn.control import Client
from testbed.errors import NotValid, exit_code
from testbed.geo.records import TUNNELS, WAN_LINKS
from testbed.geo.scheduled import Strikes, chunk_events, write_record
from testbed.net import probe, tc
from testbed.net.emulation import Emulation
from testbed.net.overlay import Overlay
from testbed.net.reshape import reshape
from testbed.net.topology import Direction, link_id
from testbed.net.transport import Transport
from testbed.net.wan import routing, underlay
from testbed.net.wan.dynamics import Change, apply
from testbed.net.wan.model import Wan
from testbed.programs import ENDS_WITHIN_S, Status, beside
from testbed.telemetry.capture import Capture, CaptureSettings
from testbed.telemetry.events import EventLog
from testbed.telemetry.qdisc import Qdisc
from testbed.telemetry.tables import Writer
from workloads.paramsync.conductor import Conductor, check_sums, start_programs
from workloads.paramsync.plan import SyncPlan
from workloads.paramsync.records import CHUNKS, ROUNDS, TRAINING, ChunkEvent, RoundRecord

CONTROLLER_PORT = 6653
SCRATCH = Path("/run/orrery")
SETTLE_S, LEAD_S = 1.1, 0.5
"""Open vSwitch hands its counters on twice a second; programs hear of a start before it."""


class WideArm:
    """The parts of one arm."""

    def __init__(self, plan: dict[str, Any], out: Path, status: Status) -> None:
        self.plan, self.out, self.status = plan, out, status
        self.wan = Wan.from_dict(plan["wan"])
        self.changes = [Change(*change) for change in plan["changes"]]
        self.sync = SyncPlan.from_dict(plan["sync"])
        topology = underlay.topology(self.wan, plan["mtu_bytes"], self.changes)
        self.net = Emulation(topology, Transport(**plan["transport"]), CONTROLLER_PORT)
        self.captures: dict[str, dict[str, int | bool]] = {}
        self.epoch_s = 0.0

    def run(self) -> None:
        """All rounds. Raises NotValid (FabricMismatch among them) when the results could not be believed."""
        with ExitStack() as stack:
            self.net.start()  # and never closed: the guest's end takes it away, much faster
            self.status.say(stage="network")
            controller = stack.enter_context(self._controller())
            self.status.say(stage="controller")
            overlay = Overlay(self.net, self.wan, self.plan["seed"], self.plan["routing"], tunnels=self.plan["tunnels"])
            stack.enter_context(overlay)
            readings = self.net.read_back() + overlay.read_back()
            self.status.say(stage="read back")
            self.epoch_s = time.time()
            controller.set_epoch(self.epoch_s)
            self._measure(overlay)
            self.status.say(stage="tunnels")
            counters = stack.enter_context(WAN_LINKS.writer(self.out / WAN_LINKS.file))
            events = EventLog(self.out / "events.jsonl")
            stack.callback(events.close)
            with self._captures():
                self._count("begin", controller, counters)
                conductor = self._synchronise(overlay, events)
                self._count("end", controller, counters)
            readings_after = self.net.read_back() + overlay.read_back()
            self._write_manifest(conductor, readings, readings_after)
            self.status.say(stage="files")

    @contextmanager
    def _controller(self) -> Iterator[Client]:
        config = Config(self.net.topology, {}, self.out, SCRATCH / "sdn.sock", interval_s=1.0, port=CONTROLLER_PORT)
        config.write(SCRATCH / "sdn.json")
        command = ["-m", "controllers.sdn.launcher", "--config", str(SCRATCH / "sdn.json")]
        with beside("the controller", command), Client(config.control) as client:
            client.ready()
            yield client

    @contextmanager
    def _captures(self) -> Iterator[None]:
        """Packets of chosen links, from before the first count of all links to after the last one."""
        wanted = self.plan["capture"]
        settings = CaptureSettings(wanted["snap_bytes"], wanted["packets"], wanted["size_bytes"])
        running: dict[str, Capture] = {}
        for link in wanted["links"]:
            a, _, b = link.partition("->")
            interface = self.net.interfaces[link_id(underlay.switch(self.wan, a), underlay.switch(self.wan, b))]
            with self.net.inside(interface.node):
                running[link] = Capture(link, interface.name, self.out, SCRATCH, settings)
        yield
        self.captures = {link: capture.stop().told() for link, capture in running.items()}

    def _measure(self, overlay: Overlay) -> None:
        """Every tunnel end to end, before anything else uses them."""
        rates_bps = routing.tunnel_rates_bps(self.wan)
        with TUNNELS.writer(self.out / TUNNELS.file) as writer:
            for found in probe.measure(overlay, rates_bps):
                rate_bps = rates_bps[found.a, found.b]
                writer.row(found.a, found.b, rate_bps, found.rtt_s, found.throughput_bps)
                if found.throughput_bps > rate_bps:
                    raise NotValid(
                        f"tunnel {found.a}->{found.b} carried {found.throughput_bps:.0f} bit/s, more than its "
                        f"{rate_bps}: its packets went another way"
                    )

    def _synchronise(self, overlay: Overlay, events: EventLog) -> Conductor:
        namespaces = {node: overlay.namespace(site) for node, site in enumerate(self.sync.sites)}
        with Conductor(self.sync, SCRATCH / "sync.sock", self.plan["watchdog_s"], self._on_round) as conductor:
            protocol = self.sync.protocol
            if protocol is not None:
                Path(protocol.folder).mkdir(parents=True)
            at = None if protocol is None else protocol.scheduler
            programs = start_programs(SCRATCH / "sync.sock", len(self.sync.sites), namespaces, at)
            strikes = Strikes(self.sync, self.plan["fire"], overlay, conductor, programs, namespaces)
            conductor.gather()
            self.status.say(stage="programs")
            if self.sync.held:
                Path(self.sync.held).mkdir(parents=True)
            start_s = time.time() + LEAD_S
            timers = [*self._timers(start_s, events), *strikes.timers(start_s, self.epoch_s, events)]
            records, noted = conductor.run(start_s, timers)
            strikes.mend()
        if programs.wait(ENDS_WITHIN_S) != 0:
            raise NotValid(f"a program ended with exit code {programs.returncode}")
        self.status.say(stage="rounds")
        self._write_rounds(records)
        if protocol is not None:
            noted = chunk_events(Path(protocol.folder))
            write_record(Path(protocol.folder), self.out, self.epoch_s)
        self._write_chunks(noted)
        if self.sync.held:
            self._write_training(records)
        else:
            check_sums(self.sync, records)
        self.status.say(stage="sums")
        return conductor

    def _on_round(self, record: RoundRecord) -> None:
        if record.node == 0:
            progress_s = round(record.end_s - self.epoch_s, 3)
            packets = sum(self._queue(a, b).packets for a, b, _ in self.wan.directed())
            told = {"trial": "0", "job": self.plan["system"], "iteration": record.round, "packets": packets}
            self.status.say(progress=progress_s, **told)

    def _timers(self, start_s: float, events: EventLog) -> Iterator[tuple[float, Callable[[], None]]]:
        """What the links become, and when: all changes of one moment at once."""
        for t_s, group in groupby(self.changes, key=lambda change: change.t_s):
            changes = list(group)

            def change(changes: list[Change] = changes) -> None:
                self._change(changes, events)

            yield start_s + t_s, change

    def _change(self, changes: list[Change], events: EventLog) -> None:
        directions: dict[tuple[str, str], Direction] = {}
        for change in changes:
            self.wan = apply(self.wan, change)
            a, _, b = change.link.partition("->")
            ends = underlay.switch(self.wan, a), underlay.switch(self.wan, b)
            line = self.net.topology.direction(*ends).delay_s > 0
            attributes, mtu_bytes = self.wan.direction(a, b), self.plan["mtu_bytes"]
            directions[ends] = underlay.direction(attributes, mtu_bytes, line=line, ecn=self.wan.ecn)
        reshape(self.net, directions)
        values = [[change.link, change.attribute, change.value] for change in changes]
        events.write(time.time() - self.epoch_s, "links changed", changes=values)

    def _count(self, label: str, controller: Client, counters: Writer) -> None:
        """What all sources say of every link between sites, once their counters have settled."""
        time.sleep(SETTLE_S)
        seen = controller.snapshot()["links"]
        for a, b, _ in self.wan.directed():
            queue, port = self._queue(a, b), seen[link_id(underlay.switch(self.wan, a), underlay.switch(self.wan, b))]
            counters.row(
                label, f"{a}->{b}", port["tx_packets"], port["tx_bytes"], port["rx_packets"],
                queue.packets, queue.bytes, queue.drops, self._queue(a, b, tc.QUEUE).marked,
            )  # fmt: skip

    def _queue(self, a: str, b: str, handle: str = tc.TBF) -> Qdisc:
        interface = self.net.interfaces[link_id(underlay.switch(self.wan, a), underlay.switch(self.wan, b))]
        return self.net.place(interface.node).qdiscs.read(interface.ifindex, handle)

    def _write_rounds(self, records: list[RoundRecord]) -> None:
        with ROUNDS.writer(self.out / ROUNDS.file) as writer:
            for record in sorted(records, key=lambda record: (record.round, record.node)):
                times = (t_s - self.epoch_s for t_s in (record.begin_s, record.push_s, record.end_s))
                writer.row(record.round, self.sync.sites[record.node], *times, record.digest)

    def _write_training(self, records: list[RoundRecord]) -> None:
        from workloads.paramsync import held  # a model and its data: only some runs need them

        begin_s = min(record.begin_s for record in records)
        with TRAINING.writer(self.out / TRAINING.file) as writer:
            for one in held.check(self.sync, records):
                end_s = max(record.end_s for record in records if record.round == one.round)
                writer.row(one.round, end_s - begin_s, one.error, one.loss, one.accuracy)

    def _write_chunks(self, events: list[ChunkEvent]) -> None:
        sites = self.sync.sites
        with CHUNKS.writer(self.out / CHUNKS.file) as writer:
            for event in events:
                peer = "" if event.peer is None else sites[event.peer]
                writer.row(
                    event.t_s - self.epoch_s, sites[event.node], event.event, event.kind, peer, event.round,
                    event.chunk, event.size_bytes, event.begin_s - self.epoch_s, event.attempt,
                    sites[event.node if event.source is None else event.source], event.life,
                    "" if event.via is None else sites[event.via], ">".join(sites[one] for one in event.path),
                )  # fmt: skip

    def _write_manifest(self, conductor: Conductor, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
        manifest = {
            "scenario": self.plan["scenario"],
            "system": self.plan["system"],
            "kernel": platform.release(),
            "python": platform.python_version(),
            "virtual_s": round(time.time() - self.epoch_s, 6),
            "sockets": conductor.sockets,
            "captures": self.captures,
            "readings": before,
            "tunnels_after": {one["name"]: one["tunnels"] for one in after if one["of"] == "site"},
        }
        (self.out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def main(arguments: list[str]) -> int:
    """Run the arm of the folder named; the exit code says whether its files may be believed."""
    (out,) = map(Path, arguments)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    # A timer may otherwise ring up to 50 µs late.
    Path("/proc/self/timerslack_ns").write_text("1")
    arm = WideArm(json.loads((out / "plan.json").read_text()), out, Status(os.environ.get("ORRERY_STATUS")))
    return exit_code(arm.run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
