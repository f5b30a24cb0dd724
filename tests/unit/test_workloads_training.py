"""Sums that are near rather than equal: quantised gradients, a model that is trained; queues that have an order."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_workloads_paramsync import ALONG, plan, synchronise

from testbed.errors import NotValid
from workloads.paramsync import coded, held, wire
from workloads.paramsync.conductor import check_sums
from workloads.paramsync.learner import Learner
from workloads.paramsync.outbox import Outbox
from workloads.paramsync.plan import Policy, SyncPlan, Tree, Way
from workloads.paramsync.tensors import tensors

NOTHING = memoryview(b"")
HUB = Tree(0, (None, 0, 0))
SPOKES = Policy(1, (Way(HUB, HUB),), (0, 0, 0))


def test_a_queue_is_first_in_first_out_unless_it_has_an_order() -> None:
    sent = [(wire.PUSH, 0, 2), (wire.PUSH, 0, 1), (wire.PULL, 0, 1), (wire.PULL, 1, 0), (wire.PUSH, 0, 0)]
    for oldest_first, wanted in ((False, sent), (True, [sent[4], sent[2], sent[1], sent[0], sent[3]])):
        outbox = Outbox(oldest_first)
        for kind, round_, chunk in sent:
            outbox.put(kind, round_, chunk, NOTHING)
        assert outbox.qsize() == len(sent)
        assert [outbox.get()[:3] for _ in sent] == wanted


def test_a_gradient_waits_for_its_window() -> None:
    outbox, got = Outbox(window=2), []
    for chunk in range(4):
        outbox.put(wire.PUSH, 0, chunk, NOTHING)

    def take() -> None:
        got.extend(outbox.get()[2] for _ in range(4))

    taking = threading.Thread(target=take, daemon=True)
    taking.start()
    time.sleep(0.1)
    assert got == [0, 1]
    outbox.grant(1, 9)  # of another round
    outbox.grant(0, 1)
    time.sleep(0.1)
    assert got == [0, 1, 2]
    outbox.grant(0, 2)
    taking.join(5)
    assert got == [0, 1, 2, 3]


@settings(max_examples=30)
@given(st.integers(1, 500), st.sampled_from((2, 3, 4, 8, 16, 32)), st.integers(0, 99))
def test_a_chunk_of_few_bits_survives_the_wire(elements: int, bits: int, seed: int) -> None:
    made = plan(SPOKES, bits=(32, bits, bits), seed=seed)
    own = np.random.default_rng(seed).normal(size=elements).astype(np.float32)
    payload = coded.coded(made, 1, 0, 0, own)
    assert len(payload) == coded.size_bytes(elements, bits)
    got = coded.decoded(payload, elements, bits)
    step = 2 * float(np.abs(own).max()) / (2**bits - 1)
    assert np.abs(got - own).max() <= step * (1 + 1e-5)
    assert (coded.received(made, 1, 0, 0, own) == got).all()
    assert (coded.decoded(coded.coded(made, 1, 0, 0, 0 * own), elements, bits) == 0).all()


def test_programs_send_quantised_gradients_and_come_to_the_direct_sum(tmp_path: Path) -> None:
    made = plan(SPOKES, bits=(32, 8, 4), held=str(tmp_path))
    records, events = synchronise(made, tmp_path)
    checked = held.check(made, records)
    assert len(checked) == 2
    assert all(one.error <= held.TOLERANCE and one.accuracy is None for one in checked)
    pushed = {e.node: e.size_bytes for e in events if (e.event, e.kind, e.chunk) == ("sent", "push", 0) and e.peer == 0}
    assert pushed == {1: 4 + 300_000, 2: 4 + 150_000}


def test_a_wrong_sum_is_beside_its_parts(tmp_path: Path) -> None:
    made = plan(SPOKES, bits=(32, 8, 4), held=str(tmp_path), rounds=1)
    records, _ = synchronise(made, tmp_path)
    sums = np.load(held.path(made, 0))
    with pytest.raises(NotValid, match=r"round 0: dc\d holds sums"):
        np.save(held.path(made, 0), sums + 1)
        held.check(made, records)
    with pytest.raises(NotValid, match="beside direct ones by"):
        np.save(held.path(made, 0), sums)
        held.check(dataclasses.replace(made, seed=4), records)


@pytest.mark.parametrize("change", [{"window": 1}, {"oldest_first": True}, {"silent": (1,)}])
def test_order_and_silence_change_no_sum(change: dict[str, object], tmp_path: Path) -> None:
    made = plan(SPOKES, **change)
    records, _ = synchronise(made, tmp_path)
    assert len(set(check_sums(made, records))) == 2
    assert SyncPlan.from_dict(made.to_dict()) == made


def _trained(folder: Path, **change: object) -> SyncPlan:
    chunks = (30_000, 20_000, sum(tensors("mlp")) - 50_000)
    return plan(Policy(1, (ALONG,), (0, 0, 0)), chunks=chunks, held=str(folder), trained=True, **change)


def test_programs_train_a_model_together(tmp_path: Path) -> None:
    made = _trained(tmp_path, rounds=12)
    records, _ = synchronise(made, tmp_path, timeout_s=60.0)
    checked = held.check(made, records)
    assert all(one.error <= held.TOLERANCE for one in checked)
    alone = Learner(made.seed, made.chunks)
    for round_ in range(12):
        alone.step(sum((alone.gradient(node, round_) for node in (1, 2)), alone.gradient(0, round_)), 3)
    loss, accuracy = alone.tested()
    assert checked[-1].loss == pytest.approx(loss, rel=1e-3)
    assert checked[-1].accuracy == pytest.approx(accuracy, abs=0.01)
    assert checked[-1].loss < 0.8 * checked[0].loss  # type: ignore[operator]


def test_a_model_learns_what_its_gradients_say() -> None:
    """Along its gradient the loss changes as the gradient's square says, by differences in double steps."""
    learner = Learner(5, (sum(tensors("mlp")),))
    batch = learner.data.batch(0, 0)

    def loss() -> float:
        _, shares = learner._forward(batch.inputs)
        return -float(np.log(shares[np.arange(len(shares)), batch.labels].astype(np.float64)).mean())

    gradient, at, far = learner.gradient(0, 0), learner.parameters.copy(), 1e-3
    learner.parameters = at + np.float32(far) * gradient
    above = loss()
    learner.parameters = at - np.float32(far) * gradient
    assert (above - loss()) / (2 * far) == pytest.approx(float((gradient.astype(np.float64) ** 2).sum()), rel=0.02)
    with pytest.raises(ValueError, match="the model has 53002"):
        Learner(5, (7,))
