"""Many rounds in the event simulation, with links that change and a scheduler that learns of it or does not.

What awareness does in packets it does here: every transfer of the last round is a probe, reports reach the scheduler at
once, and it looks every 5 s. A policy comes into force at the next round; auxiliary paths go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from controllers.netstorm.auxiliary import for_ways
from controllers.netstorm.awareness import DEFAULTS, Awareness, Receiver, Settings
from controllers.netstorm.overlay import Overlay, Pair
from controllers.netstorm.simulate import IDEAL, Change, Conditions, simulate
from controllers.netstorm.tree import Plan

Strategy = Callable[[Overlay], Plan]


@dataclass(frozen=True)
class System:
    """A strategy, and what it has beside it: `aware` whether it learns, `auxiliary` whether it goes round queues."""

    strategy: Strategy
    aware: bool = False
    auxiliary: bool = False
    awareness: Settings = DEFAULTS


@dataclass(frozen=True)
class Ran:
    """Rounds in order: when each began, how long it took (s), and the number of policies decided before it."""

    began_s: tuple[float, ...]
    round_s: tuple[float, ...]
    policies: tuple[int, ...]


def run(
    overlay: Overlay,
    believed: Overlay,
    system: System,
    rounds: int,
    *,
    compute_s: float = 0.0,
    changes: Sequence[Change] = (),
    conditions: Conditions = IDEAL,
) -> Ran:
    """Return how `rounds` rounds go, each after `compute_s` of computing.

    overlay: what the links are at the beginning; changes: of links, at times from the beginning of the run, in order;
    believed: what the scheduler takes the throughputs for, until it learns better.
    """
    awareness = Awareness(believed, system.awareness)
    receivers: dict[Pair, Receiver] = {}
    plan = system.strategy(believed)
    now_s, links_bps, policies = 0.0, dict(overlay.links_bps), 1
    began, lasted, counts = [], [], []
    for _ in range(rounds):
        now_s += compute_s
        past = [one for one in changes if one.t_s <= now_s]
        links_bps.update({one.link: one.capacity_bps for one in past})
        coming = [Change(0.0, link, capacity_bps) for link, capacity_bps in links_bps.items()]
        coming += [replace(one, t_s=one.t_s - now_s) for one in changes if one.t_s > now_s]
        paths = for_ways(awareness.believed(), plan.ways, _largest(plan)) if system.auxiliary else {}
        outcome = simulate(overlay, plan, replace(conditions, changes=coming, auxiliary=paths))
        began.append(now_s)
        lasted.append(outcome.round_s)
        counts.append(policies)
        for one in outcome.transfers if system.aware else ():
            pair = (one.source, one.target)
            receiver = receivers.setdefault(pair, Receiver(system.awareness))
            throughput_bps = receiver.received(one.size_bytes, one.ended_s - one.began_s)
            if throughput_bps is not None and pair in overlay.by_pair:
                awareness.report(*pair, throughput_bps)
            if (fresh := awareness.look(now_s + one.ended_s)) is not None:
                plan = system.strategy(fresh)
                policies += 1
        now_s += outcome.round_s
    return Ran(tuple(began), tuple(lasted), tuple(counts))


def _largest(plan: Plan) -> int:
    return max(chunk.size_bytes for chunk in plan.chunks)
