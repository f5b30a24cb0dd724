"""What the command line shows of scenarios, runs and the machine, as rich tables and plain lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from testbed.campaign import Outcome
from testbed.cluster import ClusterExperiment
from testbed.experiment import LEAD_S, Experiment
from testbed.fidelity import Check
from testbed.geo import show as wide
from testbed.geo.campaign import WideOutcome
from testbed.geo.experiment import WideExperiment
from testbed.profiling import Row
from testbed.report import parquet, sweep
from testbed.report import study as study_report
from testbed.report.cluster import table as cluster_table
from testbed.report.events import events_table
from testbed.report.table import arms_table, ratios_table, validation_table, waits_table
from testbed.study.points import Study
from testbed.study.work import prepared
from testbed.units import show_delay, show_rate, show_size

if TYPE_CHECKING:
    from testbed.engine.doctor import Check as MachineCheck
    from testbed.study.run import Ran

SHIFTED = {
    "cassini": "starts by the time-shifts decided from alone",
    "refined": "starts by the time-shifts refined by the marks of cassini",
}


def experiment(console: Console, made: Experiment) -> None:
    """Show what a run would do: scaling, jobs, shared links, arms."""
    scenario = made.scenario
    console.print(f"[bold]{scenario.name}[/bold]: {scenario.title}")
    _scaling(console, made)
    jobs = Table(title="Jobs", title_justify="left")
    for column in ("job", "workers", "iterations", "Down", "compute", "transfers", "sends per iteration"):
        jobs.add_column(column)
    for job in made.jobs:
        sent = show_size(job.sent_bytes(0))
        down, compute = show_delay(round(job.down_s, 6)), show_delay(round(job.compute_s, 6))
        transfers = sum(op.kind != "compute" for op in job.program(0))
        jobs.add_row(job.name, " ".join(job.hosts), str(job.iterations), down, compute, str(transfers), sent)
    console.print(jobs)
    for job in made.jobs:
        console.print(f"[dim]{job.name}: {job.note}[/dim]", highlight=False)
    console.print("[bold]Directed links that jobs share[/bold]" + ("" if made.shared else ": none"))
    for link, names in made.shared.items():
        console.print(f"  {link:<16} {', '.join(names)}", highlight=False)
    console.print("[bold]Arms[/bold]")
    for arm in scenario.measure.arms:
        trials = made.trials(arm, {job.name: 0.0 for job in made.jobs})
        offsets = " | ".join(", ".join(f"{s:.3f}" for s in trial.starts_s.values()) for trial in trials[:5])
        starts = SHIFTED.get(arm, f"starts (s): {offsets}")
        console.print(f"  {arm:<10} {len(trials)} trials; {starts}")
    for of_arm, events in made.events.items():
        console.print(f"[bold]Events in each trial of {of_arm}[/bold]")
        for event in events:
            value = "" if event.value is None else f" to {event.value:g}"
            fails = f"; expected to fail: {', '.join(event.expect)}" if event.expect else ""
            console.print(f"  {event.at_s:>8g} s  {event.kind} {event.target}{value}{fails}", highlight=False)
    console.print(
        f"[dim]Each trial begins {LEAD_S} s of virtual time after it was announced; nothing was started.[/dim]"
    )


def study(console: Console, made: Study) -> None:
    """Show what the points of a study would do, and of a scenario that is none all there is."""
    for point in made.points:
        if made.varied:
            console.rule(f"{point.name}: {', '.join(point.settings) or 'as it stands'}", align="left")
        of = prepared(point)
        if isinstance(of, WideExperiment):
            wide.experiment(console, of)
        else:
            cluster(console, of) if isinstance(of, ClusterExperiment) else experiment(console, of)


def grid(console: Console, made: Study) -> None:
    """Show the points of a study, one line each."""
    table = Table(title=f"{made.name}: {made.title}", title_justify="left", box=None, pad_edge=False)
    for column in ("point", *made.labels):
        table.add_column(column, overflow="fold")
    for point in made.points:
        table.add_row(point.name, *(str(point.at.get(label, "-")) for label in made.labels))
    console.print(table)
    over = f"; bands over {', '.join(made.repeats)}" if made.repeats else ""
    console.print(f"{len(made.points)} points{over}; nothing was started", highlight=False)


def ran(console: Console, made: Study, ended: Sequence[Ran], results: Path) -> None:
    """Show what became of a study's points."""
    points(console, ended, made.title)
    if made.whole:
        console.print(study_report.table(study_report.load(results / made.name)))
    console.print(f"results: {_short(results / made.name)}", highlight=False)


def points(console: Console, ended: Sequence[Ran], title: str) -> None:
    """Show of each run whether it is valid and how long it took."""
    console.print(f"[bold]{title}[/bold]", highlight=False)
    for one in ended:
        kept = " (was there)" if one.kept else ""
        console.print(f"[bold]{one.name}[/bold]: {one.wall_s:.1f} s of wall time{kept}", highlight=False)
        if one.ended.error:
            console.print(f"[bold red]NOT VALID[/bold red]: {escape(one.ended.error)}", highlight=False)
        elif not one.kept:
            _told(console, one.ended.checks, one.ended.faults)


def swept(console: Console, made: Study, ended: Sequence[Ran], results: Path) -> None:
    """Show what a sweep found: its first metric by point, points that failed, and where the files are."""
    folder = results / made.name
    study = study_report.load(folder)
    if (table := sweep.table(study)) is not None:
        console.print(table)
    for one in ended:
        if not one.valid:
            console.print(f"[bold red]failed[/bold red] {one.name}: {escape(one.error)}", highlight=False)
    kept = sum(one.kept for one in ended)
    good = sum(one.valid for one in ended)
    console.print(f"{good} of {len(ended)} points valid, {kept} kept from before", highlight=False)
    console.print(f"results: {_short(folder / parquet.FILE)}", highlight=False)
    plots = sorted(path.stem for path in (folder / study_report.PLOTS).glob("*.png"))
    console.print(f"plots:   {_short(folder / study_report.PLOTS)}: {', '.join(plots) or 'none'}", highlight=False)


def any_outcome(console: Console, made: Outcome | WideOutcome) -> None:
    """Show what became of a run, on whichever network."""
    wide.outcome(console, made) if isinstance(made, WideOutcome) else outcome(console, made)


def any_verdict(console: Console, made: Outcome | WideOutcome) -> None:
    """Show the verdict on a run, on whichever network."""
    wide.verdict(console, made) if isinstance(made, WideOutcome) else verdict(console, made.checks)


def _scaling(console: Console, made: Experiment) -> None:
    scaling = Table(title=f"{made.topology.name} at scale {made.scaling.scale:g}", title_justify="left")
    for column in ("", "original", "emulated", "rule"):
        scaling.add_column(column)
    for row in made.scaling.rows():
        scaling.add_row(row.key, _value(row.unit, row.original), _value(row.unit, row.scaled), row.rule)
    console.print(scaling)


def _value(unit: str, value: float) -> str:
    if unit == "bit/s":
        return show_rate(value)
    if unit == "s":
        return show_delay(value) if value else "0"
    if unit == "B":
        return show_size(value)
    return f"{value:g} {unit}"


def outcome(console: Console, made: Outcome) -> None:
    """Show what became of a run: tables, verdict, wall time, where the files are."""
    _tables(console, made.summary, made.validation)
    for arm in made.checks:
        if (happened := events_table(made.folder / arm)) is not None:
            console.print(happened)
    verdict(console, made.checks)
    for arm, stages in made.wall_s.items():
        if arm != "whole":
            console.print(f"[dim]{arm:<9} wall s: {_stages(stages)}[/dim]", highlight=False)
    console.print(f"[dim]whole run: {made.wall_s['whole']['total']:.1f} s of wall time[/dim]", highlight=False)
    console.print(f"results: {_short(made.folder)}", highlight=False)
    console.print(f"page:    {_short(made.folder / 'report.html')}", highlight=False)
    if plots := sorted((made.folder / "plots").glob("*.png")):
        console.print(f"plots:   {_short(plots[0].parent)}: {', '.join(path.stem for path in plots)}", highlight=False)


def profiles(console: Console, rows: Sequence[Row]) -> None:
    """Show what was measured of each job alone, one line for every worker's port; rates are unscaled."""
    table = Table(title="Profiles, rates unscaled", title_justify="left")
    for column in ("job", "port", "iteration", "Up", "mean", "peak"):
        table.add_column(column)
    for row in rows:
        times = [f"{1e3 * seconds:.2f} ms" for seconds in (row.iteration_s, row.up_s)]
        table.add_row(row.job, row.link, *times, *(f"{rate / 1e9:.2f} Gbit/s" for rate in (row.mean_bps, row.peak_bps)))
    console.print(table)


def verdict(console: Console, checks: dict[str, list[Check]]) -> None:
    """Show the fidelity verdict: one line when all is well, every fault when not."""
    faults = [f"{arm}: {check.what}: {check.found}" for arm, made in checks.items() for check in made if not check.ok]
    _told(console, sum(len(made) for made in checks.values()), faults)


def _told(console: Console, total: int, faults: Sequence[str]) -> None:
    if not faults:
        console.print(f"[bold green]VALID[/bold green]: {total} of {total} fidelity checks hold")
        return
    console.print(f"[bold red]NOT VALID[/bold red]: {len(faults)} of {total} fidelity checks fail")
    for fault in faults:
        console.print(f"  {fault}", highlight=False, markup=False)


def saved(console: Console, folder: Path) -> None:
    """Show the tables of a run's or a study's folder again, from its files."""
    if (folder / study_report.FILE).is_file():
        console.print(study_report.table(study_report.load(folder)))
        return
    files: dict[str, Any] = {
        name: json.loads((folder / f"{name}.json").read_text()) for name in ("summary", "validation")
    }
    if "systems" in files["summary"]:
        wide.tables(console, files["summary"], files["validation"])
        return
    _tables(console, files["summary"], files["validation"])


def _tables(console: Console, summary: Mapping[str, Any], validation: Mapping[str, Any]) -> None:
    if summary.get("kind") == "cluster":
        for of_cluster in (cluster_table.arms_table, cluster_table.ratios_table, cluster_table.models_table):
            if (made := of_cluster(summary)).row_count:
                console.print(made)
        return
    console.print(arms_table(summary))
    if summary["ratios"]:
        console.print(ratios_table(summary))
    if (waits := waits_table(summary)) is not None:
        console.print(waits)
    if validation["predictions"]:
        console.print(validation_table(validation))


def cluster(console: Console, made: ClusterExperiment) -> None:
    """Show what a run with a cluster would do: scaling, what is measured alone, the jobs that come, arms."""
    keys = made.keys
    console.print(f"[bold]{made.scenario.name}[/bold]: {made.scenario.title}")
    _scaling(console, made.alone)
    sorts = Table(title="Measured alone", title_justify="left")
    for column in ("kind, workers, batch, span", "hosts", "compute", "first sends after", "sends per iteration"):
        sorts.add_column(column)
    for job in made.alone.jobs:
        times = (show_delay(round(time_s, 6)) for time_s in (job.compute_s, job.down_s))
        sorts.add_row(job.name, " ".join(job.hosts), *times, show_size(job.total_bytes))
    console.print(sorts)
    for seed, trace in made.traces.items():
        jobs = Table(title=f"Jobs of seed {seed}, shortened by {keys.shortened:g}", title_justify="left")
        for column in ("job", "arrives", "workers", "sizes", "iterations"):
            jobs.add_column(column)
        for one in trace:
            arrives = (
                "by measured times" if keys.arrivals == "poisson" else f"{one.arrival.arrival_s / keys.shortened:g} s"
            )
            iterations = max(2, round(one.arrival.iterations / keys.shortened))
            sizes = " ".join(str(size) for size in one.sorts)
            jobs.add_row(one.name, arrives, str(one.arrival.workers), sizes, str(iterations))
        console.print(jobs)
    console.print(
        f"[bold]Arms[/bold]: {', '.join(keys.arms)}; a round every {keys.epoch / keys.shortened:g} s"
        + (", and when jobs come or go" if keys.on_change else ""),
        highlight=False,
    )


def machine(console: Console, checks: list[MachineCheck]) -> None:
    """Show what this machine has and lacks, each lack with the command that mends it."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "engine", "what", "found", "mend"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = "[green]ok[/green]" if check.ok else "[red]lacks[/red]"
        table.add_row(mark, check.engine, check.name, check.detail, "" if check.ok else check.mend)
    console.print(table)


def _stages(stages: dict[str, float]) -> str:
    shown, before = [], 0.0
    for stage, at in stages.items():
        shown.append(f"{stage} {at - before:.1f}")
        before = at
    return ", ".join(shown)


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
