"""Push, aggregate, pull: the pure parts by properties, and whole synchronisations of real programs on loopback."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import socket
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_stage import default_congestion_control

from testbed.errors import InputError, NotValid
from workloads.paramsync import gradients, tensors, wire
from workloads.paramsync.conductor import Conductor, check_sums, start_programs
from workloads.paramsync.ledger import WORKER, Ledger, ProtocolError
from workloads.paramsync.plan import Policy, SyncPlan, Tree, Way
from workloads.paramsync.records import FORWARDED, MERGED, RECEIVED, SENT, ChunkEvent, RoundRecord
from workloads.paramsync.server import Server, connect

CHAIN, STAR = Tree(0, (None, 0, 1)), Tree(2, (2, 2, None))
ALONG, AROUND = Way(CHAIN, CHAIN), Way(STAR, Tree(2, (1, 2, None)))


@st.composite
def policies(draw: st.DrawFn) -> tuple[int, Policy]:
    """(nodes, policy): random trees over 1 to 8 nodes, chunks dealt at random."""
    nodes = draw(st.integers(1, 8))
    ways = []
    for _ in range(draw(st.integers(1, 3))):
        root = draw(st.integers(0, nodes - 1))
        ways.append(Way(draw(trees(nodes, root)), draw(trees(nodes, root))))
    return nodes, Policy(1, tuple(ways), tuple(draw(st.lists(st.integers(0, len(ways) - 1), min_size=1, max_size=5))))


@st.composite
def trees(draw: st.DrawFn, nodes: int, root: int) -> Tree:
    """Any tree of a root."""
    order = [root, *draw(st.permutations([node for node in range(nodes) if node != root]))]
    parents: list[int | None] = [None] * nodes
    for i in range(1, nodes):
        parents[order[i]] = order[draw(st.integers(0, i - 1))]
    return Tree(root, tuple(parents))


def plan(policy: Policy, **change: object) -> SyncPlan:
    nodes = len(policy.ways[0].push.parents)
    made = SyncPlan(
        sites=tuple(f"dc{i + 1}" for i in range(nodes)),
        ips=tuple(f"127.83.0.{i + 1}" for i in range(nodes)),
        port=_free_port(),
        chunks=(300_000, 7, 100_000)[: len(policy.way_of)],
        policy=policy,
        rounds=2,
        compute_s=(0.0,) * nodes,
        merge_bytes_per_s=None,
        seed=3,
        congestion_control=default_congestion_control(),  # others may be root's alone
    )
    return dataclasses.replace(made, **change)  # type: ignore[arg-type]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def synchronise(made: SyncPlan, folder: Path, timeout_s: float = 20.0) -> tuple[list[RoundRecord], list[ChunkEvent]]:
    with Conductor(made, folder / "sync.sock", timeout_s) as conductor:
        programs = start_programs(folder / "sync.sock", len(made.sites), {})
        conductor.gather()
        found = conductor.run(time.time() + 0.05)
    assert programs.wait(10) == 0
    return found


@pytest.mark.parametrize(
    ("model", "elements", "count"),
    [
        ("alexnet", 57_029_322, 16),
        ("vgg16", 134_300_362, 32),
        ("resnet50", 23_522_250, 161),
        ("mobilenet", 3_216_650, 83),
    ],
)
def test_models_have_the_published_parameters(model: str, elements: int, count: int) -> None:
    sizes = tensors.tensors(model)
    assert (sum(sizes), len(sizes)) == (elements, count)


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(InputError, match=r"sync\.model: there is no model 'lenet' \(one of alexnet, resnet50"):
        tensors.tensors("lenet")


@given(st.lists(st.integers(1, 10**7), min_size=1), st.integers(1, 10**6))
def test_chunks_are_the_tensors_from_the_last_to_the_first(sizes: list[int], chunk: int) -> None:
    sizes = [min(size, 50 * chunk) for size in sizes]
    pieces = tensors.chunks(sizes, chunk)
    assert sum(pieces) == sum(sizes)
    assert max(pieces) <= chunk
    assert sum(piece < chunk for piece in pieces) <= len(sizes)
    assert pieces[0] == min(chunk, sizes[-1])


def test_alexnet_is_cut_into_chunks_of_four_megabytes() -> None:
    pieces = tensors.chunks(tensors.tensors("alexnet"), tensors.CHUNK_ELEMENTS)
    assert pieces.count(1_000_000) == 16 + 37
    assert tensors.size_bytes(pieces) == 228_117_288


@given(policies())
def test_a_plan_survives_its_dict(drawn: tuple[int, Policy]) -> None:
    made = plan(dataclasses.replace(drawn[1], way_of=drawn[1].way_of[:3]))
    assert SyncPlan.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize(
    ("parents", "root", "message"),
    [
        ((None, 2, 1), 0, "node 1 does not reach the root: 1 comes twice"),
        ((1, None, None), 1, "the parent of node 2 is None"),
        ((1, None, 7), 1, "the parent of node 2 is 7"),
        ((1, 0), 0, "the root's parent is 1"),
    ],
)
def test_what_is_no_tree_is_refused(parents: tuple[int | None, ...], root: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Tree(root, parents)


def test_a_plan_that_does_not_fit_together_is_refused() -> None:
    good = plan(Policy(1, (ALONG,), (0,)))
    for change, message in (
        ({"ips": ("127.0.0.1",)}, "1 ips for 3 sites"),
        ({"chunks": (1, 2)}, "1 chunks have ways, of 2"),
        ({"merge_bytes_per_s": 0.0}, r"sync\.merge_rate: 0 B/s"),
        ({"policy": Policy(1, (Way(Tree(0, (None,)), Tree(0, (None,))),), (0,))}, "a tree of 1 nodes for 3 sites"),
    ):
        with pytest.raises(InputError, match=message):
            dataclasses.replace(good, **change)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="chunk 0 goes way 1"):
        Policy(1, (ALONG,), (1,))
    with pytest.raises(InputError, match="push to root 0, pull from 2"):
        Way(CHAIN, STAR)


@settings(max_examples=200)
@given(policies(), st.randoms(use_true_random=False))
def test_in_any_order_of_delivery_every_chunk_is_summed_once_and_reaches_everybody(
    drawn: tuple[int, Policy], order: random.Random
) -> None:
    """All servers' ledgers, joined by a network that delivers what is on its way in any order."""
    nodes, policy = drawn
    ledgers = [Ledger(node, policy) for node in range(nodes)]
    chunks = range(len(policy.way_of))
    way: list[tuple[str, int, int, int, frozenset[int]]] = [
        ("push", node, WORKER, chunk, frozenset({node})) for node in range(nodes) for chunk in chunks
    ]
    sums: dict[tuple[int, int], frozenset[int]] = {}
    results: dict[tuple[int, int], frozenset[int]] = {}
    while way:
        kind, node, source, chunk, value = way.pop(order.randrange(len(way)))
        ledger = ledgers[node]
        if kind == "push":
            before = sums.get((node, chunk), frozenset())
            assert not before & value
            sums[node, chunk] = before | value
            if not ledger.pushed(0, chunk, source, 1):
                continue
            if (parent := ledger.parent(chunk)) is not None:
                way.append(("push", parent, node, chunk, sums[node, chunk]))
                continue
            value = sums[node, chunk]
        else:
            ledger.pulled(0, chunk, source, 1)
        assert (node, chunk) not in results
        results[node, chunk] = value
        way += [("pull", child, node, chunk, value) for child in ledger.children(chunk)]
    assert results == {(node, chunk): frozenset(range(nodes)) for node in range(nodes) for chunk in chunks}
    assert all(ledger.state()["missing"] == {} for ledger in ledgers)


def test_a_ledger_refuses_what_the_policy_does_not_know() -> None:
    ledger = Ledger(1, Policy(4, (ALONG,), (0,)))
    assert not ledger.pushed(0, 0, 2, 4)
    assert ledger.state() == {"missing": {"round 0 chunk 0": [WORKER]}, "without result": []}
    for arguments, message in (
        ((0, 0, 2, 4), "node 1: round 0 chunk 0 came from node 2 under policy 4, which is no child, or for the second"),
        ((0, 0, 0, 4), "which is no child"),
        ((0, 0, WORKER, 3), r"under policy 3, which is not in force here \(4 is\)"),
        ((0, 1, WORKER, 4), "there is no such chunk"),
    ):
        with pytest.raises(ProtocolError, match=message):
            ledger.pushed(*arguments)
    with pytest.raises(ProtocolError, match="a result before all contributions"):
        ledger.pulled(0, 0, 0, 4)
    assert ledger.pushed(0, 0, WORKER, 4)
    assert ledger.state()["without result"] == ["round 0 chunk 0"]
    with pytest.raises(ProtocolError, match="all contributions are there"):
        ledger.pushed(0, 0, 2, 4)
    with pytest.raises(ProtocolError, match="not the parent"):
        ledger.pulled(0, 0, 2, 4)
    ledger.pulled(0, 0, 0, 4)
    with pytest.raises(ProtocolError, match="second time"):
        ledger.pulled(0, 0, 0, 4)


@given(st.integers(2, 40), st.integers(0, 5), st.randoms(use_true_random=False))
def test_sums_are_the_same_in_any_order(nodes: int, round_: int, order: random.Random) -> None:
    parts = [gradients.gradient(1, node, round_, 0, 500) for node in range(nodes)]
    total = np.sum([part.astype(np.int64) for part in parts], axis=0)
    order.shuffle(parts)
    one = parts[0].copy()
    for part in parts[1:]:
        one += part
    assert (one == total).all()


def test_gradients_differ_by_seed_node_round_and_chunk() -> None:
    base = (1, 2, 3, 4)
    others = [tuple(v + (i == j) for j, v in enumerate(base)) for i in range(4)]
    digests = {gradients.digest(gradients.gradient(*key, 1000)) for key in (base, *others)}  # type: ignore[arg-type]
    assert len(digests) == 5
    values = gradients.gradient(*base, 10_000)
    assert (values.min(), values.max()) == (-8, 8)


def test_messages_arrive_whole_or_not_at_all() -> None:
    near, far = socket.socketpair()
    payload = bytes(range(256)) * 40_000
    sender = threading.Thread(target=wire.send, args=(near, wire.Header(wire.PUSH, 7, 1, 2, 3), payload))
    sender.start()
    message = wire.receive(far)
    sender.join()
    assert message is not None
    header, got = message
    assert (header.kind, header.source, header.version, header.round, header.chunk) == (wire.PUSH, 7, 1, 2, 3)
    assert got == payload
    assert 0 <= time.time() - header.sent_s < 60
    near.sendall(b"\x02" + bytes(31))
    assert wire.receive(far) is not None
    near.sendall(b"\x09" + bytes(31))
    with pytest.raises(wire.BrokenOffError, match="a header that is none"):
        wire.receive(far)
    near.sendall(b"\x02" + bytes(10))
    near.close()
    with pytest.raises(wire.BrokenOffError, match="only 11 of 32 bytes of a header came"):
        wire.receive(far)
    assert wire.receive(far) is None
    far.close()


@pytest.mark.parametrize(
    "policy", [Policy(1, (ALONG,), (0, 0, 0)), Policy(1, (AROUND,), (0, 0)), Policy(1, (ALONG, AROUND), (0, 1, 1))]
)
def test_programs_come_to_the_direct_sum(policy: Policy, tmp_path: Path) -> None:
    made = plan(policy)
    records, events = synchronise(made, tmp_path)
    assert len(check_sums(made, records)) == 2
    assert sorted((record.round, record.node) for record in records) == list(itertools.product(range(2), range(3)))
    assert all(record.begin_s <= record.push_s <= record.end_s for record in records)
    _check_events(made, events)


def _check_events(made: SyncPlan, events: list[ChunkEvent]) -> None:
    """Every chunk goes over every edge of its tree once each way, and everything sent is received."""
    per_round = 2 * len(made.chunks)  # two edges of three nodes
    count: dict[Any, int] = {}
    for event in events:
        between = "worker" if event.peer is None else "nodes"
        count[event.event, event.kind, between] = count.get((event.event, event.kind, between), 0) + 1
    assert count[SENT, "push", "nodes"] == count[RECEIVED, "push", "nodes"] == per_round * made.rounds
    assert count[SENT, "pull", "nodes"] == count[RECEIVED, "pull", "nodes"] == per_round * made.rounds
    assert count[FORWARDED, "push", "nodes"] == count[MERGED, "push", "nodes"] == per_round * made.rounds
    assert count[MERGED, "push", "worker"] == 3 * len(made.chunks) * made.rounds
    assert all(event.begin_s <= event.t_s for event in events)


def test_merging_takes_the_time_of_its_rate(tmp_path: Path) -> None:
    made = plan(Policy(1, (ALONG,), (0,)), merge_bytes_per_s=6e6, rounds=1)
    records, _ = synchronise(made, tmp_path)
    # 1.2 MB merged twice, one after the other.
    assert max(one.end_s for one in records) - min(one.begin_s for one in records) >= 2 * 1.2 / 6


def test_a_wrong_byte_is_found() -> None:
    made = plan(Policy(1, (ALONG,), (0,)), rounds=1)
    right = gradients.direct(made, 0)
    wrong = gradients.together([gradients.digest(np.zeros(300_000, np.float32))])
    records = [RoundRecord(node, 0, 0.0, 0.0, 1.0, right) for node in range(3)]
    assert check_sums(made, records) == [right]
    with pytest.raises(NotValid, match=f"round 0: dc2 holds sums {wrong}, a direct sum is {right}"):
        check_sums(made, [records[0], dataclasses.replace(records[1], digest=wrong), records[2]])
    with pytest.raises(NotValid, match="round 0: dc3 holds sums None"):
        check_sums(made, records[:2])


class Alone:
    """The server in the middle of a chain, with the test in the place of everybody else."""

    def __init__(self, made: SyncPlan) -> None:
        self.said: SimpleQueue[str] = SimpleQueue()
        self.server = Server(made, 1, self.said.put)
        with self.server.listen() as listener, socket.create_server((made.ips[2], made.port)) as third:
            self.peers = {source: connect(made, 1, 1, source) for source in (WORKER, 0)}
            self.server.join(listener)
            self.peers[2], _ = third.accept()
        assert wire.receive(self.peers[2]) is not None

    def close(self) -> None:
        for connection in self.peers.values():
            connection.close()


@pytest.mark.parametrize(
    ("sender", "header", "size", "message"),
    [
        (2, wire.Header(wire.PUSH, 2, 1, 0, 0), 4, "chunk 0 from dc3 has 4 B"),
        (2, wire.Header(wire.PUSH, 2, 1, 0, 9), 4, "chunk 9 from dc3 has 4 B"),
        (2, wire.Header(wire.PUSH, 2, 9, 0, 0), 1_200_000, "under policy 9, which is not in force"),
        (2, wire.Header(wire.PULL, 2, 1, 0, 0), 1_200_000, "came from node 2 under policy 1, which is not the parent"),
        (0, wire.Header(wire.PULL, 0, 1, 0, 0), 1_200_000, "a result before all contributions"),
        (0, wire.Header(wire.PUSH, 2, 1, 0, 0), 1_200_000, "dc1 says it is dc3"),
        (2, wire.Header(7, 2, 1, 0, 0), 4, "a header that is none"),
    ],
)
def test_what_no_policy_knows_ends_the_server(sender: int, header: wire.Header, size: int, message: str) -> None:
    alone = Alone(plan(Policy(1, (ALONG,), (0,))))
    wire.send(alone.peers[sender], header, bytes(size))
    assert message in alone.said.get(timeout=10)
    alone.close()


def test_a_server_forwards_when_all_is_there_and_hands_the_result_down() -> None:
    alone = Alone(plan(Policy(1, (ALONG,), (0,))))
    values = np.arange(300_000, dtype=np.float32)
    for source in (2, WORKER):
        wire.send(alone.peers[source], wire.Header(wire.PUSH, source, 1, 0, 0), values.tobytes())
    up = wire.receive(alone.peers[0])
    assert up is not None
    assert (up[0].kind, up[0].source, up[1]) == (wire.PUSH, 1, (2 * values).tobytes())
    assert alone.server.state()["without result"] == ["round 0 chunk 0"]
    wire.send(alone.peers[0], wire.Header(wire.PULL, 0, 1, 0, 0), values.tobytes())
    for source in (2, WORKER):
        down = wire.receive(alone.peers[source])
        assert down is not None
        assert (down[0].kind, down[1]) == (wire.PULL, values.tobytes())
    alone.close()


def test_silence_tells_what_every_node_waits_for(tmp_path: Path) -> None:
    """Workers that compute for longer than the watchdog's patience."""
    made = plan(Policy(1, (ALONG,), (0,)), compute_s=(0.0, 0.0, 60.0))
    with pytest.raises(NotValid) as caught:
        synchronise(made, tmp_path, timeout_s=8.0)
    said = str(caught.value)
    assert "nobody said anything for 8 s; missing: worker of dc1, worker of dc2, worker of dc3" in said
    assert 'server of dc2 waits: {"missing": {"round 0 chunk 0": [2]}' in said


def test_timers_are_kept_while_the_rounds_go_on(tmp_path: Path) -> None:
    made = plan(Policy(1, (ALONG,), (0,)), compute_s=(0.3, 0.0, 0.0), rounds=1)
    done: list[float] = []
    with Conductor(made, tmp_path / "sync.sock", 20.0) as conductor:
        start_programs(tmp_path / "sync.sock", 3, {})
        conductor.gather()
        start_s = time.time() + 0.05
        due = [start_s + 0.2, start_s + 0.1]
        conductor.run(start_s, [(due_s, lambda: done.append(time.time())) for due_s in due])
        # Nothing is left that would be readable for ever, and would keep the conductor, and its clock, busy.
        assert not any(isinstance(key.data, socket.socket) for key in conductor._selector.get_map().values())
    assert len(done) == 2
    assert all(t >= due_s for t, due_s in zip(done, sorted(due), strict=True))
