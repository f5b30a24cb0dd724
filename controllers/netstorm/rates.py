"""How fast flows are that share links: max–min fair, or in turns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

ROUNDING = 1e-12
F = TypeVar("F", bound=Hashable)


def max_min(flows: Mapping[F, Sequence[str]], capacity_bps: Mapping[str, float]) -> dict[F, float]:
    """Return the max–min fair rate in bit/s of each flow; a flow is the links it runs over, each counted once.

    All rates grow alike until a link is full; its flows keep what they have, and the others grow on. This is what
    long TCP flows with equal round trips come to.
    """
    left = {link: capacity_bps[link] for links in flows.values() for link in links}
    on: dict[str, dict[F, None]] = {link: {} for link in left}
    for flow, links in flows.items():
        for link in links:
            on[link][flow] = None
    rates: dict[F, float] = {}
    while len(rates) < len(flows):
        fullest = min((link for link in on if on[link]), key=lambda link: left[link] / len(on[link]))
        rate_bps = left[fullest] / len(on[fullest])
        for flow in list(on[fullest]):
            rates[flow] = rate_bps
            for link in dict.fromkeys(flows[flow]):
                left[link] = max(0.0, left[link] - rate_bps)
                del on[link][flow]
    return rates


def in_turns(
    flows: Mapping[F, Sequence[str]], capacity_bps: Mapping[str, float], turn: Mapping[F, tuple[int, ...]]
) -> dict[F, float]:
    """Return each flow's rate in bit/s when those with the least `turn` go first, and equals share fairly.

    What the first leave of a link the next may use. This is the online rule for a star's bottleneck: the flows of the
    oldest chunk are served before those of younger ones, so that the server has whole sums early and can hand them out
    while later ones are still on their way.
    """
    left = dict(capacity_bps)
    rates: dict[F, float] = {}
    for now in sorted({turn[flow] for flow in flows}):
        served = {flow: links for flow, links in flows.items() if turn[flow] == now}
        for flow, rate_bps in max_min(served, left).items():
            rates[flow] = rate_bps
            for link in dict.fromkeys(flows[flow]):
                rest = left[link] - rate_bps
                left[link] = rest if rest > ROUNDING * capacity_bps[link] else 0.0
    return rates
