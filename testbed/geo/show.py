"""What the command line shows of wide-area scenarios and their runs."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from testbed.geo.campaign import WideOutcome
from testbed.geo.experiment import WideExperiment
from testbed.net.wan import routing
from testbed.units import show_delay, show_rate, show_size
from workloads.paramsync.tensors import size_bytes


def experiment(console: Console, made: WideExperiment) -> None:
    """Show what a run would do: the network as emulated, the systems and what is predicted of them."""
    scenario, wan = made.scenario, made.wan
    console.print(f"[bold]{scenario.name}[/bold]: {scenario.title}")
    links = Table(title=f"{wan.name} at scale {scenario.wan.scale:g}", title_justify="left")
    for column in ("link", "rate", "delay", "jitter", "loss", "queue"):
        links.add_column(column)
    for a, b, of in wan.directed():
        delays = show_delay(of.delay_s), show_delay(of.jitter_s)
        links.add_row(f"{a} → {b}", show_rate(of.rate_bps), *delays, f"{of.loss:g}", show_size(of.queue_bytes))
    console.print(links)
    indirect = len(wan.names) * (len(wan.names) - 1) - 2 * len(wan.tunnels)
    way = f"{len(wan.tunnels)} WireGuard tunnels" if scenario.wan.tunnels else "plain routing, no tunnels"
    console.print(f"{way}; {indirect} ordered pairs without one ({scenario.wan.routing} rule: {_rule(made)})")
    systems = Table(title="Systems", title_justify="left")
    for column in ("system", "decided", "roots", "chunks", "bytes", "metric", "simulated"):
        systems.add_column(column)
    for system in made.systems:
        chunks, prediction = system.sync.chunks, system.prediction
        roots = " ".join(dict.fromkeys(way.root for way in system.plan.ways))
        sizes = str(len(chunks)), show_size(size_bytes(chunks))
        predicted = f"{prediction.metric_s:.2f} s", f"{prediction.simulated_s:.2f} s"
        systems.add_row(system.name, system.plan.name, roots, *sizes, *predicted)
    console.print(systems)
    console.print(f"[dim]{len(made.changes)} changes of links; nothing was started.[/dim]")


def _rule(made: WideExperiment) -> str:
    nexts = routing.next_sites(made.wan, made.scenario.wan.routing)
    longest = max((routing.route(nexts, a, b) for a, b in nexts), key=len)
    return f"the longest way is {' '.join(longest)}"


def outcome(console: Console, came: WideOutcome) -> None:
    """Show the round times of all systems, the predictions, and the verdict."""
    tables(console, came.summary, came.validation)
    verdict(console, came)


def tables(console: Console, summary: dict[str, Any], validation: dict[str, Any]) -> None:
    """Show the round times of all systems and the predictions."""
    table = Table(
        title=f"{summary['scenario']}: round times, speed-up over {summary['baseline']}", title_justify="left"
    )
    names = "system", "roots", "rounds", "mean round", "speed-up", "bytes on links", "marks", "drops", "sums agree"
    for column in names:
        table.add_column(column)
    for one in summary["systems"]:
        roots = " ".join(dict.fromkeys(one["roots"]))
        times = f"{one['mean_round_s']:.2f} s", f"{one['speed_up']:.2f}×"
        moved = show_size(one["wan_bytes"]), str(one["wan_marks"]), str(one["wan_drops"])
        agree = "yes" if one["digests_agree"] else "NO"
        table.add_row(one["system"], roots, str(one["rounds"]), *times, *moved, agree)
    console.print(table)
    if any(group["runs"] > 1 for group in summary["groups"].values()):
        console.print(_groups(summary))
    console.print(_predictions(validation))


def verdict(console: Console, came: WideOutcome) -> None:
    """Show what does not hold, and whether the results may be believed."""
    for system, checks in came.checks.items():
        for check in checks:
            if not check["ok"]:
                said = f"{system}: {check['what']}: {check['detail']}"
                console.print(said, style="red", highlight=False, markup=False)
    said = "valid" if came.valid else "NOT VALID"
    count = sum(len(checks) for checks in came.checks.values())
    console.print(f"[bold]{said}[/bold] ({count} checks); results in {came.folder}", highlight=False)


def _groups(summary: dict[str, Any]) -> Table:
    table = Table(title=f"With every site as the root; over {summary['baseline']}", title_justify="left")
    for column in ("system", "runs", "mean", "best", "worst", "default", "of means", "of bests", "of defaults"):
        table.add_column(column)
    for name, group in summary["groups"].items():
        times = (f"{group[key]:.2f} s" for key in ("mean_s", "best_s", "worst_s", "default_s"))
        ratios = (f"{group[key]:.2f}×" for key in ("speed_up", "best_against_best", "default_against_default"))
        table.add_row(name, str(group["runs"]), *times, *ratios)
    return table


def _predictions(validation: dict[str, Any]) -> Table:
    table = Table(title="Predicted and measured: a round without computing", title_justify="left")
    for column in ("system", "measured", "metric", "simulated", "lower bound", "measured over it"):
        table.add_column(column)
    errors: dict[str, list[str]] = {}
    for row in validation["rounds"]:
        error = f"{row['predicted_s']:.2f} s ({100 * row['relative_error']:+.1f} %)"
        errors.setdefault(row["system"], [f"{row['measured_s']:.2f} s"]).append(error)
    for system, cells in errors.items():
        bound = validation["bounds"]["systems"][system]
        beside = ("–", "–") if bound["flow_s"] is None else (f"{bound['flow_s']:.2f} s", f"{bound['of_flow']:.2f}×")
        table.add_row(system, *cells, *beside)
    return table
