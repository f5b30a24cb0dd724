"""What happened in an arm with events, as a table."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from testbed.telemetry.tables import EVENTS


def events_table(folder: Path, trial: str = "0") -> Table | None:
    """Return the events of one trial of the arm in `folder`; None where it has none."""
    if not (folder / EVENTS.file).is_file():
        return None
    records = EVENTS.read(folder / EVENTS.file).where(trial=trial)
    table = Table(title=f"Events of {folder.name}, trial {trial}", title_justify="left")
    for column in ("asked (s)", "done (s)", "what", "of", "to", "found"):
        table.add_column(column, overflow="fold")
    columns = ("asked_s", "done_s", "kind", "target", "value", "found")
    for row in zip(*(records.text(column) for column in columns), strict=True):
        table.add_row(*row)
    return table
