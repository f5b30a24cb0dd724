"""The least that any schedule could have taken on the links as they were while each round went on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from controllers.netstorm.bound import MOST_CUT_NODES, cut_bound_s
from controllers.netstorm.overlay import Overlay
from controllers.netstorm.planner import best_trees
from testbed.geo.keys import WideScenario
from testbed.geo.prediction import goodput, payload_overlay
from testbed.net.wan import dynamics
from testbed.net.wan.model import Wan


@dataclass(frozen=True)
class Bound:
    """Seconds for a round: by the linear program over flows, and by cuts (None for more than 16 sites)."""

    flow_s: float
    cut_s: float | None


class Bounds:
    """Bounds of a scenario's rounds; `changes` are of the links, in order."""

    def __init__(self, scenario: WideScenario, wan: Wan, changes: Sequence[dynamics.Change]) -> None:
        self._first = payload_overlay(scenario, wan)
        self._part = goodput(scenario)
        self._changes = [change for change in changes if change.attribute == "rate_bps"]
        self._known: dict[tuple[float, ...], tuple[float, float | None]] = {}

    def between(self, begin_s: float, end_s: float, size_bytes: int) -> Bound:
        """For a round of so many bytes from `begin_s` to `end_s`: no schedule moves more in that time than links that
        always have their mean capacity of that time let through."""
        overlay = self._mean(begin_s, end_s)
        key = tuple(overlay.links_bps.values())
        if key not in self._known:
            cut = cut_bound_s(overlay, 1.0) if len(overlay.nodes) <= MOST_CUT_NODES else None
            self._known[key] = (best_trees(overlay).bound_s_per_byte, cut)
        flow, cut = self._known[key]
        return Bound(flow * size_bytes, None if cut is None else cut * size_bytes)

    def _mean(self, begin_s: float, end_s: float) -> Overlay:
        rates = dict(self._first.links_bps)
        sums, at_s = dict.fromkeys(rates, 0.0), begin_s
        for change in self._changes:
            if change.t_s >= end_s:
                break
            if change.t_s > at_s:
                sums = {link: sums[link] + rates[link] * (change.t_s - at_s) for link in rates}
                at_s = change.t_s
            rates[change.link] = change.value * self._part
        if not any(sums.values()):
            means = rates
        else:
            means = {link: (sums[link] + rates[link] * (end_s - at_s)) / (end_s - begin_s) for link in rates}
        tunnels = tuple(
            replace(one, throughput_bps=min(means[link] for link in one.links)) for one in self._first.tunnels
        )
        return replace(self._first, tunnels=tunnels, capacity_bps=means)
