"""How fast flows are that share links: max–min fair, as TCP shares them over several bottlenecks, or in turns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

ROUNDING = 1e-12
CUBIC_ALPHA = 4 / 3
"""CUBIC's rate is as (1 / loss)^(3/4) (RFC 9438, 5.1), Reno's as (1 / loss)^(1/2), which would be 2."""
ACCURACY, MOST_STEPS = 0.01, 60
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


def alpha_fair(
    flows: Mapping[F, Sequence[str]], capacity_bps: Mapping[str, float], alpha: float = CUBIC_ALPHA
) -> dict[F, float]:
    """Return the rates in bit/s to which window-based congestion control comes whose rate is as loss^(-1/alpha).

    Every full link loses a part p of what comes, a flow over several links the sum of theirs, and so it gets less of
    each than one that meets a single bottleneck: rates maximise the sum of x^(1-alpha) / (1-alpha) (Mo and Walrand,
    2000; Kunniyur and Srikant, 2003). Flows over one link each share it equally, as with `max_min`, to which rates
    come as alpha grows. Round trips are not looked at: where queues are deep a bottleneck's own is most of them.
    """
    if all(len(set(links)) == 1 for links in flows.values()):
        return max_min(flows, capacity_bps)
    names = list(dict.fromkeys(link for links in flows.values() for link in links))
    row = {link: number for number, link in enumerate(names)}
    uses = np.zeros((len(names), len(flows)))
    for column, links in enumerate(flows.values()):
        uses[[row[link] for link in links], column] = 1.0
    capacity = np.array([capacity_bps[link] for link in names])
    unit = capacity.max(initial=ROUNDING)
    capacity = np.maximum(capacity / unit, ROUNDING)
    price = (uses.sum(axis=1) / capacity) ** alpha  # exact for a link whose flows meet no other
    for _ in range(MOST_STEPS):
        rates = (uses.T @ price) ** (-1 / alpha)
        over = uses @ rates / capacity
        # Links that are not full have no loss: their prices sink until they do not matter.
        if np.abs(np.where(price * capacity > ACCURACY * (price * capacity).max(), over - 1, 0)).max() < ACCURACY:
            break
        price *= over**alpha
    rates /= max(1.0, float((uses @ rates / capacity).max()))
    return {flow: float(rate * unit) for flow, rate in zip(flows, rates, strict=True)}


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
