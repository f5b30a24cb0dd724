"""Flows on shared links as a fluid: each has a size and a rate, and rates change when flows come and go."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from controllers.netstorm.rates import in_turns, max_min

F = TypeVar("F", bound=Hashable)


class Fluid(Generic[F]):
    """Flows in progress. `turn` says in which order flows go first; without it they share max–min fairly.

    Only flows that are tied to a change by links they share, directly or through others, get new rates.
    """

    def __init__(self, capacity_bps: Mapping[str, float], turn: Callable[[F], tuple[int, ...]] | None = None) -> None:
        self.now_s = 0.0
        self._capacity_bps = dict(capacity_bps)
        self._turn = turn
        self._links: dict[F, tuple[str, ...]] = {}
        self._on: dict[str, dict[F, None]] = {link: {} for link in capacity_bps}
        self._left_bits: dict[F, float] = {}
        self._rate_bps: dict[F, float] = {}
        self._since_s: dict[F, float] = {}
        self._stamp: dict[F, int] = {}
        self._ends: list[tuple[float, int, F]] = []
        self._number = 0

    def start(self, flow: F, links: tuple[str, ...], size_bits: float, now_s: float) -> None:
        """Begin a flow that is not in progress."""
        self._links[flow], self._left_bits[flow], self._since_s[flow] = links, size_bits, now_s
        self._rate_bps[flow] = 0.0
        for link in links:
            self._on[link][flow] = None
        self.now_s = now_s
        self._share(links)

    def change(self, link: str, capacity_bps: float) -> None:
        """Give a link another capacity from now on."""
        self._capacity_bps[link] = capacity_bps
        self._share((link,))

    def run_until(self, until_s: float) -> F | None:
        """Go on to the next flow that ends before or at a moment, and return it; None if there is none."""
        while self._ends:
            end_s, stamp, flow = self._ends[0]
            if self._stamp.get(flow) != stamp:
                heapq.heappop(self._ends)
                continue
            if end_s > until_s:
                break
            heapq.heappop(self._ends)
            self.now_s = end_s
            self._finish(flow)
            return flow
        if until_s < math.inf:
            self.now_s = until_s
        return None

    def _finish(self, flow: F) -> None:
        links = self._links.pop(flow)
        for of_one in (self._left_bits, self._rate_bps, self._since_s, self._stamp):
            del of_one[flow]
        for link in dict.fromkeys(links):
            del self._on[link][flow]
        self._share(links)

    def _share(self, links: Iterable[str]) -> None:
        tied, waiting, seen = {}, list(links), set()
        while waiting:
            link = waiting.pop()
            if link in seen:
                continue
            seen.add(link)
            for flow in self._on[link]:
                if flow not in tied:
                    tied[flow] = self._links[flow]
                    waiting += self._links[flow]
        capacity_bps = {link: self._capacity_bps[link] for link in seen}
        if self._turn is None:
            rates = max_min(tied, capacity_bps)
        else:
            rates = in_turns(tied, capacity_bps, {flow: self._turn(flow) for flow in tied})
        for flow, rate_bps in rates.items():
            if rate_bps != self._rate_bps[flow] or flow not in self._stamp:
                self._retime(flow, rate_bps)

    def _retime(self, flow: F, rate_bps: float) -> None:
        sent_bits = (self.now_s - self._since_s[flow]) * self._rate_bps[flow]
        self._left_bits[flow] = max(0.0, self._left_bits[flow] - sent_bits)
        self._rate_bps[flow], self._since_s[flow] = rate_bps, self.now_s
        self._number += 1
        self._stamp[flow] = self._number
        if rate_bps > 0:
            end_s = self.now_s + self._left_bits[flow] / rate_bps
            heapq.heappush(self._ends, (end_s, self._number, flow))
