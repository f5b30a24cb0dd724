"""How long programs last on an empty network, by arithmetic: compute is fitted to a published iteration with it.

As `operations.rehearse`, but communication takes time: a ring's steps one after another (`buckets.ring_s`), an
all-to-all its shares, a send its bytes behind the earlier ones of its rank. Members of a collective begin it together.
Transfers of a worker that run at the same time (a send beside a collective) are not slowed by each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from testbed.errors import InputError
from workloads.training.operations import COMPUTE, Groups, Op, Programs
from workloads.training.schedule import RECEIVE, SEND

ROUNDS = 40


@dataclass(frozen=True)
class Wire:
    """An empty network: what a link carries of a worker's own bytes, and what a transfer waits beside them."""

    goodput_bps: float
    latency_s: float

    def transfer_s(self, size_bytes: float) -> float:
        """How long so many bytes are on their way."""
        return size_bytes * 8 / self.goodput_bps + self.latency_s

    def collective_s(self, op: Op, members: int) -> float:
        """How long a collective lasts from when all `members` have begun it."""
        rounds = {"all-reduce": 2}.get(op.kind, 1)
        return rounds * (members - 1) * self.transfer_s(op.size_bytes / members)


@dataclass
class _Rank:
    program: Sequence[Op]
    ends: list[float] = field(default_factory=list)
    stream_s: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    sender_s: float = 0.0

    @property
    def op(self) -> Op | None:
        """The next operation."""
        return self.program[len(self.ends)] if len(self.ends) < len(self.program) else None

    def begin_s(self, op: Op) -> float:
        """When it may begin, for all that this rank knows."""
        return max([self.stream_s[op.kind == COMPUTE], *(self.ends[other] for other in op.after)])

    def end(self, op: Op, at_s: float) -> None:
        self.ends.append(at_s)
        self.stream_s[op.kind == COMPUTE] = at_s


def iteration_s(groups: Groups, programs: Programs, wire: Wire) -> float:
    """How long the iteration lasts, in seconds; `programs` has one per rank, and they fit together."""
    ranks = [_Rank(program) for program in programs]
    arrivals: dict[tuple[int, int], list[float]] = defaultdict(list)
    joined: dict[int, dict[int, float]] = defaultdict(dict)

    def advance(number: int) -> bool:
        rank = ranks[number]
        op = rank.op
        if op is None:
            return False
        begin_s = rank.begin_s(op)
        if op.kind == COMPUTE:
            rank.end(op, begin_s + op.duration_s)
        elif op.kind == SEND and op.peer is not None:
            rank.sender_s = max(rank.sender_s, begin_s) + wire.transfer_s(op.size_bytes)
            arrivals[number, op.peer].append(rank.sender_s)
            rank.end(op, begin_s)
        elif op.kind == RECEIVE and op.peer is not None:
            if not arrivals[op.peer, number]:
                return False
            rank.end(op, max(begin_s, arrivals[op.peer, number].pop(0)))
        elif op.group is not None:
            there, group = joined[op.group], groups[op.group]
            if number in there:
                return False
            there[number] = begin_s
            if len(there) == len(group):
                end_s = max(there.values()) + wire.collective_s(op, len(group))
                there.clear()
                for member in group:
                    ranks[member].end(op, end_s)
        return True

    while sum(advance(number) for number in range(len(ranks))):
        pass
    return max(max([rank.sender_s, *rank.ends]) for rank in ranks)


def fitted(lasts_s: Callable[[float], float], wished_s: float, where: str) -> float:
    """The factor on all compute with which an iteration lasts `wished_s`; `lasts_s` gives its length for a factor.

    Raises InputError, at `where`, if it lasts longer even without any compute.
    """
    shortest_s = lasts_s(0.0)
    if shortest_s >= wished_s:
        mend = f"its bytes alone take {1e3 * shortest_s:.1f} ms at line rate"
        raise InputError(where, f"an iteration of {1e3 * wished_s:g} ms cannot be reached", mend)
    low, high = 0.0, 1.0
    while lasts_s(high) < wished_s:
        high *= 2
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if lasts_s(middle) < wished_s else (low, middle)
    return high
