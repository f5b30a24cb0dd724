"""Placements to decide on: drawn by seed, on the fabric of CASSINI's testbed or on links that know no fabric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.cases import fabric
from controllers.cassini.affinity import SharedLink
from controllers.cassini.module import Placement
from controllers.cassini.profile import Profile
from controllers.sdn.paths import Routes

CAPACITY_BPS = 50e9
PERIODS_S = (0.255, 0.285, 0.200, 0.300, 0.240, 0.150, 0.180, 0.360)
"""Iteration times of different models: the first is VGG16's of the paper, and no two are equal."""
EVEN_S = (0.200, 0.240, 0.300, 0.400)
"""Iteration times with a short common multiple, so that every link puts a job on the same circle."""
ANGLES = 72
DUTIES = (0.2, 0.5)
SHARES = (0.5, 0.75, 1.0)


def job(name: str, periods_s: Sequence[float], rng: np.random.Generator) -> Profile:
    """Return a job that is silent, then sends at a share of the capacity for a fifth to a half of its iteration."""
    sending = round(ANGLES * rng.uniform(*DUTIES))
    rate_bps = CAPACITY_BPS * float(rng.choice(SHARES))
    return Profile(name, float(rng.choice(periods_s)), (0.0,) * (ANGLES - sending) + (rate_bps,) * sending)


def candidates(
    count: int, jobs: int, workers: int, seed: int, *, most: int = 3, periods_s: Sequence[float] = PERIODS_S
) -> list[Placement]:
    """Return `count` placements of the same jobs, rings of `workers`, on 24 servers with at most `most` jobs a link."""
    rng = np.random.default_rng(seed)
    topology = fabric(1).topology
    routes = Routes(topology)
    profiles = {f"job{number}": job(f"job{number}", periods_s, rng) for number in range(jobs)}
    found: list[Placement] = []
    while len(found) < count:
        order = rng.permutation(topology.hosts).tolist()
        rings = {name: order[at * workers : (at + 1) * workers] for at, name in enumerate(profiles)}
        pairs = {name: [(ring[at - 1], ring[at]) for at in range(workers)] for name, ring in rings.items()}
        shared = routes.shared_links(pairs)
        if max(map(len, shared.values()), default=0) <= most:
            links = (
                SharedLink(link, CAPACITY_BPS, tuple(profiles[name] for name in on)) for link, on in shared.items()
            )
            found.append(Placement(f"candidate {len(found) + 1}", tuple(links)))
    return found


def scattered(jobs: int, seed: int = 1) -> Placement:
    """Return twice as many links as jobs, two or three jobs on each at random: nearly all are one knot of loops."""
    rng = np.random.default_rng(seed)
    profiles = [job(f"job{number:04}", PERIODS_S, rng) for number in range(jobs)]
    links = [
        SharedLink(
            f"link{number:04}",
            CAPACITY_BPS,
            tuple(profiles[at] for at in rng.choice(jobs, int(rng.integers(2, 4)), replace=False)),
        )
        for number in range(2 * jobs)
    ]
    return Placement(f"{jobs} jobs", tuple(links))


def three_on_a_link(seed: int) -> SharedLink:
    """Return one link with three jobs whose iterations have a short common multiple."""
    rng = np.random.default_rng(seed)
    return SharedLink("link", CAPACITY_BPS, tuple(job(name, EVEN_S, rng) for name in ("a", "b", "c")))


def crowded_link(seed: int) -> SharedLink:
    """Return one link of four to eight jobs that load it to between half and 1.4 times what it carries."""
    rng = np.random.default_rng(seed)
    count, load = int(rng.integers(4, 9)), rng.uniform(0.5, 1.4)
    drawn = [job(f"job{number}", PERIODS_S[:1] if seed % 3 == 0 else PERIODS_S, rng) for number in range(count)]
    factor = load * CAPACITY_BPS / sum(float(np.mean(one.demand_bps)) for one in drawn)
    least = [tuple(min(CAPACITY_BPS, rate * factor) for rate in one.demand_bps) for one in drawn]
    jobs = (Profile(one.job, one.period_s, demand) for one, demand in zip(drawn, least, strict=True))
    return SharedLink("crowded", CAPACITY_BPS, tuple(jobs))
