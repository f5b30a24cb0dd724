"""Who gets how much of which link: max-min fair rates, connection by connection, and an estimate of marks.

Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): all connections grow alike until a link is
full; those that cross it stay at what they have, and the others go on. A flow here may be many connections of one rate
(a collective), which then counts on a link once for each connection that crosses it. With strict priorities the
connections of one level are filled before those of the next.

What is estimated, and only that: the share of packets that are marked where connections fill a link. DCTCP in its
steady state halves a window of W packets by the share a of packets that were marked, and grows it by one in a round
trip; both balance at a = sqrt(2 / W) (Alizadeh et al., SIGCOMM 2010, section 3.3). W is what the connection has of the
link's bandwidth-delay product and of the marking threshold. Reno and CUBIC balance at 3 / (2 W^2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workloads.models.buckets import ACKNOWLEDGEMENT_BYTES, FRAME_BYTES, HEADER_BYTES

Floats = NDArray[np.float64]
FULL = 1 - 1e-9
FEW = 10  # flows, up to which plain loops are faster than arrays
MOST_KNOWN = 20_000  # sets of active flows whose shares are kept


@dataclass(frozen=True)
class Wire:
    """A directed link: its rate, whether its queue marks, and at how many waiting bytes (the middle of RED's range)."""

    rate_bps: float
    marks_at_bytes: float | None = None


@dataclass(frozen=True)
class Flow:
    """Connections of one job that all send at one rate.

    `links` has for every directed link how many of them cross it, `back` the links their acknowledgements take.
    `step_s` is how long a step of a collective waits beside its bytes, `round_s` the round trip on empty links.
    `level` is the strict priority, 0 the highest.
    """

    job: str
    links: Mapping[str, int]
    back: frozenset[str] = frozenset()
    step_s: float = 0.0
    round_s: float = 0.0
    level: int = 0


@dataclass(frozen=True)
class Share:
    """What the active flows have: payload in bytes/s of each connection, marked packets/s of all of a flow's; with
    `links`, what these carry."""

    flows: tuple[int, ...]
    bytes_per_s: tuple[float, ...]
    marked_per_s: tuple[float, ...]
    links: Carried | None = None


@dataclass(frozen=True)
class Carried:
    """What links carry, in the order of `Sharing.links`: bytes/s, marked and all packets/s with acknowledgements, shape
    (links,); and data alone by flow, bytes/s and marked packets/s, shape (links, flows)."""

    bytes_per_s: Floats
    marked_per_s: Floats
    packets_per_s: Floats
    flow_bytes_per_s: Floats
    flow_marked_per_s: Floats


def max_min(loads: Floats, capacity: Floats) -> Floats:
    """Return the max-min fair rate of every flow, shape (flows,).

    loads: how much of a link one unit of a flow's rate takes, shape (links, flows); capacity: shape (links,). A flow on
    no link has no limit: infinity.
    """
    rates = np.zeros(loads.shape[1])
    growing = np.ones(loads.shape[1], dtype=bool)
    left = capacity.astype(np.float64).copy()
    while growing.any():
        weight = loads[:, growing].sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(weight > 0, np.maximum(left, 0.0) / weight, np.inf)
        more = float(room.min(initial=np.inf))
        if more == np.inf:
            rates[growing] = np.inf
            break
        rates[growing] += more
        left -= weight * more
        full = room <= more * (1 + 1e-12)
        growing &= ~(loads[full] > 0).any(axis=0)
    return rates


def _near(flows: Sequence[Flow]) -> list[int]:
    """Return for every flow, as bits, those that it meets on a link, or whose acknowledgements do; itself is one."""
    users: dict[str, int] = {}
    for at, flow in enumerate(flows):
        for link in (*flow.links, *flow.back):
            users[link] = users.get(link, 0) | 1 << at
    near = []
    for at, flow in enumerate(flows):
        bits = 1 << at
        for link in (*flow.links, *flow.back):
            bits |= users[link]
        near.append(bits)
    return near


def _together(shares: Sequence[Share]) -> Share:
    """Return what groups of flows that do not meet have, as one share."""
    of_flow = sorted(of for one in shares for of in zip(one.flows, one.bytes_per_s, one.marked_per_s, strict=True))
    flows, bytes_per_s, marked_per_s = zip(*of_flow, strict=True)
    return Share(flows, bytes_per_s, marked_per_s)


class Sharing:
    """The flows that may be active on some links, and what each set of active ones gets; known sets are kept."""

    def __init__(
        self,
        wires: Mapping[str, Wire],
        flows: Sequence[Flow],
        mtu_bytes: int,
        *,
        dctcp: bool = True,
        ecn: bool = True,
        links_too: bool = True,
    ) -> None:
        """Take flows over links that are all in `wires`; `links_too` says whether what links carry is wanted."""
        self.flows = tuple(flows)
        self.links = tuple(sorted({link for flow in flows for link in (*flow.links, *flow.back)}))
        index = {link: at for at, link in enumerate(self.links)}
        self._payload_bytes = mtu_bytes - HEADER_BYTES
        self.frame_bytes = mtu_bytes + FRAME_BYTES
        shape = len(self.links), len(self.flows)
        self._connections = np.zeros(shape)
        self._back = np.zeros(shape, dtype=bool)
        for at, flow in enumerate(self.flows):
            for link, count in flow.links.items():
                self._connections[index[link], at] = count
            self._back[[index[link] for link in flow.back], at] = True
        self._rate = np.array([wires[link].rate_bps / 8 for link in self.links])
        self._marks_at = np.array([wires[link].marks_at_bytes or 0.0 for link in self.links])
        self._dctcp, self._ecn, self._links_too = dctcp, ecn, links_too
        self._known: dict[int, Share] = {}
        self._few = [[(index[link], count) for link, count in flow.links.items()] for flow in self.flows]
        self._near = _near(self.flows)

    def fullest(self, carried: Carried) -> float:
        """Return the largest share of its rate that any link carries."""
        return float((carried.bytes_per_s / self._rate).max(initial=0.0))

    def share(self, active: int) -> Share:
        """Return what flows get whose bits are set in `active`."""
        found = self._known.get(active)
        if found is None:
            groups = [active] if self._links_too else self._groups(active)
            found = self._solved(active) if len(groups) <= 1 else _together(list(map(self._solved, groups)))
            self._known[active] = found
        return found

    def _groups(self, active: int) -> list[int]:
        """Return active flows that hang together by links, as bits: what others do changes nothing for them."""
        groups = []
        while active:
            group = left = active & -active
            while left:
                near = self._near[(left & -left).bit_length() - 1] & active & ~group
                group |= near
                left = left & (left - 1) | near
            groups.append(group)
            active &= ~group
        return groups

    def _solved(self, active: int) -> Share:
        found = self._known.get(active)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            flows = [at for at in range(active.bit_length()) if active >> at & 1]
            alone = len(flows) <= FEW and not self._links_too and len({self.flows[at].level for at in flows}) <= 1
            found = self._known[active] = self._share_of_few(flows) if alone else self._share(flows)
        return found

    def _share_of_few(self, flows: list[int]) -> Share:
        """Return the same as `_share`, for so few flows of one level that arrays cost more than they save."""
        wire = self.frame_bytes / self._payload_bytes
        count: dict[int, float] = {}
        for flow in flows:
            for link, each in self._few[flow]:
                count[link] = count.get(link, 0.0) + each
        answers = {link for flow in flows for link in count if self._back[link, flow]}
        full = 1 + ACKNOWLEDGEMENT_BYTES / self.frame_bytes
        capacity = {link: self._rate[link] / wire / (full if link in answers else 1.0) for link in count}
        left, weight, growing = dict(capacity), dict(count), set(flows)
        rates = dict.fromkeys(flows, 0.0)
        while growing:
            most = {link: left[link] / weight[link] for link in weight if weight[link] > 0}
            if not most:
                rates.update(dict.fromkeys(growing, math.inf))
                break
            more = max(0.0, min(most.values()))
            for flow in growing:
                rates[flow] += more
            for link in most:
                left[link] -= more * weight[link]
            closed = {link for link, room in most.items() if room <= more * (1 + 1e-12)}
            for flow in [flow for flow in growing if any(link in closed for link, _ in self._few[flow])]:
                growing.discard(flow)
                for link, connections in self._few[flow]:
                    weight[link] -= connections
            for link in closed:
                weight[link] = 0.0
        marked = self._marks_of_few(flows, rates, count, capacity) if self._ecn else dict.fromkeys(flows, 0.0)
        return Share(tuple(flows), tuple(float(rates[flow]) for flow in flows), tuple(marked[flow] for flow in flows))

    def _marks_of_few(
        self, flows: list[int], rates: dict[int, float], count: dict[int, float], capacity: dict[int, float]
    ) -> dict[int, float]:
        carried, trip_s = dict.fromkeys(count, 0.0), dict.fromkeys(count, 0.0)
        for flow in flows:
            for link, connections in self._few[flow]:
                carried[link] += rates[flow] * connections
                trip_s[link] += connections * self.flows[flow].round_s
        share = {}
        for link, here in count.items():
            if here >= 2 and self._marks_at[link] > 0 and carried[link] >= capacity[link] * FULL:
                waiting = self._rate[link] * trip_s[link] / here + self._marks_at[link]
                window = max(1e-300, waiting / self.frame_bytes / here)
                share[link] = min(1.0, math.sqrt(2 / window) if self._dctcp else 1.5 / window**2)
        marked = dict.fromkeys(flows, 0.0)
        for flow in flows:
            most = max((each for _, each in self._few[flow]), default=0)
            unmarked = 1.0
            for link, each in self._few[flow]:
                if link in share:
                    unmarked *= 1 - share[link] * each / most
            if most and unmarked < 1:
                marked[flow] = float(most * rates[flow] / self._payload_bytes * (1 - unmarked))
        return marked

    def _share(self, flows: list[int]) -> Share:
        wire = self.frame_bytes / self._payload_bytes
        used = np.flatnonzero(self._connections[:, flows].any(axis=1)) if flows else np.zeros(0, dtype=np.int64)
        connections = self._connections[np.ix_(used, np.array(flows, dtype=np.int64))]
        # Acknowledgements of traffic the other way take their part, as if that filled its links too.
        answers = self._back[np.ix_(used, np.array(flows, dtype=np.int64))].any(axis=1)
        capacity = self._rate[used] / np.where(answers, 1 + ACKNOWLEDGEMENT_BYTES / self.frame_bytes, 1.0)
        rates = self._by_level(flows, connections * wire, capacity)
        sent = connections * np.where(np.isfinite(rates), rates, 0.0)
        carried = sent.sum(axis=1) * wire
        marked = self._marked(flows, used, connections, sent / self._payload_bytes, carried >= capacity * FULL)
        received = self._received(marked, sent / self._payload_bytes, rates / self._payload_bytes)
        rest = self._carried(flows, used, rates, sent, marked) if self._links_too else None
        return Share(tuple(flows), tuple(rates.tolist()), tuple(received.tolist()), rest)

    def _carried(
        self, flows: list[int], used: NDArray[np.int64], rates: Floats, sent: Floats, marked: Floats
    ) -> Carried:
        shape = len(self.links), len(self.flows)
        by_flow, marked_by_flow = np.zeros(shape), np.zeros(shape)
        if flows:
            by_flow[np.ix_(used, np.array(flows, dtype=np.int64))] = sent * self.frame_bytes / self._payload_bytes
            marked_by_flow[np.ix_(used, np.array(flows, dtype=np.int64))] = marked
        back = self._back[:, flows] @ np.where(np.isfinite(rates), rates, 0.0) / self._payload_bytes
        data = by_flow.sum(axis=1)
        answers = np.minimum(back * ACKNOWLEDGEMENT_BYTES, np.maximum(0.0, self._rate - data))
        packets = data / self.frame_bytes + answers / ACKNOWLEDGEMENT_BYTES
        return Carried(data + answers, marked_by_flow.sum(axis=1), packets, by_flow, marked_by_flow)

    def _by_level(self, flows: list[int], loads: Floats, capacity: Floats) -> Floats:
        levels = np.array([self.flows[flow].level for flow in flows])
        rates, left = np.zeros(len(flows)), capacity.copy()
        for level in sorted(set(levels.tolist())):
            own = levels == level
            rates[own] = max_min(loads[:, own], left)
            left = np.maximum(0.0, left - loads[:, own] @ rates[own])
        return rates

    def _marked(
        self, flows: list[int], used: NDArray[np.int64], connections: Floats, packets: Floats, full: NDArray[np.bool_]
    ) -> Floats:
        """Return the packets/s that each link marks of each flow, shape (links used, flows)."""
        count = connections.sum(axis=1)
        crowded = full & (count >= 2) & (self._marks_at[used] > 0)
        if not crowded.any() or not self._ecn:
            return np.zeros_like(connections)
        round_s = np.array([self.flows[flow].round_s for flow in flows])
        trip_s = (connections * round_s).sum(axis=1) / np.maximum(count, 1)
        window = (self._rate[used] * trip_s + self._marks_at[used]) / self.frame_bytes / np.maximum(count, 1)
        window = np.maximum(window, 1e-300)
        share = np.sqrt(2 / window) if self._dctcp else 1.5 / window**2
        return np.asarray(packets * np.where(crowded, np.minimum(1.0, share), 0.0)[:, None])

    @staticmethod
    def _received(marked: Floats, packets: Floats, each: Floats) -> Floats:
        """Return the marked packets/s that arrive of each flow: a packet marked twice on its way counts once."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(packets > 0, marked / packets, 0.0)
            crossing = np.where(each > 0, packets / each, 0.0)  # connections over each link
        most = crossing.max(axis=0, initial=0.0)
        passes = np.where(most > 0, crossing / np.maximum(most, 1e-300), 0.0)
        return np.asarray(most * each * (1 - np.prod(1 - share * passes, axis=0)))
