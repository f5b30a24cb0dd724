"""How the points of a study are run: those that are there already are kept, one that fails ends no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
import report_synthetic as synthetic
from distributed import Client, LocalCluster
from scenario_texts import FINE
from sweep_standins import results_in

from testbed import campaign, results
from testbed.engine.kernel import Kernel
from testbed.errors import NotValid
from testbed.report import study as report
from testbed.report.summary import summarise
from testbed.study import points, pool, run, work

TEXT = """
[[study.vary]]
label = "seed"
keys = ["measure.seed"]
values = [1, 2, 3]

[[study.plot]]
name = "gain"
title = "Gain over score"
x = "score"
y = ["gain.together"]
"""
KERNEL = Kernel(Path("/nonesuch"), "0", "key", True)


class Heard:
    """Hears what is run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.total = self.kept = 0

    def begin(self, total: int, kept: int) -> None:
        self.total, self.kept = total, kept

    def hear(self, message: dict[str, Any]) -> None:
        """Nothing."""

    def ended(self, ran: run.Ran) -> None:
        self.ran.append(ran.name)


@contextmanager
def in_process(_: int) -> Iterator[Client]:
    """A cluster of threads of this process, in which what a test replaced is replaced."""
    quiet: dict[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set(pool.SETTINGS),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, scheduler_kwargs=quiet
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def run_of(study: points.Study, results: Path, heard: Heard, **how: Any) -> run.StudyRun:
    return run.StudyRun((study,), KERNEL, results, heard, pool=in_process, **how)  # type: ignore[arg-type]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> points.Study:
    """Three points, whose campaigns leave a made-up run; seed 2 does not come to its end."""
    (tmp_path / "tiny.toml").write_text(FINE + TEXT)

    def made_up(self: campaign.Campaign) -> Any:
        if self.scenario.measure.seed == 2 and not (tmp_path / "mended").exists():
            raise NotValid("arm together: burst")
        self.watcher.arm("together", 1)
        with results.in_progress(self.results, str(self.place)) as folder:
            synthetic.make(folder, iterations=4, trials=1)
            manifest = {
                "valid": True, "code": campaign.code_version(),
                "scenario_sha256": sha256(self.source.encode()).hexdigest(),
            }  # fmt: skip
            (folder / "manifest.json").write_text(json.dumps(manifest))
            (folder / "summary.json").write_text(json.dumps(summarise(folder, synthetic.scenario())))
            (folder / "decision.json").write_text(f"[{(folder / 'decision.json').read_text()}]")
            place = results.publish(folder, self.results / str(self.place))
        return SimpleNamespace(folder=place, valid=True, checks={})

    monkeypatch.setattr(campaign.Campaign, "run", made_up)
    monkeypatch.setattr(work, "ready_kernel", lambda: KERNEL)
    return points.load(str(tmp_path / "tiny.toml"))


def test_points_fail_alone_and_finished_ones_are_kept(study: points.Study, tmp_path: Path) -> None:
    heard = Heard()
    first = run_of(study, tmp_path / "results", heard).run()
    assert [one.valid for one in first] == [True, False, True]
    assert first[1].error == "arm together: burst"
    assert (sorted(heard.ran), heard.kept) == (["tiny/seed-1", "tiny/seed-2", "tiny/seed-3"], 0)
    folder = tmp_path / "results" / "tiny"
    assert [at["valid"] for at in report.load(folder)["points"]] == [True, False, True]

    (tmp_path / "mended").touch()
    (folder / "seed-9").mkdir()
    heard, told = Heard(), []
    again = run_of(study, tmp_path / "results", heard, keep=True, done=lambda of, ran: told.append((of, ran))).run()
    assert [one.valid for one in again] == [True, True, True]
    assert heard.ran == ["tiny/seed-2"]
    assert told == [(study, again)]
    assert results_in(folder) == ["plots", "report.html", "results.parquet", "seed-1", "seed-2", "seed-3", "study.json"]
    assert results_in(folder / "plots") == ["gain.png", "gain.svg"]


def test_folders_of_other_points_are_left_where_so_told(study: points.Study, tmp_path: Path) -> None:
    (tmp_path / "results" / "tiny" / "seed-9").mkdir(parents=True)
    run_of(study, tmp_path / "results", Heard(), tidy=False).run()
    assert "seed-9" in results_in(tmp_path / "results" / "tiny")


def test_several_studies_share_a_cluster(study: points.Study, tmp_path: Path) -> None:
    (tmp_path / "single.toml").write_text(FINE.replace('"tiny"', '"single"'))
    single = points.load(str(tmp_path / "single.toml"))
    told: list[str] = []
    both = run.StudyRun(
        (study, single), KERNEL, tmp_path / "results", Heard(), pool=in_process,  # type: ignore[arg-type]
        done=lambda of, _: told.append(of.name),
    )  # fmt: skip
    assert [one.name for one in both.run()] == ["tiny/seed-1", "tiny/seed-2", "tiny/seed-3", "single"]
    assert sorted(told) == ["single", "tiny"]
    assert (tmp_path / "results" / "single" / "point.json").is_file()


def test_a_point_run_alone_leaves_the_others_as_they_are(study: points.Study, tmp_path: Path) -> None:
    (tmp_path / "mended").touch()
    run_of(study, tmp_path / "results", Heard()).run()
    run_of(study.only("seed-2"), tmp_path / "results", Heard()).run()
    folder = tmp_path / "results" / "tiny"
    assert [point["name"] for point in report.load(folder)["points"]] == ["seed-1", "seed-2", "seed-3"]
    assert (folder / "seed-1" / "summary.json").is_file()


def test_other_text_code_or_kernel_is_run_again(study: points.Study, tmp_path: Path) -> None:
    run_of(study, tmp_path / "results", Heard()).run()
    place, point, code = tmp_path / "results" / "tiny" / "seed-1", study.points[0], campaign.code_version()
    assert work.kept(place, point, KERNEL, code) is not None
    assert work.kept(place, study.points[2], KERNEL, code) is None
    assert work.kept(place.with_name("nonesuch"), point, KERNEL, code) is None
    assert work.kept(place, point, KERNEL, "other") is None
    assert work.kept(place, point, Kernel(Path(), "0", "other", True), code) is None
    (place / "manifest.json").write_text('{"valid": false}')
    assert work.kept(place, point, KERNEL, code) is None


def test_ctrl_c_ends_the_guests_of_all_workers(study: points.Study, tmp_path: Path) -> None:
    class Impatient(Heard):
        def ended(self, ran: run.Ran) -> None:
            raise KeyboardInterrupt(ran.name)

    with pytest.raises(KeyboardInterrupt):
        run_of(study, tmp_path / "results", Impatient()).run()
    assert any(name.startswith("orrery-") for name in work._stopped)
    assert not (tmp_path / "results" / "tiny" / "study.json").exists()
