"""Strategies: every program completes, every byte follows from sizes, and published iterations are as long as that."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed import experiment, scenario
from testbed.errors import InputError
from workloads.models import STEP_LATENCY_S, goodput_bps, job_plan
from workloads.strategies import experts, transformers
from workloads.strategies.alone import Wire, fitted, iteration_s
from workloads.strategies.transformers import NORM_BYTES, Iteration, Split, Stage
from workloads.training.operations import Op, rehearse, traffic
from workloads.training.plan import JobPlan


def plan_of(model: str, workers: int, **rest: Any) -> JobPlan:
    hosts = [f"h{i + 1}" for i in range(workers)]
    ips = [f"10.0.0.{i + 1}" for i in range(workers)]
    return job_plan(model, name="a", hosts=hosts, fabric_ips=ips, dscp=10, iterations=3, **rest)


def alone_s(plan: JobPlan, scale: float = 1.0) -> float:
    wire = Wire(goodput_bps(50e9 / scale, 9000), STEP_LATENCY_S * scale)
    return iteration_s(plan.groups, [plan.program(rank) for rank in range(plan.workers)], wire)


def received(programs: Any) -> Counter[tuple[int, int]]:
    """Bytes by (source rank, destination rank), counted where they arrive."""
    came: Counter[tuple[int, int]] = Counter()
    for rank, program in enumerate(programs):
        for op in program:
            if op.kind == "receive":
                came[op.peer, rank] += op.size_bytes
    return came


# The paper's four runs


@pytest.mark.parametrize("scale", [1.0, 50.0])
@pytest.mark.parametrize(
    ("model", "workers", "published_s"), [("gpt1", 4, 0.2), ("gpt2", 2, 0.2), ("gpt3", 2, 0.5), ("gpt3", 8, 3.0)]
)
def test_a_run_of_the_paper_lasts_as_long_as_published(
    model: str, workers: int, published_s: float, scale: float
) -> None:
    plan = plan_of(model, workers, scale=scale)
    assert alone_s(plan, scale) == pytest.approx(published_s, rel=1e-6)
    assert f"lasts the published {1e3 * published_s:g} ms" in plan.note


def test_the_pipeline_has_three_small_transfers_each_way_and_then_the_embeddings() -> None:
    plan = plan_of("gpt2", 2)
    activations = 8 * 256 * 1536 * 2  # samples, tokens, width, bytes
    for rank in range(2):
        sending = [op for op in plan.program(rank) if op.kind in ("send", "all-reduce")]
        assert [op.kind for op in sending] == ["send"] * 3 + ["all-reduce"] * 3
        assert {op.size_bytes for op in sending[:3]} == {activations}
        assert sum(op.size_bytes for op in sending[3:5]) == 4 * 50257 * 1536
        assert sending[5].size_bytes == 2 * NORM_BYTES
    each = 3 * activations + 4 * 50257 * 1536 + 2 * NORM_BYTES
    assert plan.traffic() == {(0, 1): each, (1, 0): each}


def test_a_tensor_group_reduces_twice_per_block_and_pass() -> None:
    plan = plan_of("gpt3", 2)
    reduces = [op for op in plan.program(0) if op.kind == "all-reduce"]
    assert reduces.pop().size_bytes == 2 * NORM_BYTES
    assert len(reduces) == 24 * 2 * 2
    assert {op.size_bytes for op in reduces} == {16 * 256 * 2048 * 2}
    # About 25 Gbit/s over the iteration, as the paper has it.
    assert plan.sent_bytes(0) * 8 / 0.5 == pytest.approx(25e9, rel=0.05)
    assert plan.program(0) == plan.program(1)


def test_the_hybrid_has_six_passes_and_reduces_the_parameters_of_its_workers() -> None:
    plan = plan_of("gpt3", 8)
    assert plan.groups[0] == (0, 1)
    for rank in range(8):
        ops = [op for op in plan.program(rank) if op.kind == "all-reduce"]
        sizes = Counter((op.group, op.size_bytes) for op in ops)
        tensor = next(
            index for index, group in enumerate(plan.groups) if group == (rank - rank % 2, rank - rank % 2 + 1)
        )
        assert sizes[tensor, 6 * 256 * 4096 * 2] == 6 * 16 * 2  # passes, blocks of a stage, reduces of a block
        replicas = next(index for index, group in enumerate(plan.groups) if set(group) == {rank, rank ^ 2})
        heavy = sum(op.size_bytes for op in ops if op.group == replicas)
        blocks = 16 * (12 * 4096**2 + 13 * 4096)
        tables = 50257 * 4096 + (2048 * 4096 if rank < 4 else 2 * 4096)
        assert heavy == 4 * (blocks + tables) // 2
        replica = {rank % 4 // 2 * 2 + at for at in (0, 1, 4, 5)}
        assert ops[-1].group is not None
        assert set(plan.groups[ops[-1].group]) == replica
        assert sizes[ops[-1].group, 4 * NORM_BYTES] == 1


def test_dlrm_exchanges_vectors_twice_and_reduces_its_perceptrons() -> None:
    plan = plan_of("dlrm", 4, batch=1024)
    assert [(op.kind, op.size_bytes) for op in plan.program(0) if op.kind != "compute"] == [
        ("all-to-all", 1024 * 8 * 64 * 4),
        ("all-reduce", 4 * 2_203_649),
        ("all-to-all", 1024 * 8 * 64 * 4),
        ("all-reduce", 4 * 295_488),
    ]


def test_gpt1_sends_its_own_gradients() -> None:
    plan = plan_of("gpt1", 4)
    assert sum(op.size_bytes for op in plan.program(0)) == 4 * 116_534_784
    assert len(plan.programs) == 1


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.2])
def test_compute_follows_the_rule_where_a_batch_is_given(factor: float) -> None:
    plan = plan_of("gpt3", 2, batch=16, compute_factor=factor)
    assert plan.compute_s == pytest.approx(factor * plan_of("gpt3", 2, batch=16).compute_s)
    macs = 16 * (24 * 256 * (12 * 2048**2 + 2 * 256 * 2048) + 256 * 50257 * 2048)
    loading = 1.2  # forward and backward, and loading in proportion
    assert plan.compute_s == pytest.approx(factor * loading * 3 * 2 * macs / 39e12 / 2, rel=0.03)


# Any sizes


@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 4),
    st.floats(0, 0.01), st.sampled_from([1.0, 50.0]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_every_split_completes_and_conserves_its_traffic(
    pipeline: int, tensor: int, data: int, microbatches: int, pieces: int, piece_s: float, scale: float
) -> None:
    split = Split(pipeline, tensor, data)
    stage = Stage((piece_s,) * pieces, piece_s, 10**9)
    iteration = Iteration((stage,) * pipeline, (2,) * microbatches, piece_s, 10**6, 10**7 if pipeline > 1 else 0)
    groups, programs = transformers.programs(split, iteration, 1.0, scale)
    ends = rehearse(groups, programs)
    assert len(programs) == split.workers
    # Compute of the first stage's worker, and the pipeline's filling with all stages' passes.
    slots = microbatches + pipeline - 1
    assert max(map(max, ends)) <= 2 * slots * (3 * pieces + 3 + 1) * piece_s + 1e-9
    between = received(programs)
    for lane in range(tensor):
        for replica in range(data):
            for each in range(pipeline - 1):
                a, b = split.rank(each, replica, lane), split.rank(each + 1, replica, lane)
                assert between[a, b] == between[b, a] == microbatches * round(2 * 10**6 / scale)
    assert sum(between.values()) == sum(op.size_bytes for program in programs for op in program if op.kind == "send")
    assert iteration_s(groups, programs, Wire(1e10, 0.0)) >= max(map(max, ends)) - 1e-9
    sent = traffic(groups, programs)
    if data > 1:  # one worker's gradients, once round the ring of its replicas
        ring = split.rank(0, 0, 0), split.rank(0, 1, 0)
        others = sum(op.size_bytes for op in programs[0] if op.kind == "all-reduce" and len(groups[op.group or 0]) > 1)
        assert 2 * (data - 1) / data * 10**9 / scale - 10 <= sent[ring] <= 2 * others


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 8), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_every_inference_completes_and_returns_what_it_was_sent(
    attention: int, expert: int, microbatches: int, top: int, layers: int
) -> None:
    inference = experts.Inference(
        experts=8, top=top, tokens=30, hidden=100, layers=layers, attention_workers=attention, expert_workers=expert,
        microbatches=microbatches,
    )  # fmt: skip
    programs = experts.programs(inference)
    ends = rehearse((), programs)
    assert max(map(max, ends)) >= layers * (400e-6 + 300e-6) / microbatches - 1e-9
    sent = traffic((), programs)
    for a in range(attention):
        for e in range(attention, attention + expert):
            # The way back has two bytes where the way there has one, each rounded per transfer.
            assert abs(sent[e, a] - 2 * sent[a, e]) <= 2 * layers * microbatches
            assert sent[a, e] <= layers * 30 * 100
    assert received(programs) == Counter(sent)


def test_a_token_reaches_the_workers_of_its_experts_once() -> None:
    assert experts.Inference(experts=4, top=1, expert_workers=4).reach(0) == 0.25
    assert experts.Inference(experts=4, top=4, expert_workers=4).reach(2) == 1
    # 2 of 4 experts, 2 on each of two workers: only one of six choices has none here.
    assert experts.Inference(experts=4, top=2, expert_workers=2).reach(1) == pytest.approx(5 / 6)


def test_microbatches_hide_the_other_side() -> None:
    wire = Wire(1e12, 0.0)
    both = {"attention_s": 1e-3, "expert_s": 1e-3, "layers": 10, "tokens": 128}
    one, two = (iteration_s((), experts.programs(experts.Inference(microbatches=n, **both)), wire) for n in (1, 2))
    assert one == pytest.approx(20e-3, rel=0.02)
    assert two == pytest.approx(10.5e-3, rel=0.03)


# The estimate


def test_an_iteration_by_hand() -> None:
    # 8 bit/s: a byte lasts 1 s. Two sends queue behind each other; a ring of two takes two steps of half the buffer.
    first = (Op("compute", 1.0), Op("send", size_bytes=2, peer=1, after=(0,)), Op("send", size_bytes=3, peer=1),
             Op("all-reduce", size_bytes=4, group=0))  # fmt: skip
    second = (Op("receive", size_bytes=2, peer=0), Op("receive", size_bytes=3, peer=0), Op("compute", 1.0, after=(0,)),
              Op("all-reduce", size_bytes=4, group=0))  # fmt: skip
    assert iteration_s(((0, 1),), (first, second), Wire(8.0, 0.0)) == 1 + 2 + 3 + 2 * 2
    assert iteration_s(((0, 1),), (first, second), Wire(8.0, 0.5)) == 1 + 2.5 + 3.5 + 2 * 2.5


def test_what_cannot_be_fitted_is_refused() -> None:
    assert fitted(lambda factor: 1 + 3 * factor, 4.0, "here") == pytest.approx(1.0)
    with pytest.raises(InputError, match=r"here: an iteration of 500 ms cannot be reached .* 1000\.0 ms at line rate"):
        fitted(lambda factor: 1 + 3 * factor, 0.5, "here")


# Which strategy


@pytest.mark.parametrize(
    ("model", "workers", "told"),
    [
        ("gpt1", 3, "gpt1, 3 workers"),
        ("gpt2", 4, "2 pipeline stages x 2 data-parallel replicas"),
        ("gpt3", 2, "tensor parallel: 2 tensor-parallel workers;"),
        ("gpt3", 4, "2 pipeline stages x 2 tensor-parallel workers;"),
        ("gpt3", 6, "tensor parallel: 2 tensor-parallel workers x 3 data-parallel replicas"),
        ("gpt3", 8, "2 pipeline stages x 2 tensor-parallel workers x 2 data-parallel replicas"),
    ],
)
def test_the_usual_strategy_fits_the_workers(model: str, workers: int, told: str) -> None:
    assert told in plan_of(model, workers).note


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ("pipeline(4)", "4 pipeline stages x 2 data"),
        ("tensor(4)", "4 tensor-parallel workers x 2 data"),
        ("hybrid(4,2)", "4 pipeline stages x 2 tensor-parallel workers;"),
        ("A", "2 pipeline stages x 4 data-parallel replicas; 48 blocks of width 1536"),
        ("B", "2 pipeline stages x 4 data-parallel replicas; 48 blocks of width 1184"),
        ("data", "gpt2, 8 workers"),
    ],
)
def test_a_strategy_can_be_written_with_its_parts(strategy: str, told: str) -> None:
    assert told in plan_of("gpt2", 8, strategy=strategy, batch=32).note


@pytest.mark.parametrize(
    ("model", "workers", "rest", "told"),
    [
        ("vgg16", 2, {"strategy": "pipeline"}, "job a, strategy: 'pipeline' .vgg16 is trained data parallel"),
        (
            "gpt2",
            2,
            {"strategy": "rows"},
            "job a, strategy: 'rows' is not known .*data, pipeline, tensor, ",
        ),
        ("gpt2", 2, {"strategy": "pipeline(2, 2)"}, "job a, strategy: pipeline with 2 numbers"),
        ("gpt2", 2, {"strategy": "pipeline(1)"}, "job a, strategy: pipeline of 1"),
        ("gpt2", 2, {"strategy": "data(2)"}, "job a, strategy: data has no parts"),
        ("gpt2", 3, {}, "job a, strategy: 3 workers do not divide into 2 pipeline stages .give a multiple of 2"),
        ("gpt2", 98, {"strategy": "pipeline(49)"}, "job a, strategy: 49 stages .gpt2 has 48 blocks"),
        ("gpt2", 4, {"strategy": "tensor"}, "job a, batch: gpt2 needs one for tensor .give 32 to 80 samples"),
        ("gpt2", 2, {"batch": 23}, "job a, model gpt2, batch: 23"),
        ("gpt3", 8, {"compute_factor": 1.2}, "job a, compute_factor: 1.2, but without a batch"),
        ("gpt3", 8, {"communication_s": 1.0}, "job a, communication: belongs to data parallelism, not to hybrid"),
        ("gpt3", 8, {"volume": "architecture"}, "job a, volume: belongs to data parallelism"),
        ("gpt3", 8, {"sizing": "published-up"}, "job a, sizing: no iteration of gpt3 is published"),
        ("dlrm", 4, {}, "job a, batch: dlrm needs one for embeddings .give 16 to 1024"),
        ("dlrm", 4, {"batch": 64, "strategy": "data"}, "job a, strategy: 'data' is not known .dlrm .* embeddings"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(model: str, workers: int, rest: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        plan_of(model, workers, **rest)


@pytest.mark.parametrize(
    ("key", "value"),
    [("experts", 0), ("top", 257), ("expert_workers", 300), ("microbatches", 129), ("attention_s", -1.0)],
)
def test_an_inference_that_cannot_be_is_refused(key: str, value: Any) -> None:
    with pytest.raises(InputError, match=key):
        experts.Inference(**{key: value})


# As scenarios


def built(**job: Any) -> JobPlan:
    keys = {"name": "a", "workers": 8, "model": "moe-dispatch-combine", **job}
    raw = {"name": "x", "title": "x", "job": [keys], "require": {"shared_links": False}}
    return experiment.build(scenario.Scenario.model_validate(raw), "x").jobs[0]


def test_an_inference_is_a_job_of_a_scenario() -> None:
    plan = built(moe={"experts": 64, "top": 4, "layers": 3, "expert_workers": 2}, compute_factor=1.2)
    assert plan.compute_s == pytest.approx(3 * 1.2 * 700e-6)
    assert {destination for source, destination in plan.connections() if source == 0} == {6, 7}
    assert "6 attention workers of 128 tokens each, 2 expert workers" in plan.note


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"moe": {"expert_workers": 8}}, "job a, moe.expert_workers: 8 of 8 workers"),
        ({"moe": {"top": 300}}, "job a, moe.top: 300 of 256 experts"),
        ({"moe": {"microbatches": 64, "tokens": 8}}, "job a, moe.microbatches: 64"),
    ],
)
def test_keys_of_an_inference_are_named(job: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        built(**job)


@pytest.mark.parametrize("job", [{"batch": 8}, {"model": "gpt2", "moe": {"top": 2}}])
def test_keys_of_others_are_refused(job: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is no key of"):
        built(**job)


@pytest.mark.parametrize("name", ["gpt1-data", "gpt2-pipeline", "gpt3-tensor", "gpt3-hybrid"])
def test_the_papers_pictures_watch_every_worker(name: str) -> None:
    made = experiment.build(scenario.load(f"traffic-{name}"), name)
    assert list(made.shared) == [f"{host}->leaf1" for host in made.jobs[0].hosts]
