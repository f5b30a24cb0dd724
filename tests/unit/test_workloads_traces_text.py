"""Text workloads of ASTRA-sim and AICB: the real ones, small ones made here, and everything that is not one."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_shapes import shape

from testbed.errors import InputError
from workloads.models import MODELS
from workloads.traces import aicb, astrasim
from workloads.traces.formats import format_of
from workloads.traces.layerwise import Communication, Dialect, LayerWorkload, Phase, TraceLayer, parse
from workloads.training.plan import Bucket, JobPlan

TRACES = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"
RESNET50 = "astrasim1_Resnet50_DataParallel.txt"
TRANSFORMER = "astrasim1_Transformer_HybridParallel.txt"
GPT13B = "aicb_simai_GPT13B_tp8_A100.txt"
MICRO = "simai_microAllReduce.txt"
ASTRASIM, AICB = astrasim.ASTRASIM, aicb.AICB
REAL = [(RESNET50, ASTRASIM), (TRANSFORMER, ASTRASIM), (GPT13B, AICB), (MICRO, AICB)]
PLACES: dict[str, Any] = {"name": "a", "hosts": ("h1", "h2"), "fabric_ips": ("10.0.0.1", "10.0.0.2")}
PLACES |= {"dscp": 3, "iterations": 9}

SMALL = """DATA
3
first  -1  100 NONE 0  7 NONE 0   30 ALLREDUCE 4000  9
second -1  200 NONE 0  8 NONE 0   40 NONE 0          9
third  -1  300 NONE 0  9 NONE 0   50 ALLREDUCE 8000  9
"""
TWO = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 1 pp: 1 ga: 1 checkpoints: 0
2
a -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 400 1
b -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 800 1
"""


def real(name: str) -> Path:
    if not (TRACES / name).exists():
        pytest.skip(f"{name} is not beside the repository (../shared/data/traces)")
    return TRACES / name


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "workload.txt"


def astrasim_plan(file: Path, text: str, **rest: Any) -> JobPlan:
    file.write_text(text)
    return astrasim.job_plan(file, **PLACES, **rest)


def aicb_plan(file: Path, text: str, **rest: Any) -> JobPlan:
    file.write_text(text)
    return aicb.job_plan(file, **PLACES, **rest)


@pytest.mark.parametrize(("name", "dialect"), REAL)
def test_what_is_written_reads_as_what_was_read(name: str, dialect: Dialect) -> None:
    text = real(name).read_text()
    workload = parse(text, name, dialect)
    assert parse(workload.to_text(), name, dialect) == workload
    # Nothing of the file is lost: its words are those of what is written.
    assert [word.removesuffix(":") for word in workload.to_text().split()] == [
        word.removesuffix(":") for word in text.split()
    ]


@pytest.mark.parametrize(("name", "dialect"), REAL)
def test_whose_a_file_is_is_told_by_its_contents(name: str, dialect: Dialect) -> None:
    assert format_of(real(name)) == {"AICB": "aicb"}.get(dialect.title, "astra-sim")


def test_the_real_resnet50_of_astrasim_becomes_a_job() -> None:
    workload = astrasim.read(real(RESNET50))
    assert (workload.parallelism, workload.settings, len(workload.layers)) == ("DATA", (), 54)
    assert workload.layers[0] == TraceLayer(
        name="conv1",
        reserved=-1,
        forward=Phase(13003, Communication("NONE", 0)),
        input_gradient=Phase(12864, Communication("NONE", 0)),
        weight_gradient=Phase(32291, Communication("ALLREDUCE", 37632)),
        update=3229,
    )
    plan = astrasim.job_plan(real(RESNET50), **PLACES, clock_hz=1e6)
    # The weights of ResNet-50's convolutions and of its classifier, without normalisations and bias.
    weights = sum(layer.tensors[0] for layer in MODELS["resnet50"].layers)
    assert shape(plan).total_bytes == 4 * weights == 102_011_648
    assert len(shape(plan).buckets) == 54
    assert shape(plan).buckets[0] == Bucket(8_192_000, 9220e-6)
    assert shape(plan).buckets[1].ready_s == (9220 + 27708 + 6536) / 1e6
    assert shape(plan).buckets[-1] == Bucket(37_632, shape(plan).backward_s, (52,))
    assert shape(plan).forward_s == sum(layer.forward.compute for layer in workload.layers) / 1e6
    assert "54 all-reduces of 102011648 B in all from 54 layers; 1e+06 cycles are a second" in plan.note


def test_the_settings_of_real_files() -> None:
    assert astrasim.read(real(TRANSFORMER)).settings == (("model_parallel_NPU_group", (4,)),)
    micro = aicb.read(real(MICRO))
    assert dict(micro.settings)["vpp"] == (8,)
    assert micro.setting("all_gpus") == (8,)
    assert aicb.read(real(GPT13B)).setting("ep") is None


def test_a_small_workload_by_hand(file: Path) -> None:
    plan = astrasim_plan(file, SMALL, clock_hz=1000.0, scale=2.0)
    assert shape(plan).forward_s == 0.6
    # Backwards, weights first: third 50 + 9, second 40 + 8, first 30, whose gradient of inputs nobody needs.
    assert shape(plan).buckets == (Bucket(4000, 0.05), Bucket(2000, 0.137, (0,)))
    assert shape(plan).backward_s == 0.137
    assert (plan.hosts, plan.dscp, plan.iterations, plan.congestion_control) == (("h1", "h2"), 3, 9, "dctcp")
    assert shape(astrasim_plan(file, SMALL)).forward_s == 600e-9


def test_a_small_workload_of_aicb_by_hand(file: Path) -> None:
    plan = aicb_plan(file, TWO)
    assert shape(plan).forward_s == 20e-9
    # Backwards, gradients of inputs first: b 20 + 30, a 20 + 30.
    assert shape(plan).buckets == (Bucket(800, 50e-9), Bucket(400, 100e-9, (0,)))
    assert (
        "AICB workload workload.txt: 2 all-reduces of 1200 B in all from 2 layers; 1e+09 ns are a second" in plan.note
    )


def test_lists_numbers_without_names_and_own_parallelisms_are_kept() -> None:
    row = "x -1 1 NONE 0 2 NONE 0 3 ALLREDUCE 4 5"
    first = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 checkpoints: 2 0 1 checkpoint_initiates: 0"
    lists = f"{first}\n1\n{row}"
    assert parse(lists, "f", ASTRASIM).setting("checkpoints") == (2, 0, 1)
    dlrm = parse(f"HYBRID_DLRM 7\n1\n{row}", "f", ASTRASIM)
    assert dlrm.setting("") == (7,)
    own = parse(f"HYBRID_CUSTOMIZED\n1\n{row} DATA", "f", ASTRASIM)
    assert own.layers[0].parallelism == "DATA"
    divided = parse(f"MICRO pp: 2 pp_comm: 8388608.0\n1\n{row}", "f", AICB)
    assert divided.setting("pp_comm") == (8388608,)
    grouped = parse(f"MICRO\n1\n{row.replace('ALLREDUCE', 'ALLGATHER_DP_EP')}", "f", AICB)
    assert grouped.layers[0].weight_gradient.communication == Communication("ALLGATHER", 4, "DP_EP")
    for workload, dialect in ((dlrm, ASTRASIM), (own, ASTRASIM), (divided, AICB), (grouped, AICB)):
        assert parse(workload.to_text(), "f", dialect) == workload


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (SMALL, "", r"line 1, column 1: is empty"),
        (SMALL, "DATA\n", r"line 1, column 5: ends after the first line .the second says how many"),
        ("DATA", "DATE", r"line 1, column 1: 'DATE' is no parallelism .ASTRA-sim 1.0 knows DATA, MODEL"),
        ("DATA", "DATA ep: 1", r"line 1, column 6: 'ep' is no setting"),
        ("DATA", "HYBRID_DLRM", r"line 1, column 12: a number is missing for the last layer"),
        ("DATA", "HYBRID_TRANSFORMER", r"line 1, column 19: model_parallel_NPU_group is missing"),
        ("DATA", "HYBRID_TRANSFORMER model_parallel_NPU_group: x", r"line 1, column 46: .*_group is 'x'"),
        ("\n3\n", "\n3 4\n", r"line 2, column 3: '4' follows the number of layers"),
        ("\n3\n", "\nthree\n", r"line 2, column 1: the number of layers is 'three'"),
        ("\n3\n", "\n0\n", r"line 2, column 1: 0 layers"),
        ("\n3\n", "\n2\n", r"line 5, column 1: 3 layers are there, 2 are announced .*line 2 says"),
        ("\n3\n", "\n4\n", r"line 5, column \d+: 3 layers are there, 4 are announced"),
        ("8 NONE 0 ", "8 NONE ", r"line 4, column \d+: update_time is missing|line 4, column \d+: ig_bytes is"),
        ("ALLREDUCE 8000  9", "ALLREDUCE 8000", r"line 5, column \d+: update_time is missing .a layer has 12 columns"),
        ("ALLREDUCE 8000  9", "ALLREDUCE 8000  9 DATA", r"line 5, column \d+: 'DATA' is one too many"),
        ("300", "-300", r"line 5, column 12: fwd_time is -300 .give a whole number from 0 on"),
        ("300", "3e2", r"line 5, column 12: fwd_time is '3e2'"),
        ("300", "9" * 19, r"line 5, column 12: fwd_time is 9+, more than 64 bits hold"),
        ("300", "9" * 5000, r"line 5, column 12: fwd_time is '9+"),
        ("300", "३००", r"line 5, column 12: fwd_time is"),
        ("ALLREDUCE 8000", "allreduce 8000", r"line 5, column \d+: wg_comm is 'allreduce' .*knows NONE, ALLREDUCE"),
        ("ALLREDUCE 8000", "ALLREDUCE_EP 8000", r"line 5, column \d+: wg_comm is 'ALLREDUCE_EP'"),
        ("third  -1", "third  x", r"line 5, column 8: reserved is 'x'"),
    ],
)  # fmt: skip
def test_errors_name_line_column_and_mend(file: Path, old: str, new: str, told: str) -> None:
    changed = SMALL.replace(old, new)
    assert changed != SMALL
    file.write_text(changed)
    with pytest.raises(InputError, match=f"workload.txt, {told}"):
        astrasim.read(file)


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ("MICRO ep: 1 ep: 1", "column 13: ep was there already"),
        ("MICRO checkpoints: 99999999999999999 1", "column 39: a number is missing for checkpoints"),
        ("MICRO pp_comm: 1.5", "column 16: pp_comm is '1.5'"),
        ("MICRO ep:", "column 10: a number is missing for ep"),
        ("MICRO ep: -1", "column 11: ep is '-1'"),
    ],
)
def test_errors_of_the_first_line(first: str, told: str) -> None:
    with pytest.raises(InputError, match=f"f, line 1, {told}"):
        parse(f"{first}\n1\nx -1 1 NONE 0 2 NONE 0 3 ALLREDUCE 4 5\n", "f", AICB)


def test_files_that_are_no_text_or_not_there(file: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        astrasim.read(file)
    with pytest.raises(InputError, match="Is a directory"):
        aicb.read(file.parent)
    file.write_bytes(b"DATA\n3\nab\xff")
    with pytest.raises(InputError, match="line 3, column 3: is not text"):
        astrasim.read(file)


@pytest.mark.parametrize(("key", "value"), [("scale", 0.0), ("clock_hz", 0.0), ("clock_hz", float("nan"))])
def test_a_scale_and_a_clock_are_above_0(file: Path, key: str, value: float) -> None:
    with pytest.raises(InputError, match=f"job a, {key}: "):
        astrasim_plan(file, SMALL, **{key: value})


@pytest.mark.parametrize(("name", "dialect"), REAL)
def test_a_real_file_cut_between_lines_is_refused(name: str, dialect: Dialect) -> None:
    lines = real(name).read_text().rstrip().splitlines(keepends=True)
    for count in range(len(lines)):
        with pytest.raises(InputError, match=r"line .*, column "):
            parse("".join(lines[:count]), name, dialect)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A workload with a few bytes inserted, removed, replaced or repeated, whole words among them."""
    data = bytearray(draw(st.sampled_from([SMALL, TWO])).encode())
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 12)))
        words = [
            b"",
            b"-1",
            b"\n",
            b"\r",
            b" ",
            b"\t",
            b"0",
            b"99999999999999999999",
            b"ALLTOALL",
            b"DATA",
            b":",
            b"\x85",
        ]
        data[begin:end] = draw(st.sampled_from([*words, bytes(data[begin:end]) * 2]) | st.binary(max_size=6))
    return bytes(data)


@given(damaged(), st.sampled_from([astrasim, aicb]))
def test_whatever_is_in_a_file_is_read_or_refused(tmp_path_factory: Any, data: bytes, reader: Any) -> None:
    file = tmp_path_factory.mktemp("damaged") / "workload.txt"
    file.write_bytes(data)
    try:
        workload = reader.read(file)
    except InputError as error:
        assert error.where.startswith(f"{file}, line ")
        assert ", column " in error.where
        assert error.mend
        return
    assert parse(workload.to_text(), "again", ASTRASIM if reader is astrasim else AICB) == workload
    try:
        plan = reader.job_plan(file, **PLACES)
    except InputError:
        return
    assert plan.total_bytes > 0


names = st.text(st.characters(blacklist_categories=["Cs", "Zs", "Cc"]), min_size=1, max_size=8)
naturals = st.integers(0, (1 << 63) - 1)


@given(st.data())
def test_any_workload_reads_as_it_was_written(data: st.DataObject) -> None:
    dialect = data.draw(st.sampled_from([ASTRASIM, AICB]))
    parallelism = data.draw(st.sampled_from(list(dialect.settings)))
    words = st.sampled_from(list(dialect.words.values()))
    settings: list[tuple[str, tuple[int, ...]]] = [("", (3,))] if parallelism in dialect.unnamed else []
    for name in dialect.settings[parallelism]:
        numbers = data.draw(st.lists(naturals, max_size=3))
        settings.append((name, (len(numbers), *numbers) if name in dialect.lists else (data.draw(naturals),)))

    def phase() -> Phase:
        kind, group = data.draw(words)
        return Phase(data.draw(naturals), Communication(kind, data.draw(naturals), group))

    own = "DATA" if parallelism == "HYBRID_CUSTOMIZED" else ""
    layers = tuple(
        TraceLayer(data.draw(names), data.draw(st.integers(-9, 9)), phase(), phase(), phase(), data.draw(naturals), own)
        for _ in range(data.draw(st.integers(1, 3)))
    )
    workload = LayerWorkload(parallelism, tuple(settings), layers)
    assert parse(workload.to_text(), "f", dialect) == workload
