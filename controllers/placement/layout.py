"""Accelerators as numbers: a placement is a row of counts, one per server, and packing makes such rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from controllers.placement.state import Placement, Server, Span

Counts = NDArray[np.int64]


class Layout:
    """The servers of a cluster by index, rack by rack in the order given. Counts have the shape (servers,)."""

    def __init__(self, servers: Sequence[Server]) -> None:
        racks = list(dict.fromkeys(server.rack for server in servers))
        self.servers = sorted(servers, key=lambda server: racks.index(server.rack))
        self.racks = racks
        self.index = {server.name: index for index, server in enumerate(self.servers)}
        self.rack_of = np.array([racks.index(server.rack) for server in self.servers], dtype=np.int64)
        self.capacity: Counts = np.array([server.accelerators for server in self.servers], dtype=np.int64)

    def counts(self, placement: Iterable[str]) -> Counts:
        """Return how many workers of a placement each server has."""
        counts = np.zeros(len(self.servers), dtype=np.int64)
        for server, workers in Counter(placement).items():
            counts[self.index[server]] = workers
        return counts

    def placement(self, counts: Counts) -> Placement:
        """Return the workers in rank order: server by server and rack by rack, so that a ring crosses racks least."""
        return tuple(self.servers[int(index)].name for index in np.repeat(np.arange(len(counts)), counts))

    def by_rack(self, counts: Counts) -> Counts:
        """Return the sums of counts per rack, shape (racks,)."""
        return np.bincount(self.rack_of, weights=counts, minlength=len(self.racks)).astype(np.int64)

    def span(self, counts: Counts) -> Span:
        """Return how far apart the workers are."""
        used = np.flatnonzero(counts)
        if len(used) <= 1:
            return "server"
        return "rack" if len(set(self.rack_of[used].tolist())) == 1 else "cluster"

    def tightest(self, free: Counts, workers: int) -> Span | None:
        """Return the tightest span in which so many workers fit; None if there are not enough accelerators."""
        if workers > free.sum():
            return None
        if workers <= free.max():
            return "server"
        return "rack" if workers <= self.by_rack(free).max() else "cluster"

    def pack(self, free: Counts, workers: int, within: Counts | None = None, near: Counts | None = None) -> Counts:
        """Place workers on few servers of few racks, and return their counts.

        within: only servers where this is not zero. near: where the job has workers now, which are kept if that
        costs no further server. Raises ValueError if there are not enough free accelerators.
        """
        room = free.copy() if within is None else np.where(within > 0, free, 0)
        if workers > room.sum():
            raise ValueError(f"{workers} workers do not fit into {room.sum()} free accelerators")
        near = np.zeros_like(room) if near is None else near
        placed = np.zeros_like(room)
        while workers:
            inside = self._rack(room, workers, near)
            part = min(workers, int(inside.sum()))
            workers -= part
            if inside.max() == 1:  # one by one, as below: where they run already before others
                there = np.flatnonzero(inside)
                taking = there[np.argsort(-np.minimum(near[there], 1), kind="stable")[:part]]
                placed[taking] += 1
                room[taking] -= 1
                part = 0
            while part:
                place = self._server(inside, part, near)
                taken = min(part, int(inside[place]))
                for counts, sign in ((placed, 1), (room, -1), (inside, -1)):
                    counts[place] += sign * taken
                part -= taken
        return placed

    def _rack(self, room: Counts, workers: int, near: Counts) -> Counts:
        """Return the room of the rack to go on with: of those that hold all workers the fullest, else the emptiest."""
        free, kept = self.by_rack(room), self.by_rack(np.minimum(room, near))
        rack = _fittest(free, workers, kept)
        return np.where(self.rack_of == rack, room, 0)

    @staticmethod
    def _server(room: Counts, workers: int, near: Counts) -> int:
        """Return the server to go on with, by the same rule."""
        return _fittest(room, workers, np.minimum(room, near))


def _fittest(free: Counts, workers: int, kept: Counts) -> int:
    """Return the place for so many workers: of those that hold all of them where most run already, then the fullest;
    where none does the emptiest, then where most run already. Of equal ones the first."""
    fits = np.flatnonzero(free >= workers)
    if len(fits):
        stay = np.minimum(kept[fits], workers)
        best = fits[stay == stay.max()]
        return int(best[free[best].argmin()])
    emptiest = np.flatnonzero(free == free.max())
    return int(emptiest[kept[emptiest].argmax()])
