"""NETSTORM's decisions: how long they take, how good they are, and what the protocol stands.

Goodness is in the event simulation, as multiples of the time that no schedule can beat; packets are another matter.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from controllers.netstorm import planner, strategies
from controllers.netstorm.fapt import forest
from controllers.netstorm.loop import System, run
from controllers.netstorm.messages import Request
from controllers.netstorm.model import try_seed
from controllers.netstorm.overlay import Overlay, Tunnel, own_link
from controllers.netstorm.scheduler import Scheduler
from controllers.netstorm.simulate import Change, simulate
from controllers.netstorm.tree import Plan
from testbed.net.wan.build import Defaults
from testbed.net.wan.netstorm import PERIOD_S, build, draw

NODE_COUNTS = (9, 50, 200, 1000)
SEEDS = 1000
DEGREE = 4
ALEXNET = (23_232, 307_200, 663_552, 884_736, 589_824, 37_748_736, 16_777_216, 40_960)
"""Elements of the weights of an AlexNet for ten classes: 57 million."""
ROUNDS = 12
Strategy = Callable[[Overlay], Plan]


def netstorm_9(seed: int) -> Overlay:
    """Return the paper's overlay with one draw of throughputs."""
    wan = build(seed, Defaults())
    return Overlay(wan.names, tuple(Tunnel(a, b, float(one.rate_bps), one.delay_s) for a, b, one in wan.directed()))


def random_overlay(count: int, seed: int) -> Overlay:
    """Return a connected overlay of so many nodes, four neighbours each on average, throughputs as the paper draws."""
    generator = random.Random(seed)
    pairs = {(generator.randrange(number), number) for number in range(1, count)}
    while len(pairs) < count * DEGREE // 2:
        a, b = sorted(generator.sample(range(count), 2))
        pairs.add((a, b))
    ends = [ends for a, b in sorted(pairs) for ends in ((a, b), (b, a))]
    tunnels = [Tunnel(f"n{a}", f"n{b}", generator.randint(20, 155) * 1e6) for a, b in ends]
    return Overlay(tuple(f"n{number}" for number in range(count)), tuple(tunnels))


def trees(count: int) -> dict[str, float]:
    """Return the wall seconds of the trees of all roots, and of their quotas, for so many nodes."""
    overlay = random_overlay(count, 1)
    began_s = time.perf_counter()
    found = forest(overlay)
    found.quotas(found.best(count))
    return {"all roots' trees and quotas": time.perf_counter() - began_s}


def policy_change() -> dict[str, float]:
    """Return the wall seconds from reports to the answers of a new policy: trees, quotas, chunks, auxiliary paths."""
    overlay, new = netstorm_9(1), netstorm_9(2)
    scheduler = Scheduler(overlay, lambda usable: strategies.multi_root(usable, ALEXNET), chunk_bytes=4e6)
    for node in overlay.nodes:
        scheduler.heard(Request(node, 1, 1, 0))
    began_s = time.perf_counter()
    for (source, target), tunnel in new.by_pair.items():
        scheduler.report(source, target, tunnel.throughput_bps)
    scheduler.look(5.0)
    for node in overlay.nodes:
        scheduler.heard(Request(node, 1, 2, 1))
    return {"policy change": time.perf_counter() - began_s}


@dataclass(frozen=True)
class Fired:
    """What the model of the protocol went through under so many seeds; `faults` is every thing that went wrong."""

    seeds: int
    counts: dict[str, int]
    faults: list[str]
    wall_s: float


def under_fire(seeds: int) -> Fired:
    """Try the protocol's model under seeds 0, 1, …"""
    counts: Counter[str] = Counter()
    faults: list[str] = []
    began_s = time.perf_counter()
    for seed in range(seeds):
        tally = try_seed(seed)
        counts += tally.counts
        faults += [f"seed {seed}: {fault}" for fault in tally.faults]
    return Fired(seeds, dict(counts), faults, time.perf_counter() - began_s)


@dataclass(frozen=True)
class Compared:
    """Round times on one overlay in seconds, by strategy, and the least that any schedule can take."""

    overlay: str
    bound_s: float
    round_s: dict[str, float]


STRATEGIES: dict[str, Callable[..., Plan]] = {
    "star": strategies.star,
    "star, best place": strategies.placed_star,
    "star in turns": strategies.ordered_star,
    "star, 9 servers": lambda overlay, tensors: strategies.star(overlay, tensors, overlay.nodes),
    "k-ary": strategies.k_ary,
    "binary": strategies.binary,
    "spanning tree": strategies.spanning,
    "packed trees": strategies.packed,
    "FAPT, one root": strategies.fapt,
    "FAPT, all roots": strategies.multi_root,
    "planned": planner.plan,
}


def compare(name: str, overlay: Overlay) -> Compared:
    """Return how every strategy does on an overlay that it knows."""
    bound_s = planner.best_trees(overlay).bound_s_per_byte * 4 * sum(ALEXNET)
    round_s = {what: simulate(overlay, decide(overlay, ALEXNET)).round_s for what, decide in STRATEGIES.items()}
    return Compared(name, bound_s, round_s)


def compare_all(short: bool) -> list[Compared]:
    """Return the comparison on draws of the paper's overlay and on random ones of 6 and 12 nodes."""
    seeds = range(1 if short else 5)
    found = [compare("netstorm-9", netstorm_9(seed)) for seed in seeds]
    return found + [compare(f"random, {count}", random_overlay(count, seed)) for count in (6, 12) for seed in seeds[:3]]


def dynamic(short: bool) -> dict[str, float]:
    """Return the mean round of systems that learn, in seconds, while all rates are drawn again every 180 s."""
    systems = {
        "star": System(lambda overlay: strategies.star(overlay, ALEXNET)),
        "FAPT, all roots": System(lambda overlay: strategies.multi_root(overlay, ALEXNET)),
        "FAPT, all roots, aware": System(lambda overlay: strategies.multi_root(overlay, ALEXNET), aware=True),
        "FAPT, all roots, aware, auxiliary": System(
            lambda overlay: strategies.multi_root(overlay, ALEXNET), aware=True, auxiliary=True
        ),
        "planned, aware": System(lambda overlay: planner.plan(overlay, ALEXNET, moves=2), aware=True),
    }
    found: dict[str, list[float]] = {name: [] for name in systems}
    rounds = 3 if short else ROUNDS
    for seed in range(1 if short else 2):
        start, names = netstorm_9(seed), [own_link(*pair) for pair in netstorm_9(seed).by_pair]
        changes = [
            Change(turn * PERIOD_S, link, float(rate_bps))
            for turn in range(1, 40)
            for link, rate_bps in draw(names, seed, turn).items()
        ]
        for name, system in systems.items():
            ran = run(start, start, system, rounds, compute_s=2.0, changes=changes)
            found[name] += ran.round_s
    return {name: sum(rounds) / len(rounds) for name, rounds in found.items()}


def medians(compared: list[Compared]) -> dict[str, dict[str, float]]:
    """Return the median multiple of the bound, by overlay and strategy."""
    overlays = dict.fromkeys(one.overlay for one in compared)
    return {
        overlay: {
            what: median(one.round_s[what] / one.bound_s for one in compared if one.overlay == overlay)
            for what in STRATEGIES
        }
        for overlay in overlays
    }
