"""All points of studies, each a campaign of its own in results/STUDY/POINT, on a Dask cluster (testbed.study.pool).

A point whose valid run is there already, of the same scenario, code and kernel, need not be run again. One that fails
ends no other; those of a worker that is lost run elsewhere. When all points of a study are there, study.json,
results.parquet and plots in results/STUDY are made of their files (testbed.report.study, testbed.report.sweep).
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, Future, as_completed, wait

from testbed.campaign import as_json, code_version
from testbed.engine.kernel import Kernel
from testbed.errors import EnvironmentLacks
from testbed.page import write as page
from testbed.report import parquet, sweep
from testbed.report import study as report
from testbed.study import pool as pools
from testbed.study import work
from testbed.study.board import Lines
from testbed.study.points import Point, Study
from testbed.study.work import Ended, Task

GONE_WITHIN_S = 20
"""So long the end of all guests is waited for when a sweep is stopped."""


@dataclass(frozen=True)
class Ran:
    """What became of a point of the study named `study`; `kept` if it was there already."""

    study: str
    point: Point
    folder: Path
    ended: Ended
    kept: bool = False

    @property
    def name(self) -> str:
        """What the point is called beside those of other studies."""
        return self.point.name if self.study in ("", self.point.name) else f"{self.study}/{self.point.name}"

    @property
    def valid(self) -> bool:
        """Whether its results may be believed."""
        return self.ended.valid

    @property
    def wall_s(self) -> float:
        """How long it took."""
        return self.ended.wall_s

    @property
    def error(self) -> str:
        """What ended it before its end, or the first fault of the verdict; empty for a valid one."""
        faults = self.ended.faults
        return self.ended.error or (f"NOT VALID: {faults[0]}" if faults else "")


@dataclass(frozen=True)
class StudyRun:
    """How studies are run: on which kernel, into which folder, where.

    With `keep`, runs that are there are not run again; with `tidy`, folders of points that a study has no more are
    removed; with `metrics`, there is a plot for each metric beside those that a study asks for.
    """

    studies: tuple[Study, ...]
    kernel: Kernel | None
    results: Path
    teller: Lines
    memory_bytes: int = 2 << 30
    keep: bool = False
    tidy: bool = True
    metrics: bool = False
    drawn: bool = True
    """Whether every point has plots and a page."""
    pool: pools.Pool | None = None
    """What makes the cluster; one of this machine without."""
    work: Callable[[Task], Ended] = work.run_point
    done: Callable[[Study, list[Ran]], None] = lambda *_: None
    """Told what became of a study's points once all of them have ended."""

    def run(self) -> list[Ran]:
        """Run all points and return what became of each, in order; an invalid one ends no other.

        Raises EnvironmentLacks where every point failed for what this machine lacks, InputError where there is no
        cluster, and KeyboardInterrupt once all guests are gone.
        """
        code, token = code_version(), f"orrery-{uuid.uuid4().hex}"
        ran: dict[tuple[str, str], Ran] = {}
        tasks = []
        for study in self.studies:
            self._prepare(study)
            for point in study.points:
                at = self._folder(study)
                wall_s = work.kept(at / point.name, point, self.kernel, code) if self.keep else None
                if wall_s is not None:
                    ended = Ended(point.name, True, wall_s)
                    ran[study.name, point.name] = Ran(_named(study), point, at / point.name, ended, kept=True)
                else:
                    results = at.resolve()
                    on = self.kernel, code, self.memory_bytes, token, self.drawn
                    tasks.append(Task(_named(study), point, results, *on))
        self.teller.begin(len(ran) + len(tasks), len(ran))
        for study in self.studies:
            self._conclude(study, ran)
        if tasks:
            make = self.pool or pools.local()
            at_once = 1 if any(task.point.in_real_time for task in tasks) else len(tasks)
            with make(at_once) as client, closing(self._outcomes(client, tasks, token)) as outcomes:
                for one in outcomes:
                    self.teller.ended(one)
                    ran[one.study or one.point.name, one.point.name] = one
                    for study in self.studies:
                        if study.name == (one.study or one.point.name):
                            self._conclude(study, ran)
        every = [ran[study.name, point.name] for study in self.studies for point in study.points]
        lacking = [one for one in every if one.ended.lacking]
        if lacking and len(lacking) == len(tasks):
            raise EnvironmentLacks(*lacking[0].ended.error.partition("\n  mend: ")[::2])
        return every

    def _folder(self, study: Study) -> Path:
        return self.results / study.name if study.varied else self.results

    def _prepare(self, study: Study) -> None:
        """Take away what was concluded from earlier runs, so that it never stands beside newer ones."""
        if study.varied and study.whole:
            self._folder(study).mkdir(parents=True, exist_ok=True)
            for file in (report.FILE, parquet.FILE, page.FILE):
                (self._folder(study) / file).unlink(missing_ok=True)
            shutil.rmtree(self._folder(study) / report.PLOTS, ignore_errors=True)

    def _outcomes(self, client: Client, tasks: Sequence[Task], token: str) -> Generator[Ran, None, None]:
        """Hand all points to the cluster and yield each when it has ended."""
        # One group of tasks, which the scheduler holds back until a worker is free: one that dies loses its own only
        keys = {(token, number): task for number, task in enumerate(tasks)}

        def left(event: tuple[float, Any]) -> None:
            message = event[1]
            if message.get("action") == "remove-worker" and not message["expected"]:
                lost = {key if isinstance(key, str) else tuple(key) for key in message["processing-tasks"]}
                self.teller.lost(message["worker"], [task.name for key, task in keys.items() if key in lost])

        client.subscribe_topic(token, lambda event: self.teller.hear(event[1]))
        client.subscribe_topic("all", left)
        futures = [client.submit(self.work, task, key=key, pure=False, priority=-key[1]) for key, task in keys.items()]
        try:
            for future in as_completed(futures):
                yield self._ran(keys[future.key], future)
        except BaseException:  # also the caller's: whatever ends the sweep ends its guests, on all workers
            with suppress(OSError):  # a time-out is one, and so is what a lost scheduler raises
                client.run(work.stop, token, on_error="ignore")
                wait(futures, timeout=GONE_WITHIN_S)
            raise
        finally:
            for topic in (token, "all"):
                client.unsubscribe_topic(topic)

    def _ran(self, task: Task, future: Future) -> Ran:
        error = future.exception() if future.status == "error" else None
        if future.status == "finished":
            ended = future.result()
        else:  # its worker died once too often, or its scheduler is gone
            said = pools.reason(error) if error else "the scheduler has given it up"
            ended = Ended(task.point.name, False, 0.0, error=said)
        return Ran(task.study, task.point, task.results / ended.folder, ended)

    def _conclude(self, study: Study, ran: dict[tuple[str, str], Ran]) -> None:
        """If all points of a study have ended, write what they show together, and tell."""
        mine = [ran.get((study.name, point.name)) for point in study.points]
        ended = [one for one in mine if one is not None]
        if len(ended) < len(mine):
            return
        if study.varied and study.whole:
            self._write(study, ended)
        self.done(study, ended)

    def _write(self, study: Study, ran: Sequence[Ran]) -> None:
        """Write study.json, the Parquet file, the plots and the page, and remove points that the study has no more."""
        folder = self._folder(study)
        names = {name for one in ran for name in (one.point.name, f"{one.point.name}.invalid")}
        for path in folder.iterdir() if self.tidy else ():
            if path.is_dir() and path.name not in names and path.name != report.PLOTS:
                shutil.rmtree(path)
        points = [
            {
                "name": one.point.name, "at": one.point.at, "settings": list(one.point.settings), "valid": one.valid,
                "error": one.error, "folder": one.folder.name, "wall_s": round(one.wall_s, 1),
            }
            for one in ran
        ]  # fmt: skip
        plots = [plot.model_dump() for plot in study.plots]
        about: dict[str, Any] = {"name": study.name, "title": study.title, "plots": plots, "points": points}
        about |= {"labels": list(study.labels), "repeats": list(study.repeats), "metrics": list(study.metrics)}
        made = report.summarise(folder, about)
        (folder / report.FILE).write_text(as_json(made))
        parquet.write(made, folder)
        report.draw(folder)
        if self.metrics:
            sweep.draw(made, folder / report.PLOTS)
        page.write(folder)


def _named(study: Study) -> str:
    return study.name if study.varied else ""
