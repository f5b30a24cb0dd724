"""Predicted beside measured for every link and trial of many runs: marks, slowdown and queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from testbed.report import style
from testbed.report.correlation import correlations, value

SHOWN = (
    ("1 - score", "marked_share", "marked share of the packets", 1.0),
    ("1 - score", "slowdown", "iteration time over that alone", 1.0),
    ("excess_bytes", "peak_queue_bytes", "peak queue (kB)", 1e-3),
)


def ranks(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw every row of `testbed.report.links` as a dot, its arm as colour, with the rank correlations as titles."""
    found = {(one["predicted"], one["measured"]): one for one in correlations(rows)}
    scores = len({round(row["score"], 3) for row in rows})
    made = style.figure(
        9.4, 3.6, "Predicted and measured, link by link", f"{len(rows)} links and trials with {scores} different scores"
    )
    for axes, (predicted, measured, title, factor) in zip(made.subplots(1, 3), SHOWN, strict=True):
        for arm in dict.fromkeys(row["arm"] for row in rows):
            own = [row for row in rows if row["arm"] == arm]
            across = [value(row, predicted) * (1e-3 if predicted == "excess_bytes" else 1) for row in own]
            up = [value(row, measured) * factor for row in own]
            axes.plot(across, up, "o", color=style.ARM_COLOURS[arm], markersize=3.5, alpha=0.65, label=arm)
        one = found[predicted, measured]
        said = ", ".join(
            f"{name} {one[key]:.2f}" for name, key in (("ρ", "spearman"), ("τ", "kendall")) if one[key] is not None
        )
        axes.set_title(said, color=style.FAINT)
        axes.set_xlabel("excess per iteration (kB), predicted" if factor != 1 else "1 − score, predicted")
        axes.set_ylabel(title)
    made.axes[0].legend()
    return made
