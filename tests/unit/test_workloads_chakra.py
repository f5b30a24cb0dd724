"""Chakra traces: a real one, small ones made here, and everything that is not one."""

import gzip
import io
import tarfile
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from training_shapes import shape

from testbed.errors import InputError
from workloads.traces.chakra import read_trace
from workloads.traces.replay import Replay, job_plan, replay
from workloads.training.plan import Bucket, data_parallel

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces" / "chakra_resnet50_ddp.et.tar.gz"
COMPUTE, SEND, COLLECTIVE = 4, 5, 7
ALL_REDUCE, ALL_GATHER, BROADCAST = 0, 2, 5
IPS = ("10.0.0.1", "10.0.0.2")


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(key: int, value: int) -> bytes:
    return varint(key << 3) + varint(value & (1 << 64) - 1)


def span(key: int, contents: bytes) -> bytes:
    return varint(key << 3 | 2) + varint(len(contents)) + contents


@dataclass(frozen=True)
class Made:
    """A node to be encoded."""

    id: int
    name: str = "kernel"
    kind: int = COMPUTE
    duration_us: int = 0
    start_us: int = 0
    deps: tuple[int, ...] = ()
    attributes: dict[str, bytes] = field(default_factory=dict)

    def encoded(self) -> bytes:
        out = number(1, self.id) + span(2, self.name.encode()) + number(3, self.kind)
        out += span(5, b"".join(map(varint, self.deps))) if self.deps else b""
        out += number(6, self.start_us) if self.start_us else b""
        out += number(7, self.duration_us) if self.duration_us else b""
        return out + b"".join(span(10, span(1, k.encode()) + v) for k, v in self.attributes.items())


def reduce(id_: int, size_bytes: int, deps: tuple[int, ...] = (), stream: int = 14, kind: int = ALL_REDUCE) -> Made:
    attributes = {"comm_type": number(9, kind), "comm_size": number(9, size_bytes), "tid": number(9, stream)}
    return Made(id_, "nccl", COLLECTIVE, 5, 0, deps, attributes | {"is_cpu_op": number(27, 0)})


METADATA = span(2, span(1, b"schema") + span(29, b"1.0.1"))
FORWARD, BACKWARD = Made(1, "conv2d", duration_us=100), Made(3, "mm_backward", duration_us=40)
SMALL = [FORWARD, BACKWARD, reduce(4, 1000, (3,)), Made(5, "kernel", duration_us=60), reduce(6, 2000, (5,))]


def encoded(nodes: list[Made], metadata: bytes = METADATA) -> bytes:
    return b"".join(varint(len(each)) + each for each in [metadata, *(node.encoded() for node in nodes)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.et"


def replayed(file: Path, nodes: list[Made]) -> Replay:
    file.write_bytes(encoded(nodes))
    return replay(file)


def test_the_real_trace_is_resnet50() -> None:
    if not REAL.exists():
        pytest.skip(f"{REAL.name} is not beside the repository (../shared/data/traces)")
    hosts, ips = ("h1", "h2", "h3"), ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    plan = job_plan(REAL, name="r", hosts=hosts, fabric_ips=ips, dscp=3, iterations=9, scale=1.0)
    assert plan == data_parallel(
        name="r",
        hosts=hosts,
        fabric_ips=ips,
        dscp=3,
        forward_s=0.095082,
        backward_s=0.197746,
        buckets=(
            Bucket(8196000, 0.000216),
            Bucket(31502336, 0.011241, (0,)),
            Bucket(26255360, 0.029082, (1,)),
            Bucket(26550272, 0.070870, (2,)),
            Bucket(9724160, 0.197746, (3,)),
        ),
        iterations=9,
        congestion_control="dctcp",
        note="Chakra trace chakra_resnet50_ddp.et.tar.gz: 5 all-reduces of 102228128 B in all;"
        " 1209 compute nodes, laid end to end, since the trace has no start times;"
        " 2 broadcasts and barriers of 212904 B left out. Bytes are divided by 1.",
    )
    assert shape(plan).total_bytes == 4 * 25_557_032  # the parameters of ResNet-50, in fp32


def test_the_real_trace_cut_anywhere_is_refused_with_the_byte(file: Path) -> None:
    if not REAL.exists():
        pytest.skip(f"{REAL.name} is not beside the repository (../shared/data/traces)")
    whole = REAL.read_bytes()
    for length in range(0, len(whole), 9973):
        file.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"byte \d+"):
            replay(file)


def test_a_small_trace_by_hand(file: Path) -> None:
    tail = Made(7, "optimizer", duration_us=30)
    found = replayed(file, [*SMALL, tail])
    assert found.forward_s == (100 + 30) / 1e6
    assert found.backward_s == (40 + 60) / 1e6
    assert found.buckets == (Bucket(1000, 40e-6), Bucket(2000, 100e-6, (0,)))


def test_start_times_are_kept_where_there_are_any(file: Path) -> None:
    stamped = [
        Made(1, "conv2d", start_us=1000, duration_us=100),
        Made(3, "mm_backward", start_us=1150, duration_us=40),
        reduce(4, 1000),
        Made(5, "kernel", start_us=1300, duration_us=60),
        reduce(6, 2000),
    ]
    found = replayed(file, stamped)
    assert found.forward_s == 150e-6
    assert found.backward_s == 210e-6
    assert [bucket.ready_s for bucket in found.buckets] == [40e-6, 210e-6]
    assert "start times kept" in found.reading


def test_compute_on_the_cpu_counts_only_where_there_is_no_other(file: Path) -> None:
    on_cpu = Made(2, "aten::conv2d", duration_us=7, attributes={"is_cpu_op": number(27, 1)})
    assert replayed(file, [on_cpu, *SMALL]).forward_s == 100e-6
    only = [Made(m.id, m.name, m.kind, m.duration_us, 0, m.deps, {"is_cpu_op": number(27, 1)}) for m in SMALL[:2]]
    assert replayed(file, [*only, reduce(4, 10)]).forward_s == 100e-6


def test_all_reduces_of_other_streams_wait_only_for_their_data(file: Path) -> None:
    nodes = [
        *SMALL[:3],
        reduce(5, 10, stream=15),
        Made(6, deps=(5,)),
        reduce(7, 20, (6,), stream=16),
        reduce(8, 30),
    ]
    assert [bucket.after for bucket in replayed(file, nodes).buckets] == [(), (), (1,), (0,)]


def test_an_all_reduce_whose_data_another_makes_later_comes_after_it(file: Path) -> None:
    found = replayed(file, [*SMALL[:2], reduce(4, 10, (5,), stream=1), reduce(5, 20, stream=2)])
    assert [(bucket.size_bytes, bucket.after) for bucket in found.buckets] == [(20, ()), (10, (0,))]


def test_a_collective_named_on_cpu_and_device_is_one(file: Path) -> None:
    launch = reduce(4, 1000)
    on_cpu = Made(10, "c10d::allreduce_", COLLECTIVE, attributes=launch.attributes | {"is_cpu_op": number(27, 1)})
    assert len(replayed(file, [*SMALL, on_cpu]).buckets) == 2


def test_dependencies_need_not_be_packed(file: Path) -> None:
    unpacked = BACKWARD.encoded() + number(5, 1) + number(5, 1)
    whole = [METADATA, FORWARD.encoded(), unpacked, reduce(4, 10).encoded()]
    file.write_bytes(b"".join(varint(len(each)) + each for each in whole))
    assert read_trace(file)[1].data_deps == (1, 1)


def test_broadcasts_are_left_out_and_said(file: Path) -> None:
    found = replayed(file, [reduce(0, 77, kind=BROADCAST), *SMALL])
    assert len(found.buckets) == 2
    assert "1 broadcasts and barriers of 77 B left out" in found.reading


def test_scaling_divides_bytes_and_keeps_times(file: Path) -> None:
    file.write_bytes(encoded(SMALL))
    plan = job_plan(file, name="a", hosts=("h1", "h2"), fabric_ips=IPS, dscp=0, iterations=1, scale=50.0)
    assert shape(plan).buckets == (Bucket(20, 40e-6), Bucket(40, 100e-6, (0,)))
    with pytest.raises(InputError, match="scale"):
        job_plan(file, name="a", hosts=("h1", "h2"), fabric_ips=IPS, dscp=0, iterations=1, scale=0.0)


def packed(name: str, data: bytes, others: tuple[str, ...] = ()) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member in (name, *others):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_the_container_is_told_by_its_contents(file: Path) -> None:
    data = encoded(SMALL)
    for contents in (
        data,
        gzip.compress(data),
        packed("a/b.et", data),
        gzip.decompress(packed("b.et", data)),
    ):
        file.write_bytes(contents)
        assert len(read_trace(file)) == len(SMALL)


@pytest.mark.parametrize("others", [(), ("c.et", "d.et")])
def test_an_archive_has_exactly_one_trace(file: Path, others: tuple[str, ...]) -> None:
    file.write_bytes(packed("readme.txt", encoded(SMALL), others))
    with pytest.raises(InputError, match=f"holds {len(others)} files"):
        read_trace(file)


@pytest.mark.parametrize(
    "data",
    [encoded(SMALL), packed("b.et", encoded(SMALL)), gzip.decompress(packed("b.et", encoded(SMALL)))[:1024]],
)
def test_a_file_cut_at_any_byte_is_refused_or_plainly_shorter(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    whole = replay(file)
    refused = 0
    for length in range(len(data)):
        file.write_bytes(data[:length])
        try:
            shorter = replay(file)
        except InputError as error:
            refused += 1
            assert "byte " in str(error) or "no all-reduce" in str(error) or "says backward" in str(error)
        else:
            assert shorter.buckets == whole.buckets[: len(shorter.buckets)]
    assert refused >= len(data) - 512  # the padding of a tar archive may go; of a bare trace, one node's boundary


def test_a_bare_trace_can_be_cut_unnoticed_only_between_nodes(file: Path) -> None:
    data = encoded(SMALL)
    boundaries = set(accumulate(len(varint(len(e))) + len(e) for e in [METADATA, *(n.encoded() for n in SMALL)]))
    for length in range(len(data)):
        file.write_bytes(data[:length])
        if length in boundaries:
            continue
        with pytest.raises(InputError, match=r"byte \d+"):
            read_trace(file)


def test_a_dependency_that_leads_nowhere_betrays_a_cut(file: Path) -> None:
    with pytest.raises(InputError, match=r"byte \d+: node 6 needs node 8, which the file lacks"):
        replayed(file, [*SMALL[:-1], reduce(6, 2000, (8,))])


METADATA_BYTES = 1 + len(METADATA)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "byte 0: a number is cut off"),
        (b"\x00", "byte 0: the metadata are empty"),
        (b"<html><body>not found</body></html>", "byte 0: 60 bytes are announced, 34 are there"),
        (b"\x05hello", "byte 1: the metadata hold what Chakra's never do"),
        (b"\x7fELF" + bytes(200), "byte 1: wire type|byte 1: the metadata hold"),
        (bytes(1000), "byte 0: the metadata are empty"),
        (b"\xff" * 20, "byte 0: a number is longer than 64 bits"),
        (encoded([]), f"byte {METADATA_BYTES}: no nodes follow"),
        (encoded([Made(1, kind=0)]), f"byte {METADATA_BYTES}: a node of type 0"),
        (encoded([Made(1, kind=11)]), f"byte {METADATA_BYTES}: a node of type 11"),
        (encoded([Made(1), Made(1)]), "node 1 was there already, at byte"),
        (encoded([]) + b"\x04\x0a\x02\x08\x01", "field 1 of a node has wire type 2"),
        (encoded([]) + b"\x02\x00\x01", "field number 0"),
        (encoded([]) + b"\x02\x0b\x01", "wire type 3 is not in use"),
        (encoded([]) + b"\x02\x5d\x01", "a field of 4 bytes is cut off"),
        (encoded([]) + b"\x05\x2d\x00\x00\x00\x00", "dependencies are not numbers"),
        (encoded([]) + b"\x03\x12\x01\xff", r"byte \d+: not UTF-8"),
        (encoded([reduce(1, -5)]), "a collective of -5 bytes"),
        (encoded([reduce(1, 5, kind=10)]), "a collective of type 10"),
        (encoded(SMALL[:2]), "holds no all-reduce"),
        (encoded([FORWARD, reduce(4, 5)]), "no node's name says backward"),
        (encoded([reduce(1, 5), BACKWARD]), "byte .*: node 1 is an all-reduce before the backward pass"),
        (encoded([BACKWARD, reduce(4, 0)]), "byte .*: node 4 is an all-reduce of no bytes"),
        (encoded([BACKWARD, reduce(4, 5, kind=ALL_GATHER)]), "node 4 is a collective of the kind all-gather"),
        (encoded([BACKWARD, Made(4, kind=SEND), reduce(5, 9)]), "node 4 is a point-to-point transfer"),
        (
            encoded([BACKWARD, reduce(4, 5, (5,)), reduce(5, 5, (4,))]),
            "node 4 is an all-reduce that waits for itself",
        ),
        (encoded([Made(1, "backward", COLLECTIVE), reduce(4, 5)]), "holds no compute"),
        (b"\x1f\x8b" + bytes(20), "byte 0 or soon after"),
        (packed("b.et", encoded(SMALL))[:-9], r"byte \d+: the compressed data are cut off"),
    ],
)
def test_what_is_no_data_parallel_trace_is_refused(file: Path, data: bytes, told: str) -> None:
    file.write_bytes(data)
    with pytest.raises(InputError, match=told) as error:
        replay(file)
    assert error.value.where.startswith(str(file))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.et: No such file"):
        replay(tmp_path / "nothing.et")
    with pytest.raises(InputError, match="Is a directory"):
        replay(tmp_path)


ANY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refused_or_replayed(file: Path, data: bytes) -> None:
    """Nothing but InputError may come out of any file."""
    file.write_bytes(data)
    try:
        plan = job_plan(file, name="a", hosts=("h1", "h2"), fabric_ips=IPS, dscp=0, iterations=1)
    except InputError as error:
        assert error.exit_code == 2
    else:
        assert plan.total_bytes


@ANY
@given(st.binary(max_size=300))
def test_any_bytes(file: Path, data: bytes) -> None:
    refused_or_replayed(file, data)
    refused_or_replayed(file, encoded(SMALL) + data)


@ANY
@given(st.integers(0, len(encoded(SMALL)) - 1), st.binary(min_size=1, max_size=4))
def test_any_damage_to_a_trace(file: Path, at: int, damage: bytes) -> None:
    data = encoded(SMALL)
    refused_or_replayed(file, data[:at] + damage + data[at + len(damage) :])


@ANY
@given(st.integers(0, 1535), st.binary(min_size=1, max_size=12))
def test_any_damage_to_an_archive(file: Path, at: int, damage: bytes) -> None:
    archive = gzip.decompress(packed("a/b.et", encoded(SMALL)))
    damaged = archive[:at] + damage + archive[at + len(damage) :]
    refused_or_replayed(file, damaged)
    refused_or_replayed(file, gzip.compress(damaged))


@ANY
@given(
    st.lists(
        st.tuples(
            st.sampled_from([COMPUTE, COLLECTIVE]),
            st.integers(0, 1 << 64),
            st.integers(0, 1 << 64),
            st.lists(st.integers(0, 9), max_size=3),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_any_graph(file: Path, nodes: list[tuple[int, int, int, list[int]]]) -> None:
    made = [Made(0, "backward")]
    for id_, (kind, duration_us, start_us, deps) in enumerate(nodes, 1):
        attributes = reduce(id_, 1 + duration_us % 99, stream=id_ % 3).attributes if kind == COLLECTIVE else {}
        made.append(Made(id_, "n", kind, duration_us, start_us, tuple(deps), attributes))
    refused_or_replayed(file, encoded(made))
