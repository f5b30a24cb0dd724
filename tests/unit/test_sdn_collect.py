"""Rounds: when a question to all switches has been answered."""

from __future__ import annotations

import struct

from controllers.sdn.collect import Round


def xids(request: bytes) -> dict[tuple[int, int], int]:
    """xid of each request, by statistics type and table (-1 where there is none)."""
    found = {}
    while request:
        _, _, length, xid, kind = struct.unpack_from("!BBHIH", request)
        found[kind, request[16] if kind == 1 else -1] = xid
        request = request[length:]
    return found


def test_a_round_without_rules_asks_for_ports_alone() -> None:
    asked = Round(1, ["s1"], [])
    assert list(xids(asked.request())) == [(4, -1)]
    assert asked.waiting == {("s1", Round.PORTS)}


def test_an_answer_in_parts_is_whole_with_the_last_one() -> None:
    asked = Round(3, ["s1", "s2"], [0, 1])
    xid = xids(asked.request())
    assert asked.take("s1", xid[1, 1], b"ab", more=True) is None
    assert asked.take("s1", xid[1, 0], b"xy", more=False) == (Round.FLOWS + 0, b"xy")
    assert asked.take("s1", xid[1, 1], b"cd", more=False) == (Round.FLOWS + 1, b"abcd")
    assert asked.take("s1", xid[4, -1], b"p", more=False) == (Round.PORTS, b"p")
    assert asked.take("s1", xid[3, -1], b"t", more=False) == (Round.TABLES, b"t")
    assert {switch for switch, _ in asked.waiting} == {"s2"}


def test_late_and_foreign_answers_are_not_taken() -> None:
    earlier, asked = Round(1, ["s1"], []), Round(2, ["s1"], [])
    assert asked.take("s1", xids(earlier.request())[4, -1], b"old", more=False) is None
    assert asked.take("s9", xids(asked.request())[4, -1], b"whose", more=False) is None
    assert asked.waiting


def test_a_switch_that_is_gone_is_not_waited_for() -> None:
    asked = Round(1, ["s1", "s2"], [0])
    asked.forget("s1")
    assert {switch for switch, _ in asked.waiting} == {"s2"}
