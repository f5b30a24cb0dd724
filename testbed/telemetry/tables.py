"""The CSV files of one arm: which columns they have, in which unit, and what each one means.

Plain CSV without quoting: a header line, then values without commas. An empty value means "not measured
here", which is not 0. Times are virtual seconds since the arm's epoch, written with microseconds. All
counters are cumulative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from testbed.errors import InputError

Value = str | int | float | None
BUFFER_BYTES = 1 << 18


class Column(NamedTuple):
    """Unit ("s", "B", "packets", "count", "name") and meaning of one column."""

    unit: str
    meaning: str


class Records:
    """The rows of a table, kept as text and converted one column at a time when asked."""

    def __init__(self, table: Table, columns: dict[str, list[str]]) -> None:
        self.table, self._columns = table, columns

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def text(self, column: str) -> list[str]:
        """The column as written."""
        return self._columns[column]

    def counts(self, column: str) -> list[int | None]:
        """The column as whole numbers, None where empty."""
        return [int(value) if value else None for value in self._columns[column]]

    def numbers(self, column: str) -> list[float]:
        """The column as floats, NaN where empty."""
        return [float(value) if value else math.nan for value in self._columns[column]]

    def where(self, **equal: str | int) -> Records:
        """The rows whose columns equal the given values (compared as written)."""
        wanted = {column: str(value) for column, value in equal.items()}
        kept = [
            row
            for row in range(len(self))
            if all(self._columns[column][row] == value for column, value in wanted.items())
        ]
        columns = {column: [values[row] for row in kept] for column, values in self._columns.items()}
        return Records(self.table, columns)


class Writer:
    """Appends rows to a table's file, block-buffered: `flush` before anybody else reads it."""

    def __init__(self, table: Table, path: Path, resume: bool = False) -> None:
        self._table = table
        if resume and _without_torn_row(path):
            self._file = path.open("a", encoding="utf-8", buffering=BUFFER_BYTES)
            return
        self._file = path.open("w", encoding="utf-8", buffering=BUFFER_BYTES)
        self._file.write(",".join(table.columns) + "\n")

    def row(self, *values: Value) -> None:
        """Append one row: a value per column, None for "not measured". ValueError when the row does not
        fit."""
        if len(values) != len(self._table.columns):
            raise ValueError(f"{self._table.file}: {len(values)} values for {len(self._table.columns)} columns")
        self._file.write(",".join([_written(value) for value in values]) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class Table:
    """One CSV file: its name and its columns in order."""

    file: str
    columns: dict[str, Column]

    def writer(self, path: Path, resume: bool = False) -> Writer:
        """A writer that begins the file anew; `path` is the file, not its folder.

        With `resume` it goes on behind the last whole row that a writer left which was killed.
        """
        return Writer(self, path, resume)

    def read(self, path: Path) -> Records:
        """All rows of `path`. Raises InputError with file and line when it is not this table."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(str(path), f"cannot be read: {error.strerror}") from error
        header, *lines = text.split("\n")
        if header.split(",") != list(self.columns):
            raise InputError(f"{path}:1", f"is not {self.file}: {header!r}", f"columns are {','.join(self.columns)}")
        if not lines or lines.pop():
            raise InputError(f"{path}:{len(lines) + 2}", "ends inside a row", "the program that wrote it was killed")
        rows = [line.split(",") for line in lines]
        for number, row in enumerate(rows, start=2):
            if len(row) != len(self.columns):
                raise InputError(f"{path}:{number}", f"has {len(row)} values for {len(self.columns)} columns")
        values = zip(*rows, strict=True) if rows else [()] * len(self.columns)
        return Records(self, {column: list(value) for column, value in zip(self.columns, values, strict=True)})


def _without_torn_row(path: Path) -> bool:
    """Take a row that was not written to its end off a file; whether anything is left of it."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    return bool(whole)


def _written(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, str) and any(mark in value for mark in ',"\n\r'):
        raise ValueError(f"{value!r} holds a comma, a quote or a line break")
    return str(value)


_T = Column("s", "virtual time since the arm's epoch")
_TRIAL = Column("name", "trial within the arm")
_LINK = Column("name", 'directed link "a->b": the egress of a towards b')
_JOB = Column("name", "job, told apart by its DSCP; empty = all other traffic")

ITERATIONS = Table(
    "iterations.csv",
    {
        "trial": _TRIAL,
        "job": Column("name", "job"),
        "rank": Column("count", "rank of the worker in its job, from 0"),
        "host": Column("name", "host the worker runs in"),
        "iteration": Column("count", "iteration, from 0"),
        "begin_s": Column("s", "begin of the iteration and of Down (compute without traffic)"),
        "up_begin_s": Column("s", "end of Down, begin of Up: the first bytes are sent"),
        "end_s": Column("s", "end of Up and of the iteration: all computed, sent and received"),
        "ce_packets": Column("packets", "CE-marked packets the host received in the iteration (InCEPkts)"),
        "held_s": Column("s", "held before begin_s, until its tick on the circle: the padding of the period"),
        "lost_s": Column("s", "waited before begin_s because it had drifted: until the next tick"),
        "adjusted": Column("count", "1 if it had drifted, else 0"),
    },
)
LINKS = Table(
    "links.csv",
    {
        "t_s": _T,
        "link": _LINK,
        "tx_packets": Column("packets", "sent by a's port, its OpenFlow counter; empty if a is a host"),
        "tx_bytes": Column("B", "likewise, bytes"),
        "rx_packets": Column("packets", "received by b's port, its OpenFlow counter; empty if b is a host"),
        "rx_bytes": Column("B", "likewise, bytes"),
        "ect_packets": Column("packets", "IP packets with ECN field 1 or 2 in b's table 0; empty if b is a host"),
        "ect_bytes": Column("B", "likewise, bytes"),
        "ce_packets": Column("packets", "IP packets with ECN field 3 (CE) in b's table 0; empty if b is a host"),
        "ce_bytes": Column("B", "likewise, bytes"),
        "backlog_bytes": Column("B", "in a's queue (qdisc 3:) at this moment, by netlink; empty if a is a host"),
        "marked_packets": Column("packets", "marked CE by a's queue (RED 3:), by netlink; empty if a is a host"),
        "dropped_packets": Column("packets", "dropped by a's queue (TBF 2: and below), without random loss"),
    },
)
FLOWS = Table(
    "flows.csv",
    {
        "t_s": _T,
        "link": _LINK,
        "job": _JOB,
        "ect_packets": Column("packets", "of the job, ECN field 1 or 2, in b's table 0"),
        "ect_bytes": Column("B", "likewise, bytes"),
        "ce_packets": Column("packets", "of the job, ECN field 3 (CE), in b's table 0"),
        "ce_bytes": Column("B", "likewise, bytes"),
    },
)
TABLES = Table(
    "tables.csv",
    {
        "t_s": _T,
        "switch": Column("name", "switch"),
        "table": Column("count", "OpenFlow table: 0 counts, 1 forwards"),
        "active": Column("count", "rules in the table"),
        "lookups": Column("packets", "packets looked up in the table"),
        "matched": Column("packets", "packets that met a rule"),
    },
)
QUEUES = Table(
    "queues.csv",
    {
        "t_s": _T,
        "link": _LINK,
        "backlog_bytes": Column("B", "in a's queue (qdisc 3:) at this moment"),
        "backlog_packets": Column("packets", "likewise, packets"),
        "tx_bytes": Column("B", "sent through a's rate limiter (TBF 2:), cumulative"),
        "tx_packets": Column("packets", "likewise, packets"),
        "marked_packets": Column("packets", "marked CE by a's queue (RED 3:), cumulative"),
        "dropped_packets": Column("packets", "dropped by a's queue (TBF 2: and below), cumulative"),
    },
)
MARKS = Table(
    "marks.csv",
    {
        "trial": _TRIAL,
        "job": Column("name", "job whose rank 0 ended the iteration"),
        "iteration": Column("count", "iteration, -1 = at the trial's start"),
        "t_s": _T,
        "link": _LINK,
        "marked_packets": Column("packets", "marked CE by a's queue (RED 3:), cumulative"),
    },
)
COUNTERS = Table(
    "counters.csv",
    {
        "trial": _TRIAL,
        "label": Column("name", '"begin" or "end" of the trial, counters settled'),
        "link": _LINK,
        "tx_packets": Column("packets", "sent by a's port, its OpenFlow counter; empty if a is a host"),
        "tx_bytes": Column("B", "likewise, bytes"),
        "ce_in_packets": Column("packets", "CE already when they came to a, forwarded into this link (a's table 1)"),
        "marked_packets": Column("packets", "marked CE by a's queue (RED 3:), by netlink"),
        "dropped_packets": Column("packets", "dropped by a's queue (TBF 2: and below), by netlink"),
        "ce_out_packets": Column("packets", "CE when they came to b: its table 0, or InCEPkts if b is a host"),
    },
)
EVENTS = Table(
    "events.csv",
    {
        "trial": _TRIAL,
        "asked_s": Column("s", "when it was to happen; empty where nobody asked: put back after a trial, a failed job"),
        "done_s": Column("s", "when it was done; empty where the trial ended before"),
        "kind": Column("name", "what happened: a kind of [[event]], or job-failed"),
        "target": Column("name", 'directed link "a->b", cable "a<->b", host, controller, or job'),
        "value": Column("bit/s, s or share", "what was set: of rate, delay, loss"),
        "found": Column("name", "what was read back, or why a job failed"),
    },
)
MACHINE = Table(
    "machine.csv",
    {
        "t_s": _T,
        "lag_s": Column("s", "the latest that a timer rang since the row before"),
        "busy_share": Column("share", "of the busiest processor, in use since the row before, by whomever"),
    },
)
ALL = (ITERATIONS, LINKS, FLOWS, TABLES, QUEUES, MARKS, COUNTERS, EVENTS, MACHINE)
