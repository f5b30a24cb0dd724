"""Intervals by resampling (percentile bootstrap). What is drawn again are *trials*, never iterations.

Iterations of one trial follow from each other: three hundred of them say little more about the next start of the
jobs than thirty do. So a trial is one observation, and with fewer than three no interval is claimed (with three it is
a rough one: the span of the trials, nearly).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
RESAMPLES = 2000
CONFIDENCE = 0.95
FEWEST_TRIALS = 3
SEED = 1


def estimate(strata: Sequence[Sequence[T]], statistic: Callable[[list[T]], float]) -> dict[str, Any]:
    """Return {"value", "low", "high"}: a statistic of all trials and its 95 % interval, None where none is claimed.

    strata: trials by kind (those that hold the same jobs), each kind drawn again within itself.
    """
    value = float(statistic([trial for stratum in strata for trial in stratum]))
    if not _enough(strata):
        return {"value": value, "low": None, "high": None}
    return {"value": value} | _interval(_draws(strata, statistic, np.random.default_rng(SEED)))


def ratio(
    above: Sequence[Sequence[T]], below: Sequence[Sequence[T]], statistic: Callable[[list[T]], float]
) -> dict[str, Any]:
    """Return the ratio of a statistic between two arms like `estimate`; value None where the lower one is 0.

    Both arms are drawn again, each by itself; an interval is claimed only if both have three trials or more.
    """
    upper, lower = (float(statistic([trial for stratum in strata for trial in stratum])) for strata in (above, below))
    value = upper / lower if lower else None
    found: dict[str, Any] = {"value": value, "low": None, "high": None, "above": upper, "below": lower}
    if value is None or not (_enough(above) and _enough(below)):
        return found
    rng = np.random.default_rng(SEED)
    uppers, lowers = (_draws(strata, statistic, rng) for strata in (above, below))
    return found | _interval(uppers / lowers) if lowers.all() else found


def _enough(strata: Sequence[Sequence[T]]) -> bool:
    return bool(strata) and all(len(stratum) >= FEWEST_TRIALS for stratum in strata)


def _draws(
    strata: Sequence[Sequence[T]], statistic: Callable[[list[T]], float], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the statistic of every resample, shape (RESAMPLES,). The order of the trials must not matter to it."""
    picks = np.hstack([np.sort(rng.integers(len(of), size=(RESAMPLES, len(of))), axis=1) for of in strata])
    different, which = np.unique(picks, axis=0, return_inverse=True)  # few trials give few different resamples
    column = [stratum for stratum in strata for _ in stratum]
    values = [statistic([of[at] for of, at in zip(column, pick, strict=True)]) for pick in different.tolist()]
    return np.array(values)[which.reshape(-1)]


def _interval(draws: NDArray[np.float64]) -> dict[str, float]:
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return {"low": float(low), "high": float(high)}
