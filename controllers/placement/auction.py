"""The partial auction of Themis (section 4.2): bids, the allocation that wins, and what the winners leave unpaid.

A job bids by a table: for each subset of the free accelerators it could use, the finish-time fairness it would have.
Accelerators of a server are alike, so a subset is a number of workers and the place they must lie in: a server, a
rack, or anywhere. Its valuation is 1/rho. The allocation that maximises the product of valuations is proportionally
fair: no other one raises some valuations by more per cent than it lowers the rest.

Which allocation that is, is a linear problem in 0-1 variables, one per row of a table: the sum of the logarithms is
maximised, each job gets one row at most, and no server, no rack and not the whole cluster hands out more than it has.
These capacities lie within each other, so whatever keeps them can be packed. HiGHS solves it exactly; where that is too
large, a greedy allocation comes with the bound of the problem without the 0-1 condition.

Documented simplifications: a product is zero as soon as one job gets nothing, and in a full cluster one always does. A
job that gets nothing is therefore valued at 1/`UNSERVED` of its worst bid. Payments take a fraction of the workers
of a winner, but never so many that fewer are left than it was profiled with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp
from scipy.sparse import csr_array

from controllers.placement.layout import Counts, Layout
from controllers.placement.state import SPANS, Span

UNSERVED = 100.0  # how much worse than its worst bid a job is off that gets nothing; more than any size can make up for
TIE = 1e-4  # sums of gains this close are equal, and the worse-off job then goes first
EXACT_ROWS = 3000  # rows of all tables together up to which the best allocation is sought, not merely a good one
NODES = 2000  # of the branch and bound at most: a limit in time would not give the same answer on every machine


@dataclass(frozen=True)
class Bid:
    """One row of a table: the finish-time fairness `rho` with so many workers in one place.

    `place` is the index of the server or of the rack (`controllers.placement.layout`), -1 for anywhere.
    """

    workers: int
    span: Span
    place: int
    rho: float


@dataclass(frozen=True)
class Table:
    """All bids of a job, and its `rho` should it get nothing."""

    job: str
    bids: tuple[Bid, ...]
    rho_unserved: float

    def gain(self, bid: Bid | None) -> float:
        """Return the logarithm of the valuation of a bid relative to that of getting nothing."""
        return 0.0 if bid is None else math.log(self.rho_unserved / bid.rho)


@dataclass(frozen=True)
class Outcome:
    """Who won which row.

    `value` is the sum of the logarithms, `bound` the most it can be, `exact` whether it is that, to `TIE`.
    """

    awards: Mapping[str, Bid]
    value: float
    bound: float
    exact: bool


def clear(tables: Sequence[Table], layout: Layout, free: Counts, *, exact_rows: int = EXACT_ROWS) -> Outcome:
    """Determine the winners. The order of the tables breaks ties: the job that comes first goes first.

    free: accelerators on offer per server, shape (servers,). exact_rows: see `EXACT_ROWS`. Jobs without a bid that
    fits win nothing.
    """
    rows = [(rank, bid) for rank, table in enumerate(tables) for bid in fitting(table, layout, free)]
    if not rows:
        return Outcome({}, 0.0, 0.0, True)
    greedy = _greedy(tables, rows, layout, free)
    relaxed = len(rows) > exact_rows
    solved = _solve(tables, rows, layout, free, relaxed=relaxed)
    bound = _bound(solved, tables, rows)
    best = not relaxed and solved.status == 0
    awards = greedy
    if not relaxed and solved.x is not None:
        found = {tables[rows[column][0]].job: rows[column][1] for column in np.flatnonzero(solved.x > 0.5)}
        awards = found if best or _value(tables, found) > _value(tables, greedy) else greedy
    value = _value(tables, awards)
    exact = best or bound - value <= TIE
    return Outcome(awards, value, max(bound, value), exact)


def payments(
    tables: Sequence[Table], outcome: Outcome, layout: Layout, free: Counts, *, exact_rows: int = EXACT_ROWS
) -> dict[str, float]:
    """Return the fraction of its workers each winner may keep (Themis, section 4.2, hidden payments): 0 to 1.

    It is the product of the valuations of all others where it takes part, over that where it does not: who takes
    nothing from anybody keeps everything, and overstating a bid does not pay.
    """
    kept = {}
    for winner in outcome.awards:
        others = [table for table in tables if table.job != winner]
        without = clear(others, layout, free, exact_rows=exact_rows)
        kept[winner] = min(1.0, math.exp(_value(others, outcome.awards) - without.value))
    return kept


def realise(
    awards: Mapping[str, Bid], layout: Layout, free: Counts, near: Mapping[str, Counts] | None = None
) -> dict[str, Counts]:
    """Choose the accelerators of all awards: those bound to a server first, then those bound to a rack.

    near: where jobs run now; they stay if that makes them no wider. Raises ValueError for awards that do not fit.
    """
    left, near, placed = free.copy(), near or {}, {}
    order = sorted(
        awards, key=lambda job: (awards[job].place < 0, SPANS.index(awards[job].span), -awards[job].workers, job)
    )
    for job in order:
        placed[job] = layout.pack(left, awards[job].workers, _place(awards[job], layout), near.get(job))
        left -= placed[job]
    return {job: placed[job] for job in awards}


def _place(bid: Bid, layout: Layout) -> Counts | None:
    if bid.place < 0:
        return None
    within: Counts = np.where(np.arange(len(layout.servers)) == bid.place, 1, 0)
    return within if bid.span == "server" else np.where(layout.rack_of == bid.place, 1, 0)


def _value(tables: Sequence[Table], awards: Mapping[str, Bid]) -> float:
    return sum(table.gain(awards.get(table.job)) for table in tables)


def _priority(rank: int, jobs: int) -> float:
    """Return what a job adds to its gain if it wins anything: all of them together less than `TIE`."""
    return TIE * (jobs - rank) / (jobs + 1) ** 2


def fitting(table: Table, layout: Layout, free: Counts) -> list[Bid]:
    """Return the bids of a table that fit, without those a wider place serves as well."""
    room = {"server": free, "rack": layout.by_rack(free), "cluster": np.array([free.sum()])}
    wider = {(bid.workers, _level(bid), bid.place): bid.rho for bid in table.bids}

    def needed(bid: Bid) -> bool:
        around: list[tuple[Span, int]] = [("cluster", -1)] if bid.place >= 0 else []
        around += [("rack", int(layout.rack_of[bid.place]))] if _level(bid) == "server" else []
        return all(bid.rho < wider.get((bid.workers, span, place), math.inf) for span, place in around)

    return [bid for bid in table.bids if bid.workers <= room[_level(bid)][max(bid.place, 0)] and needed(bid)]


def _level(bid: Bid) -> Span:
    """Return what the place of a bid is: a server, a rack or the cluster."""
    return "cluster" if bid.place < 0 else bid.span


def _solve(
    tables: Sequence[Table], rows: Sequence[tuple[int, Bid]], layout: Layout, free: Counts, *, relaxed: bool
) -> OptimizeResult:
    """Solve the linear problem of the module's docstring; `relaxed` without the 0-1 condition."""
    servers, racks = len(layout.servers), len(layout.racks)
    gains = [tables[rank].gain(bid) + _priority(rank, len(tables)) for rank, bid in rows]
    entries: list[tuple[int, int, float]] = []  # (constraint, variable, factor): jobs, then servers, racks, the cluster
    for column, (rank, bid) in enumerate(rows):
        entries.append((rank, column, 1.0))
        if _level(bid) == "server":
            entries.append((len(tables) + bid.place, column, bid.workers))
        if bid.place >= 0:
            rack = bid.place if bid.span == "rack" else int(layout.rack_of[bid.place])
            entries.append((len(tables) + servers + rack, column, bid.workers))
        entries.append((len(tables) + servers + racks, column, bid.workers))
    constraint, variable, factor = (np.array(part) for part in zip(*entries, strict=True))
    shape = (len(tables) + servers + racks + 1, len(rows))
    limits = np.concatenate([np.ones(len(tables)), free, layout.by_rack(free), [free.sum()]])
    return milp(
        -np.array(gains),
        integrality=np.full(len(rows), 0 if relaxed else 1),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(csr_array((factor, (constraint, variable)), shape=shape), -np.inf, limits),
        options={"node_limit": NODES, "mip_rel_gap": 0.0},
    )


def _bound(solved: OptimizeResult, tables: Sequence[Table], rows: Sequence[tuple[int, Bid]]) -> float:
    """Return what no sum of logarithms exceeds: what the solver proved, or that every job gets its best bid."""
    best = [max((tables[rank].gain(bid) for at, bid in rows if at == rank), default=0.0) for rank in range(len(tables))]
    proved = getattr(solved, "mip_dual_bound", None)
    proved = solved.fun if proved is None and solved.status == 0 else proved
    return min(sum(best), math.inf if proved is None else -float(proved))


class _Books:
    """What is still free on each server, in each rack and in all."""

    def __init__(self, layout: Layout, free: Counts) -> None:
        self.rack_of = layout.rack_of
        self.server, self.rack, self.cluster = free.copy(), layout.by_rack(free), int(free.sum())

    def room(self, bid: Bid) -> int:
        """Return how many workers fit into the place of a bid."""
        if bid.place < 0:
            return self.cluster
        if bid.span == "rack":
            return min(self.cluster, int(self.rack[bid.place]))
        return min(self.cluster, int(self.rack[self.rack_of[bid.place]]), int(self.server[bid.place]))

    def book(self, bid: Bid | None, sign: int) -> None:
        """Take (1) or give back (-1) what a bid asks for."""
        if bid is None:
            return
        self.cluster -= sign * bid.workers
        if bid.place >= 0:
            self.rack[bid.place if bid.span == "rack" else self.rack_of[bid.place]] -= sign * bid.workers
        if _level(bid) == "server":
            self.server[bid.place] -= sign * bid.workers


def _greedy(tables: Sequence[Table], rows: Sequence[tuple[int, Bid]], layout: Layout, free: Counts) -> dict[str, Bid]:
    """Take the row of highest gain per accelerator, also in place of a smaller one, as long as one fits."""
    books, awards = _Books(layout, free), dict[int, Bid]()
    while True:
        best: tuple[float, int, Bid] | None = None
        for rank, bid in rows:
            now = awards.get(rank)
            more = tables[rank].gain(bid) - tables[rank].gain(now)
            if more <= 0:
                continue
            worth = more / max(bid.workers - (now.workers if now else 0), 0.5) + _priority(rank, len(tables))
            if best is not None and worth <= best[0]:
                continue
            books.book(now, -1)
            if bid.workers <= books.room(bid):
                best = worth, rank, bid
            books.book(now, 1)
        if best is None:
            return {tables[rank].job: bid for rank, bid in sorted(awards.items())}
        _, rank, bid = best
        books.book(awards.get(rank), -1)
        books.book(bid, 1)
        awards[rank] = bid
