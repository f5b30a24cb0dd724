"""Sweeps on real worker processes of this machine: pinned, on loopback alone, replaced when they die; and errors."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sweep_standins as standins
from distributed import Client, LocalCluster
from rich.console import Console
from scenario_texts import FINE

from testbed.engine.kernel import Kernel
from testbed.errors import EnvironmentLacks, InputError
from testbed.report import study as report
from testbed.study import board, points, pool, work
from testbed.study.run import Ran, StudyRun
from testbed.study.work import Ended, Task

SEEDS = """
[[study.vary]]
label = "seed"
keys = ["measure.seed"]
values = [1, 2, 3, 4, 5, 6]
"""
KERNEL = Kernel(Path("/nonesuch"), "0", "key", True)


class Sweep:
    """A study of six seeds in a folder of its own, run by a stand-in; `said` is what its board printed."""

    def __init__(self, folder: Path, client: Client) -> None:
        (folder / "tiny.toml").write_text(FINE + SEEDS)
        self.results = folder / "results"
        self.folder = self.results / "tiny"
        self.said = io.StringIO()
        self.client = client

    def run(self, standin: Callable[[Task], Ended]) -> list[Ran]:
        told = board.Lines(Console(file=self.said, width=200))
        study = points.load(str(self.results.parent / "tiny.toml"))
        return StudyRun(
            (study,), KERNEL, self.results, told, keep=True, tidy=False, metrics=True, work=standin,
            pool=lambda _: nullcontext(self.client),
        ).run()  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers, each a process, as a sweep of this machine has them; dead ones are replaced."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU has room for one worker only")
    with pool.local(2)(6) as made:
        yield made


@pytest.fixture
def sweep(tmp_path: Path, client: Client) -> Sweep:
    return Sweep(tmp_path, client)


def test_workers_are_pinned_and_listen_on_loopback_alone_and_finished_points_are_kept(sweep: Sweep) -> None:
    ran = sweep.run(standins.noted)
    assert [one.valid for one in ran] == [True] * 6
    notes = [json.loads(path.read_text()) for path in sweep.results.glob("*.note")]
    assert len({note["pid"] for note in notes}) == 2
    assert os.getpid() not in {note["pid"] for note in notes}
    assert {len(note["cpus"]) for note in notes} == {1}
    assert len({note["cpus"][0] for note in notes}) == 2
    assert {address for note in notes for address in note["listening"]} == {"127.0.0.1"}

    again = sweep.run(standins.kills)  # nothing is run, so nobody is killed
    assert [(one.kept, one.valid) for one in again] == [(True, True)] * 6
    assert "6 points, 6 of them kept from before" in sweep.said.getvalue()

    read = pq.read_table(sweep.folder / "results.parquet").to_pydict()
    means = {seed: value for seed, value, figure in zip(read["seed"], read["value"], read["figure"], strict=True)
             if figure == "mean-ms.together"}  # fmt: skip
    assert means == {seed: pytest.approx(250 + seed) for seed in range(1, 7)}
    assert {"mean-ms.png", "mean-ms.svg", "marks.png"} <= set(standins.results_in(sweep.folder / "plots"))


def test_the_points_of_a_worker_that_is_killed_run_elsewhere(sweep: Sweep) -> None:
    ran = sweep.run(standins.dies_once)
    assert [one.valid for one in ran] == [True] * 6
    tried = {seed: (sweep.results / f"tried-{seed}").read_text().split() for seed in range(1, 7)}
    assert len(tried[2]) == 2
    assert len(set(tried[2])) == 2
    assert re.search("the worker at .* is lost; .*tiny/seed-2.* runs elsewhere", sweep.said.getvalue())


def test_a_point_that_kills_its_workers_is_given_up_and_the_rest_go_on(sweep: Sweep) -> None:
    ran = sweep.run(standins.kills)
    assert [one.valid for one in ran] == [True, False, False, True, True, True]
    assert ran[1].error == "3 workers died while they ran it"
    assert ran[2].error == "ZeroDivisionError: a fault of ours"
    made = report.load(sweep.folder)
    assert [point["error"] for point in made["points"][1:3]] == [ran[1].error, ran[2].error]
    read = pq.read_table(sweep.folder / "results.parquet").to_pydict()
    assert [(run, figure) for run, figure, valid in zip(read["run"], read["figure"], read["valid"], strict=True)
            if not valid] == [("seed-2", None), ("seed-3", None)]  # fmt: skip
    sweep.run(standins.finish)
    assert [point["valid"] for point in report.load(sweep.folder)["points"]] == [True] * 6
    assert "2 points" not in sweep.said.getvalue()
    assert "6 points, 4 of them kept" in sweep.said.getvalue()


def test_what_every_point_lacks_is_what_the_machine_lacks(sweep: Sweep) -> None:
    with pytest.raises(EnvironmentLacks, match=r"other code than the sweep\n  mend: start workers in the same"):
        sweep.run(lacking)


def lacking(task: Task) -> Ended:
    """As a worker whose code is another."""
    return work.run_point(Task(**(vars(task) | {"code": "other"})))


def test_what_a_lost_worker_had_ended_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(FINE)
    point = points.load(str(tmp_path / "tiny.toml")).points[0]
    task = Task("", point, tmp_path / "results", KERNEL, "code", 1, "this")
    standins.finish(task)
    assert work.run_point(task).valid
    other = work.run_point(Task(**(vars(task) | {"sweep": "another"})))
    assert (other.valid, other.lacking) == (False, True)  # begins, and finds other code than that of the task


def test_shares_of_cpus() -> None:
    assert pool.shares([4, 5, 6, 7], 4) == [[4], [5], [6], [7]]
    assert pool.shares([4, 5, 6, 7], 2) == [[4, 6], [5, 7]]
    assert pool.shares([4, 5], 3) == [[4], [5], [4]]


def test_points_go_to_a_scheduler_that_is_there(tmp_path: Path) -> None:
    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None,
        scheduler_kwargs=quiet,
    ) as cluster, pool.existing(cluster.scheduler_address)(6) as client:  # fmt: skip
        sweep = Sweep(tmp_path, client)
        assert [one.valid for one in sweep.run(standins.finish)] == [True] * 6
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")


def test_a_scheduler_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "ANSWERS_WITHIN_S", 1)
    for address in (f"tcp://127.0.0.1:{standins.free_port()}", "carrier-pigeon://x", "tcp://127.0.0.1:x"):
        with pytest.raises(InputError, match="--scheduler: no scheduler answers at"), pool.existing(address)(3):
            pass
    with pytest.raises(InputError, match="--workers: 0 of"):
        pool.local(0)
    with pytest.raises(InputError, match="--workers: 9999 of"):
        pool.local(9999)


def test_a_point_is_another_one_with_other_files_code_or_kernel(tmp_path: Path) -> None:
    text = FINE.replace('model = "vgg16"', 'trace = "t.et"')
    (tmp_path / "tiny.toml").write_text(text)
    (tmp_path / "t.et").write_text("one")
    point = points.load(str(tmp_path / "tiny.toml")).points[0]
    known = work.identity(point, KERNEL, "code")
    assert known == work.identity(point, KERNEL, "code")
    (tmp_path / "tiny.toml").write_text(text + SEEDS + "# a remark\n")
    same, *others = points.load(str(tmp_path / "tiny.toml")).points
    assert known == work.identity(same, KERNEL, "code")  # what else is varied is no matter
    seen = {known, *(work.identity(other, KERNEL, "code") for other in others)}
    seen |= {work.identity(point, KERNEL, "other"), work.identity(point, Kernel(Path(), "0", "k2", True), "code")}
    (tmp_path / "t.et").write_text("two")
    seen.add(work.identity(point, KERNEL, "code"))
    assert len(seen) == 9


def test_a_watcher_tells_the_share_that_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.toml").write_text(FINE)
    point = points.load(str(tmp_path / "tiny.toml")).points[0]
    task = Task("s", point, tmp_path, KERNEL, "code", 1, "sweep")
    told: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(work, "TELL_EVERY_S", 0.0)
    watcher = work.Telling(task, lambda topic, message: told.append((topic, message)), arms=2)
    watcher.arm("alone", 4)
    for number in range(4):
        watcher.message("alone", {"iteration": number, "progress": 0.25 * number})
    watcher.message("alone", {"stage": "files"})
    watcher.arm("together", 2)
    watcher.message("together", {"iteration": 0, "progress": 1.25})
    watcher.stage("verdict and report")
    assert [message["share"] for _, message in told] == [0, 0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.75, 0.75]
    assert told[-2] == ("sweep", {"point": "s/tiny", "share": 0.75, "text": "together: 1.2 s virtual"})
