"""`netstorm-9`: the nine data centres and 13 overlay links of NETSTORM's testbed, from its authors' public code.

Each of the 26 directions has a rate drawn uniformly from the whole numbers 20 to 155 Mbit/s; there is no added delay
and no loss. In the dynamic network all are drawn again every 180 s (`testbed.net.wan.dynamics`).
"""

from __future__ import annotations

import random

from testbed.net.wan.build import Defaults, RawLink, assemble
from testbed.net.wan.model import Site, Wan, link_name

NAME = "netstorm-9"
LINKS = (
    (1, 2), (1, 3), (2, 3), (2, 5), (3, 4), (4, 5), (4, 6), (5, 7), (6, 7), (6, 8), (6, 9), (7, 8), (8, 9),
)  # fmt: skip
LEAST_MBPS, MOST_MBPS = 20, 155
PERIOD_S = 180.0


def draw(directions: list[str], seed: int, turn: int) -> dict[str, int]:
    """The rates in bit/s of these directions in turn 0, 1, …: each a whole number of Mbit/s, by the seed alone."""
    generator = random.Random(f"{NAME}/{seed}/{turn}")
    return {name: generator.randint(LEAST_MBPS, MOST_MBPS) * 10**6 for name in directions}


def build(seed: int, defaults: Defaults) -> Wan:
    """The network as it is drawn first; `defaults` may add delay, jitter or loss."""
    pairs = [(f"dc{a}", f"dc{b}") for a, b in LINKS]
    rates_bps = draw([link_name(*ends) for a, b in pairs for ends in ((a, b), (b, a))], seed, 0)
    links = [
        RawLink(a, b, rates_bps[link_name(a, b)], defaults.delay_s or 0.0, rates_bps[link_name(b, a)]) for a, b in pairs
    ]
    return assemble(NAME, [Site(f"dc{i}") for i in range(1, 10)], links, defaults)
