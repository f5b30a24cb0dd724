"""Text workloads of every parallelism as jobs: who exchanges what with whom, in which order, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import InputError
from workloads.traces import aicb, astrasim
from workloads.training.plan import JobPlan

TRACES = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"
TRANSFORMER = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2"
LAYERS = """
2
a -1 1000 ALLREDUCE 400 2000 ALLREDUCE 600 3000 ALLREDUCE 800 1
b -1 1000 ALLREDUCE 400 2000 ALLREDUCE 600 3000 ALLREDUCE 800 1
"""
DLRM = """HYBRID_DLRM 1
4
vectors -1 10 ALLTOALL 4000 10 ALLTOALL 4000 10 NONE 0 1
lower -1 20 NONE 0 20 NONE 0 20 ALLREDUCE 200 1
upper -1 30 NONE 0 30 NONE 0 30 ALLREDUCE 300 1
last -1 40 NONE 0 40 NONE 0 40 ALLREDUCE 400 1
"""


def job(tmp_path: Path, text: str, workers: int = 4, per_server: int = 1, reader: object = astrasim) -> JobPlan:
    """The job of a workload on so many workers, of which `per_server` share one."""
    (tmp_path / "workload.txt").write_text(text)
    servers = [rank // per_server + 1 for rank in range(workers)]
    hosts, ips = [f"h{at}" for at in servers], [f"10.0.0.{at}" for at in servers]
    made: JobPlan = reader.job_plan(  # type: ignore[attr-defined]
        tmp_path / "workload.txt", name="a", hosts=hosts, fabric_ips=ips, dscp=1, iterations=2, clock_hz=1000.0
    )
    return made


def told(plan: JobPlan, rank: int = 0) -> list[str]:
    """A rank's operations in words: seconds of compute, collectives with their group and what each waits for."""
    found = []
    for op in plan.program(rank):
        what = f"{op.duration_s:g} s" if op.kind == "compute" else f"{op.kind} {op.size_bytes}"
        who = "" if op.group is None else f" among {','.join(map(str, plan.groups[op.group]))}"
        found.append(f"{what}{who} after {','.join(map(str, op.after))}".removesuffix(" after "))
    return found


def test_a_transformer_waits_for_activations_and_not_for_gradients_of_weights(tmp_path: Path) -> None:
    plan = job(tmp_path, TRANSFORMER + LAYERS)
    assert told(plan) == [
        "1 s",
        "all-reduce 400 among 0,1 after 0",
        "1 s after 1",
        "all-reduce 400 among 0,1 after 2",
        "2 s after 3",
        "all-reduce 600 among 0,1 after 4",
        "3 s after 4",
        "all-reduce 800 among 0,2 after 6",
        "2 s after 5,6",
        "all-reduce 600 among 0,1 after 8",
        "3 s after 8",
        "all-reduce 800 among 0,2 after 10",
    ]
    assert "all-reduce 800 among 1,3 after 6" in told(plan, 3)


def test_gradients_of_weights_have_nobody_to_go_to_without_replicas(tmp_path: Path) -> None:
    plan = job(tmp_path, TRANSFORMER + LAYERS, workers=2)
    assert plan.groups == ((0, 1),)
    assert not any("800" in line for line in told(plan))
    assert len(plan.programs) == 1


@pytest.mark.parametrize(
    ("parallelism", "activations", "weights"),
    [
        ("MODEL", "0,1,2,3", None),
        ("HYBRID_DATA_MODEL", "0,1", "0,2"),
        ("HYBRID_MODEL_DATA", "0,2", "0,1"),
        ("DATA", None, "0,1,2,3"),
    ],
)
def test_the_first_line_says_who_exchanges_what(
    tmp_path: Path, parallelism: str, activations: str | None, weights: str | None
) -> None:
    lines = told(job(tmp_path, parallelism + LAYERS, per_server=2))
    assert {line.split(" among ")[1].split(" after")[0] for line in lines if "400" in line} == {activations} - {None}
    assert {line.split(" among ")[1].split(" after")[0] for line in lines if "800" in line} == {weights} - {None}
    # The first layer's gradient of inputs is needed by nobody.
    assert sum("600" in line for line in lines) == (activations is not None)


def test_layers_of_a_customized_workload_have_their_own_groups(tmp_path: Path) -> None:
    rows = LAYERS.strip().splitlines()
    text = "\n".join(["HYBRID_CUSTOMIZED", rows[0], f"{rows[1]} MODEL", f"{rows[2]} DATA"])
    lines = told(job(tmp_path, text))
    assert [line for line in lines if "400" in line] == ["all-reduce 400 among 0,1,2,3 after 0"]
    assert [line for line in lines if "800" in line] == ["all-reduce 800 among 0,1,2,3 after 3"]
    with pytest.raises(InputError, match=r"line 3: 'HYBRID_TRANSFORMER' is not a layer's parallelism"):
        job(tmp_path, text.replace("1 MODEL", "1 HYBRID_TRANSFORMER"))


def test_vectors_travel_while_the_lower_perceptron_computes(tmp_path: Path) -> None:
    assert told(job(tmp_path, DLRM, workers=2)) == [
        "0.01 s",
        "all-to-all 4000 among 0,1 after 0",
        "0.02 s after 0",
        "0.07 s after 1,2",
        "0.04 s after 3",
        "all-reduce 400 among 0,1 after 4",
        "0.07 s after 4",
        "all-reduce 300 among 0,1 after 6",
        "0.03 s after 6",
        "all-to-all 4000 among 0,1 after 8",
        "0.02 s after 8",
        "all-reduce 200 among 0,1 after 10",
        "0.03 s after 10",
    ]


def test_layers_are_computed_again_from_the_checkpoint_before(tmp_path: Path) -> None:
    first = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 checkpoints: 1 0 checkpoint_initiates: 1 1"
    lines = told(job(tmp_path, first + LAYERS, workers=2))
    assert lines[4:7] == ["1 s after 3", "all-reduce 400 among 0,1 after 4", "2 s after 5"]
    with pytest.raises(InputError, match="checkpoint_initiates has layer 1, which has no layer of checkpoints before"):
        job(tmp_path, first.replace("checkpoints: 1 0", "checkpoints: 0") + LAYERS, workers=2)


def test_inference_has_a_forward_pass_alone(tmp_path: Path) -> None:
    assert told(job(tmp_path, "DISTRIBUTED_INFERENCE" + LAYERS, workers=2)) == [
        "1 s",
        "all-reduce 400 among 0,1 after 0",
        "1 s after 1",
        "all-reduce 400 among 0,1 after 2",
    ]


def test_an_all_gather_has_parts_in_astrasim_and_the_whole_in_aicb(tmp_path: Path) -> None:
    text = TRANSFORMER + LAYERS.replace("ALLREDUCE 400", "ALLGATHER 400")
    assert "all-gather 800 among 0,1 after 0" in told(job(tmp_path, text))
    assert "all-gather 400 among 0,1 after 0" in told(job(tmp_path, text, reader=aicb))


def test_experts_are_shared_within_a_group_of_gradients(tmp_path: Path) -> None:
    text = f"{TRANSFORMER} ep: 2" + LAYERS.replace("ALLREDUCE 400", "ALLTOALL_EP 400").replace(
        "ALLREDUCE 800", "REDUCESCATTER_DP_EP 800"
    )
    lines = told(job(tmp_path, text, workers=8, reader=aicb), 3)
    assert "all-to-all 400 among 1,3 after 0" in lines
    assert any(line.startswith("reduce-scatter 800 among 3,7") for line in lines)


def test_a_broadcast_goes_from_each_to_the_next(tmp_path: Path) -> None:
    text = TRANSFORMER.replace("2", "3") + LAYERS.replace("ALLREDUCE 400", "BROADCAST 400")
    plan = job(tmp_path, text, workers=3, reader=aicb)
    assert [told(plan, rank)[1:3] for rank in range(3)] == [
        ["send 400 after 0", "1 s after 1"],
        ["receive 400 after 0", "send 400 after 1"],
        ["receive 400 after 0", "1 s after 1"],
    ]
    assert plan.traffic()[0, 1] == 800 + plan.traffic()[2, 0]


@pytest.mark.parametrize(
    ("name", "workers", "reads"),
    [
        ("astrasim1_Transformer_HybridParallel.txt", 8, "8 all-gathers, 62 all-reduces of 6193758208 B"),
        ("aicb_simai_GPT13B_tp8_A100.txt", 8, "1 broadcast, 1 all-gather, 171 all-reduces of 10222346256 B"),
        ("simai_microAllReduce.txt", 8, "2 all-reduces of 83886080 B"),
    ],
)
def test_real_workloads_that_are_not_data_parallel_become_jobs(name: str, workers: int, reads: str) -> None:
    if not (TRACES / name).exists():
        pytest.skip(f"{name} is not beside the repository (../shared/data/traces)")
    reader = astrasim if name.startswith("astrasim") else aicb
    hosts, ips = [f"h{at}" for at in range(workers)], [f"10.0.0.{at + 1}" for at in range(workers)]
    plan = reader.job_plan(TRACES / name, name="a", hosts=hosts, fabric_ips=ips, dscp=1, iterations=2, scale=100.0)
    assert reads in plan.note
    with pytest.raises(InputError, match="workers are no whole tensor groups"):
        reader.job_plan(TRACES / name, name="a", hosts=hosts[:3], fabric_ips=ips[:3], dscp=1, iterations=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{TRANSFORMER} pp: 2{LAYERS}", "line 1: pp is 2: of a pipeline's stages the file has the layers of one"),
        (f"{TRANSFORMER} ep: 4{LAYERS}", r"line 1: 2 data-parallel workers are no whole groups of 4 \(ep\)"),
        (TRANSFORMER.replace("2", "0") + LAYERS, "line 1: 4 workers are no whole tensor groups of 0"),
        (
            TRANSFORMER + LAYERS.replace("400", "400").replace("b -1 1000 ALLREDUCE", "b -1 1000 ALLREDUCEALLTOALL"),
            "line 4: layer b: ALLREDUCEALLTOALL names dimensions of a simulated network",
        ),
        (TRANSFORMER + LAYERS.replace("ALLREDUCE", "NONE"), "nothing is exchanged among 4 workers"),
    ],
)
def test_what_cannot_be_replayed_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        job(tmp_path, text, reader=aicb)


def test_a_lower_perceptron_is_not_all_there_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 1: the lower perceptron has all layers .name one of the layers 0 to 2"):
        job(tmp_path, DLRM.replace("HYBRID_DLRM 1", "HYBRID_DLRM 3"))


def test_more_operations_than_a_guest_holds_are_refused(tmp_path: Path) -> None:
    rows = "".join(LAYERS.strip().splitlines()[1] + "\n" for _ in range(5000))
    with pytest.raises(InputError, match="at most 100000 in all: give fewer workers"):
        job(tmp_path, f"{TRANSFORMER}\n5000\n{rows}")


def test_workers_of_a_server_stand_together(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="are not equally many on each server"):
        job(tmp_path, "HYBRID_DATA_MODEL" + LAYERS, workers=5, per_server=2)
