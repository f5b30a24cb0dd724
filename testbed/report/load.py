"""The files of one arm as arrays, and what the report must know of the scenario.

An iteration of a job is told by its rank 0, the worker at whose pace marks are read too. It lasts until the next one
begins (the last one until its own end): should a scheduler make a job wait between iterations, the wait counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import InputError
from testbed.telemetry import tables

Floats = NDArray[np.float64]
ARMS = ("together", "random", "priority", "cassini", "refined", "alone")
WAITS = ("held_s", "lost_s", "adjusted")


@dataclass(frozen=True)
class Setting:
    """What the report must know of a scenario, after scaling.

    Rates in bit/s, RED thresholds in bytes (None without marking), directed links that jobs share (or all workers'
    own), hosts of each job; `scale` is what rates and bytes were divided by.
    """

    name: str
    rate_bps: float
    red_min_bytes: int | None
    red_max_bytes: int | None
    shared_links: tuple[str, ...]
    jobs: dict[str, tuple[str, ...]]
    scale: float = 1.0

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Setting:
        """Read keys name, rate_bps, red {min_bytes, max_bytes} or null, shared_links, jobs {name: hosts}, scale.

        Raises InputError that names the key that is missing.
        """
        try:
            red = raw["red"] or {"min_bytes": None, "max_bytes": None}
            return cls(
                name=str(raw["name"]),
                rate_bps=float(raw["rate_bps"]),
                red_min_bytes=red["min_bytes"],
                red_max_bytes=red["max_bytes"],
                shared_links=tuple(raw["shared_links"]),
                jobs={str(job): tuple(hosts) for job, hosts in raw["jobs"].items()},
                scale=float(raw.get("scale", 1.0)),
            )
        except KeyError as error:
            raise InputError(
                "scenario of the report", f"lacks the key {error.args[0]!r}", "see testbed.report.load.Setting"
            ) from error


@dataclass(frozen=True)
class JobRun:
    """The iterations of one job in one trial, shape (n,) each: times of rank 0, CE packets of all its workers.

    `held_s` is what workers waited for their ticks before the iteration, in the mean, `lost_s` what the one lost that
    had drifted the most, `adjusted` whether any had.
    """

    trial: str
    job: str
    begin_s: Floats
    up_begin_s: Floats
    end_s: Floats
    ce_packets: Floats
    held_s: Floats = field(default_factory=lambda: np.zeros(1))
    lost_s: Floats = field(default_factory=lambda: np.zeros(1))
    adjusted: Floats = field(default_factory=lambda: np.zeros(1))

    @property
    def iteration_s(self) -> Floats:
        """Iteration times: from begin to begin, the last one from begin to end."""
        return np.diff(self.begin_s, append=self.end_s[-1])


@dataclass(frozen=True)
class Trial:
    """One start of all jobs of an arm."""

    name: str
    jobs: dict[str, JobRun]

    @property
    def window_s(self) -> tuple[float, float]:
        """From when the last job began until the first one ended: while all of them were there.

        All of the trial where that is never, because its jobs ran one after another.
        """
        runs = self.jobs.values()
        begin_s, end_s = max(float(run.begin_s[0]) for run in runs), min(float(run.end_s[-1]) for run in runs)
        return (begin_s, end_s) if begin_s < end_s else self.whole_s

    @property
    def whole_s(self) -> tuple[float, float]:
        """From when the first job began until the last one ended."""
        runs = self.jobs.values()
        return min(float(run.begin_s[0]) for run in runs), max(float(run.end_s[-1]) for run in runs)


@dataclass(frozen=True)
class Queue:
    """What the sampler saw of one directed link, shape (n,) each; all but the backlog are cumulative."""

    t_s: Floats
    backlog_bytes: Floats
    tx_bytes: Floats
    tx_packets: Floats
    marked_packets: Floats
    dropped_packets: Floats

    def between(self, column: str, begin_s: float, end_s: float) -> float:
        """Return by how much a cumulative column grew in a span of time."""
        grown = np.interp([begin_s, end_s], self.t_s, getattr(self, column))
        return float(grown[1] - grown[0])

    def peak_bytes(self, begin_s: float, end_s: float) -> float:
        """Return the highest backlog read in a span of time."""
        inside = (self.t_s >= begin_s) & (self.t_s <= end_s)
        return float(self.backlog_bytes[inside].max(initial=0.0))


class Arm:
    """The files of one arm, read when they are asked for. Raises InputError where one is missing or foreign."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Every trial of the arm, in the order in which they began."""
        rows = self._read(tables.ITERATIONS)
        number = {column: np.array(rows.numbers(column)) for column in ("iteration", "rank", "begin_s", "up_begin_s")}
        number |= {column: np.array(rows.numbers(column)) for column in ("end_s", "ce_packets", *WAITS)}
        # Workers of one host read the same counter.
        places = list(zip(rows.text("trial"), rows.text("job"), rows.text("host"), strict=True))
        lowest: dict[tuple[str, str, str], float] = {}
        for place, rank in zip(places, number["rank"], strict=True):
            lowest[place] = min(rank, lowest.get(place, rank))
        number["ce_packets"] *= [rank == lowest[place] for place, rank in zip(places, number["rank"], strict=True)]
        trial, job = np.array(rows.text("trial")), np.array(rows.text("job"))
        found: dict[str, dict[str, JobRun]] = {}
        for of_trial, of_job in sorted({(str(a), str(b)) for a, b in zip(trial, job, strict=True)}):
            mine = (trial == of_trial) & (job == of_job)
            if not (mine & (number["rank"] == 0)).any():
                where = f"{self.folder / tables.ITERATIONS.file}: trial {of_trial}"
                raise InputError(where, f"no iteration of rank 0 of {of_job}", "run the arm again")
            found.setdefault(of_trial, {})[of_job] = _job_run(
                of_trial, of_job, {column: values[mine] for column, values in number.items()}
            )
        if not found:
            raise InputError(str(self.folder / tables.ITERATIONS.file), "holds no iteration", "run the arm again")
        trials = (Trial(name, jobs) for name, jobs in found.items())
        return tuple(sorted(trials, key=lambda one: (min(run.begin_s[0] for run in one.jobs.values()), one.name)))

    @cached_property
    def queues(self) -> dict[str, Queue]:
        """The queue of each directed link that was watched."""
        rows = self._read(tables.QUEUES)
        link = np.array(rows.text("link"))
        columns = {column: np.array(rows.numbers(column)) for column in Queue.__dataclass_fields__}
        return {
            str(name): Queue(**{column: values[link == name] for column, values in columns.items()})
            for name in sorted(set(link.tolist()))
        }

    @cached_property
    def flow_bytes(self) -> dict[tuple[str, str], tuple[Floats, Floats]]:
        """Cumulative bytes by (directed link, job): times in s, bytes whether marked or not, shape (n,) each."""
        rows = self._read(tables.FLOWS)
        link, job = np.array(rows.text("link")), np.array(rows.text("job"))
        t_s = np.array(rows.numbers("t_s"))
        sent = np.array(rows.numbers("ect_bytes")) + np.array(rows.numbers("ce_bytes"))
        found = {}
        for of_link, of_job in sorted({(str(a), str(b)) for a, b in zip(link, job, strict=True)}):
            mine = (link == of_link) & (job == of_job)
            found[of_link, of_job] = t_s[mine], sent[mine]
        return found

    @cached_property
    def marks(self) -> dict[tuple[str, str], float]:
        """Packets marked by the queue of a link in a whole trial, by (trial, directed link)."""
        rows = self._read(tables.MARKS)
        counts: dict[tuple[str, str], list[float]] = {}
        for trial, link, marked in zip(
            rows.text("trial"), rows.text("link"), rows.numbers("marked_packets"), strict=True
        ):
            counts.setdefault((trial, link), []).append(marked)
        return {key: max(values) - min(values) for key, values in counts.items()}

    def _read(self, table: tables.Table) -> tables.Records:
        return table.read(self.folder / table.file)


def arms_of(run_dir: Path) -> dict[str, Arm]:
    """Return the arms a run folder has, in the order of ARMS. Raises InputError when it has none."""
    arms = {name: Arm(run_dir / name) for name in ARMS if (run_dir / name / tables.ITERATIONS.file).is_file()}
    if not arms:
        raise InputError(
            str(run_dir), "is not the folder of a run: no arm with iterations.csv", "give results/SCENARIO"
        )
    return arms


def _job_run(trial: str, job: str, rows: dict[str, Floats]) -> JobRun:
    first = rows["rank"] == 0
    order = np.argsort(rows["iteration"][first], kind="stable")
    iterations = rows["iteration"][first][order]
    of_iteration = [rows["iteration"] == iteration for iteration in iterations]
    ce_packets = np.array([np.nan_to_num(rows["ce_packets"][which]).sum() for which in of_iteration])
    held_s = np.array([rows["held_s"][which].mean() for which in of_iteration])
    lost_s, adjusted = (np.array([rows[column][which].max() for which in of_iteration]) for column in WAITS[1:])
    begin_s, up_begin_s, end_s = (rows[column][first][order] for column in ("begin_s", "up_begin_s", "end_s"))
    return JobRun(trial, job, begin_s, up_begin_s, end_s, ce_packets, held_s, lost_s, adjusted)
