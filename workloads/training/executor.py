"""Acts out the operations of one worker: compute as waiting, communication as bytes.

Both streams of a worker (operations.py) are run by one thread. Compute needs no sleeping: it is known when it ends. A
communication operation sleeps until everything it comes after has ended, and then moves its bytes.
"""

from __future__ import annotations

import time

from workloads.training.schedule import COLLECTIVES, SEND, chunk_bounds, moves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from workloads.training.mesh import Mesh

    Move = tuple[bool, int, int]
    Step = tuple[float, tuple[int, ...], list[Move] | None, tuple[int, ...]]


def sleep_until(due_s: float) -> None:
    """Sleep until time.time() is at least `due_s`."""
    while (left_s := due_s - time.time()) > 0:
        time.sleep(left_s)


def compiled(program: Sequence[dict[str, Any]], groups: Sequence[Sequence[int]], rank: int) -> list[Step]:
    """The operations of `rank` (plan.JobPlan.to_dict) as what is to be done, one step each.

    (compute in s, indices of the steps it comes after, moves or None for compute, ranks to wait for until they are sent
    all). A move is (whether to send, the other rank, bytes); those of no bytes are left out.
    """
    steps: list[Step] = []
    for op in program:
        kind, size_bytes, after = op["kind"], op.get("size_bytes", 0), tuple(op.get("after", ()))
        if kind in COLLECTIVES:
            group = groups[op["group"]]
            sizes = [end - begin for begin, end in chunk_bounds(size_bytes, len(group))]
            made = [
                (what == SEND, group[peer], sizes[chunk])
                for what, peer, chunk in moves(kind, group.index(rank), len(group))
                if sizes[chunk]
            ]
            steps.append((0.0, after, made, tuple(dict.fromkeys(peer for sends, peer, _ in made if sends))))
        elif kind == "compute":
            steps.append((op.get("duration_s", 0.0), after, None, ()))
        else:
            steps.append((0.0, after, [(kind == SEND, op["peer"], size_bytes)], ()))
    return steps


def iterate(steps: Sequence[Step], mesh: Mesh, begin_s: float, factor: float) -> tuple[float, float]:
    """One iteration from `begin_s` on, compute lasting `factor` times as long: (begin of Up, end), by time.time().

    Up begins with the first operation that sends; where none does, with the end. Everything is due at a time counted
    from the beginning, so that late wakes do not add up. Raises PeerLostError.
    """
    computed_s, up_begin_s = begin_s, 0.0
    ends: list[float] = []
    for duration_s, after, made, flushed in steps:
        if made is None:
            computed_s = max([computed_s, *[ends[step] for step in after]]) + duration_s * factor
            ends.append(computed_s)
            continue
        sleep_until(max([begin_s, *[ends[step] for step in after]]))
        for sends, peer, size_bytes in made:
            if sends:
                up_begin_s = up_begin_s or time.time()
                mesh.send(peer, size_bytes)
            else:
                mesh.receive(peer, size_bytes)
        mesh.flush(flushed)
        ends.append(time.time())
    mesh.flush()
    sleep_until(computed_s)
    end_s = time.time()
    return up_begin_s or end_s, end_s
