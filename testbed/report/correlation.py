"""Did the predictions order the links rightly? Rank correlation between what was predicted and what was measured.

Over the rows of validation.json's "links" of any number of runs: Spearman's rho and Kendall's tau-b (both count ties as
ties), each with the number of rows, of different scores and of tied pairs. Rows are no independent samples (links and
trials of a run have jobs in common), so no p-value is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

PAIRS = (
    ("1 - score", "marked_share"),
    ("1 - score", "slowdown"),
    ("1 - score", "mean_queue_bytes"),
    ("excess_bytes", "peak_queue_bytes"),
    ("excess_bytes", "marked_packets"),
)
SAME = 3  # decimals of a score: links closer than that count as of one score


def correlations(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return {"predicted", "measured", "rows", "scores", "ties", "spearman", "kendall"} for each of PAIRS.

    The coefficients are None for fewer than three rows, and where all values are equal.
    """
    scores = len({round(row["score"], SAME) for row in rows})
    return [
        {"predicted": predicted, "measured": measured, "rows": len(rows), "scores": scores}
        | _of([value(row, predicted) for row in rows], [value(row, measured) for row in rows])
        for predicted, measured in PAIRS
    ]


def value(row: Mapping[str, Any], name: str) -> float:
    """Return a figure of a row by its name in PAIRS, rounded to what may be told apart."""
    return round(1 - row["score"], SAME) if name == "1 - score" else float(f"{row[name]:.4g}")


def _of(predicted: Sequence[float], measured: Sequence[float]) -> dict[str, Any]:
    known = len(predicted) >= 3 and len(set(predicted)) > 1 and len(set(measured)) > 1
    return {
        "ties": {"predicted": _ties(predicted), "measured": _ties(measured)},
        "spearman": float(stats.spearmanr(predicted, measured).statistic) if known else None,
        "kendall": float(stats.kendalltau(predicted, measured, variant="b").statistic) if known else None,
    }


def _ties(values: Sequence[float]) -> int:
    """Return how many pairs of equal values there are."""
    _, counts = np.unique(np.asarray(values), return_counts=True)
    return int((counts * (counts - 1) // 2).sum())
