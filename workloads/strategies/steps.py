"""One worker's program while it grows."""

from __future__ import annotations

from workloads.training.operations import COMPUTE, Op
from workloads.training.schedule import RECEIVE, SEND


class Steps:
    """Operations in order; every method adds one and returns its index, which later ones may come `after`."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def compute(self, duration_s: float, *after: int) -> int:
        """Compute for so long, once everything in `after` has ended."""
        return self._add(Op(COMPUTE, duration_s, after=after))

    def collective(self, kind: str, size_bytes: int, group: int, *after: int) -> int:
        """A collective of a buffer of `size_bytes` among the ranks of `group`, an index."""
        return self._add(Op(kind, size_bytes=size_bytes, group=group, after=after))

    def send(self, size_bytes: int, peer: int, *after: int) -> int:
        """Hand `size_bytes` for rank `peer` to the sender."""
        return self._add(Op(SEND, size_bytes=size_bytes, peer=peer, after=after))

    def receive(self, size_bytes: int, peer: int, *after: int) -> int:
        """Await `size_bytes` of rank `peer`."""
        return self._add(Op(RECEIVE, size_bytes=size_bytes, peer=peer, after=after))

    def _add(self, op: Op) -> int:
        self.ops.append(op)
        return len(self.ops) - 1


def scaled(size_bytes: float, scale: float) -> int:
    """Whole bytes, at least 1, of `size_bytes` on a network at `scale`."""
    return max(1, round(size_bytes / scale))


def shares(whole: int, parts: int) -> list[int]:
    """`whole` things in `parts` as equal as possible."""
    return [whole * (part + 1) // parts - whole * part // parts for part in range(parts)]
