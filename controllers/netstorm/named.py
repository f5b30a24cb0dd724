"""Strategies by the names that scenarios have for them, for whoever has to decide more than once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controllers.netstorm import strategies
from controllers.netstorm.overlay import Overlay
from controllers.netstorm.tree import Plan


@dataclass(frozen=True)
class Choice:
    """A strategy and what it may be told: the `root` of a single tree (None: its own choice), how many `roots`
    multi-root has (None: all nodes), the `arity` of k-ary trees."""

    strategy: str
    root: str | None = None
    roots: int | None = None
    arity: int = strategies.ARITY

    def decide(self, overlay: Overlay, tensors: Sequence[int], chunk_elements: int) -> Plan:
        """Return the plan for an overlay. Raises KeyError for a strategy that nobody knows."""
        if self.strategy == "star":
            return strategies.star(overlay, tensors, [self.root] if self.root else (), chunk_elements=chunk_elements)
        if self.strategy == "k-ary":
            return strategies.k_ary(overlay, tensors, self.root, arity=self.arity, chunk_elements=chunk_elements)
        if self.strategy == "multi-root":
            return strategies.multi_root(overlay, tensors, self.roots, chunk_elements=chunk_elements)
        rest = {
            "binary": strategies.binary,
            "spanning": strategies.spanning,
            "packed": strategies.packed,
            "fapt": strategies.fapt,
        }
        return rest[self.strategy](overlay, tensors, self.root, chunk_elements=chunk_elements)
