"""What a run in progress tells, and how it is watched from another terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed import live, results
from testbed.commands import watch
from testbed.errors import InputError
from testbed.net import fabrics
from testbed.net.scale import Original, Scaling

LINKS = ("s1->s2", "s2->s1")


class Heard:
    """A watcher that notes what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []

    def arm(self, arm: str, iterations: int) -> None:
        self.said.append((arm, iterations))

    def message(self, arm: str, message: dict[str, Any]) -> None:
        self.said.append((arm, message))

    def stage(self, text: str) -> None:
        self.said.append(("", text))


def begun(folder: Path, heard: Heard) -> live.Live:
    """A run in `folder` whose arm together has begun; its links carry 50 Mbit/s."""
    topology = fabrics.build("dumbbell", Scaling(Original(rate_bps=50_000_000)).settings)
    (folder / "together").mkdir()
    (folder / "together" / "plan.json").write_text(json.dumps({"topology": topology.to_dict(), "shared": LINKS}))
    made = live.Live(folder, "tiny", heard)
    made.arm("together", 4)
    return made


def iteration(t_s: float, size_bytes: int, marks: int) -> dict[str, Any]:
    return {"progress": t_s, "trial": "0", "iteration": 0, "packets": 1, "links": [[size_bytes, marks], [0, 0]]}


def test_the_file_has_the_utilisation_and_the_marks_of_every_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "WRITE_EVERY_S", 0.0)
    heard = Heard()
    made = begun(tmp_path, heard)
    made.message("together", {"stage": "trials"})
    made.message("together", iteration(1.0, 1_000_000, 0))
    made.message("together", iteration(1.1, 9_000_000, 3))  # too soon after the last to tell a rate
    made.message("together", iteration(2.0, 1_000_000 + 3_125_000, 7))
    said = live.read(tmp_path)
    assert said is not None
    arm = said["arms"]["together"]
    assert (arm["done"], arm["of"], arm["state"], arm["virtual_s"]) == (3, 4, "runs", 2.0)
    assert arm["links"] == {"s1->s2": {"utilisation": 0.5, "marks": 7}, "s2->s1": {"utilisation": 0.0, "marks": 0}}
    assert len(heard.said) == 5  # the other watcher has heard all of it
    made.stage("verdict and report")
    assert live.read(tmp_path)["stage"] == "verdict and report"  # type: ignore[index]
    made.end()
    assert live.read(tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == ["together"]


def test_an_arm_without_links_tells_of_none(tmp_path: Path) -> None:
    (tmp_path / "star").mkdir()
    (tmp_path / "star" / "plan.json").write_text('{"wan": {}}')
    made = live.Live(tmp_path, "wide", Heard())
    made.arm("star", 2)
    made.message("star", {"progress": 1.0, "trial": "0", "iteration": 0, "packets": 3})
    made.message("star", {"stage": "files"})
    arm = live.read(tmp_path)["arms"]["star"]  # type: ignore[index]
    assert (arm["links"], arm["state"], arm["done"]) == ({}, "files", 1)


def text(what: object) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_runs_in_progress_are_found_by_run_study_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "WRITE_EVERY_S", 0.0)
    with results.in_progress(tmp_path, "tiny") as single, results.in_progress(tmp_path / "grid", "seed-1") as point:
        begun(single, Heard()).message("together", iteration(1.0, 0, 0))
        begun(point, Heard())
        (tmp_path / ".dead.abcd").mkdir()  # left by a launcher that was killed
        (tmp_path / ".dead.abcd" / live.FILE).write_text("{}")
        assert set(watch.shown(tmp_path)) == {single, point}
        assert set(watch.shown(tmp_path / "tiny")) == {single}
        assert set(watch.shown(tmp_path / "grid")) == {point}
        assert set(watch.shown(tmp_path / "grid" / "seed-1")) == {point}
        assert set(watch.shown(single)) == {single}
        shown = text(watch.render(watch.shown(tmp_path)))
        assert "together" in shown
        assert "1 of 4" in shown
        assert "s1->s2   0 %      0" in shown
        assert watch.lines(watch.shown(single)[single]) == [
            "tiny, together (runs): 1 of 4, 1.0 s virtual, s1->s2 0 % 0 marks, s2->s1 0 % 0 marks"
        ]
    assert watch.shown(tmp_path) == {}
    assert watch.lines({"name": "a", "stage": "begins", "arms": {}}) == ["a: begins"]


@pytest.mark.parametrize("where", ["nonesuch", "."])
def test_nothing_to_watch_is_said(where: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run is in progress there"):
        watch.watch(tmp_path / where)
