"""The cheapest tree in a directed graph whose edges all lead away from a root (Chu, Liu and Edmonds)."""

from __future__ import annotations

from collections.abc import Mapping

Arc = tuple[int, int]


def cheapest(root: int, nodes: int, cost: Mapping[Arc, float]) -> dict[int, int]:
    """Return the parent of every node but the root in the arborescence with the least sum of costs.

    cost: of each arc (parent, child), nodes numbered from 0. Raises ValueError if the root does not reach everybody.
    Of equals the first in the order of `cost` is taken. O(nodes × arcs).
    """
    arcs = [(tail, head, value, number) for number, ((tail, head), value) in enumerate(cost.items())]
    names = list(cost)
    return {names[number][1]: names[number][0] for number in _chosen(root, nodes, arcs)}


def _chosen(root: int, nodes: int, arcs: list[tuple[int, int, float, int]]) -> list[int]:
    """Return the numbers of the arcs of the arborescence; arcs are (tail, head, cost, number)."""
    best: list[tuple[int, int, float, int] | None] = [None] * nodes
    for arc in arcs:
        held = best[arc[1]]
        if arc[0] != arc[1] and arc[1] != root and (held is None or arc[2] < held[2]):
            best[arc[1]] = arc
    into = {head: arc for head, arc in enumerate(best) if arc is not None}
    if len(into) < nodes - 1:
        raise ValueError("the root does not reach every node")
    group, groups, rings = _rings(root, nodes, {head: arc[0] for head, arc in into.items()})
    if not rings:
        return [arc[3] for arc in into.values()]
    inner = [
        (group[tail], group[head], value - (into[head][2] if group[head] in rings else 0.0), place)
        for place, (tail, head, value, _) in enumerate(arcs)
        if group[tail] != group[head]
    ]
    chosen, entered = [], set()
    for place in _chosen(group[root], groups, inner):
        _, head, _, number = arcs[place]
        chosen.append(number)
        entered.add(head)
    # A ring keeps all of its arcs but the one into the node at which it is entered.
    chosen += [arc[3] for head, arc in into.items() if group[head] in rings and head not in entered]
    return chosen


def _rings(root: int, nodes: int, before: Mapping[int, int]) -> tuple[list[int], int, set[int]]:
    """Return each node's group (a ring is one, everybody else its own), how many there are, and which are rings."""
    group, seen = [-1] * nodes, [-1] * nodes
    groups, rings = 0, set()
    for start in range(nodes):
        node = start
        while node != root and seen[node] < 0:
            seen[node] = start
            node = before[node]
        if node != root and seen[node] == start and group[node] < 0:
            rings.add(groups)
            while group[node] < 0:
                group[node] = groups
                node = before[node]
            groups += 1
    for node in range(nodes):
        if group[node] < 0:
            group[node] = groups
            groups += 1
    return group, groups, rings
