"""The whole controller, as a program under Ryu and under os-ken, against switches that speak OpenFlow but
have no kernel."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sdn_fakes import ERROR, FRAMEWORKS, FakeFabric, FakeSwitch, Packet, fabric, start_switches

from controllers.sdn.config import Config
from controllers.sdn.control import Client
from controllers.sdn.flows import fabric_rules
from controllers.sdn.paths import Routes
from testbed.errors import NotValid
from testbed.net.topology import Topology, link_id
from testbed.telemetry.events import read_events
from testbed.telemetry.tables import FLOWS, LINKS, TABLES

# Ryu 4.34 still asks distutils for versions.
pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning")

ROOT = Path(__file__).parents[2]
JOBS = {"jobA": 10, "jobB": 20}
WAIT_S = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def launch(config: Config, folder: Path, framework: str) -> subprocess.Popen[bytes]:
    """Start the program."""
    config.write(folder / "sdn.json")
    command = [sys.executable, "-m", "controllers.sdn.launcher", "--config", str(folder / "sdn.json")]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"ORRERY_SDN": framework}, stderr=subprocess.PIPE)


def until(true: Callable[[], object]) -> None:
    """Wait for something to become true."""
    give_up_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < give_up_s, "waited in vain"
        time.sleep(0.02)


@dataclass
class Rig:
    """A running controller with its switches, and the fabric they make."""

    topology: Topology
    program: subprocess.Popen[bytes]
    client: Client
    switches: dict[str, FakeSwitch]
    out: Path

    @property
    def network(self) -> FakeFabric:
        return FakeFabric(self.topology, {name: switch.table for name, switch in self.switches.items()})

    def send(self, src: str, dst: str, dscp: int, ecn: int) -> list[str]:
        """Send a packet through the tables, counted by ports and rules."""
        taken = self.network.send(src, Packet(self.topology.mac(dst), dscp, ecn))
        for link in taken:
            a, b = link.split("->")
            for name, peer, moved in ((a, b, 1), (b, a, 0)):
                if name in self.switches:
                    counts = self.switches[name].counts[self.topology.port(name, peer)]
                    counts[moved] += 1
                    counts[moved + 2] += 1000
        return taken


@pytest.fixture(params=FRAMEWORKS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    topology = fabric("leaf-spine(2,2,2)")
    config = Config(topology, JOBS, tmp_path, tmp_path / "sdn.sock", 0.02, free_port(), queues=False)
    with launch(config, tmp_path, request.param) as program:
        try:
            client = Client(config.control, WAIT_S)
            until(lambda: socket.socket().connect_ex(("127.0.0.1", config.port)) == 0)
            switches = start_switches(topology, config.port)
            yield Rig(topology, program, client, switches, tmp_path)
            client.close()
            for switch in switches.values():
                switch.close()
        finally:
            program.terminate()


def test_switches_are_programmed_counted_and_mended(rig: Rig) -> None:
    topology, switches = rig.topology, rig.switches
    assert rig.client.ready() == 4
    routes = Routes(topology)
    for name, rules in fabric_rules(topology, routes, JOBS).items():
        assert switches[name].table.rules() == set(rules)

    rig.client.set_epoch(time.time())
    route = rig.send("h1", "h4", dscp=10, ecn=3)
    assert route == routes.route("h1", "h4")
    rig.send("h1", "h4", dscp=20, ecn=2)
    snapshot = rig.client.snapshot()
    for link, counts in snapshot["links"].items():
        used = link in route
        a, b = link.split("->")
        assert counts["tx_packets"] == (2 * used if a in switches else None)
        assert counts["tx_bytes"] == (2000 * used if a in switches else None)
        assert counts["rx_packets"] == (2 * used if b in switches else None)
        assert counts["ce_in_packets"] == (used if a in switches else None)
        assert counts["ce_out_packets"] == (used if b in switches else None)
        assert counts["ect_out_packets"] == (used if b in switches else None)
        assert counts["backlog_bytes"] is None
        if b in switches:
            assert snapshot["jobs"]["jobA"][link]["ce_packets"] == used
            assert snapshot["jobs"]["jobB"][link]["ect_packets"] == used
            assert snapshot["jobs"][""][link] == dict.fromkeys(snapshot["jobs"][""][link], 0)

    # A snapshot leaves its rows on disk, and nothing is written twice.
    links = LINKS.read(rig.out / "links.csv")
    assert links.where(link=route[1]).counts("tx_packets")[-1] == 2
    assert all(len(links.where(link=link_id(a, b))) <= 2 for a, b in topology.directed())
    assert FLOWS.read(rig.out / "flows.csv").where(link=route[1], job="jobA").counts("ce_packets")[-1] == 1
    tables = TABLES.read(rig.out / "tables.csv").where(switch="leaf1")
    assert tables.counts("active") == [
        sum(rule.table == table for rule in switches["leaf1"].table.rules()) for table in (0, 1)
    ]

    # Both ends of a cable go down: the paths move, and counters of removed rules are kept.
    leaf, spine = route[1].split("->")
    switches[leaf].set_port(topology.port(leaf, spine), down=True)
    switches[spine].set_port(topology.port(spine, leaf), down=True)
    down = [link_id(leaf, spine), link_id(spine, leaf)]
    mended = Routes(topology, down)
    wanted = fabric_rules(topology, mended, JOBS)
    until(lambda: all(switches[name].table.rules() == set(rules) for name, rules in wanted.items()))
    assert rig.send("h1", "h4", dscp=10, ecn=3) == mended.route("h1", "h4")
    links_now = rig.client.snapshot()["links"]
    for link in dict.fromkeys([*route[1:], *mended.route("h1", "h4")[1:]]):
        passed = (link in route) + (link in mended.route("h1", "h4"))
        assert links_now[link]["ce_in_packets"] == passed
    events = list(read_events(rig.out / "events.jsonl"))
    assert [event["down"] for event in events if event["event"] == "paths"][-1] == sorted(down)

    # And up again: as at first.
    switches[leaf].set_port(topology.port(leaf, spine), down=False)
    switches[spine].set_port(topology.port(spine, leaf), down=False)
    wanted = fabric_rules(topology, routes, JOBS)
    until(lambda: all(switches[name].table.rules() == set(rules) for name, rules in wanted.items()))


def test_it_polls_rules_no_oftener_than_they_change_and_ends_with_all_rows_on_disk(rig: Rig) -> None:
    rig.client.ready()
    leaf = rig.switches["leaf1"]
    assert not [what for what, _ in leaf.requests if what != 13], "nothing is polled before the epoch is known"
    rig.client.set_epoch(time.time())
    until(lambda: leaf.requests.count((1, 0)) >= 2)
    assert leaf.requests.count((4, -1)) >= 20
    assert leaf.requests.count((1, 1)) == 0
    route = rig.send("h1", "h2", dscp=10, ecn=2)
    asked = leaf.requests.count((1, 0))
    until(lambda: leaf.requests.count((1, 0)) > asked + 1)
    rig.program.send_signal(signal.SIGTERM)
    assert rig.program.wait(WAIT_S) == 0
    assert rig.program.stderr is not None
    assert rig.program.stderr.read() == b""
    last = LINKS.read(rig.out / "links.csv").where(link=route[0])
    assert last.counts("ect_packets") == [0, *[0] * (len(last) - 2), 1]


def test_a_switch_that_comes_back_is_programmed_again_and_goes_on_counting(rig: Rig) -> None:
    rig.client.ready()
    rig.send("h1", "h2", dscp=10, ecn=3)
    port = rig.switches["leaf1"]._socket.getpeername()[1]
    rig.switches["leaf1"].close()
    again = FakeSwitch(rig.topology, "leaf1", port)
    again.table, again.counts = rig.switches["leaf1"].table, rig.switches["leaf1"].counts
    rig.switches["leaf1"] = again
    again.start()
    until(lambda: again.requests)
    rig.client.ready()
    assert again.table.rules() == set(fabric_rules(rig.topology, Routes(rig.topology), JOBS)["leaf1"])
    rig.send("h1", "h2", dscp=10, ecn=3)
    assert rig.client.snapshot()["links"]["leaf1->h2"]["ce_in_packets"] == 2


def test_a_refusal_is_told(rig: Rig) -> None:
    rig.client.ready()
    rig.switches["spine1"].say(ERROR, 0, (5).to_bytes(2, "big") + (1).to_bytes(2, "big") + bytes(64))
    with pytest.raises(NotValid, match="spine1 refused a message: OpenFlow error type 5, code 1"):
        until(lambda: rig.client.snapshot() is None)


def test_a_port_under_another_name_is_told(rig: Rig) -> None:
    rig.client.ready()
    leaf = rig.switches["leaf1"]
    leaf.ports[1] = "leaf9-eth1"
    leaf.set_port(1, down=False)
    with pytest.raises(NotValid, match="port 1 of leaf1 is leaf9-eth1, expected leaf1-eth1"):
        until(lambda: rig.client.snapshot() is None)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_switches_that_are_missing_are_named(framework: str, tmp_path: Path) -> None:
    topology = fabric("dumbbell(1)")
    first, second = topology.switches
    config = Config(topology, JOBS, tmp_path, tmp_path / "sdn.sock", port=free_port(), queues=False)
    with launch(config, tmp_path, framework) as program:
        with Client(config.control, WAIT_S):
            until(lambda: socket.socket().connect_ex(("127.0.0.1", config.port)) == 0)
        (switch,) = start_switches(topology, config.port, [first]).values()
        until(lambda: switch.table.entries)
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(config.control))
            raw.sendall(b'{"do": "ready?", "timeout_s": 0.1}\n')
            assert json.loads(raw.recv(4096))["error"] == f"NotValid: not connected and programmed: {second}"
        switch.close()
        program.terminate()


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = Config(fabric("dumbbell(1)"), JOBS, tmp_path, tmp_path / "s", port=port, queues=False)
        with launch(config, tmp_path, FRAMEWORKS[0]) as program:
            assert program.stderr is not None
            assert f"could not serve 127.0.0.1:{port}" in program.stderr.read().decode()
            assert program.wait(WAIT_S) == 3


def test_an_unknown_framework_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "controllers.sdn.launcher", "--config", str(tmp_path / "none.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "cannot be read" in done.stderr) == (2, True)
    config = Config(fabric("dumbbell(1)"), JOBS, tmp_path, tmp_path / "s", queues=False)
    with launch(config, tmp_path, "floodlight") as program:
        assert program.stderr is not None
        assert b"'floodlight' is no SDN framework (one of ryu, os-ken)" in program.stderr.read()
        assert program.wait(WAIT_S) == 2


def test_nobody_imports_a_framework_directly() -> None:
    # controllers/sdn/framework.py loads the chosen one by name; a plain import anywhere would choose for it.
    for room in ("testbed", "controllers", "workloads"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not {name.partition(".")[0] for name in names} & {"ryu", "os_ken", "eventlet"}, path


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_controller_that_crashed_and_is_started_again_adopts_the_fabric(framework: str, tmp_path: Path) -> None:
    """Rules and their counters stay, a cable that failed meanwhile is seen, removed rules keep what they counted."""
    topology = fabric("leaf-spine(2,2,2)")
    config = Config(topology, JOBS, tmp_path, tmp_path / "sdn.sock", 0.02, free_port(), queues=False, epoch=time.time())
    with launch(config, tmp_path, framework) as program:
        client = Client(config.control, WAIT_S)
        until(lambda: socket.socket().connect_ex(("127.0.0.1", config.port)) == 0)
        rig = Rig(topology, program, client, start_switches(topology, config.port), tmp_path)
        client.ready()
        route = rig.send("h1", "h4", dscp=10, ecn=3)
        leaf, spine = route[1].split("->")
        rig.switches[leaf].set_port(topology.port(leaf, spine), down=True)  # its removed rules had counted a packet
        mended = fabric_rules(topology, Routes(topology, [route[1]]), JOBS)
        until(lambda: all(rig.switches[name].table.rules() == set(rules) for name, rules in mended.items()))
        before = client.snapshot()["links"]
        assert before[route[1]]["ce_in_packets"] == 1
        program.kill()
        program.wait()
        client.close()
    kept = {name: switch.table for name, switch in rig.switches.items()}
    for switch in rig.switches.values():
        switch.close()
    other = rig.send("h1", "h4", dscp=10, ecn=3)  # the switches forward, and count
    assert other == Routes(topology, [route[1]]).route("h1", "h4")

    resumed = replace(config, resume=True)
    config.control.unlink()
    with launch(resumed, tmp_path, framework) as program:
        try:
            client = Client(config.control, WAIT_S)
            until(lambda: socket.socket().connect_ex(("127.0.0.1", config.port)) == 0)
            counts = {name: switch.counts for name, switch in rig.switches.items()}
            switches = {name: FakeSwitch(topology, name, config.port) for name in topology.switches}
            for name, switch in switches.items():
                switch.table, switch.counts = kept[name], counts[name]
                if name == leaf:
                    switch.down.add(topology.port(leaf, spine))
                switch.start()
            client.ready()
            assert all(kept[name].rules() == set(rules) for name, rules in mended.items())
            after = client.snapshot()["links"]
            for link in after:
                was = before[link]["ce_in_packets"]
                assert after[link]["ce_in_packets"] == (None if was is None else was + (link in other)), link
            assert "adopted" in [event["event"] for event in read_events(tmp_path / "events.jsonl")]
            assert len(LINKS.read(tmp_path / LINKS.file)) > 0
            client.close()
            for switch in switches.values():
                switch.close()
        finally:
            program.terminate()
