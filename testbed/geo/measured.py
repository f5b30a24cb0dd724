"""What an arm's chunks.csv says of delays, shares and roots, in the terms of the published metric."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from testbed.telemetry.tables import Records
from workloads.paramsync.records import FORWARDED, MERGED, RECEIVED

Key = tuple[int, int, str]  # round, chunk, site


@dataclass(frozen=True)
class Delays:
    """Of a site's part in the push, in seconds: from handing over to arrival at the parent, from there to the arrival
    of the last of its siblings (the parent's own worker is one), from that to the sum at this site."""

    transmission_s: float
    blocking_s: float
    aggregation_s: float


class Pushes:
    """Every chunk's way up, as the servers noted it; of a round that was begun again, in the last attempt at it."""

    def __init__(self, chunks: Records) -> None:
        self.arrived: dict[Key, dict[str, float]] = defaultdict(dict)
        self.handed: dict[Key, float] = {}
        self.merged: dict[Key, float] = {}
        self.had: dict[tuple[int, int], float] = {}
        self.size_bytes: dict[int, int] = {}
        columns = (chunks.text("site"), chunks.text("event"), chunks.text("kind"), chunks.text("peer"))
        counts = (chunks.counts("round"), chunks.counts("attempt"), chunks.counts("chunk"), chunks.counts("bytes"))
        last: dict[int, int] = {}
        for round_, attempt in zip(*counts[:2], strict=True):
            last[round_ or 0] = max(last.get(round_ or 0, 0), attempt or 0)
        for t_s, site, event, kind, peer, round_, attempt, chunk, size_bytes in zip(
            chunks.numbers("t_s"), *columns, *counts, strict=True
        ):
            if attempt != last[round_ or 0]:
                continue
            key = (round_ or 0, chunk or 0, site)
            if kind == "pull":
                if event == RECEIVED:
                    self.had[key[:2]] = max(self.had.get(key[:2], 0.0), t_s)
                continue
            if event == RECEIVED:
                self.arrived[key][peer] = t_s
                self.size_bytes[key[1]] = max(self.size_bytes.get(key[1], 0), size_bytes or 0)
            elif event == MERGED:
                self.merged[key] = max(self.merged.get(key, 0.0), t_s)
            elif event == FORWARDED:
                self.handed[key] = t_s
        self.parent = {(*key[:2], child): key[2] for key, found in self.arrived.items() for child in found if child}

    def roots(self) -> dict[tuple[int, int], str]:
        """Where each round's chunks were added up completely: at the site that pushed them to nobody."""
        return {key[:2]: key[2] for key in self.merged if key not in self.parent}

    def by_chunk(self) -> dict[str, Delays]:
        """The means over all chunks, by site."""
        transmission: dict[str, list[float]] = defaultdict(list)
        blocking: dict[str, list[float]] = defaultdict(list)
        aggregation: dict[str, list[float]] = defaultdict(list)
        for key, parent in self.parent.items():
            arrived = self.arrived[*key[:2], parent]
            transmission[key[2]].append(arrived[key[2]] - self.handed[key])
            blocking[key[2]].append(max(arrived.values()) - arrived[key[2]])
        for key, done_s in self.merged.items():
            if any(self.arrived[key]):  # a leaf has its own worker's chunk alone, which it does not add to anything
                aggregation[key[2]].append(done_s - max(self.arrived[key].values()))
        sites = sorted({key[2] for key in self.merged})
        return {site: Delays(*(_mean(of[site]) for of in (transmission, blocking, aggregation))) for site in sites}

    def by_root(self) -> dict[str, dict[str, Delays]]:
        """The means over rounds of each root's whole share: from the first chunk handed over to the last arrival."""
        found: dict[str, dict[str, list[Delays]]] = defaultdict(lambda: defaultdict(list))
        chunks_of: dict[tuple[int, str], list[int]] = defaultdict(list)
        for (round_, chunk), root in self.roots().items():
            chunks_of[round_, root].append(chunk)
        for (round_, root), chunks in chunks_of.items():
            last_s: dict[str, float] = {}
            parents: dict[str, str] = {}
            for chunk in chunks:
                for site in {key[2] for key in self.parent if key[:2] == (round_, chunk)}:
                    parents[site] = self.parent[round_, chunk, site]
                    arrived_s = self.arrived[round_, chunk, parents[site]][site]
                    last_s[site] = max(last_s.get(site, 0.0), arrived_s)
            for site, parent in parents.items():
                began_s = min(
                    self.handed[round_, chunk, site] for chunk in chunks if (round_, chunk, site) in self.handed
                )
                slowest_s = max(last_s[other] for other in parents if parents[other] == parent)
                one = Delays(last_s[site] - began_s, slowest_s - last_s[site], 0.0)
                found[root][site].append(one)
        return {root: {site: _means(of) for site, of in sorted(sites.items())} for root, sites in sorted(found.items())}

    def shares(self) -> dict[str, float]:
        """The part of all bytes that each root added up."""
        found: dict[str, float] = defaultdict(float)
        roots = self.roots()
        whole = sum(self.size_bytes[chunk] for _, chunk in roots)
        for (_, chunk), root in roots.items():
            found[root] += self.size_bytes[chunk] / whole
        return dict(sorted(found.items()))

    def ended_s(self) -> dict[int, dict[str, float]]:
        """When the last site had the last of each root's results, by round."""
        found: dict[int, dict[str, float]] = defaultdict(dict)
        for (round_, chunk), root in self.roots().items():
            end_s = self.had.get((round_, chunk), self.merged[round_, chunk, root])
            found[round_][root] = max(found[round_].get(root, 0.0), end_s)
        return dict(found)


def _means(of: Iterable[Delays]) -> Delays:
    rows = list(of)
    return Delays(
        *(fmean(getattr(one, name) for one in rows) for name in ("transmission_s", "blocking_s", "aggregation_s"))
    )


def _mean(values: list[float]) -> float:
    return fmean(values) if values else 0.0
