"""The operations a worker's iteration is made of, what they send, and whether all workers' fit together.

Every worker has two streams, as on a GPU: one computes, one communicates. Operations of a stream run one after another
in the order of the program, each as soon as its stream is free and all operations it comes `after` have ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from workloads.training.schedule import COLLECTIVES, RECEIVE, SEND, chunk_bounds, moves, sent_to

COMPUTE = "compute"
KINDS = (COMPUTE, *COLLECTIVES, SEND, RECEIVE)
LONGEST_S = 86_400.0
LARGEST_BYTES = 1 << 40


@dataclass(frozen=True)
class Op:
    """One operation in a worker's iteration; `kind` says what it does.

    - "compute" lasts `duration_s` on the compute stream.
    - "all-reduce" is a ring all-reduce of a buffer of `size_bytes` over `group` (index into the plan's groups, whose
      order is the ring's); "reduce-scatter" and "all-gather" are its halves, `size_bytes` still the whole buffer.
    - "all-to-all" exchanges `size_bytes` per worker within `group`: a share of equal size for each member, of which a
      worker keeps its own.
    - "send" hands `size_bytes` for rank `peer` to a sender and does not hold up the stream; "receive" ends when
      `size_bytes` of rank `peer` have come. What one rank sends another is received in the order it was sent.

    `after` has the indices of earlier operations of the same worker that must have ended.
    """

    kind: str
    duration_s: float = 0.0
    size_bytes: int = 0
    group: int | None = None
    peer: int | None = None
    after: tuple[int, ...] = ()


_DEFAULTS = {field.name: field.default for field in fields(Op)}
Groups = Sequence[Sequence[int]]
Programs = Sequence[Sequence[Op]]


class MisfitError(ValueError):
    """The programs of the workers do not fit together; the message names a rank and an operation."""


def traffic(groups: Groups, programs: Programs) -> dict[tuple[int, int], int]:
    """(source rank, destination rank) -> bytes per iteration, of pairs that exchange any; one program per rank."""
    sent: Counter[tuple[int, int]] = Counter()
    for rank, program in enumerate(programs):
        for op in program:
            if op.kind == SEND and op.peer is not None:
                sent[rank, op.peer] += op.size_bytes
            elif op.kind in COLLECTIVES and op.group is not None:
                group = groups[op.group]
                for position, size_bytes in sent_to(op.kind, op.size_bytes, group.index(rank), len(group)).items():
                    sent[rank, group[position]] += size_bytes
    return {pair: sent[pair] for pair in sorted(sent) if sent[pair]}


def rehearse(groups: Groups, programs: Programs) -> list[list[float]]:
    """When each operation of each rank ends, in seconds, if communication takes no time; one program per rank.

    Raises MisfitError where workers wait for each other for ever: a receive without its send, or of another size,
    collectives of a group in different orders, or a ring of waits; or where a rank receives in another order than the
    other one sends.
    """
    ends: list[list[float]] = [[] for _ in programs]
    free_s = [{True: 0.0, False: 0.0} for _ in programs]  # by whether the stream is that of compute
    sent: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    joined: dict[int, dict[int, tuple[Op, float]]] = defaultdict(dict)

    def end(rank: int, op: Op, at_s: float) -> None:
        ends[rank].append(at_s)
        free_s[rank][op.kind == COMPUTE] = at_s

    def advance(rank: int) -> bool:
        """Take the rank's next operation as far as it goes; whether anything came of it."""
        index = len(ends[rank])
        if index == len(programs[rank]):
            return False
        op = programs[rank][index]
        begin_s = max([free_s[rank][op.kind == COMPUTE], *(ends[rank][other] for other in op.after)])
        if op.kind == COMPUTE:
            end(rank, op, begin_s + op.duration_s)
        elif op.kind == SEND and op.peer is not None:
            sent[rank, op.peer].append((op.size_bytes, begin_s))
            end(rank, op, begin_s)
        elif op.kind == RECEIVE and op.peer is not None:
            if not sent[op.peer, rank]:
                return False
            size_bytes, sent_s = sent[op.peer, rank].pop(0)
            if size_bytes != op.size_bytes:
                raise MisfitError(f"rank {rank}, operation {index} awaits {op.size_bytes} B, sent are {size_bytes} B")
            end(rank, op, max(begin_s, sent_s))
        elif op.group is not None:
            return join(rank, index, op, begin_s)
        return True

    def join(rank: int, index: int, op: Op, begin_s: float) -> bool:
        assert op.group is not None
        there, group = joined[op.group], groups[op.group]
        if rank in there:
            return False
        for other, _ in there.values():
            if (other.kind, other.size_bytes) != (op.kind, op.size_bytes):
                what = f"{op.kind} of {op.size_bytes} B, another member's is {other.kind} of {other.size_bytes} B"
                raise MisfitError(f"rank {rank}, operation {index}: {what}")
        there[rank] = op, begin_s
        if len(there) == len(group):
            at_s = max(begun_s for _, begun_s in there.values())
            for member, (its, _) in there.items():
                end(member, its, at_s)
            there.clear()
        return True

    while sum(advance(rank) for rank in range(len(programs))):
        pass
    for rank, program in enumerate(programs):
        if len(ends[rank]) < len(program):
            index = len(ends[rank])
            raise MisfitError(f"rank {rank} waits for ever in operation {index} ({program[index].kind})")
    for (source, destination), rest in sent.items():
        if rest:
            raise MisfitError(f"rank {source} sends rank {destination} {rest[0][0]} B that it does not receive")
    _check_order(groups, programs)
    return ends


def _check_order(groups: Groups, programs: Programs) -> None:
    """What two ranks exchange shares one connection: raise MisfitError unless both have it in the same order."""
    sent: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    received: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    for rank, program in enumerate(programs):
        for op in program:
            if op.kind == SEND and op.peer is not None:
                sent[rank, op.peer].append(("alone", op.size_bytes))
            elif op.kind == RECEIVE and op.peer is not None:
                received[op.peer, rank].append(("alone", op.size_bytes))
            elif op.group is not None:
                group, own = groups[op.group], groups[op.group].index(rank)
                sizes = [end - begin for begin, end in chunk_bounds(op.size_bytes, len(group))]
                for what, peer, chunk in moves(op.kind, own, len(group)):
                    pair = (rank, group[peer]) if what == SEND else (group[peer], rank)
                    (sent if what == SEND else received)[pair].append((f"group {op.group}", sizes[chunk]))
    for source, destination in sent:
        if sent[source, destination] != received[source, destination]:
            raise MisfitError(f"rank {destination} receives in another order than rank {source} sends")


def faults(op: Op, index: int, rank: int, workers: int, groups: Groups) -> Mapping[str, tuple[str, str]]:
    """What is wrong with one operation by itself: key -> (what, how to mend it)."""
    wrong: dict[str, tuple[str, str]] = {}
    if op.kind not in KINDS:
        return {"kind": (repr(op.kind), f"give one of {', '.join(KINDS)}")}
    if not all(is_whole(other) and 0 <= other < index for other in op.after):
        wrong["after"] = (str(list(op.after)), "name operations that come earlier in the list")
    if op.kind == COMPUTE:
        if not is_time(op.duration_s):
            wrong["duration_s"] = (repr(op.duration_s), f"give seconds from 0 to {LONGEST_S:.0f}")
        return wrong
    if not is_whole(op.size_bytes) or not 1 <= op.size_bytes <= LARGEST_BYTES:
        wrong["size_bytes"] = (repr(op.size_bytes), f"give whole bytes from 1 to {LARGEST_BYTES}")
    if op.kind in (SEND, RECEIVE):
        if not is_whole(op.peer) or not 0 <= (op.peer or 0) < workers or op.peer == rank:
            wrong["peer"] = (repr(op.peer), f"give another rank, from 0 to {workers - 1}")
    elif not is_whole(op.group) or not 0 <= (op.group or 0) < len(groups):
        wrong["group"] = (repr(op.group), f"there are {len(groups)} groups")
    elif rank not in groups[op.group or 0]:
        wrong["group"] = (repr(op.group), f"rank {rank} is not in it")
    return wrong


def brief(op: Op) -> dict[str, Any]:
    """Plain data of an operation, without the keys that have their defaults."""
    return {key: value for key, default in _DEFAULTS.items() if (value := getattr(op, key)) != default}


def is_whole(value: object) -> bool:
    """Whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_time(value: object) -> bool:
    """Whether a value is a time in seconds, of at most a day."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_S
