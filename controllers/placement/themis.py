"""Themis: finish-time fairness by partial auctions (Mahajan et al., NSDI 2020, sections 3 to 5).

The finish-time fairness of a job is rho = T_shared / T_ideal: how much later it ends than if it had had its share of a
cluster to itself. Every epoch the accelerators whose lease has expired are offered to the jobs that are worst off;
these bid, and the allocation with the highest product of valuations wins (`controllers.placement.auction`). What is
left over goes to the others, one after the other in random order. Winners keep their accelerators for one lease.

Documented simplifications. A job is one job, not an application of several. Jobs under a lease do not bid for more.
Of jobs that wait only the order of their rho means anything (`auction.UNSERVED`). A job whose lease has expired bids
afresh, and moving it costs nothing. What is left over is given by whole bids, not by single accelerators. Hidden
payments are off by default: bids are profiles, which nobody overstates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controllers.placement.auction import (
    EXACT_ROWS,
    UNSERVED,
    Bid,
    Outcome,
    Table,
    clear,
    fitting,
    payments,
    realise,
)
from controllers.placement.layout import Counts, Layout
from controllers.placement.state import CANDIDATES, SPANS, Candidate, ClusterState, Job, Proposal, Span
from controllers.placement.variants import variants

EPOCH_S = 600.0  # between two auctions (paper of CASSINI, section 5.1); a lease lasts as long


@dataclass(frozen=True)
class Themis:
    """The scheduler. `visibility` is the fraction of the jobs without a lease that an auction is offered to, the worst
    off: 1 - f of the paper, which recommends f = 0.8. `exact_rows`: see `auction.EXACT_ROWS`.
    """

    visibility: float = 0.2
    lease_s: float = EPOCH_S
    hidden_payments: bool = False
    exact_rows: int = EXACT_ROWS
    name: str = "themis"

    def propose(self, state: ClusterState, *, candidates: int = CANDIDATES, seed: int = 0) -> Proposal:
        """Hold one auction and return its outcome and others of equal rho.

        Raises ValueError for a job of which no profiled size fits the cluster, or that runs in a span it was not
        profiled in.
        """
        layout = Layout(state.servers)
        kept = {job.name: layout.counts(job.placement) for job in state.jobs if job.leased(state.now_s)}
        near = {job.name: layout.counts(job.placement) for job in state.jobs if job.placement}
        free = layout.capacity - sum(kept.values(), np.zeros_like(layout.capacity))
        fairness = {job.name: Fairness(job, state.now_s, layout) for job in state.jobs}
        bidders = [fairness[job.name] for job in state.jobs if job.name not in kept]
        invited = visible(bidders, self.visibility)
        tables = {one.job.name: one.table(free) for one in bidders}
        auction = [tables[one.job.name] for one in invited]
        outcome = clear(auction, layout, free, exact_rows=self.exact_rows)
        owed = payments(auction, outcome, layout, free, exact_rows=self.exact_rows) if self.hidden_payments else {}
        placed = realise(_paid(outcome, owed, tables), layout, free, near)
        others = [one for one in bidders if one not in invited]
        queue = [others[index] for index in np.random.default_rng(seed).permutation(len(others))] + invited
        waiting = [tables[one.job.name] for one in queue if one.job.name not in placed]
        placed |= _leftover(waiting, layout, free - sum(placed.values(), np.zeros_like(free)), near)
        every = kept | placed
        return Proposal(
            scheduler=self.name,
            now_s=state.now_s,
            candidates=_candidates(layout, kept, placed, candidates, seed),
            merit_name="rho",
            merit={name: one.placed(every.get(name)) for name, one in fairness.items()},
            lease_end_s={job.name: job.lease_end_s for job in state.jobs if job.name in kept}
            | dict.fromkeys(placed, state.now_s + self.lease_s),
            payments=owed,
            objective=outcome.value,
            bound=outcome.bound,
            exact=outcome.exact,
        )


class Fairness:
    """The finish-time fairness of one job now (section 5.2). `ideal_s` is T_ideal, in seconds.

    T_ideal is the shortest time all its iterations take alone in the cluster, times the contention; T_shared is what
    has passed since it arrived, and what the remaining iterations take if it keeps a placement to its end.
    """

    def __init__(self, job: Job, now_s: float, layout: Layout) -> None:
        """Raise ValueError for a job of which no profiled size fits the cluster."""
        self.job, self.now_s, self.layout = job, now_s, layout
        alone, waiting = [], []
        for workers in job.sizes:
            tightest = layout.tightest(layout.capacity, workers)
            for span in SPANS[SPANS.index(tightest) :] if tightest else ():
                iteration_s, remaining_s = job.iteration_s(workers, span), job.remaining_s(workers, span)
                if iteration_s is not None and remaining_s is not None:
                    alone.append(job.iterations * job.workers / workers * iteration_s)
                    waiting.append(remaining_s)
        if not alone:
            raise ValueError(f"{job.name}: no size it was profiled with fits the cluster")
        self.ideal_s = job.contention * min(alone)
        self.waiting = UNSERVED * (now_s - job.arrival_s + max(waiting)) / self.ideal_s

    def rho(self, workers: int, span: Span) -> float | None:
        """Return T_shared / T_ideal with so many workers in that span; None where that was not profiled."""
        remaining_s = self.job.remaining_s(workers, span)
        return None if remaining_s is None else (self.now_s - self.job.arrival_s + remaining_s) / self.ideal_s

    def placed(self, counts: Counts | None) -> float:
        """Return rho with these workers, `waiting` without any. Raises ValueError where that was not profiled."""
        if counts is None:
            return self.waiting
        workers, span = int(counts.sum()), self.layout.span(counts)
        found = self.rho(workers, span)
        if found is None:
            raise ValueError(f"{self.job.name}: {workers} workers in one {span} run, which was not profiled")
        return found

    def now(self) -> float:
        """Return rho with the workers the job has."""
        return self.placed(self.layout.counts(self.job.placement) if self.job.placement else None)

    def table(self, free: Counts) -> Table:
        """Return the bids on what is free: every profiled size on every server, in every rack, and anywhere.

        Workers that bid for a rack may still be packed onto one server: rho is then at most what was bid.
        """
        bids = []
        places: tuple[tuple[Span, Counts], ...] = (("server", free), ("rack", self.layout.by_rack(free)))
        for workers in self.job.sizes:
            single = workers == 1  # lies on one server wherever it is
            for span, room in () if single else places:
                found = self.rho(workers, span)
                if found is not None:
                    bids += [Bid(workers, span, int(place), found) for place in np.flatnonzero(room >= workers)]
            found = self.rho(workers, "server" if single else "cluster")
            if found is not None and workers <= free.sum():
                bids.append(Bid(workers, "server" if single else "cluster", -1, found))
        return Table(self.job.name, tuple(bids), self.waiting)


def visible(jobs: Sequence[Fairness], fraction: float) -> list[Fairness]:
    """Return the worst-off fraction of the jobs, the worst first; of equals all are taken (section 4.3).

    Raises ValueError for a fraction that is not above 0 and at most 1.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"a fraction of {fraction} of the jobs is not above 0 and at most 1")
    rho = {one.job.name: one.now() for one in jobs}
    order = sorted(jobs, key=lambda one: (-rho[one.job.name], one.job.arrival_s, one.job.name))
    last = rho[order[math.ceil(fraction * len(order) - 1e-9) - 1].job.name] if order else 0.0
    return [one for one in order if rho[one.job.name] >= last]


def _paid(outcome: Outcome, owed: Mapping[str, float], tables: Mapping[str, Table]) -> dict[str, Bid]:
    """Return what winners keep: the largest size in the place they won that is no more than the payment leaves.

    Whom the payment leaves less than any size keeps the smallest.
    """
    awards = {}
    for job, won in outcome.awards.items():
        here = [bid for bid in tables[job].bids if _inside(bid, won)]
        left = max(won.workers * owed.get(job, 1.0) + 1e-9, min(bid.workers for bid in here))
        awards[job] = max((bid for bid in here if bid.workers <= left), key=lambda bid: bid.workers)
    return awards


def _inside(bid: Bid, won: Bid) -> bool:
    """Return whether a bid is for the place of another, or for a single worker, which is at home anywhere."""
    return (bid.span, bid.place) == (won.span, won.place) or (bid.workers == 1 and bid.place < 0)


def _leftover(queue: Sequence[Table], layout: Layout, left: Counts, near: Mapping[str, Counts]) -> dict[str, Counts]:
    """Give each job in turn the best of its bids that still fits (section 4.2, leftover allocation)."""
    given: dict[str, Counts] = {}
    for one in queue:
        fits = fitting(one, layout, left)
        if fits:
            given |= realise({one.job: min(fits, key=lambda bid: (bid.rho, bid.workers))}, layout, left, near)
            left = left - given[one.job]
    return given


def _candidates(
    layout: Layout, kept: Mapping[str, Counts], placed: Mapping[str, Counts], count: int, seed: int
) -> tuple[Candidate, ...]:
    """Return placements of equal rho: every job keeps its number of workers and their span."""
    free = layout.capacity - sum([*kept.values(), *placed.values()], np.zeros_like(layout.capacity))
    found = variants(layout, placed, free, lambda _job, row: (int(row.sum()), layout.span(row)), count=count, seed=seed)
    return tuple(
        Candidate({job: layout.placement(counts) for job, counts in sorted({**kept, **one}.items())}) for one in found
    )
