"""The page of NETSTORM: its rows are of scenarios that there are, a figure may be over another, fire is counted."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from testbed.geo.keys import WideScenario
from testbed.report.reference import fire, table
from testbed.study import points

ROWS = tomllib.loads(table.ROWS.with_stem("netstorm").read_text(encoding="utf-8"))


@pytest.mark.parametrize("group", [pytest.param(group, id=group["title"]) for group in ROWS["group"]])
def test_every_row_is_of_a_system_that_is_run(group: dict[str, Any]) -> None:
    for row in group["row"]:
        study = points.load(row["scenario"])
        names = [point.name for point in study.points if study.varied] or [""]
        assert row.get("point", "") in names, row["what"]
        scenario = study.points[0].scenario
        assert isinstance(scenario, WideScenario)
        systems = {system.name for system in scenario.system}
        for figure in (row["figure"], row.get("over", row["figure"])):
            assert figure.startswith("ranks.") or figure.partition(".")[2] in systems, row["what"]
        assert ("paper" in row) != ("unpublished" in row)


def test_a_figure_may_be_over_another(tmp_path: Path) -> None:
    row = {"what": "a part", "scenario": "s", "figure": "speed-up.b", "over": "speed-up.a", "paper": 1.2}
    run = table.Run("s", "", tmp_path, 1.0, {"speed-up.a": {"value": 2.0}, "speed-up.b": {"value": 3.0}})
    made = table.write(tmp_path, [], rows_of(tmp_path, row))
    assert "| a part | 1.2 | not run | – |" in made.read_text()
    assert "| a part | 1.2 | 1.5 | 1.25 | `s` |" in "\n".join(table._tables([{"title": "t", "row": [row]}], [run]))
    assert table._figure(row, {"speed-up.b": {"value": 3.0}}) is None


def rows_of(folder: Path, row: dict[str, Any]) -> Path:
    path = folder / "small.toml"
    path.write_text('title = "t"\nabout = "a"\n[[group]]\ntitle = "g"\n[[group.row]]\n')
    with path.open("a") as file:
        file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in row.items())
    return path


def test_what_seeds_went_through_is_added_up(tmp_path: Path) -> None:
    study = tmp_path / "storm"
    counts = {key: 2 for key, _ in fire.COLUMNS}
    found = [
        ("seed-1", "seed-1", True, ""),
        ("seed-2", "seed-2", True, ""),
        ("seed-3", "seed-3", False, "stood\nstill"),
    ]
    for name, _, valid, _ in found:
        (study / name).mkdir(parents=True)
        if valid:
            (study / name / "summary.json").write_text(json.dumps({"systems": [{"protocol": counts}]}))
    keys = ("name", "folder", "valid", "error")
    (study / "study.json").write_text(json.dumps({"points": [dict(zip(keys, one, strict=True)) for one in found]}))
    text = "\n".join(fire.section(tmp_path, ["storm", "calm"]))
    assert "2 of 3 seeds valid" in text
    assert f"| all |{' 4 |' * len(counts)} |" in text
    assert "| seed-3 | – " in text
    assert "| stood |" in text
    assert "still |" not in text
    (study / "study.json").write_text(json.dumps({"points": []}))
    assert list(fire.section(tmp_path, ["storm"])) == []
