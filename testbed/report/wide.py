"""The figures of a run on a wide-area network, from its summary.json and validation.json, for studies and pages.

By system, or by group where every site was the root in turn (then `low` and `high` are the best and the worst root):
`round-s` (a whole round), `speed-up` (of means, over the baseline's mean), `speed-up-best` (best against the baseline's
best), `speed-up-default` (each at its own default root), `bound` (time without computing as a multiple of the least
that any schedule takes, by the linear program) and `bound-cut` (likewise by cuts); `error` and `error-metric` (percent
by which the simulation and the published metric are beside the packets). By system alone: `policies` (decided),
`believed` (median relative error of what awareness believed, in percent), `accuracy` (at the end of training) and
`to-accuracy-s`. Of a run: `ranks.metric.spearman` and so on, how well predictions order its systems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

KIND = "wide"
SIMULATION, METRIC = "chunks on shared links", "published metric"


def figures(summary: Mapping[str, Any], validation: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every figure of a run with its name."""
    for group, of in summary["groups"].items():
        yield f"round-s.{group}", {"value": of["mean_s"], "low": of["best_s"], "high": of["worst_s"]}
        yield f"speed-up.{group}", of["speed_up"]
        yield f"speed-up-best.{group}", of["best_against_best"]
        yield f"speed-up-default.{group}", of["default_against_default"]
        multiples = [validation["bounds"]["systems"][one["system"]] for one in of_group(summary, group)]
        for name, key in (("bound", "of_flow"), ("bound-cut", "of_cut")):
            values = [one[key] for one in multiples if one[key] is not None]
            if values:
                yield f"{name}.{group}", {"value": sum(values) / len(values), "low": min(values), "high": max(values)}
        for name, key in (("error", SIMULATION), ("error-metric", METRIC)):
            yield f"{name}.{group}", _errors(summary, validation, group, key)
    for one in summary["systems"]:
        for name, key in (("policies", "policies"), ("accuracy", "accuracy"), ("to-accuracy-s", "to_accuracy_s")):
            if one.get(key) is not None:
                yield f"{name}.{one['system']}", one[key]
        found = validation["believed"].get(one["system"])
        if found is not None:
            yield f"believed.{one['system']}", 100 * found["median_error"]
    for name, value in validation["ranks"].items():
        if value is not None:
            yield f"ranks.{name}", value


def _errors(summary: Mapping[str, Any], validation: Mapping[str, Any], group: str, prediction: str) -> dict[str, float]:
    systems = {one["system"] for one in of_group(summary, group)}
    own = [row for row in validation["rounds"] if row["system"] in systems and row["prediction"] == prediction]
    errors = [100 * row["relative_error"] for row in own]
    return {"value": sum(errors) / len(errors), "low": min(errors), "high": max(errors)}


def of_group(summary: Mapping[str, Any], group: str) -> list[dict[str, Any]]:
    """Return the systems of a group: one for each root that was tried."""
    return [one for one in summary["systems"] if one["group"] == group]
