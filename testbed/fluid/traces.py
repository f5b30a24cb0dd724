"""What links carried over time, out of the log of a part: knots between which everything grows evenly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from testbed.fluid.part import Part
from testbed.fluid.sharing import Carried

Floats = NDArray[np.float64]
QUANTITIES = ("bytes", "marked", "packets")


@dataclass
class Trace:
    """Cumulative counters of one link, or of one job on it, at the knots `t_s`."""

    t_s: list[float] = field(default_factory=list)
    counters: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in QUANTITIES})
    _arrays: dict[str, tuple[Floats, Floats]] = field(default_factory=dict, repr=False)

    def grow(self, t_s: Floats, grown: dict[str, Floats]) -> None:
        """Append knots, the first of them with nothing; grown: by how much each counter grew from knot to knot."""
        self.t_s += t_s.tolist()
        for name, steps in grown.items():
            before = self.counters[name][-1] if self.counters[name] else 0.0
            self.counters[name] += (before + np.concatenate([[0.0], np.cumsum(steps)])).tolist()
        self._arrays.clear()

    def at(self, name: str, t_s: float | Floats) -> Floats:
        """Return a counter at some times."""
        if not self.t_s:
            return np.zeros_like(np.asarray(t_s, dtype=np.float64))
        if name not in self._arrays:
            self._arrays[name] = np.array(self.t_s), np.array(self.counters[name])
        return np.asarray(np.interp(t_s, *self._arrays[name]))


@dataclass
class Traces:
    """The traces of the links watched, and of every job on them."""

    links: Sequence[str]
    of_link: dict[str, Trace] = field(default_factory=lambda: defaultdict(Trace))
    of_job: dict[tuple[str, str], Trace] = field(default_factory=lambda: defaultdict(Trace))
    fullest: float = 0.0
    """The largest share of its rate that any link carried."""

    def take(self, parts: Iterable[Part]) -> None:
        """Add what the parts of a trial logged, from their beginning to where they stand now."""
        for part in parts:
            if part.log:
                self._take(part)

    def _take(self, part: Part) -> None:
        t_s = np.array([*(at for at, _ in part.log), part.now_s])
        lasted_s = np.diff(t_s)
        masks, which = np.unique(np.array([mask for _, mask in part.log], dtype=object), return_inverse=True)
        carried: list[Carried] = []
        for mask in masks:
            links = part.sharing.share(mask).links
            assert links is not None  # parts of an arm keep them
            carried.append(links)
            self.fullest = max(self.fullest, part.sharing.fullest(links))
        for row, link in enumerate(part.sharing.links):
            if link not in self.links:
                continue
            columns = (
                [one.bytes_per_s[row] for one in carried],
                [one.marked_per_s[row] for one in carried],
                [one.packets_per_s[row] for one in carried],
            )
            self.of_link[link].grow(t_s, _grown(columns, which, lasted_s))
            for job in dict.fromkeys(flow.job for flow in part.sharing.flows):
                own = [at for at, flow in enumerate(part.sharing.flows) if flow.job == job]
                data = [float(one.flow_bytes_per_s[row, own].sum()) for one in carried]
                marked = [float(one.flow_marked_per_s[row, own].sum()) for one in carried]
                if any(data):
                    packets = [size / part.sharing.frame_bytes for size in data]
                    self.of_job[link, job].grow(t_s, _grown((data, marked, packets), which, lasted_s))


def _grown(columns: Sequence[Sequence[float]], which: NDArray[np.intp], lasted_s: Floats) -> dict[str, Floats]:
    return {name: np.array(column)[which] * lasted_s for name, column in zip(QUANTITIES, columns, strict=True)}
