"""How fast a round could be: lower bounds that no schedule on this overlay can beat.

`cut_bound_s` holds for any schedule whatever: across every cut, each side must hear of the other's gradients, and one
sum of them is as large as the model. `flow_bound_s` is a linear program, and holds for every schedule in which each
piece is summed up completely at some node and handed out from there, as all strategies here do. By Edmonds' theorem
trees of a total rate x into (out of) a root fit into capacities exactly if every node alone could send (receive) x, so
the trees are written as flows that share what they reserve:

    least T so that for every root r with its part x_r, and every other node v,
    push:  a flow of x_r from v to r within p_r;     pull:  a flow of x_r from r to v within q_r
    for every link:  sum over r, and over its tunnels, of p_r + q_r  <=  T * capacity;     sum of x_r = bytes

Push and pull share capacities, and chunks may be as small as one likes, so latency, aggregation and the filling of
pipelines come on top.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from controllers.netstorm.overlay import BITS, Floats, Overlay

MOST_CUT_NODES = 16


def cut_bound_s(overlay: Overlay, size_bytes: float) -> float:
    """Return the largest time that any cut needs for `size_bytes`, over all of them, each in its worse direction.

    Where tunnels share links, all that crosses a cut fits into the links that are the narrowest of the crossing
    tunnels. Raises ValueError for more than 16 nodes, whose cuts are too many to look at.
    """
    count = len(overlay.nodes)
    if count > MOST_CUT_NODES:
        raise ValueError(f"{count} nodes have too many cuts to look at each; up to {MOST_CUT_NODES} are fine")
    inside = (np.arange(2**count)[1:-1, None] >> np.arange(count)) & 1
    narrowest = {
        (one.source, one.target): min(overlay.links(one.source, one.target), key=overlay.links_bps.__getitem__)
        for one in overlay.tunnels
    }
    capacity_bps: Floats = np.zeros(len(inside))
    for link in dict.fromkeys(narrowest.values()):
        crossed = np.zeros(len(inside), dtype=bool)
        for (source, target), one in narrowest.items():
            if one == link:
                crossed |= (inside[:, overlay.index[source]] > 0) & (inside[:, overlay.index[target]] == 0)
        capacity_bps += crossed * overlay.links_bps[link]
    return float(size_bytes * BITS / capacity_bps.min()) if len(inside) else 0.0


def flow_bound_s(overlay: Overlay, size_bytes: float) -> float:
    """Return the least T of the linear program, by HiGHS; all nodes may be roots.

    Its size grows with the square of the nodes times the tunnels: for up to about 15 nodes. `planner.best_trees` comes
    to the same number, and gives the trees. Raises RuntimeError if HiGHS gives up.
    """
    if len(overlay.nodes) == 1:
        return 0.0
    return _Program(overlay).solve() * size_bytes


class _Program:
    """The program for one byte, rates in units of the widest link."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.nodes, self.arcs = len(overlay.nodes), len(overlay.tunnels)
        self.ends = [(overlay.index[one.source], overlay.index[one.target]) for one in overlay.tunnels]
        self.columns = 1 + self.nodes  # T, and each root's part
        self.equal: list[tuple[int, int, float]] = []
        self.most: list[tuple[int, int, float]] = []
        self.equal_rows, self.most_rows = 0, 0
        self.reserved: list[int] = []  # first columns of what each root reserves, push and pull

    def _new(self, count: int) -> int:
        self.columns += count
        return self.columns - count

    def _tree(self, root: int, push: bool) -> None:
        """Reserve capacity so that every other node alone could send the root its part, or receive it."""
        reserved = self._new(self.arcs)
        self.reserved.append(reserved)
        for node in range(self.nodes):
            if node == root:
                continue
            flow = self._new(self.arcs)
            source, target = (node, root) if push else (root, node)
            for arc, (tail, head) in enumerate(self.ends):
                self.most += [(self.most_rows + arc, flow + arc, 1.0), (self.most_rows + arc, reserved + arc, -1.0)]
                self.equal += [
                    (self.equal_rows + tail, flow + arc, 1.0), (self.equal_rows + head, flow + arc, -1.0)
                ]  # fmt: skip
            self.equal.append((self.equal_rows + source, 1 + root, -1.0))
            self.equal.append((self.equal_rows + target, 1 + root, 1.0))
            self.most_rows += self.arcs
            self.equal_rows += self.nodes

    def solve(self) -> float:
        """Return the seconds per byte."""
        for root in range(self.nodes):
            self._tree(root, push=True)
            self._tree(root, push=False)
        unit_bps = max(self.overlay.links_bps.values())
        for link, capacity_bps in self.overlay.links_bps.items():
            over = [arc for arc, pair in enumerate(self.overlay.by_pair) if link in self.overlay.links(*pair)]
            self.most.append((self.most_rows, 0, -capacity_bps / unit_bps))
            self.most += [(self.most_rows, first + arc, 1.0) for first in self.reserved for arc in over]
            self.most_rows += 1
        self.equal += [(self.equal_rows, 1 + root, 1.0) for root in range(self.nodes)]
        self.equal_rows += 1
        wanted = np.zeros(self.equal_rows)
        wanted[-1] = 1.0
        cost = np.zeros(self.columns)
        cost[0] = 1.0
        solved = linprog(
            cost, self._matrix(self.most, self.most_rows), np.zeros(self.most_rows),
            self._matrix(self.equal, self.equal_rows), wanted, method="highs-ipm",
        )  # fmt: skip
        if solved.status != 0:
            raise RuntimeError(f"the linear program of the lower bound was not solved: {solved.message}")
        return float(solved.fun) * BITS / unit_bps

    def _matrix(self, entries: list[tuple[int, int, float]], rows: int) -> coo_array:
        row, column, value = zip(*entries, strict=True)
        return coo_array((value, (row, column)), shape=(rows, self.columns)).tocsr()
