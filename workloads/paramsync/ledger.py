"""What one server knows of every chunk, and what it does next: the protocol without sockets, bytes or time."""

from __future__ import annotations

from workloads.paramsync.plan import Policy

WORKER = 0xFFFF
"""Stands for the node's own worker where a node's number is expected."""


class ProtocolError(Exception):
    """A chunk came that should not have, by what the policy says; the message names chunk and sender."""


class Ledger:
    """The chunks that node `node` still waits for, under one policy."""

    def __init__(self, node: int, policy: Policy) -> None:
        self.node, self._policy = node, policy
        self._missing: dict[tuple[int, int], set[int]] = {}
        self._merged: set[tuple[int, int]] = set()
        self._answered: set[tuple[int, int]] = set()

    def pushed(self, round_: int, chunk: int, source: int, version: int) -> bool:
        """Note a contribution from a child or the worker; whether it was the last one. Raises ProtocolError."""
        what = self._known(round_, chunk, source, version)
        key = (round_, chunk)
        if key not in self._missing:
            if key in self._merged:
                raise ProtocolError(f"{what}, but all contributions are there")
            self._missing[key] = {WORKER, *self._policy.way(chunk).push.children(self.node)}
        if source not in self._missing[key]:
            raise ProtocolError(f"{what}, which is no child, or for the second time")
        self._missing[key].discard(source)
        if self._missing[key]:
            return False
        del self._missing[key]
        self._merged.add(key)
        return True

    def pulled(self, round_: int, chunk: int, source: int, version: int) -> None:
        """Note the result from the parent. Raises ProtocolError."""
        what, key = self._known(round_, chunk, source, version), (round_, chunk)
        if source != self._policy.way(chunk).pull.parents[self.node]:
            raise ProtocolError(f"{what}, which is not the parent")
        if key not in self._merged or key in self._answered:
            raise ProtocolError(f"{what}: a result before all contributions, or for the second time")
        self._answered.add(key)

    def parent(self, chunk: int) -> int | None:
        """Where the sum of a chunk goes; None where this node is the root."""
        return self._policy.way(chunk).push.parents[self.node]

    def children(self, chunk: int) -> tuple[int, ...]:
        """Where the result of a chunk goes, beside the worker."""
        return self._policy.way(chunk).pull.children(self.node)

    def state(self) -> dict[str, object]:
        """What is waited for, for whoever has to find out why nothing goes on."""
        missing = {f"round {r} chunk {c}": sorted(sources) for (r, c), sources in sorted(self._missing.items())}
        roots = {(r, c) for r, c in self._merged if self.parent(c) is None}
        unanswered = sorted(self._merged - self._answered - roots)
        return {"missing": missing, "without result": [f"round {r} chunk {c}" for r, c in unanswered]}

    def _known(self, round_: int, chunk: int, source: int, version: int) -> str:
        what = f"node {self.node}: round {round_} chunk {chunk} came from {_who(source)} under policy {version}"
        if version != self._policy.version:
            raise ProtocolError(f"{what}, which is not in force here ({self._policy.version} is)")
        if not 0 <= chunk < len(self._policy.way_of):
            raise ProtocolError(f"{what}, and there is no such chunk")
        return what


def _who(source: int) -> str:
    return "the worker" if source == WORKER else f"node {source}"
