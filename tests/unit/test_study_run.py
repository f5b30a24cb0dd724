"""How the points of a study are run: those that are there already are kept, one that fails ends no other."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import report_synthetic as synthetic
from scenario_texts import FINE

from testbed import campaign, results
from testbed.engine.kernel import Kernel
from testbed.errors import NotValid
from testbed.report import study as report
from testbed.report.summary import summarise
from testbed.study import points, run

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
KERNEL = Kernel(Path("/nonesuch"), "0", "key", {})  # type: ignore[arg-type]


class Silent:
    """A watcher that hears what is run."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def arm(self, arm: str, iterations: int) -> None:
        assert iterations
        self.said.append(arm)

    def message(self, arm: str, message: dict[str, Any]) -> None:
        """Nothing."""

    def stage(self, text: str) -> None:
        """Nothing."""


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
            (folder / "wall.json").write_text('{"whole": {"total": 7.0}}')
            place = results.publish(folder, self.results / str(self.place))
        return SimpleNamespace(folder=place, valid=True, wall_s={"whole": {"total": 7.0}})

    monkeypatch.setattr(campaign.Campaign, "run", made_up)
    return points.load(str(tmp_path / "tiny.toml"))


def test_points_fail_alone_and_finished_ones_are_kept(study: points.Study, tmp_path: Path) -> None:
    watcher = Silent()
    first = run.StudyRun(study, KERNEL, tmp_path / "results", watcher).run()
    assert [one.valid for one in first] == [True, False, True]
    assert first[1].error == "arm together: burst"
    assert sorted(watcher.said) == ["seed-1: together", "seed-3: together"]
    folder = tmp_path / "results" / "tiny"
    assert [at["valid"] for at in report.load(folder)["points"]] == [True, False, True]

    (tmp_path / "mended").touch()
    (folder / "seed-9").mkdir()
    watcher = Silent()
    again = run.StudyRun(study, KERNEL, tmp_path / "results", watcher, keep=True).run()
    assert [one.valid for one in again] == [True, True, True]
    assert watcher.said == ["seed-2: together"]
    assert sorted(path.name for path in folder.iterdir()) == ["plots", "seed-1", "seed-2", "seed-3", "study.json"]
    assert sorted(path.name for path in (folder / "plots").iterdir()) == ["gain.png", "gain.svg"]


def test_a_point_run_alone_leaves_the_others_as_they_are(study: points.Study, tmp_path: Path) -> None:
    (tmp_path / "mended").touch()
    run.StudyRun(study, KERNEL, tmp_path / "results", Silent()).run()
    run.StudyRun(study.only("seed-2"), KERNEL, tmp_path / "results", Silent()).run()
    folder = tmp_path / "results" / "tiny"
    assert [point["name"] for point in report.load(folder)["points"]] == ["seed-1", "seed-2", "seed-3"]
    assert (folder / "seed-1" / "summary.json").is_file()


def test_other_text_or_other_code_is_run_again(
    study: points.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.StudyRun(study, KERNEL, tmp_path / "results", Silent()).run()
    place, point = tmp_path / "results" / "tiny" / "seed-1", study.points[0]
    assert run.is_current(place, point)
    assert not run.is_current(place, study.points[2])
    assert not run.is_current(place.with_name("nonesuch"), point)
    monkeypatch.setattr(run, "code_version", lambda: "other")
    assert not run.is_current(place, point)
