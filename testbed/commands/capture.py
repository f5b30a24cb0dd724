"""`python -m testbed capture`: a scenario run with the packets of chosen links kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from testbed import scenario_file
from testbed.commands.common import DEFAULT_RESULTS, Memory, Results, Settings, console, machine
from testbed.errors import InputError, NotValid
from testbed.geo.records import WAN_LINKS
from testbed.telemetry.tables import COUNTERS
from testbed.units import show_size

Link = Annotated[
    list[str] | None,
    typer.Option("--link", help="A directed link, as in 'tor1->agg1'; may be repeated; else the shared ones."),
]
Arm = Annotated[list[str] | None, typer.Option("--arm", help="Run this arm alone; may be repeated; else all.")]
MaxSize = Annotated[str, typer.Option("--max-size", help="No file becomes larger, as in '10 MB'.")]
Packets = Annotated[int, typer.Option("--packets", min=1, help="No file has more packets.")]
CE_FILTER, NO_TUNNEL_FILTER = "ip.dsfield.ecn == 3", "!wg"
COUNTED = "CE packets by the counters"


def capture(
    scenario: Annotated[str, typer.Argument(help="A scenario's name (see list) or a TOML file.")],
    link: Link = None,
    arm: Arm = None,
    max_size: MaxSize = "32 MB",
    packets: Packets = 10_000_000,
    settings: Settings = None,
    results: Results = DEFAULT_RESULTS / "captures",
    mem: Memory = "2GB",
) -> None:
    """Run a scenario and keep the packets that chosen links carry, as pcapng for Wireshark and tshark."""
    from testbed import progress, show
    from testbed.engine.commands import ready_kernel
    from testbed.study import points, work

    made = [f"telemetry.capture.links={json.dumps(link)}" if link else 'telemetry.capture.links="shared"']
    made += [f"telemetry.capture.size={json.dumps(max_size)}", f"telemetry.capture.packets={packets}"]
    made += [f"measure.arms={json.dumps(arm)}"] if arm else []
    wide = scenario_file.is_wide(scenario_file.find(scenario))
    if wide and not link:
        raise InputError("--link", f"{scenario} has no jobs that share links", "name links, as in --link 'dc1->dc2'")
    study = points.load(scenario, (*(settings or ()), *made))
    if study.varied:
        raise InputError(scenario, "is a study", "capture one of its points: give its settings with --set")
    point = study.points[0]
    if not point.needs_kernel:
        raise InputError(scenario, "has no packets: its engine is fluid", "--set engine=virtual")
    memory_bytes = machine(mem, 0, real_time=False).memory_bytes
    out, kernel = console(), ready_kernel()
    try:
        with progress.watcher(out) as watcher:
            outcome = work.alone(point, kernel, results, watcher, memory_bytes)
    except KeyboardInterrupt:
        out.print("stopped; earlier results are as they were")
        raise typer.Exit(130) from None
    captured(out, outcome.folder)
    show.any_verdict(out, outcome)
    raise typer.Exit(0 if outcome.valid else NotValid.exit_code)


def captured(out: Console, folder: Path) -> None:
    """Show every capture of a run: packets, bytes, whether it is whole, and the CE packets that counters saw; on a
    wide-area network, where nothing is marked, all packets that they saw."""
    found = captures(folder)
    wide = any((folder / arm / WAN_LINKS.file).is_file() for arm, _, _ in found)
    table = Table(title=f"Captures in {folder}", title_justify="left", box=None, pad_edge=False)
    for column in ("file", "packets", "size", "whole", "packets by the counters" if wide else COUNTED):
        table.add_column(column, overflow="fold")
    for arm, link, of in found:
        whole = "yes" if of["whole"] else "no, cut"
        name = f"{arm}/capture-{link.replace('->', '-')}.pcapng"
        counted = (carried if wide else marked)(folder / arm, link)
        table.add_row(name, str(of["packets"]), show_size(of["size_bytes"]), whole, str(counted))
    out.print(table)
    said = f"what goes around the tunnels: tshark -r FILE -Y '{NO_TUNNEL_FILTER}' | wc -l"
    if not wide:
        said = f"CE packets of a whole capture: tshark -r FILE -Y '{CE_FILTER}' | wc -l"
    out.print(said, highlight=False, markup=False)


def captures(folder: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Return (arm, link, what was captured) of a run, from its arms' manifests."""
    found = []
    for path in sorted(folder.glob("*/manifest.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        found += [(path.parent.name, link, of) for link, of in manifest.get("captures", {}).items()]
    return found


def marked(arm: Path, link: str) -> int:
    """Return the CE packets that came out of a link in all trials of an arm, by counters.csv."""
    rows = COUNTERS.read(arm / COUNTERS.file)
    begin, end = (
        sum(n or 0 for n in rows.where(label=label, link=link).counts("ce_out_packets")) for label in ("begin", "end")
    )
    return end - begin


def carried(arm: Path, link: str) -> int:
    """Return the packets that a link of a wide-area network carried in all rounds, by its counters."""
    rows = WAN_LINKS.read(arm / WAN_LINKS.file)
    begin, end = (sum(n or 0 for n in rows.where(label=at, link=link).counts("tx_packets")) for at in ("begin", "end"))
    return end - begin
