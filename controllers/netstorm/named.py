"""Strategies by the names that scenarios have for them, for whoever has to decide more than once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controllers.netstorm import planner, strategies
from controllers.netstorm.overlay import Overlay
from controllers.netstorm.tree import Plan

WITHOUT_ROOT: dict[str, Callable[..., Plan]] = {"placed-star": strategies.placed_star, "planned": planner.plan}


@dataclass(frozen=True)
class Choice:
    """A strategy and what it may be told: the `root` of a single tree (None: its own choice), how many `roots`
    multi-root has (None: all nodes), the `arity` of k-ary trees, how many `servers` a star has, from the first node on,
    and from how many elements on an array is split over them, the `active` nodes of a Steiner tree."""

    strategy: str
    root: str | None = None
    roots: int | None = None
    arity: int = strategies.ARITY
    servers: int = 1
    split_elements: int = strategies.BIG_ARRAY_ELEMENTS
    active: tuple[str, ...] = ()

    def decide(self, overlay: Overlay, tensors: Sequence[int], chunk_elements: int) -> Plan:
        """Return the plan for an overlay. Raises KeyError for a strategy that nobody knows."""
        if self.strategy == "star":
            servers = [self.root] if self.root else overlay.nodes[: self.servers]
            return strategies.star(
                overlay, tensors, servers, split_elements=self.split_elements, chunk_elements=chunk_elements
            )
        if self.strategy == "steiner":
            return strategies.steiner(overlay, tensors, self.active, self.root, chunk_elements=chunk_elements)
        if self.strategy in WITHOUT_ROOT:
            return WITHOUT_ROOT[self.strategy](overlay, tensors, chunk_elements=chunk_elements)
        if self.strategy == "k-ary":
            return strategies.k_ary(overlay, tensors, self.root, arity=self.arity, chunk_elements=chunk_elements)
        if self.strategy == "multi-root":
            return strategies.multi_root(overlay, tensors, self.roots, chunk_elements=chunk_elements)
        rest = {
            "binary": strategies.binary,
            "spanning": strategies.spanning,
            "packed": strategies.packed,
            "fapt": strategies.fapt,
            "ordered-star": strategies.ordered_star,
            "quantised-star": strategies.quantised_star,
        }
        return rest[self.strategy](overlay, tensors, self.root, chunk_elements=chunk_elements)
