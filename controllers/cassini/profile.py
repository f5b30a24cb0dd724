"""The profile of a job: its mean bandwidth over one iteration, from byte counters read while it ran alone.

The counters are read every few milliseconds, an angle of 5 degrees of a 255 ms iteration is 3.5 ms: one iteration
cannot resolve it. Several iterations laid on top of each other can, as far as their readings fall at different
phases; what stays blurred is at most one reading interval wide, and no byte is lost or made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """One job alone on a link (paper, section 3: the circle of a job, before it is put on a unified circle).

    `period_s` is the mean iteration time, `demand_bps` the mean bandwidth in each of the A angles of the iteration
    (angle 0 begins with the iteration, that is with its Down phase), `iterations` how many were folded and `spread_s`
    the standard deviation of their iteration times.
    """

    job: str
    period_s: float
    demand_bps: tuple[float, ...]
    iterations: int = 1
    spread_s: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError where a profile cannot be one."""
        if not (math.isfinite(self.period_s) and self.period_s > 0):
            raise ValueError(f"profile of {self.job}: the iteration time is {self.period_s} s")
        if not self.demand_bps or min(self.demand_bps) < 0 or not all(map(math.isfinite, self.demand_bps)):
            raise ValueError(f"profile of {self.job}: demand must be a non-empty list of rates, none negative")

    @property
    def volume_bytes(self) -> float:
        """Bytes sent in one iteration."""
        return sum(self.demand_bps) / len(self.demand_bps) * self.period_s / 8

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as JSON has it; `from_dict` reads it back unchanged."""
        return {
            "job": self.job,
            "period_s": self.period_s,
            "iterations": self.iterations,
            "spread_s": self.spread_s,
            "demand_bps": list(self.demand_bps),
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Profile:
        """Read what `to_dict` wrote. Raises KeyError for a missing key, ValueError for an impossible value."""
        return cls(
            job=str(raw["job"]),
            period_s=float(raw["period_s"]),
            demand_bps=tuple(float(rate) for rate in raw["demand_bps"]),
            iterations=int(raw["iterations"]),
            spread_s=float(raw["spread_s"]),
        )


def angles_of(precision_deg: float) -> int:
    """Return how many angles an iteration has at a precision in degrees of that iteration: 5 degrees give 72."""
    if not 0 < precision_deg <= 180:
        raise ValueError(f"a precision of {precision_deg} degrees is not between 0 and 180")
    return math.ceil(360 / precision_deg - 1e-9)


def fold(
    job: str,
    times_s: ArrayLike,
    counter_bytes: ArrayLike,
    iterations: Sequence[tuple[float, float]],
    *,
    angles: int = 72,
    interval_s: float | None = None,
    limit_bps: float | None = None,
    skip: int = 1,
) -> Profile:
    """Return the profile of a job that ran alone, from a cumulative byte counter of the link.

    times_s, counter_bytes: shape (n,), one reading each; readings that repeat the last value may be missing.
    iterations: (begin, end) in seconds on the same clock, in order. The first `skip` of them are left out (connections
    still open their windows there), and so are those that began before the first reading.
    interval_s: how often the counter was read, by default the median distance of the readings. Bytes are spread
    evenly over the interval before the reading that shows them, and over no more than that.
    limit_bps: the rate of the link the counter belongs to, which nobody exceeds: what readings show above it (a packet
    more in one interval, a packet less in the next) is moved on to the angles that follow.
    Raises ValueError for a counter that runs backwards or faster than the limit, and where no iteration is left.
    """
    times, counted = np.asarray(times_s, dtype=float), np.asarray(counter_bytes, dtype=float)
    if times.ndim != 1 or times.shape != counted.shape or times.size < 2:
        raise ValueError(f"{job}: needs two readings or more, as many times as counters")
    if np.any(np.diff(times) <= 0) or np.any(np.diff(counted) < 0):
        raise ValueError(f"{job}: readings must be in order of time and their counter must not run backwards")
    kept = [(begin, end) for begin, end in list(iterations)[skip:] if begin >= times[0]]
    if not kept or any(end <= begin for begin, end in kept):
        raise ValueError(f"{job}: no complete iteration lies within the readings")
    knots_s, knots_bytes = rising(times, counted, interval_s or float(np.median(np.diff(times))))
    begins, ends = np.array(kept, dtype=float).T
    lengths = ends - begins
    edges = begins[:, None] + lengths[:, None] * np.linspace(0, 1, angles + 1)
    sent = np.diff(np.interp(edges, knots_s, knots_bytes), axis=1).sum(axis=0)
    demand = 8 * sent / (lengths.sum() / angles)
    if limit_bps is not None and demand.mean() > limit_bps:
        raise ValueError(f"{job}: sent {demand.mean():.0f} bit/s in the mean over a link of {limit_bps:.0f} bit/s")
    return Profile(
        job=job,
        period_s=float(lengths.mean()),
        demand_bps=tuple((demand if limit_bps is None else _limited(demand, limit_bps)).tolist()),
        iterations=len(kept),
        spread_s=float(lengths.std()),
    )


def _limited(demand: Floats, limit_bps: float) -> Floats:
    """Return the demand behind a link of that rate: the same sum, nothing above the limit, what is left comes later."""
    carried, passed = 0.0, demand.copy()
    for angle in [*range(len(demand)), *range(len(demand))]:  # what is left at the end of a turn begins the next one
        total = passed[angle] + carried
        passed[angle] = min(total, limit_bps)
        carried = total - passed[angle]
    return passed


def rising(times_s: ArrayLike, counter: ArrayLike, interval_s: float) -> tuple[Floats, Floats]:
    """Return the knots of the counter as a function of time that rises only within `interval_s` of a reading.

    Readings as of `fold`.
    """
    times, counted = np.asarray(times_s, dtype=float), np.asarray(counter, dtype=float)
    late = np.flatnonzero(np.diff(times) > 1.5 * interval_s)
    at = late + 1
    return np.insert(times, at, times[at] - interval_s), np.insert(counted, at, counted[late])
