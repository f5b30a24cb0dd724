"""How sites without a tunnel of their own reach each other: IP routing over tunnels, fixed for a run.

A pair with a tunnel uses it. For the others there are two rules. `hops`: the fewest tunnels. `widest`: the way whose
slowest tunnel is the fastest; of such ways, the one with the fewest tunnels among those that are widest from every
site on. Ties go to the next site with the lowest number, at every hop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from testbed.net.wan.model import Wan, link_name

Rule = Literal["hops", "widest"]
RULES: tuple[Rule, ...] = ("hops", "widest")


def next_sites(wan: Wan, rule: Rule = "hops") -> dict[tuple[str, str], str]:
    """For every ordered pair of sites (from, to), the site at the other end of the first tunnel."""
    rates_bps = tunnel_rates_bps(wan)
    neighbours: dict[str, list[str]] = {name: [] for name in wan.names}
    for a, b in sorted(rates_bps, key=lambda pair: wan.number(pair[1])):
        neighbours[a].append(b)
    found = {}
    for target in wan.names:
        cost = _costs(wan, target, rates_bps, rule)
        for site in wan.names:
            if (site, target) in rates_bps:
                found[site, target] = target
            elif site != target:
                # The first of the best is the lowest number; every step lessens the cost, so there is no loop.
                found[site, target] = min(
                    neighbours[site], key=lambda peer: _step(cost[peer], rates_bps[site, peer], rule)
                )
    return found


def route(nexts: Mapping[tuple[str, str], str], source: str, target: str) -> list[str]:
    """The sites from source to target, both included."""
    sites = [source]
    while sites[-1] != target:
        sites.append(nexts[sites[-1], target])
    return sites


def tunnel_links(wan: Wan) -> dict[tuple[str, str], list[str]]:
    """The links that each tunnel runs over, in each direction: the one between its ends, or else those of the shortest
    way (fewest links, ties to the lowest number)."""
    links = {(a, b): attributes.rate_bps for a, b, attributes in wan.directed()}
    found = {}
    for a, b in wan.tunnels:
        for ends in ((a, b), (b, a)):
            found[ends] = [link_name(*ends)] if ends in links else _shortest(wan, links, *ends)
    return found


def tunnel_rates_bps(wan: Wan) -> dict[tuple[str, str], int]:
    """The rate of each tunnel in each direction: that of its slowest link."""
    rates_bps = {link_name(a, b): attributes.rate_bps for a, b, attributes in wan.directed()}
    return {ends: min(rates_bps[link] for link in links) for ends, links in tunnel_links(wan).items()}


def tunnel_delays_s(wan: Wan) -> dict[tuple[str, str], float]:
    """The delay of each tunnel in each direction: that of all its links."""
    delays_s = {link_name(a, b): attributes.delay_s for a, b, attributes in wan.directed()}
    return {ends: sum(delays_s[link] for link in links) for ends, links in tunnel_links(wan).items()}


def _shortest(wan: Wan, links: dict[tuple[str, str], int], source: str, target: str) -> list[str]:
    cost = _costs(wan, target, links, "hops")
    site, found = source, []
    while site != target:
        peers = sorted((b for a, b in links if a == site), key=wan.number)
        peer = min(peers, key=lambda one: cost[one])
        found.append(link_name(site, peer))
        site = peer
    return found


def _step(beyond: tuple[float, int], rate_bps: int, rule: Rule) -> tuple[float, int]:
    """The cost of going through a neighbour: (-bottleneck, hops), the bottleneck 0 where it does not matter."""
    narrow = max(beyond[0], -float(rate_bps)) if rule == "widest" else 0.0
    return narrow, beyond[1] + 1


def _costs(wan: Wan, target: str, rates_bps: Mapping[tuple[str, str], int], rule: Rule) -> dict[str, tuple[float, int]]:
    """The cost of every site to the target, by Dijkstra on (-bottleneck, hops); neighbours go straight."""
    best: dict[str, tuple[float, int]] = {target: (float("-inf") if rule == "widest" else 0.0, 0)}
    done: set[str] = set()
    while waiting := [site for site in best if site not in done]:
        site = min(waiting, key=lambda one: (best[one], wan.number(one)))
        done.add(site)
        for (a, b), rate_bps in rates_bps.items():
            if b == site and a not in done and (site == target or (a, target) not in rates_bps):
                best[a] = min(best.get(a, (float("inf"), 1 << 30)), _step(best[site], rate_bps, rule))
    return best
