"""Connections and collectives on loopback: sums, contents, sizes that nothing divides, and peers that die."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from workloads.training import contents, sockets
from workloads.training.executor import compiled, iterate
from workloads.training.mesh import PIECE_BYTES, Mesh, PeerLostError
from workloads.training.operations import Op, brief
from workloads.training.schedule import chunk_bounds

if TYPE_CHECKING:
    from workloads.training.executor import Step

TIMEOUT_S = 20.0


def address(rank: int) -> str:
    """A loopback address of this process's own."""
    return f"127.{1 + os.getpid() % 250}.{os.getpid() // 250 % 250}.{rank + 1}"


def default_congestion_control() -> str:
    with socket.socket() as plain:
        name: bytes = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.split(b"\0")[0].decode()


def settings() -> tuple[str, int, None]:
    return default_congestion_control(), 10, None


@contextlib.contextmanager
def meshes(workers: int, timeout_s: float = TIMEOUT_S, buffer_bytes: int | None = None) -> Iterator[list[Mesh]]:
    """Workers that are all connected with all others."""
    options = (*settings()[:2], buffer_bytes)
    outs: list[dict[int, socket.socket]] = [{} for _ in range(workers)]
    inwards: list[dict[int, socket.socket]] = [{} for _ in range(workers)]
    for rank in range(workers):
        with sockets.listen(address(rank), 0, *options, backlog=workers) as listener:
            for peer in range(workers):
                if peer != rank:
                    outs[peer][rank] = sockets.connect(address(peer), listener.getsockname(), *options, timeout_s)
                    inwards[rank][peer], _ = sockets.accept(listener, timeout_s)
    names = {rank: f"rank {rank}" for rank in range(workers)}
    made = [Mesh(out, inward, names) for out, inward in zip(outs, inwards, strict=True)]
    yield made
    for each in made:
        each.close()


def together(actions: Sequence[Callable[[], None]]) -> list[Exception | None]:
    """Run all at once; what each of them raised."""
    raised: list[Exception | None] = [None] * len(actions)

    def run(index: int) -> None:
        try:
            actions[index]()
        except PeerLostError as error:
            raised[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def in_rings(kind: str, values: list[array[int]]) -> list[Exception | None]:
    workers = len(values)
    group = list(range(workers))

    def work(each: Mesh, rank: int) -> Callable[[], None]:
        return lambda: contents.in_ring(kind, each, group, rank, values[rank])

    with meshes(workers) as made:
        return together([work(each, rank) for rank, each in enumerate(made)])


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
@pytest.mark.parametrize("length", [0, 1, 7, 1000])
def test_every_worker_ends_with_the_sums(workers: int, length: int) -> None:
    values = [array("q", [rank * 1000 + i * i for i in range(length)]) for rank in range(workers)]
    sums = [sum(column) for column in zip(*values, strict=True)]
    assert in_rings("all-reduce", values) == [None] * workers
    assert all(list(each) == sums for each in values)


@pytest.mark.parametrize("length", [1, 7, 1000])
def test_the_halves_of_an_all_reduce(length: int) -> None:
    workers = 3
    values = [array("q", [rank * 1000 + i * i for i in range(length)]) for rank in range(workers)]
    sums = [sum(column) for column in zip(*values, strict=True)]
    bounds = chunk_bounds(length, workers)
    assert in_rings("reduce-scatter", values) == [None] * workers
    for rank, each in enumerate(values):
        begin, end = bounds[(rank + 1) % workers]
        assert list(each[begin:end]) == sums[begin:end]
    assert in_rings("all-gather", values) == [None] * workers
    assert all(list(each) == sums for each in values)


@pytest.mark.parametrize("length", [0, 2, 7, 3 * PIECE_BYTES + 1])
def test_an_all_to_all_brings_everybody_their_part_of_each(length: int) -> None:
    group = [2, 0, 1]  # positions are not ranks
    given = [bytes((rank + i) % 251 for i in range(length)) for rank in range(3)]
    came: list[list[bytes]] = [[], [], []]

    def work(each: Mesh, rank: int) -> Callable[[], None]:
        return lambda: came[rank].extend(contents.all_to_all(each, group, rank, given[rank]))

    with meshes(3) as made:
        assert together([work(each, rank) for rank, each in enumerate(made)]) == [None] * 3
    bounds = chunk_bounds(length, 3)
    for rank in range(3):
        begin, end = bounds[group.index(rank)]
        assert came[rank] == [given[other][begin:end] for other in group]


def programs_of(*programs: Sequence[Op], groups: Sequence[Sequence[int]] = ()) -> list[list[Step]]:
    return [compiled([brief(op) for op in program], groups, rank) for rank, program in enumerate(programs)]


def act(steps: Sequence[Sequence[Step]], buffer_bytes: int | None = None) -> list[tuple[float, float, float]]:
    """(begin, begin of Up, end) of one iteration of each worker, from the same moment on."""
    found: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)] * len(steps)
    begin_s = time.time() + 0.02

    def work(rank: int, each: Mesh) -> Callable[[], None]:
        def run() -> None:
            found[rank] = (begin_s, *iterate(steps[rank], each, begin_s, 1.0))

        return run

    with meshes(len(steps), buffer_bytes=buffer_bytes) as made:
        assert together([work(rank, each) for rank, each in enumerate(made)]) == [None] * len(steps)
    return found


@pytest.mark.parametrize("size_bytes", [1, 4097, 3 * PIECE_BYTES + 1])
def test_meaningless_bytes_are_counted_exactly(size_bytes: int) -> None:
    """One byte too many or too few would end up in the sums that follow on the same connections."""
    kinds = ("all-reduce", "all-to-all", "reduce-scatter", "all-gather")
    program = [Op(kind, size_bytes=size_bytes, group=0) for kind in kinds]
    steps = programs_of(program, program, program, groups=[[0, 1, 2]])
    values = [array("q", [rank + 1] * 5) for rank in range(3)]

    def work(each: Mesh, rank: int) -> Callable[[], None]:
        def run() -> None:
            iterate(steps[rank], each, time.time(), 1.0)
            contents.in_ring("all-reduce", each, [0, 1, 2], rank, values[rank])

        return run

    with meshes(3) as made:
        assert together([work(each, rank) for rank, each in enumerate(made)]) == [None] * 3
    assert [list(each) for each in values] == [[6] * 5] * 3


def test_exchanges_larger_than_all_buffers_come_to_their_end() -> None:
    """Everybody sends both others far more than fits in between, and receives only then, in the worst order."""
    large = 24 * PIECE_BYTES
    programs = []
    for rank in range(3):
        peers = [(rank + 1) % 3, (rank + 2) % 3]
        sends = [Op("send", size_bytes=large, peer=peer) for peer in peers]
        programs.append([*sends, *(Op("receive", size_bytes=large, peer=peer) for peer in peers)])
    act(programs_of(*programs), buffer_bytes=4096)


def test_compute_overlaps_communication_and_dependencies_are_kept() -> None:
    # Rank 0: 50 ms, sends; then 30 ms more beside it. Rank 1: 10 ms, receives, then 20 ms that need it.
    first = [Op("compute", 0.05), Op("send", size_bytes=1000, peer=1, after=(0,)), Op("compute", 0.03)]
    second = [Op("compute", 0.01), Op("receive", size_bytes=1000, peer=0), Op("compute", 0.02, after=(1,))]
    (begin_s, up_0, end_0), (_, up_1, end_1) = act(programs_of(first, second))
    assert up_0 >= begin_s + 0.05
    assert end_0 >= begin_s + 0.08
    assert end_1 >= begin_s + 0.07
    assert up_1 == end_1  # it sends nothing


def test_a_communication_stream_is_one_after_another() -> None:
    """The second send waits for the receive before it, though it comes after nothing."""
    first = [
        Op("compute", 0.05),
        Op("send", size_bytes=1, peer=1, after=(0,)),
        Op("receive", size_bytes=1, peer=1),
    ]
    second = [Op("receive", size_bytes=1, peer=0), Op("send", size_bytes=1, peer=0)]
    (begin_s, _, _), (_, up_1, _) = act(programs_of(first, second))
    assert up_1 >= begin_s + 0.05


def test_compute_lasts_by_the_factor() -> None:
    steps = programs_of([Op("compute", 0.02)], [Op("compute", 0.02)])
    with meshes(2) as made:
        begin_s = time.time()
        _, end_s = iterate(steps[0], made[0], begin_s, 3.0)
    assert end_s >= begin_s + 0.06


def test_a_peer_that_hangs_up_is_named() -> None:
    steps = programs_of(*[[Op("all-reduce", size_bytes=64 * PIECE_BYTES, group=0)]] * 2, groups=[[0, 1]])
    with meshes(2) as made:
        made[1].close()
        raised = together([lambda: void(iterate(steps[0], made[0], time.time(), 1.0))])
        assert str(raised[0]).startswith("rank 1 ")


def test_a_peer_that_hangs_up_is_named_also_where_another_is_awaited() -> None:
    program = [Op("send", size_bytes=64 * PIECE_BYTES, peer=1), Op("receive", size_bytes=1, peer=2)]
    (steps,) = programs_of(program)
    with meshes(3) as made:
        made[1].close()
        raised = together([lambda: void(iterate(steps, made[0], time.time(), 1.0))])
        assert str(raised[0]).startswith("rank 1 is lost: ")


def test_a_silent_peer_is_named() -> None:
    steps = programs_of(*[[Op("all-reduce", size_bytes=3, group=0)]] * 3, groups=[[0, 1, 2]])
    with meshes(3, timeout_s=0.2) as made:
        raised = together([lambda: void(iterate(steps[0], made[0], time.time(), 1.0))])
        assert str(raised[0]) == "rank 2 was silent for too long"


def void(_: object) -> None:
    """Nobody wants the result."""


def test_the_kernel_is_asked_what_it_did() -> None:
    with meshes(3) as made:
        found = made[0].read_back()
    assert [each["direction"] for each in found] == ["to rank 1", "to rank 2", "from rank 1", "from rank 2"]
    for each in found:
        assert each["nodelay"] is True
        assert each["dscp"] == 10
        assert each["congestion_control"] == default_congestion_control()
        assert int(each["mss_bytes"]) > 0
        assert float(each["rto_s"]) > 0


def test_a_congestion_control_that_is_refused_shows() -> None:
    with sockets.listen(address(0), 0, "no-such-cc", 0, None) as listener:
        assert sockets.read_back(listener)["congestion_control"] == default_congestion_control()


def test_buffers_are_set_only_when_given() -> None:
    with (
        sockets.listen(address(0), 0, *settings()) as untouched,
        sockets.listen(address(0), 0, "reno", 0, 50_000) as given,
        socket.socket() as plain,
    ):
        default = plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert sockets.read_back(untouched)["send_buffer_bytes"] == default
        assert sockets.read_back(given)["send_buffer_bytes"] == 100_000  # the kernel counts double


def test_a_connection_tells_where_it_comes_from() -> None:
    with sockets.listen(address(0), 0, *settings()) as listener:
        peer = listener.getsockname()
        with sockets.connect(address(5), peer, *settings(), TIMEOUT_S):
            connection, ip = sockets.accept(listener, TIMEOUT_S)
            connection.close()
    assert ip == address(5)
