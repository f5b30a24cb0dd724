"""Sites under a scheduler: messages as JSON, control that is passed on, and whole runs of real programs on loopback."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.netstorm.messages import Answer, Hello, Link, Policy, Report, Request, Routes
from controllers.netstorm.tree import Tree as Named
from controllers.netstorm.tree import Way as NamedWay
from testbed.errors import InputError, NotValid
from workloads.paramsync.conductor import Conductor, check_sums, start, start_programs
from workloads.paramsync.control import SERVER, WORKER
from workloads.paramsync.disk import Disk
from workloads.paramsync.envelope import packed, unpacked
from workloads.paramsync.plan import Policy as Numbered
from workloads.paramsync.plan import SyncPlan, Tree, Way
from workloads.paramsync.protocol import Protocol, Tunnel
from workloads.paramsync.records import MERGED, SENT, ChunkEvent
from workloads.paramsync.relay import LONGEST_AGAIN_S, Relay

CHAIN, STAR = Named("a", {"b": "a", "c": "b"}), Named("a", {"c": "a", "b": "a"})
ROUTES = Routes(7, {("c", "b"): (("c", "a", "b"),), ("a", "b"): ()})


@pytest.mark.parametrize(
    "message",
    [
        Request("a", 2, 3, 1),
        Hello("a", 2),
        Link("a", "b", 1, 4, False),
        Report("a", "b", 12.5e6),
        ROUTES,
        Answer((3, 1), 2, None, Routes(0)),
        Answer((3, 1), 2, Policy(2, (NamedWay(CHAIN, STAR), NamedWay.both(STAR)), (0, 1, 1)), ROUTES),
    ],
)
def test_messages_survive_as_json(message: Any) -> None:
    back = unpacked(json.loads(json.dumps(packed(message))))
    if isinstance(message, Routes | Answer):
        routes = message if isinstance(message, Routes) else message.routes
        lean = Routes(routes.number, {pair: paths for pair, paths in routes.paths.items() if paths})
        message = lean if isinstance(message, Routes) else dataclasses.replace(message, routes=lean)
    assert back == message
    if isinstance(back, Answer) and back.policy is not None:
        assert list(back.policy.ways[0].pull.parent) == ["c", "b"]  # children have an order


class Net:
    """Relays on a network that loses and delays what it likes."""

    def __init__(self, pairs: list[tuple[int, int]], generator: random.Random, loss: float) -> None:
        self.random, self.loss = generator, loss
        self.neighbours: dict[int, list[int]] = {}
        for a, b in pairs:
            self.neighbours.setdefault(a, []).append(b)
            self.neighbours.setdefault(b, []).append(a)
        self.under_way: list[tuple[int, int, bytes]] = []
        self.heard: Counter[tuple[int, str]] = Counter()
        self.relays = {
            node: Relay(node, 1, self._pass_on(node), lambda body, node=node: self._deliver(node, body))  # type: ignore[misc]
            for node in self.neighbours
        }

    def _pass_on(self, node: int) -> Callable[[bytes, int | None], None]:
        def pass_on(data: bytes, but: int | None) -> None:
            for peer in self.neighbours[node]:
                if peer != but and self.random.random() >= self.loss:
                    self.under_way.append((node, peer, data))

        return pass_on

    def _deliver(self, node: int, body: list[Any]) -> None:
        self.heard[node, body[1]] += 1

    def run(self) -> int:
        moved = 0
        while self.under_way:
            source, target, data = self.under_way.pop(self.random.randrange(len(self.under_way)))
            self.relays[target].received(data, source)
            moved += 1
        return moved


@given(st.randoms(use_true_random=False), st.integers(3, 8))
def test_what_is_passed_on_comes_to_everybody_once_and_is_acknowledged(generator: random.Random, nodes: int) -> None:
    ring = [(node, (node + 1) % nodes) for node in range(nodes)]
    net = Net([*ring, (0, nodes // 2)] if nodes > 3 else ring, generator, loss=0.0)
    net.relays[0].send(["test", "x"], range(1, nodes), 0.0)
    moved = net.run()
    assert net.heard == {(node, "x"): 1 for node in range(1, nodes)}
    assert net.relays[0].state() == []
    assert moved <= 2 * (len(ring) + 1) * nodes  # the message and an acknowledgement each, over every line and back


@given(st.integers(0, 10_000))
def test_what_is_lost_is_sent_again_until_it_has_come(seed: int) -> None:
    net = Net([(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)], random.Random(seed), loss=0.4)
    net.relays[4].send(["test", "x"], [0, 2], 0.0)
    net.run()
    now_s = 0.0
    for _ in range(60):
        now_s += LONGEST_AGAIN_S
        net.relays[4].again(now_s)
        net.run()
    assert net.heard == {(0, "x"): 1, (2, "x"): 1}
    assert net.relays[4].state() == []


def test_a_disk_counts_lives_and_keeps_what_is_complete(tmp_path: Path) -> None:
    first = Disk(tmp_path / "site.json")
    first.start()
    first.completed(4)
    again = Disk(tmp_path / "site.json")
    again.start()
    assert (again.life, again.complete) == (2, 4)


SITES = 4
PAIRS = ((0, 1), (0, 2), (1, 2), (2, 3), (1, 3))


def scheduled(folder: Path, **change: object) -> SyncPlan:
    tunnels = tuple(Tunnel(*ends, 1e8, 0.0) for a, b in PAIRS for ends in ((a, b), (b, a)))
    protocol = Protocol(
        tunnels=tunnels, scheduler=0, strategy="multi-root", root=None, roots=None, tensors=(150_000, 60_000, 9),
        chunk_elements=20_000, awareness=True, paths=3, probe_bytes=40_000, look_s=0.3, report_change=0.1,
        decide_change=0.1, limit_bytes=400_000, detect_s=3.0, late_s=0.0, folder=str(folder),
    )  # fmt: skip
    chunks = (20_000,) * 7 + (10_000,) + (20_000,) * 3 + (9,)
    star = Tree(0, (None, *([0] * (SITES - 1))))
    with socket.create_server(("127.84.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    return SyncPlan(
        sites=("a", "b", "c", "d"), ips=tuple(f"127.84.0.{i + 1}" for i in range(SITES)), port=port, chunks=chunks,
        policy=Numbered(1, (Way(star, star),), (0,) * len(chunks)), rounds=3, compute_s=(0.1,) * SITES,
        merge_bytes_per_s=1e9, seed=5, congestion_control="cubic",
        protocol=dataclasses.replace(protocol, **change),  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_plan_with_a_protocol_survives_as_json(tmp_path: Path) -> None:
    plan = scheduled(tmp_path)
    assert SyncPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert plan.protocol is not None
    assert plan.protocol.peers(2) == [0, 1, 3]
    with pytest.raises(InputError, match=r"scheduler\.site: 9 has no tunnel"):
        dataclasses.replace(plan.protocol, scheduler=9)


def run(
    plan: SyncPlan, folder: Path, kills: list[tuple[float, int, float]] | None = None, timeout_s: float = 20.0
) -> Conductor:
    """A whole run; `kills` are (when, which site, after how long it is started again)."""
    with Conductor(plan, folder / "sync.sock", 60.0) as conductor:
        programs = start_programs(folder / "sync.sock", SITES, {}, scheduler=0)
        conductor.gather()
        conductor._timeout_s = timeout_s
        start_s, timers = time.time() + 0.05, []

        def revive(node: int) -> None:
            conductor.revive(node)
            start(programs, [(SERVER, node, None), (WORKER, node, None)])

        for after_s, node, away_s in kills or ():
            timers.append((start_s + after_s, lambda node=node: conductor.kill(node)))
            timers.append((start_s + after_s + away_s, lambda node=node: revive(node)))
        conductor.run(start_s, timers)
    assert programs.wait(10) == 0
    check_sums(plan, conductor.records)
    return conductor


def events(folder: Path) -> Iterator[ChunkEvent]:
    for file in sorted(folder.glob("events-*.jsonl")):
        for line in file.read_text().splitlines():
            yield ChunkEvent(*json.loads(line))


def record(folder: Path, what: str) -> list[list[Any]]:
    lines = [json.loads(line) for line in (folder / "scheduler.jsonl").read_text().splitlines()]
    return [line for line in lines if line[1] == what]


@pytest.mark.parametrize("late_s", [0.0, 0.05])
def test_sites_under_a_scheduler_come_to_the_direct_sum(late_s: float, tmp_path: Path) -> None:
    plan = scheduled(tmp_path, late_s=late_s)
    conductor = run(plan, tmp_path)
    assert sorted((one.round, one.node) for one in conductor.records) == [(r, n) for r in range(3) for n in range(4)]
    assert [line[2:4] for line in record(tmp_path, "stage")] == [[0, 0], [1, 0], [2, 0]]
    assert len(record(tmp_path, "belief")) > 2 * len(PAIRS)  # what it began with, and what was reported
    assert sum(line[4] for line in record(tmp_path, "policy") if line[2] == 1) == pytest.approx(1)
    found = Counter((one.event, one.kind) for one in events(tmp_path))
    assert found[MERGED, "push"] == 3 * len(plan.chunks) * (2 * SITES - 1)  # everybody's own, and one from each child
    direct = Counter(one.kind for one in events(tmp_path) if one.event == SENT and one.source == one.node)
    assert direct["push"] == direct["pull"] == 3 * len(plan.chunks) * (SITES - 1)


@pytest.mark.parametrize("kills", [[(0.2, 0, 0.4), (0.25, 3, 1.0)], [(0.1, 2, 0.2), (1.5, 2, 0.2)]])
def test_who_is_killed_and_started_again_goes_on(kills: list[tuple[float, int, float]], tmp_path: Path) -> None:
    run(scheduled(tmp_path), tmp_path, kills)
    stages = [tuple(line[2:4]) for line in record(tmp_path, "stage")]
    assert stages == sorted(stages)
    for node in {node for _, node, _ in kills}:
        assert json.loads((tmp_path / f"site-{node}.json").read_text())[0] > 1


def test_the_other_half_of_a_killed_site_may_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill = os.kill

    def slowly(pid: int, number: int) -> None:
        kill(pid, number)
        time.sleep(0.2)

    monkeypatch.setattr("workloads.paramsync.conductor.os.kill", slowly)
    run(scheduled(tmp_path), tmp_path, [(0.2, 2, 0.4)])


def test_a_watchdog_tells_the_state_of_everybody(tmp_path: Path) -> None:
    """A site that is killed and never started again: nobody can finish the round, and that is said."""
    plan = scheduled(tmp_path)
    with pytest.raises(NotValid) as caught:
        run(plan, tmp_path, [(0.1, 3, 1000.0)], timeout_s=2.0)
    said = str(caught.value)
    assert "nobody said anything for 2 s" in said
    assert "the scheduler waits" in said
    assert "server of a waits" in said and "a: stage (" in said
