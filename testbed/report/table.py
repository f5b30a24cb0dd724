"""Summary and validation as tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

STYLES = {
    "together": "red",
    "random": "magenta",
    "priority": "yellow",
    "cassini": "cyan",
    "refined": "blue",
    "alone": "dim",
}


def arms_table(summary: Mapping[str, Any]) -> Table:
    """Return a table of the arms of a summary: iteration times, marks and utilisation, a row each."""
    arms: Mapping[str, Any] = summary["arms"]
    table = _table(f"{summary['scenario']}: what an iteration takes, by arm")
    table.caption = (
        "[ ]: 95 % interval over trials, none with fewer than three\n"
        "spread: means of the trials, lowest to highest\n"
        "CE: marked packets received, per iteration of a job\n"
        "marks: by the queues of all shared links, per iteration of a job"
    )
    with_p99 = any(arm["iteration_s"]["p99"]["value"] is not None for arm in arms.values())
    table.add_column("arm")
    heads = ["trials", "mean ms", "spread ms", "p50 ms", *(["p99 ms"] if with_p99 else []), "worst ms"]
    for head in [*heads, "CE", "marks", "link use"]:
        table.add_column(head, justify="right", no_wrap=True)
    for name, arm in arms.items():
        times, means = arm["iteration_s"], arm["trial_mean_s"]
        cells = [str(arm["trials"]), _ms(times["mean"])]
        cells += [f"{1e3 * min(means):.0f}-{1e3 * max(means):.0f}", _ms(_bare(times["p50"]))]
        cells += [_ms(times["p99"])] if with_p99 else []
        cells += [_ms(times["worst"]), _estimate(arm["ce_packets_per_iteration"], _count)]
        cells += [_estimate(_bare(arm["marked_packets_per_iteration"]), _count)]
        cells += [_estimate(_bare(arm["utilisation"]), _percent, " %")]
        table.add_row(Text(name, style=STYLES.get(name, "")), *cells)
    return table


def ratios_table(summary: Mapping[str, Any]) -> Table:
    """Return a table of the ratios between the arms of a summary; where the lower one is 0 both counts stand."""
    table = _table("Ratios between arms")
    table.add_column("arms")
    for head in ("mean", "p50", "worst", "CE", "marks"):
        table.add_column(head, justify="right")
    for arms, of in summary["ratios"].items():
        keys = ("mean", "p50", "worst", "ce_packets_per_iteration", "marked_packets_per_iteration")
        table.add_row(arms.replace("/", " / "), *(_ratio(of[key]) for key in keys))
    return table


def waits_table(summary: Mapping[str, Any]) -> Table | None:
    """Return a table of what jobs waited to keep their time-shifts, per arm and job; None where nobody waited."""
    rows = [
        (arm, job, of)
        for arm, of_arm in summary["arms"].items()
        for job, of in of_arm["jobs"].items()
        if of["padding_s"] or of["adjustments"]
    ]
    if not rows:
        return None
    table = _table("What jobs waited to keep their time-shifts")
    table.caption = (
        "padding: until the tick of the quantised iteration time, per iteration\n"
        "adjustments: waits for the next tick after a drift, and what they lost per iteration"
    )
    for head in ("arm", "job"):
        table.add_column(head)
    for head in ("padding ms", "adjustments", "lost ms"):
        table.add_column(head, justify="right", no_wrap=True)
    for arm, job, of in rows:
        padding, lost = (f"{1e3 * of[key]:.2f}" for key in ("padding_s", "lost_s"))
        adjustments = f"{of['adjustments']} of {of['iterations']}"
        table.add_row(Text(arm, style=STYLES.get(arm, "")), job, padding, adjustments, lost)
    return table


def validation_table(validation: Mapping[str, Any]) -> Table:
    """Return a table of the predictions and what became of them, a row each."""
    table = _table(f"Predicted and measured: {validation['verdict']}")
    for head in ("prediction", "arm", "link", "verdict"):
        table.add_column(head, overflow="fold")
    for one in validation["predictions"]:
        colour = {True: "green", False: "red", None: "dim"}[one["held"]]
        table.add_row(one["what"], one["arm"], one["link"], Text(one["verdict"], style=colour))
    return table


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", caption_justify="left", box=None, pad_edge=False
    )


def _estimate(of: Mapping[str, Any], show: Callable[[float], str], unit: str = "") -> str:
    if of["value"] is None:
        return "-"
    interval = "" if of.get("low") is None else f" [{show(of['low'])}, {show(of['high'])}]"
    return f"{show(of['value'])}{unit}{interval}"


def _bare(of: Mapping[str, Any]) -> dict[str, Any]:
    """Return an estimate without its interval, for which the table has no room."""
    return {"value": of["value"]}


def _ms(of: Mapping[str, Any]) -> str:
    return _estimate(of, lambda seconds: f"{1e3 * seconds:.1f}")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _count(packets: float) -> str:
    return f"{packets:.0f}" if packets >= 10 or packets == 0 else f"{packets:.2g}"


def _ratio(of: Mapping[str, Any]) -> str:
    if of["value"] is None:
        return f"{_count(of['above'])} : {_count(of['below'])}"
    return _estimate(of, lambda value: f"{value:.2f}", "x")
