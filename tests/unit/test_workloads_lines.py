"""Lines between sites: what their owner hears of them, and in which order."""

# ruff: noqa: ARG002 - an owner need not look at everything that it is told
from __future__ import annotations

import socket
import threading

from workloads.paramsync import wire
from workloads.paramsync.lines import CONTROL, DATA, End, Lines

PEER = 1
LONG_S = 10.0


class Slow:
    """An owner that takes its time to hear that a line is down, until it is let go."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.told, self.go_on = threading.Event(), threading.Event()

    def changed(self, peer: int, up: bool) -> None:
        assert peer == PEER
        if not up:
            self.told.set()
            self.go_on.wait(LONG_S)
        self.heard.append(up)

    def sent(self, peer: int, header: wire.Header | None, begin_s: float) -> None:
        self.heard.append(("sent", header))

    def received(self, peer: int, header: wire.Header, payload: bytearray) -> None:
        raise AssertionError

    def worker(self, connection: socket.socket) -> None:
        raise AssertionError

    def broken(self, why: str) -> None:
        raise AssertionError(why)


def pair() -> tuple[dict[int, socket.socket], list[socket.socket]]:
    """Both connections of a line, our ends and theirs."""
    ends = [socket.socketpair() for _ in (DATA, CONTROL)]
    return {kind: ours for kind, (ours, _) in zip((DATA, CONTROL), ends, strict=True)}, [theirs for _, theirs in ends]


def test_a_line_that_is_back_is_not_told_of_before_its_end() -> None:
    owner = Slow()
    lines = Lines(2, 1, ("127.0.0.1", 0), [End(PEER, ("127.0.0.1", 1))], owner, "cubic", 1.0)
    first, theirs = pair()
    lines._begin(PEER, (1, 1), first)
    theirs[0].close()  # a thread of the lines notices
    assert owner.told.wait(LONG_S)
    second, others = pair()
    began = threading.Thread(target=lines._begin, args=(PEER, (1, 2), second))
    began.start()
    began.join(0.2)
    assert owner.heard == [True]  # the owner has not been told yet that the first one is down
    owner.go_on.set()
    began.join(LONG_S)
    assert owner.heard == [True, False, True]
    assert lines.up(PEER)
    for one in (*theirs, *others):
        one.close()


def test_a_line_that_comes_late_is_left_out() -> None:
    owner = Slow()
    owner.go_on.set()
    lines = Lines(2, 1, ("127.0.0.1", 0), [End(PEER, ("127.0.0.1", 1))], owner, "cubic", 1.0)
    (second, theirs), (first, others) = pair(), pair()
    assert lines._begin(PEER, (1, 2), second) is not None
    assert lines._begin(PEER, (1, 1), first) is None
    assert owner.heard == [True]
    assert others[0].recv(1) == b""
    for one in (*theirs, *others):
        one.close()
