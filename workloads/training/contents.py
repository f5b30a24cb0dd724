"""Collectives of real values, over the very moves that agents make: what they end with proves the schedule."""

from __future__ import annotations

from array import array

from workloads.training.schedule import ADD, ALL_TO_ALL, SEND, chunk_bounds, moves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from workloads.training.mesh import Mesh


def in_ring(kind: str, mesh: Mesh, group: Sequence[int], rank: int, values: array[int]) -> None:
    """An "all-reduce", or a half of it, of `values` in place, among the ranks of `group`. Raises PeerLostError.

    After an all-reduce every worker holds all sums over all workers. After a reduce-scatter the worker at position r
    holds those of chunk r+1, which is what an all-gather starts from.
    """
    bounds = chunk_bounds(len(values), len(group))
    with memoryview(values) as whole:
        for what, peer, chunk in moves(kind, group.index(rank), len(group)):
            begin, end = bounds[chunk]
            if what == SEND:
                mesh.send(group[peer], whole[begin:end].cast("B"))
                continue
            came = array(values.typecode, bytes((end - begin) * values.itemsize))
            with memoryview(came) as view, view.cast("B") as raw:
                mesh.receive_into(group[peer], raw)
            for index, value in enumerate(came, begin):
                values[index] = values[index] + value if what == ADD else value
        mesh.flush()


def all_to_all(mesh: Mesh, group: Sequence[int], rank: int, values: bytes) -> list[bytes]:
    """What every position of `group` has for this one, own part included, `values` being as long everywhere.

    Raises PeerLostError.
    """
    position, bounds = group.index(rank), chunk_bounds(len(values), len(group))
    parts = [values[begin:end] for begin, end in bounds]
    came = {position: parts[position]}
    for what, peer, chunk in moves(ALL_TO_ALL, position, len(group)):
        if what == SEND:
            mesh.send(group[peer], memoryview(parts[chunk]))
        else:
            part = bytearray(bounds[chunk][1] - bounds[chunk][0])
            mesh.receive_into(group[peer], memoryview(part))
            came[peer] = bytes(part)
    mesh.flush()
    return [came[each] for each in range(len(group))]
