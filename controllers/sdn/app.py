"""The application that Ryu runs: it fills the switches' tables and reads their counters.

A switch that connects is emptied, programmed and asked for a barrier; once all have answered, the fabric is
ready. When a port goes down the paths are computed anew and every switch gets the difference. Every interval
all switches are asked for port, rule (table 0) and table statistics at once; their answers, and the queues
read by netlink in the same moment, become rows. One that is started after a crash adopts the rules that the
switches have kept, with their counters. Everything happens in one thread, in green threads that
switch only where they wait.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from controllers.sdn import control, framework, openflow
from controllers.sdn.collect import Queues, Round
from controllers.sdn.config import Config
from controllers.sdn.counters import Counters, FlowCount
from controllers.sdn.flows import COUNT_TABLE, FORWARD_TABLE, Difference, difference, fabric_rules
from controllers.sdn.journal import Journal
from controllers.sdn.paths import Routes
from testbed.errors import NotValid
from testbed.net.topology import link_id
from testbed.telemetry.events import EventLog
from testbed.telemetry.schedule import Schedule
from testbed.telemetry.tables import FLOWS, LINKS, TABLES

ANSWER_TIMEOUT_S = 10.0
# Open vSwitch hands the datapath's counters to the rules twice a second: asking more often tells nothing.
RULES_INTERVAL_S = 0.5
# A cable has two ends, a switch many ports: reports of one failure are taken together.
SETTLE_S = 0.001
BOTH_TABLES = (COUNT_TABLE, FORWARD_TABLE)

log = logging.getLogger("orrery.sdn")


class Fabric(framework.Application):  # type: ignore[misc]  # its base is known only when it runs
    """The controller of all switches of a topology."""

    OFP_VERSIONS = framework.OPENFLOW_VERSIONS

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config, self._topology = config, config.topology
        self._switches = {self._topology.dpid(switch): switch for switch in self._topology.switches}
        self._ports = {
            (a, self._topology.port(a, b)): (self._topology.interface(a, b), link_id(a, b))
            for a, b in self._topology.directed()
            if a in self._topology.switches
        }
        self._journal = Journal(config.journal, config.resume)
        self._down = set(self._journal.past.down)
        self._rules = fabric_rules(self._topology, Routes(self._topology, self._down), config.jobs)
        self._kept = dict(self._rules) if config.resume else {}
        self._datapaths: dict[str, Any] = {}
        self._unprogrammed = set(self._topology.switches)
        self._broken = ""
        self._barrier, self._adopted = 0, False
        self._ready, self._answered = framework.Event(), framework.Event()
        self._ports_changed, self._begun = framework.Event(), framework.Event()
        self._polling = framework.Lock(1)
        self._round, self._rounds = Round(0, (), ()), 0
        self._counters = Counters(self._topology, config.jobs)
        for switch, table_id, last in self._journal.past.removed:
            self._counters.remove_rule(switch, table_id, last)
        self._queues: Queues | None = None
        self._links, self._flows, self._tables = (
            table.writer(config.out / table.file, config.resume) for table in (LINKS, FLOWS, TABLES)
        )
        self._events = EventLog(config.out / "events.jsonl")
        self._epoch, self._schedule = 0.0, Schedule(0.0, config.interval_s)
        if config.epoch is not None:
            self._begin({"value": config.epoch})

    def start(self) -> None:
        """Called by the framework once the application is registered."""
        super().start()
        actions = {"ready?": self._wait_ready, "epoch": self._begin, "snapshot": self._snapshot}
        self._config.control.unlink(missing_ok=True)
        for forever in (
            lambda: framework.serve_unix(str(self._config.control), lambda link: control.converse(link, actions)),
            self._follow_ports,
            self._poll_on_schedule,
        ):
            framework.spawn(self._guarded, forever)

    def finish(self) -> None:
        """Put every row on disk."""
        for writer in (self._links, self._flows, self._tables):
            writer.close()
        self._events.close()
        self._journal.close()

    def _guarded(self, forever: Callable[[], None]) -> None:
        """Run one of the green threads; its error is the answer to whoever asks next."""
        try:
            forever()
        except Exception as error:
            self._break(f"{type(error).__name__}: {error}")
            raise

    def _break(self, why: str) -> None:
        self._broken = self._broken or why
        log.error(why)
        self._ready.set()
        self._answered.set()

    # ---- switches

    @framework.handles("StateChange", framework.CONNECTED, framework.GONE)
    def switch_changed(self, event: Any) -> None:
        """A switch has connected (program it) or gone."""
        datapath = event.datapath
        switch = self._switches.get(datapath.id)
        if switch is None:
            if datapath.id is not None:
                self._break(f"an unknown switch connected, datapath id {datapath.id}")
        elif event.state == framework.CONNECTED:
            self._program(switch, datapath)
        elif self._datapaths.get(switch) is datapath:
            del self._datapaths[switch]
            self._unprogrammed.add(switch)
            self._ready.clear()
            self._round.forget(switch)
            self._check_answered()

    def _program(self, switch: str, datapath: Any) -> None:
        for port in sorted(port for name, port in self._ports if name == switch):
            self._take_port(switch, port, datapath.ports.get(port))
        self._datapaths[switch] = datapath
        datapath.socket.settimeout(None)  # a timer for every message would only say that nobody asked anything
        if (kept := self._kept.pop(switch, None)) is not None:
            self._send(switch, b"", difference(kept, self._rules[switch]))
        else:
            self._send(switch, openflow.delete_everything(), Difference((), self._rules[switch]))

    def _send(self, switch: str, before: bytes, change: Difference) -> None:
        """Send a change of rules; the switch counts as programmed when the last barrier has been answered."""
        self._barrier += 1
        self._unprogrammed.add(switch)
        self._ready.clear()
        self._datapaths[switch].send(before + openflow.change(change) + openflow.barrier(self._barrier))

    @framework.handles("BarrierReply", framework.CONNECTED)
    def switch_programmed(self, event: Any) -> None:
        """A switch has done all it was told."""
        self._unprogrammed.discard(self._switches[event.msg.datapath.id])
        if not self._unprogrammed and not self._ready.is_set():
            self._ready.set()
            if self._config.resume and not self._adopted:
                self._adopted = True
                self._events.write(time.time() - self._epoch, "adopted", switches=len(self._switches))

    @framework.handles("ErrorMsg")
    def switch_refused(self, event: Any) -> None:
        """A switch refuses a message: the fabric is not what it should be."""
        switch = self._switches.get(event.msg.datapath.id, "a switch")
        self._break(f"{switch} refused a message: OpenFlow error type {event.msg.type}, code {event.msg.code}")

    @framework.handles("FlowRemoved", framework.CONNECTED)
    def rule_removed(self, event: Any) -> None:
        """A rule is gone: keep its last counters."""
        gone = event.msg
        last = FlowCount(gone.cookie, gone.packet_count, gone.byte_count)
        switch = self._switches[gone.datapath.id]
        self._counters.remove_rule(switch, gone.table_id, last)
        self._journal.removed(switch, gone.table_id, last)

    # ---- ports and paths

    @framework.handles("PortStatus", framework.CONNECTED)
    def port_changed(self, event: Any) -> None:
        """A port has gone up or down, or away."""
        port = event.msg.desc
        gone = event.msg.reason == framework.PORT_DELETED
        self._take_port(self._switches[event.msg.datapath.id], port.port_no, None if gone else port)

    def _take_port(self, switch: str, number: int, port: Any | None) -> None:
        if (switch, number) not in self._ports:
            return
        interface, link = self._ports[switch, number]
        if port is not None and port.name.decode() != interface:
            self._break(f"port {number} of {switch} is {port.name.decode()}, expected {interface}")
        down = port is None or framework.port_is_down(port)
        if down != (link in self._down):
            (self._down.add if down else self._down.remove)(link)
            self._ports_changed.set()

    def _follow_ports(self) -> None:
        while True:
            self._ports_changed.wait()
            framework.sleep(SETTLE_S)
            self._ports_changed.clear()
            self._recompute()

    def _recompute(self) -> None:
        """Compute the paths for the links that are up, and send every connected switch its difference."""
        rules = fabric_rules(self._topology, Routes(self._topology, self._down), self._config.jobs)
        changes = {switch: difference(self._rules[switch], new) for switch, new in rules.items()}
        self._rules = rules
        for switch, change in changes.items():
            if switch in self._datapaths and change != ((), ()):
                self._send(switch, b"", change)
        self._journal.paths(self._down)  # behind it: who crashes in between sends the change again, and loses none
        if self._begun.is_set():
            removed, added = (sum(map(len, each)) for each in zip(*changes.values(), strict=True))
            t_s = time.time() - self._epoch
            self._events.write(t_s, "paths", down=sorted(self._down), removed=removed, added=added)

    # ---- statistics

    @framework.handles("PortStatsReply", framework.CONNECTED)
    def ports_counted(self, event: Any) -> None:
        """Port statistics have come."""
        self._take_answer(event.msg)

    @framework.handles("TableStatsReply", framework.CONNECTED)
    def tables_counted(self, event: Any) -> None:
        """Table statistics have come."""
        self._take_answer(event.msg)

    @framework.handles("FlowStatsReply", framework.CONNECTED)
    def rules_counted(self, event: Any) -> None:
        """Rule statistics have come."""
        self._take_answer(event.msg)

    def _take_answer(self, message: Any) -> None:
        switch = self._switches[message.datapath.id]
        data = b"".join(part.data for part in message.body)
        whole = self._round.take(switch, message.xid, data, bool(message.flags & framework.MORE))
        if whole is None:
            return
        kind, data = whole
        if kind == Round.PORTS:
            self._counters.set_ports(switch, openflow.read_ports(data))
        elif kind == Round.TABLES:
            self._counters.set_tables(switch, openflow.read_tables(data, BOTH_TABLES))
        else:
            self._counters.set_rules(switch, kind - Round.FLOWS, openflow.read_flows(data))
        self._check_answered()

    def _check_answered(self) -> None:
        if not self._round.waiting:
            self._answered.set()

    def _poll(self, *tables: int) -> float:
        """Ask all connected switches, wait for their answers, read the queues; t_s of the asking."""
        with self._polling:
            self._queues = self._queues or (Queues(self._topology) if self._config.queues else None)
            self._rounds += 1
            self._round = Round(self._rounds, self._datapaths, tables)
            self._answered.clear()
            asked_s = time.time()
            for datapath in self._datapaths.values():
                datapath.send(self._round.request())
            if not self._answered.wait(ANSWER_TIMEOUT_S):
                silent = ", ".join(sorted({switch for switch, _ in self._round.waiting}))
                raise NotValid(f"no statistics from {silent} within {ANSWER_TIMEOUT_S} s")
            if self._queues and self._counters.moving:
                self._counters.set_queues(self._queues.read())
            return asked_s - self._epoch

    def _write(self, t_s: float) -> None:
        links, flows, tables = self._counters.rows(t_s)
        for writer, rows in ((self._links, links), (self._flows, flows), (self._tables, tables)):
            for row in rows:
                writer.row(*row)

    def _poll_on_schedule(self) -> None:
        every = max(1, round(RULES_INTERVAL_S / self._config.interval_s))
        for number in itertools.count():
            self._begun.wait()
            self._ready.wait()
            now_s = time.time()
            framework.sleep(max(0.0, self._schedule.after(now_s) - now_s))
            self._write(self._poll(*([COUNT_TABLE] if number % every == 0 else [])))

    # ---- what the control socket asks for

    def _wait_ready(self, request: dict[str, Any]) -> dict[str, Any]:
        self._ready.wait(float(request.get("timeout_s", ANSWER_TIMEOUT_S)))
        self._check_broken()
        if self._unprogrammed:
            raise NotValid(f"not connected and programmed: {', '.join(sorted(self._unprogrammed))}")
        return {"switches": len(self._topology.switches)}

    def _begin(self, request: dict[str, Any]) -> dict[str, Any]:
        self._epoch = float(request["value"])
        self._schedule = Schedule(self._epoch, self._config.interval_s)
        self._begun.set()
        return {}

    def _snapshot(self, _request: dict[str, Any]) -> dict[str, Any]:
        self._check_broken()
        t_s = self._poll(*BOTH_TABLES)
        self._check_tables()
        self._check_broken()
        self._write(t_s)
        for writer in (self._links, self._flows, self._tables):
            writer.flush()
        return {"t_s": t_s, **self._counters.snapshot()}

    def _check_tables(self) -> None:
        """Every switch must have as many rules as it should: above all one whose rules were adopted."""
        for switch in self._datapaths:
            wanted = Counter(rule.table for rule in self._rules[switch])
            found = self._counters.active(switch)
            if not self._unprogrammed and found != {table: wanted[table] for table in BOTH_TABLES}:
                self._break(f"{switch} has rules {found} by table, expected {dict(wanted)}")

    def _check_broken(self) -> None:
        if self._broken:
            raise NotValid(self._broken)
