"""What is to go wrong in a run, drawn by its seed: sites that are killed and started again, tunnels cut and mended.

Both come at random (exponential) times, in the middle of whatever goes on then, and last for random times; nobody is
killed twice at once, no tunnel is cut twice at once. That cuts leave the overlay in pieces for a while is allowed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.geo.keys import FireKeys

KILL, START, CUT, MEND = "kill", "start", "cut", "mend"
BACK = {KILL: START, CUT: MEND}


@dataclass(frozen=True, order=True)
class Strike:
    """At `t_s`, from the beginning of the first round, a site is killed or started, or a tunnel "a->b" cut or mended.

    No name of a site has an arrow in it (testbed.net.wan.model).
    """

    t_s: float
    what: str
    whom: str


def script(keys: FireKeys, seed: int, sites: Sequence[str], tunnels: Sequence[tuple[str, str]]) -> list[Strike]:
    """Everything that happens, in order of time; what has begun is put right again, if need be after `until`."""
    found: list[Strike] = []
    for what, per_minute, whom in (
        (KILL, keys.kills, list(sites)),
        (CUT, keys.cuts, [f"{a}->{b}" for a, b in tunnels]),
    ):
        generator = random.Random(f"fire/{seed}/{what}")
        busy_until_s: dict[str, float] = {}
        now_s = 0.0
        while per_minute:
            now_s += generator.expovariate(per_minute / 60)
            if now_s >= keys.until:
                break
            one, away_s = generator.choice(whom), generator.expovariate(1 / keys.away)
            if busy_until_s.get(one, 0.0) < now_s:
                busy_until_s[one] = now_s + away_s
                found += [Strike(now_s, what, one), Strike(now_s + away_s, BACK[what], one)]
    return sorted(found)
