"""The ring all-reduce on loopback connections: sums, sizes that nothing divides, and neighbours that die."""

import contextlib
import os
import socket
import threading
from array import array
from collections.abc import Callable, Iterator

import pytest

from workloads.training import sockets
from workloads.training.ring import PIECE_BYTES, PeerLostError, Ring

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
def ring(workers: int, timeout_s: float = TIMEOUT_S) -> Iterator[list[Ring]]:
    listeners = [sockets.listen(address(rank), 0, *settings()) for rank in range(workers)]
    ports = [listener.getsockname()[1] for listener in listeners]
    outs = []
    for rank in range(workers):
        following = (rank + 1) % workers
        peer = (address(following), ports[following])
        outs.append(sockets.connect(address(rank), peer, *settings(), timeout_s))
    inwards = [sockets.accept(listeners[r], address((r - 1) % workers), timeout_s) for r in range(workers)]
    for listener in listeners:
        listener.close()
    rings = [
        Ring(r, workers, outs[r], inwards[r], f"rank {(r + 1) % workers}", f"rank {(r - 1) % workers}")
        for r in range(workers)
    ]
    yield rings
    for each in rings:
        each.close()


def together(actions: list[Callable[[], None]]) -> list[Exception | None]:
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


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
@pytest.mark.parametrize("length", [0, 1, 7, 1000])
def test_every_worker_ends_with_the_sums(workers: int, length: int) -> None:
    values = [array("q", [rank * 1000 + i * i for i in range(length)]) for rank in range(workers)]
    sums = [sum(column) for column in zip(*values, strict=True)]
    with ring(workers) as rings:
        raised = together([lambda r=r: rings[r].all_reduce_sum(values[r]) for r in range(workers)])  # type: ignore[misc]
    assert raised == [None] * workers
    assert all(list(each) == sums for each in values)


@pytest.mark.parametrize("size_bytes", [1, 4097, 3 * PIECE_BYTES + 1])
def test_meaningless_bytes_are_counted_exactly(size_bytes: int) -> None:
    """One byte too many or too few would end up in the sums that follow on the same connections."""
    workers = 3
    values = [array("q", [rank + 1] * 5) for rank in range(workers)]

    def work(each: Ring, own: "array[int]") -> None:
        each.all_reduce(size_bytes)
        each.all_reduce(size_bytes + 1)
        each.all_reduce_sum(own)

    with ring(workers) as rings:
        raised = together([lambda r=r: work(rings[r], values[r]) for r in range(workers)])  # type: ignore[misc]
    assert raised == [None] * workers
    assert [list(each) for each in values] == [[6] * 5] * workers


def test_a_neighbour_that_hangs_up_is_named() -> None:
    with ring(2) as rings:
        rings[1].close()
        raised = together([lambda: rings[0].all_reduce(64 * PIECE_BYTES)])
        assert str(raised[0]).startswith("rank 1 ")


def test_a_silent_neighbour_is_named() -> None:
    with ring(3, timeout_s=0.2) as rings:
        raised = together([lambda: rings[0].all_reduce(3)])
        assert str(raised[0]) == "rank 2 was silent for too long"


def test_the_kernel_is_asked_what_it_did() -> None:
    with ring(2) as rings:
        for found in rings[0].read_back():
            assert found["nodelay"] is True
            assert found["dscp"] == 10
            assert found["congestion_control"] == default_congestion_control()
            assert int(found["mss_bytes"]) > 0
            assert float(found["rto_s"]) > 0


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


def test_a_connection_from_elsewhere_is_not_the_previous_worker() -> None:
    with sockets.listen(address(0), 0, *settings()) as listener:
        peer = listener.getsockname()
        with (
            sockets.connect(address(5), peer, *settings(), TIMEOUT_S),
            pytest.raises(ConnectionError, match=address(5)),
        ):
            sockets.accept(listener, address(1), TIMEOUT_S)
