"""The summary of a run with a cluster as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from testbed.report.cluster.figures import ARM_COLOURS


def arms_table(summary: Mapping[str, Any]) -> Table:
    """Return a table of the arms: iteration times, marks, completion times, rho, a row each."""
    short = f", shortened by {summary['shortened']:g}" if summary["shortened"] > 1 else ""
    table = _table(f"{summary['scenario']}{short}: what became of the same trace, by arm")
    table.caption = (
        "CE: marked packets received per iteration of a job; marks: by all queues\n"
        "rho: completion time over that alone, and over the mean number of jobs (Themis); moved: running jobs that left"
    )
    table.add_column("arm")
    heads = ("iterations", "mean ms", "p50 ms", "p99 ms", "worst ms", "CE", "marks", "completion s", "rho", "moved")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for name, arm in summary["arms"].items():
        times = arm["iteration_s"]
        table.add_row(
            Text(name, style=ARM_COLOURS.get(name, "")),
            str(arm["iterations"]),
            *(_number(times[key]["value"], 1e3, 1) for key in ("mean", "p50", "p99", "worst")),
            _count(arm["ce_packets_per_iteration"]["value"]),
            _count(arm["marked_packets_per_iteration"]["value"]),
            _number(arm["completion_s"]["mean"]["value"], 1.0, 2),
            _number(arm["rho"]["mean"]["value"], 1.0, 2),
            str(arm["moves"]),
        )
    return table


def ratios_table(summary: Mapping[str, Any]) -> Table:
    """Return a table of the ratios between arms; where the lower one is 0 both counts stand."""
    table = _table("Ratios between arms: of iteration times, of completion times, of marks")
    table.caption = "per job: mean iteration time over that alone, each job with the same weight"
    table.add_column("arms")
    keys = (
        "mean",
        "p99",
        "worst",
        "relative",
        "completion_s",
        "ce_packets_per_iteration",
        "marked_packets_per_iteration",
    )
    for head in ("mean", "p99", "worst", "per job", "completion", "CE", "marks"):
        table.add_column(head, justify="right", no_wrap=True)
    for arms, of in summary["ratios"].items():
        table.add_row(arms.replace("/", " / "), *(_ratio(of[key]) for key in keys))
    return table


def models_table(summary: Mapping[str, Any]) -> Table:
    """Return a table of what CASSINI makes of each model: iteration times and CE packets without and with it."""
    table = _table("By model: without CASSINI, and with it")
    for head in ("arms", "model", "mean", "p99", "CE packets per iteration"):
        table.add_column(head, justify="left" if head in ("arms", "model") else "right", no_wrap=True)
    for arms, of in summary["ratios"].items():
        if arms.endswith("+cassini") and arms.count("/") == 1 and arms.startswith(arms.partition("/")[2].split("+")[0]):
            for model, ratio in of["models"].items():
                both = f"{_count(ratio['ce_packets_per_iteration']['above'])} : "
                both += _count(ratio["ce_packets_per_iteration"]["below"])
                table.add_row(arms.replace("/", " / "), model, _ratio(ratio["mean"]), _ratio(ratio["p99"]), both)
    return table


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", caption_justify="left", box=None, pad_edge=False
    )


def _number(value: float | None, factor: float, digits: int) -> str:
    return "-" if value is None else f"{factor * value:.{digits}f}"


def _count(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def _ratio(of: Mapping[str, Any]) -> str:
    if of["value"] is None:
        return "-" if of["above"] is None else f"{_count(of['above'])} : {_count(of['below'])}"
    interval = "" if of.get("low") is None else f" [{of['low']:.2f}, {of['high']:.2f}]"
    return f"{of['value']:.2f}x{interval}"
