"""A planner of our own: it knows that trees share links, that push and pull do, and that chunks pipeline.

`best_trees` solves the linear program of `bound` by its trees: the highest total rate of pairs of a tree into a root
and one out of it, within all links. There are too many pairs to write down, so they are made as they are needed
(column generation): links get prices, and for each root the cheapest tree in and the cheapest tree out (Edmonds) are
the pair that pays best. The cheapest pair over all roots also bounds from above what any schedule could reach.

`plan` makes a round of it. A linear program does not mind how deep a tree is or that chunks are large, a round does:
so several roundings (all trees, the heaviest ones, shallower ones, FAPT's roots) are tried in the event simulation, the
best is taken, and chunks are moved from the root that ends last as long as that helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from controllers.netstorm import arborescence, strategies
from controllers.netstorm.chunks import CHUNK_ELEMENTS, cut, deal
from controllers.netstorm.overlay import BITS, Floats, Overlay, Pair
from controllers.netstorm.simulate import IDEAL, Conditions, simulate
from controllers.netstorm.tree import Plan, Tree, Way

GAP = 0.002
MOST_STEPS = 400
NOTHING = 1e-7
MOVES = 12


@dataclass(frozen=True)
class Weighted:
    """Ways with the rate in bit/s of each, heaviest first, and the most that the sum of any rates could be."""

    ways: tuple[Way, ...]
    rate_bps: tuple[float, ...]
    bound_bps: float

    @property
    def bound_s_per_byte(self) -> float:
        """Seconds that a byte of a round takes at least."""
        return BITS / self.bound_bps


def best_trees(overlay: Overlay, *, gap: float = GAP, hop_price: float = 0.0, most_steps: int = MOST_STEPS) -> Weighted:
    """Return ways and rates whose sum is within `gap` of the most, or the best after `most_steps` programs.

    hop_price: what a level of depth costs beside the links it uses, relative to the price of the cheapest pair: trees
    become shallower, and the sum may be lower. The bound is not touched by it.
    """
    master = _Master(overlay)
    bound = np.inf
    for way in (Way.both(strategies.fapt(overlay, [1], root).ways[0].push) for root in overlay.nodes):
        master.add(way)
    rates, total, prices = master.solve()
    for _ in range(most_steps):
        ways, cheapest = master.priced(prices, hop_price)
        bound = min(bound, 1 / cheapest) if cheapest > 0 else bound
        fresh = [way for way in ways if master.add(way)]
        if total >= bound * (1 - gap) or not fresh:
            break
        rates, total, prices = master.solve()
    ranked = sorted(range(len(rates)), key=lambda n: (-rates[n], n))
    kept = [number for number in ranked if rates[number] > NOTHING * total]
    return Weighted(
        tuple(master.ways[number] for number in kept),
        tuple(float(rates[number]) * master.unit_bps for number in kept),
        float(bound) * master.unit_bps,
    )


class _Master:
    """The linear program over the ways found so far, rates in units of the widest link."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.row = {link: number for number, link in enumerate(overlay.links_bps)}
        self.unit_bps = max(overlay.links_bps.values())
        self.capacity: Floats = np.array(list(overlay.links_bps.values())) / self.unit_bps
        self.ways: list[Way] = []
        self.entries: list[tuple[int, int]] = []
        self.known: set[tuple[tuple[str, str], ...]] = set()

    def add(self, way: Way) -> bool:
        """Take up a way; say whether it is a new one."""
        key = (("", way.root), *sorted(way.push.edges()), ("", ""), *sorted(way.pull.edges()))
        if key in self.known:
            return False
        self.known.add(key)
        for pair in way.pairs():
            self.entries += [(self.row[link], len(self.ways)) for link in self.overlay.links(*pair)]
        self.ways.append(way)
        return True

    def solve(self) -> tuple[Floats, float, Floats]:
        """Return the rates with the highest sum, the sum, and the price of each link."""
        rows, columns = zip(*self.entries, strict=True)
        shape = (len(self.row), len(self.ways))
        uses = csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
        solved = linprog(-np.ones(len(self.ways)), uses, self.capacity, method="highs-ds")
        return solved.x, -float(solved.fun), -np.asarray(solved.ineqlin.marginals)

    def priced(self, prices: Floats, hop_price: float) -> tuple[list[Way], float]:
        """Return each root's cheapest way, and the price of the cheapest relative to what all capacity is worth."""
        worth = float(prices @ self.capacity)
        prices = np.maximum(prices, 0.0) / worth
        cost = {
            pair: float(sum(prices[self.row[link]] for link in self.overlay.links(*pair)))
            for pair in self.overlay.by_pair
        }
        found = [self._cheapest(root, cost, 0.0) for root in self.overlay.nodes]
        least = min(price for _, price in found)
        if hop_price:
            found = [self._cheapest(root, cost, hop_price * least) for root in self.overlay.nodes]
        return [way for way, _ in found], least

    def _cheapest(self, root: str, cost: Mapping[Pair, float], far: float) -> tuple[Way, float]:
        trees, price, nodes = [], 0.0, self.overlay.nodes
        index, first = self.overlay.index, self.overlay.index[root]
        for push in (True, False):
            arcs = {}
            for (source, target), one in cost.items():
                parent, child = (target, source) if push else (source, target)
                arcs[index[parent], index[child]] = one + (far if parent != root else 0.0)
            parents = arborescence.cheapest(first, len(nodes), arcs)
            tree = Tree(root, {nodes[child]: nodes[parent] for child, parent in sorted(parents.items())})
            trees.append(tree)
            price += sum(cost[(child, parent) if push else (parent, child)] for child, parent in tree.edges())
        return Way(*trees), price


def plan(
    overlay: Overlay,
    tensors: Sequence[int],
    conditions: Conditions = IDEAL,
    *,
    chunk_elements: int = CHUNK_ELEMENTS,
    moves: int = MOVES,
) -> Plan:
    """Return the best round that was found, by the event simulation under these conditions.

    It is never worse there than multi-root FAPT with any number of roots, whose plans are among those tried.
    """
    chunks = cut(tensors, chunk_elements)
    candidates = [
        strategies.multi_root(overlay, tensors, count, chunk_elements=chunk_elements)
        for count in range(1, len(overlay.nodes) + 1)
    ]
    for hop_price in (0.0, 0.05, 0.2):
        weighted = best_trees(overlay, gap=0.01, hop_price=hop_price, most_steps=60)
        for count in dict.fromkeys((len(weighted.ways), 2, 4, 8)):
            rates = weighted.rate_bps[:count]
            dealt = Plan("planned", weighted.ways[:count], chunks, deal(chunks, rates))
            candidates += [dealt, replace(dealt, oldest_first=True)]
    timed = [(simulate(overlay, one, conditions).round_s, number) for number, one in enumerate(candidates)]
    best = min(timed)
    return _improved(overlay, replace(candidates[best[1]], name="planned"), best[0], conditions, moves)


def _improved(overlay: Overlay, best: Plan, best_s: float, conditions: Conditions, moves: int) -> Plan:
    """Move the last chunk of the root that ends last to the way whose links have the most room, while that helps."""
    for _ in range(moves):
        outcome = simulate(overlay, best, conditions)
        last = max(outcome.root_s, key=lambda root: outcome.root_s[root])
        chunk = max(n for n, way in enumerate(best.way_of) if best.ways[way].root == last)
        loads = best.loads(overlay)
        order = sorted(range(len(best.ways)), key=lambda way: _fullest_s(overlay, best.ways[way], loads))
        for way in [one for one in order if one != best.way_of[chunk]][:3]:
            tried = replace(best, way_of=(*best.way_of[:chunk], way, *best.way_of[chunk + 1 :]))
            tried_s = simulate(overlay, tried, conditions).round_s
            if tried_s < best_s:
                best, best_s = tried, tried_s
                break
        else:
            break
    return best


def _fullest_s(overlay: Overlay, way: Way, loads: Mapping[str, float]) -> float:
    links = [link for pair in way.pairs() for link in overlay.links(*pair)]
    return max((loads[link] * BITS / overlay.links_bps[link] for link in links), default=0.0)
