"""Flows on shared links as a fluid: each has a size and a rate, and rates change when flows come and go."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from controllers.netstorm.rates import ROUNDING, in_turns, max_min

F = TypeVar("F", bound=Hashable)
ACK_ROUNDS = 1
"""Acknowledgements are hundredths of what they acknowledge: one turn is exact to thousandths."""


class Fluid(Generic[F]):
    """Flows in progress. `turn` says in which order flows go first; without it they share max–min fairly (how
    TCP shares is for `windows`).

    `ack` is the part of a flow's rate that its acknowledgements take of the links that `back` names for it. Only flows
    that are tied to a change by links they share, directly or through others, get new rates.
    """

    def __init__(
        self,
        capacity_bps: Mapping[str, float],
        turn: Callable[[F], tuple[int, ...]] | None = None,
        *,
        ack: float = 0.0,
        back: Callable[[F], tuple[str, ...]] | None = None,
    ) -> None:
        self.now_s = 0.0
        self._capacity_bps = dict(capacity_bps)
        self._turn = turn
        self._ack, self._back = ack, back if ack else None
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
        for link in self._touched(flow):
            self._on[link][flow] = None
        self.now_s = now_s
        self._share(self._touched(flow))

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
        links = self._touched(flow)
        del self._links[flow]
        for of_one in (self._left_bits, self._rate_bps, self._since_s, self._stamp):
            del of_one[flow]
        for link in dict.fromkeys(links):
            del self._on[link][flow]
        self._share(links)

    def _touched(self, flow: F) -> tuple[str, ...]:
        """The links that a flow uses, be it for its acknowledgements."""
        links = self._links[flow]
        return links if self._back is None else (*links, *self._back(flow))

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
                    waiting += self._touched(flow)
        capacity_bps = {link: self._capacity_bps[link] for link in seen}
        rates = self._rates(tied, capacity_bps)
        for _ in range(ACK_ROUNDS if self._back else 0):
            rates = self._rates(tied, self._without_acks(rates, capacity_bps))
        for flow, rate_bps in rates.items():
            if rate_bps != self._rate_bps[flow] or flow not in self._stamp:
                self._retime(flow, rate_bps)

    def _rates(self, flows: Mapping[F, tuple[str, ...]], capacity_bps: Mapping[str, float]) -> dict[F, float]:
        if self._turn is not None:
            return in_turns(flows, capacity_bps, {flow: self._turn(flow) for flow in flows})
        return max_min(flows, capacity_bps)

    def _without_acks(self, rates: Mapping[F, float], capacity_bps: Mapping[str, float]) -> dict[str, float]:
        """Return what acknowledgements leave. They go by themselves, also where segments go the same way: a pair of
        segments and the acknowledgement that lets the next pair go arrive together, so the pair is acknowledged before
        there is anything to go with (half a pure acknowledgement per segment on every link of netstorm-static)."""
        left = dict(capacity_bps)
        assert self._back is not None
        for flow, rate_bps in rates.items():
            for link in self._back(flow):
                left[link] -= self._ack * rate_bps
        return {link: max(one, ROUNDING * capacity_bps[link]) for link, one in left.items()}

    def _retime(self, flow: F, rate_bps: float) -> None:
        sent_bits = (self.now_s - self._since_s[flow]) * self._rate_bps[flow]
        self._left_bits[flow] = max(0.0, self._left_bits[flow] - sent_bits)
        self._rate_bps[flow], self._since_s[flow] = rate_bps, self.now_s
        self._number += 1
        self._stamp[flow] = self._number
        if rate_bps > 0:
            end_s = self.now_s + self._left_bits[flow] / rate_bps
            heapq.heappush(self._ends, (end_s, self._number, flow))
