"""Which jobs arrive when: read from a file, or drawn by seed.

The file is CSV with the header `arrival_s,model,workers,batch,iterations` and one line per job:

    arrival_s   seconds since the beginning, not negative; lines need not be in order
    model       name of the model
    workers     accelerators asked for, at least 1
    batch       samples per accelerator, at least 1
    iterations  how many are to be done, at least 1

Empty lines, and lines that begin with #, are passed over. Jobs are named after their place in order of arrival.

The paper of CASSINI (section 5.1) has three kinds of traces. *Poisson*: jobs arrive at random at a load of 80 to 100 %.
*Dynamic*: some jobs arrive while the cluster is busy with others. *Snapshot*: all are there from the beginning.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.random import Generator

from testbed.errors import InputError
from testbed.files import read_text

COLUMNS = ("arrival_s", "model", "workers", "batch", "iterations")
ITERATIONS = (200, 1000)  # of a job, from and to (paper of CASSINI, section 5.1)


@dataclass(frozen=True)
class Arrival:
    """One job: when it arrives and what it wants; see the module's docstring."""

    arrival_s: float
    model: str
    workers: int
    batch: int
    iterations: int

    def to_dict(self) -> dict[str, float | int | str]:
        """Return the arrival as JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Kind:
    """What jobs are drawn from: a model, from how many to how many workers and samples per worker it is trained with.

    `iteration_s` is the time of an iteration alone on the network, taken to be the same for every batch and number of
    workers; it says how long a job lasts, and so how many are to arrive at a given load.
    """

    model: str
    workers: tuple[int, int]
    batch: tuple[int, int]
    iteration_s: float
    iterations: tuple[int, int] = ITERATIONS

    def __post_init__(self) -> None:
        """Raise ValueError for ranges that are empty and times that are not positive."""
        ranges = (self.workers, self.batch, self.iterations)
        if any(not 1 <= low <= high for low, high in ranges) or not 0 < self.iteration_s < math.inf:
            raise ValueError(f"{self.model}: needs ranges from 1 upwards, and a positive iteration time")

    @property
    def work_s(self) -> float:
        """Mean accelerator-seconds of one job: workers times iterations times the time of one."""
        return sum(self.workers) / 2 * sum(self.iterations) / 2 * self.iteration_s


def read(path: Path, models: Collection[str] | None = None) -> list[Arrival]:
    """Return the jobs of a file in order of arrival. models: the only ones there may be, by default any.

    Raises InputError, which names line and column, for a file that is not as the module's docstring has it.
    """
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read: {error}", "give a CSV file in UTF-8") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    header = [name.strip() for name in lines[0][1].split(",")] if lines else []
    if tuple(header) != COLUMNS:
        where = f"{path}, line {lines[0][0] if lines else 1}"
        raise InputError(where, f"the columns are {','.join(header) or 'missing'}", f"write {','.join(COLUMNS)}")
    arrivals = [_line(f"{path}, line {number}", line, models) for number, line in lines[1:]]
    if not arrivals:
        raise InputError(str(path), "has no jobs", "write one line for each")
    return sorted(arrivals, key=lambda one: one.arrival_s)


def write(path: Path, arrivals: Iterable[Arrival]) -> None:
    """Write a file that `read` reads back unchanged."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        rows.writeheader()
        rows.writerows(one.to_dict() for one in arrivals)


def _line(where: str, line: str, models: Collection[str] | None) -> Arrival:
    try:
        cells = [cell.strip() for cell in next(csv.reader([line]))]
    except csv.Error as error:
        raise InputError(where, f"is no line of a table: {error}", f"write {','.join(COLUMNS)}") from error
    if len(cells) != len(COLUMNS):
        raise InputError(where, f"has {len(cells)} values, not {len(COLUMNS)}", f"write {','.join(COLUMNS)}")
    row = dict(zip(COLUMNS, cells, strict=True))
    if not row["model"] or (models is not None and row["model"] not in models):
        mend = f"one of {', '.join(sorted(models))}" if models else "the name of a model"
        raise InputError(f"{where}, column model", f"{row['model']!r} is no model", mend)
    whole = {name: _whole(f"{where}, column {name}", row[name]) for name in ("workers", "batch", "iterations")}
    return Arrival(_seconds(f"{where}, column arrival_s", row["arrival_s"]), row["model"], **whole)


def _seconds(where: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(where, f"{cell!r} is no time", "seconds since the beginning, not negative")
    return value


def _whole(where: str, cell: str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) <= 15 and int(cell) >= 1):
        raise InputError(where, f"{cell!r} is no such number", "a whole number from 1")
    return int(cell)


def poisson(kinds: Sequence[Kind], *, load: float, accelerators: int, jobs: int, seed: int) -> list[Arrival]:
    """Draw jobs of all kinds alike that arrive at random times, independent of each other.

    load: the mean fraction of all accelerators that would be busy if every job began when it arrives and had the
    network to itself, 0.8 to 1.0 in the paper: the mean rate of arrivals times the mean accelerator-seconds of a job,
    over the accelerators. Raises ValueError for a load or a cluster of nothing, and a kind larger than the cluster.
    """
    if not 0 < load < math.inf or accelerators < 1 or not kinds:
        raise ValueError(f"a load of {load} on {accelerators} accelerators by {len(kinds)} kinds of jobs")
    for kind in kinds:
        if kind.workers[1] > accelerators:
            raise ValueError(f"{kind.model}: {kind.workers[1]} workers are more than {accelerators} accelerators")
    random = np.random.default_rng(seed)
    between_s = sum(kind.work_s for kind in kinds) / len(kinds) / (load * accelerators)
    times_s = np.cumsum(random.exponential(between_s, size=jobs))
    return [_draw(kinds[int(random.integers(len(kinds)))], round(float(time_s), 3), random) for time_s in times_s]


def _draw(kind: Kind, arrival_s: float, random: Generator) -> Arrival:
    ranges = (kind.workers, kind.batch, kind.iterations)
    return Arrival(arrival_s, kind.model, *(int(random.integers(low, high + 1)) for low, high in ranges))


def draw(kinds: Iterable[Kind], seed: int) -> list[Arrival]:
    """Return one job of each kind that is named, drawn by seed, to be placed in time by `dynamic` or `snapshot`."""
    random = np.random.default_rng(seed)
    return [_draw(kind, 0.0, random) for kind in kinds]


def dynamic(present: Iterable[Arrival], coming: Iterable[Arrival], at_s: float) -> list[Arrival]:
    """Return the jobs that keep the cluster busy from the beginning, and those that arrive at `at_s`.

    Arrival times of those that come count from then. Raises ValueError for a moment that is not after the beginning.
    """
    if not 0 < at_s < math.inf:
        raise ValueError(f"jobs arrive on a busy cluster at {at_s} s, which is not after the beginning")
    later = [replace(one, arrival_s=at_s + one.arrival_s) for one in coming]
    return sorted([*snapshot(present), *later], key=lambda one: one.arrival_s)


def snapshot(jobs: Iterable[Arrival]) -> list[Arrival]:
    """Return the jobs, all there from the beginning."""
    return [replace(one, arrival_s=0.0) for one in jobs]
