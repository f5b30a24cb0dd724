"""The unified circle of a link: all jobs that share it on one circle on which each turns a whole number of times.

Iteration times are real numbers and have no least common multiple, so they are quantised *upwards* first: a job that
waits for its next beat loses a little time, one that is asked to be faster than it is cannot. What is added is
padding without traffic at the end of the iteration, never a stretched Up phase.

The paper cuts the unified circle into angles of 5 degrees. With iterations of 255 and 285 ms the perimeter is 4 845 ms
and such an angle 67 ms, which no Up phase would survive. Here every *iteration* has at least A angles, whatever the
perimeter: all jobs share slots of one length that divides every iteration time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from controllers.cassini.profile import Floats, Profile

ANGLES = 72  # 5 degrees of an iteration
QUANTUM_S = 1e-3
LONGEST_S = 10.0
SAME = 0.005  # iteration times closer than this (relative) are one iteration time measured twice


@dataclass(frozen=True)
class UnifiedCircle:
    """Jobs on one circle (paper, section 3). All lengths are whole numbers of slots.

    `slots` is the perimeter, the |A| of the score; `lengths[j]` the quantised iteration of job j and `demands[j]` its
    bandwidth in bit/s in each slot of one iteration, shape (lengths[j],). Iteration times are multiples of `quantum_s`.
    """

    jobs: tuple[str, ...]
    quantum_s: float
    slot_s: float
    slots: int
    lengths: tuple[int, ...]
    demands: tuple[Floats, ...]

    @property
    def perimeter_s(self) -> float:
        """The perimeter p: the least common multiple of the quantised iteration times."""
        return self.slots * self.slot_s

    @property
    def turns(self) -> tuple[int, ...]:
        """How often each job turns on one round of the circle, r_j = p / iter_j."""
        return tuple(self.slots // length for length in self.lengths)

    def quantised_s(self, index: int) -> float:
        """The iteration time of a job after quantisation."""
        return self.lengths[index] * self.slot_s

    def rotated(self, rotations: Sequence[int]) -> Floats:
        """Return the demand of each job in bit/s, shape (jobs, slots), each delayed by its rotation in slots."""
        return np.array(
            [
                np.tile(np.roll(demand, rotation % length), self.slots // length)
                for demand, length, rotation in zip(self.demands, self.lengths, rotations, strict=True)
            ]
        )


@lru_cache(maxsize=4096)
def quantise(periods_s: tuple[float, ...], quantum_s: float, longest_s: float) -> tuple[int, ...]:
    """Return each iteration time in quanta, rounded upwards so that all divide one perimeter up to `longest_s`.

    Iteration times that differ by less than half a percent count as equal, the longest of them for all. Of all
    perimeters, taken is the one that pads the worst padded job least, relative to its iteration time; of several, the
    one that pads least in all, then the shortest. Raises ValueError when the longest iteration is no shorter than
    the longest perimeter.
    """
    if quantum_s <= 0:
        raise ValueError(f"a quantum of {quantum_s} s is not a time")
    exact = [period / quantum_s for period in _alike(periods_s)]
    least = [max(1, math.ceil(units - 1e-3)) for units in exact]  # a thousandth of a quantum is rounding
    longest = math.floor(longest_s / quantum_s + 1e-6)
    if math.lcm(*least) <= longest:
        return tuple(least)
    if max(least) > longest:
        raise ValueError(
            f"an iteration of {max(exact) * quantum_s:g} s is longer than the longest perimeter, {longest_s:g} s"
        )
    divisors = _divisors(longest, set(least))
    worst, total = np.zeros(longest + 1), np.zeros(longest + 1)
    for units, needed in zip(exact, least, strict=True):
        padding = divisors[needed] / units
        worst, total = np.maximum(worst, padding), total + padding
    perimeter = min(np.flatnonzero(worst <= worst.min() + 1e-9), key=lambda at: (round(float(total[at]), 9), at))
    return tuple(int(divisors[needed][perimeter]) for needed in least)


def _divisors(longest: int, needed: set[int]) -> dict[int, Floats]:
    """Return for each needed length the least divisor of every perimeter that is as long; infinite where none is.

    Divisors beyond three times the longest length are left out: half of that always serves.
    """
    least, found = np.full(longest + 1, np.inf), {}
    for length in range(min(longest, 3 * max(needed)), min(needed) - 1, -1):
        least[length::length] = length
        if length in needed:
            found[length] = least.copy()
    return found


def unify(
    profiles: Sequence[Profile],
    *,
    angles: int = ANGLES,
    quantum_s: float = QUANTUM_S,
    longest_s: float = LONGEST_S,
) -> UnifiedCircle:
    """Put the profiles of all jobs of a link on one circle, in the order given.

    angles: how many slots the *shortest* iteration has at least; all others have more. Raises ValueError for no
    profile, two of the same job, and iteration times that no perimeter up to `longest_s` can hold (see `quantise`).
    """
    quanta = quantise(tuple(profile.period_s for profile in profiles), quantum_s, longest_s) if profiles else ()
    return lay(profiles, quanta, quantum_s, slot_of(quanta, angles) if quanta else Fraction(1))


def slot_of(quanta: Sequence[int], angles: int) -> Fraction:
    """Return the longest slot in quanta that divides all iterations and cuts the shortest into `angles` at least."""
    if angles < 2:
        raise ValueError(f"{angles} angles do not make a circle")
    common = math.gcd(*quanta)
    return Fraction(common, math.ceil(common * angles / min(quanta)))


def lay(profiles: Sequence[Profile], quanta: Sequence[int], quantum_s: float, slot: Fraction) -> UnifiedCircle:
    """Put profiles on one circle whose iteration times and slot are known, in quanta. Raises ValueError as `unify`."""
    jobs = tuple(profile.job for profile in profiles)
    if not jobs or len(set(jobs)) != len(jobs):
        raise ValueError(f"a circle needs jobs of different names, not {list(jobs)}")
    lengths = tuple(int(length / slot) for length in quanta)
    slot_s = float(slot) * quantum_s
    demands = tuple(_resample(profile, length, slot_s) for profile, length in zip(profiles, lengths, strict=True))
    return UnifiedCircle(jobs, quantum_s, slot_s, math.lcm(*lengths), lengths, demands)


def _alike(periods_s: Sequence[float]) -> list[float]:
    """Return the iteration times with those that are nearly equal made equal, to the longest of them."""
    groups: list[list[float]] = []
    for period in sorted(periods_s):
        if groups and period <= groups[-1][0] * (1 + SAME):
            groups[-1].append(period)
        else:
            groups.append([period])
    longest = {period: group[-1] for group in groups for period in group}
    return [longest[period] for period in periods_s]


def _resample(profile: Profile, length: int, slot_s: float) -> Floats:
    """Return the mean bandwidth in each slot: the same bits, and none in the padding after the iteration."""
    angles = len(profile.demand_bps)
    bits = np.concatenate([[0.0], np.cumsum(profile.demand_bps)]) * profile.period_s / angles
    at = np.interp(np.arange(length + 1) * slot_s, np.linspace(0, profile.period_s, angles + 1), bits)
    at[-1] = bits[-1]  # rounding may have left a thousandth of a beat outside
    return np.asarray(np.diff(at) / slot_s)
