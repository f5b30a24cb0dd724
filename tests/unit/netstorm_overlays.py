"""Overlays for tests: NETSTORM's nine data centres, and random ones."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hypothesis import strategies as st

from controllers.netstorm.overlay import Overlay, Tunnel
from testbed.net.wan.build import Defaults
from testbed.net.wan.netstorm import build

ALEXNET = (23_232, 307_200, 663_552, 884_736, 589_824, 37_748_736, 16_777_216, 40_960)
"""Elements of the weights of an AlexNet for ten classes: 57 million."""
M = 1_000_000


def both_ways(edges: Iterable[tuple[str, str, float]], latency_s: float = 0.0) -> tuple[Tunnel, ...]:
    """Return tunnels each way at the same throughput in Mbit/s."""
    return tuple(Tunnel(*ends, mbps * 1e6, latency_s) for a, b, mbps in edges for ends in ((a, b), (b, a)))


def netstorm_9(seed: int = 1) -> Overlay:
    """Return the paper's overlay with one draw of throughputs."""
    wan = build(seed, Defaults())
    return Overlay(wan.names, tuple(Tunnel(a, b, float(one.rate_bps), one.delay_s) for a, b, one in wan.directed()))


def random_overlay(count: int, seed: int, degree: float = 3.0, latency_s: float = 0.0) -> Overlay:
    """Return a connected overlay of so many nodes and about `degree` neighbours each; 20 to 155 Mbit/s."""
    generator = random.Random(seed)
    pairs = {(generator.randrange(number), number) for number in range(1, count)}
    wanted = min(count * (count - 1) // 2, max(count - 1, round(count * degree / 2)))
    while len(pairs) < wanted:
        a, b = sorted(generator.sample(range(count), 2))
        pairs.add((a, b))
    tunnels = [
        Tunnel(f"n{x}", f"n{y}", generator.randint(20, 155) * 1e6, latency_s * generator.random())
        for a, b in sorted(pairs)
        for x, y in ((a, b), (b, a))
    ]
    return Overlay(tuple(f"n{number}" for number in range(count)), tuple(tunnels))


overlays = st.builds(
    random_overlay,
    st.integers(2, 7),
    st.integers(0, 10**6),
    st.sampled_from([2.0, 3.0, 5.0]),
    st.sampled_from([0, 0.1]),
)
