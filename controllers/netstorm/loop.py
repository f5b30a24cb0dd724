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
from controllers.netstorm.simulate import IDEAL, Change, Conditions, Outcome, connections, simulate
from controllers.netstorm.tree import Plan
from controllers.netstorm.windows import Windows

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
    """Rounds in order: when each began, how long it took (s), and the number of policies decided before it; and all of
    the first one."""

    began_s: tuple[float, ...]
    round_s: tuple[float, ...]
    policies: tuple[int, ...]
    first: Outcome


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
    fresh: Overlay | None = None
    plan = system.strategy(believed)
    now_s, links_bps, policies = 0.0, dict(overlay.links_bps), 1
    began, lasted, counts = [], [], []
    outcomes: list[tuple[tuple[float, ...], Outcome]] = []
    windows: Windows[Pair] | None = None
    for _ in range(rounds):
        now_s += compute_s
        if fresh is not None:
            plan, fresh, policies = system.strategy(fresh), None, policies + 1
        links_bps.update({one.link: one.capacity_bps for one in changes if one.t_s <= now_s})
        later = [replace(one, t_s=one.t_s - now_s) for one in changes if one.t_s > now_s]
        known = (*links_bps.values(), policies, windows is None)
        # Where nothing has changed, and nothing will before it is over, a round is like the one before.
        if not outcomes or outcomes[-1][0] != known or (later and later[0].t_s < outcomes[-1][1].round_s):
            paths = for_ways(awareness.believed(), plan.ways, _largest(plan)) if system.auxiliary else {}
            coming = [*(Change(0.0, *link) for link in links_bps.items()), *later]
            windows = windows or connections(overlay, plan, conditions)
            outcome = simulate(overlay, plan, replace(conditions, changes=coming, auxiliary=paths), windows)
            outcomes = [*outcomes[:1], (known, outcome)]
            if windows is not None:
                windows.rewind()
        outcome = outcomes[-1][1]
        began.append(now_s)
        lasted.append(outcome.round_s)
        counts.append(policies)
        for one in outcome.transfers if system.aware else ():
            pair = (one.source, one.target)
            receiver = receivers.setdefault(pair, Receiver(system.awareness))
            throughput_bps = receiver.received(one.size_bytes, one.ended_s - one.began_s)
            if throughput_bps is not None and pair in overlay.by_pair:
                awareness.report(*pair, throughput_bps)
            fresh = awareness.look(now_s + one.ended_s) or fresh
        now_s += outcome.round_s
    return Ran(tuple(began), tuple(lasted), tuple(counts), outcomes[0][1])


def _largest(plan: Plan) -> int:
    return max(chunk.size_bytes for chunk in plan.chunks)
