"""Figures of points, plots over them, the rows of links, their rank correlation, and the page of it all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import report_synthetic as synthetic
from rich.console import Console

from testbed.errors import InputError
from testbed.report import study
from testbed.report.correlation import correlations
from testbed.report.figures.points import over_points
from testbed.report.figures.ranks import ranks
from testbed.report.links import rows
from testbed.report.load import arms_of
from testbed.report.reference import table
from testbed.report.summary import summarise
from testbed.report.validation import validate

PLOT = {"name": "gain", "title": "Gain", "x": "score", "y": ["gain.together", "gain.random"], "by": None}
PLOT |= {"x_title": None, "y_title": None, "log": False}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """results/tiny: a made-up run with all that a point has."""
    folder = tmp_path_factory.mktemp("results") / "cassini-tiny"
    folder.mkdir()
    decision = synthetic.make(folder, iterations=8)
    setting = synthetic.scenario()
    (folder / "decision.json").write_text(json.dumps([decision.to_dict()]))
    (folder / "summary.json").write_text(json.dumps(summarise(folder, setting)))
    (folder / "validation.json").write_text(json.dumps(validate(folder, setting, [decision])))
    (folder / "manifest.json").write_text(json.dumps({"valid": True, "code": "c0de", "report_setting": setting}))
    (folder / "wall.json").write_text('{"whole": {"total": 61.4}}')
    return folder


def test_a_point_that_did_not_end_has_no_figures_of_an_earlier_run(run_dir: Path) -> None:
    point = {"name": run_dir.name, "folder": run_dir.name, "at": {}, "valid": True, "error": ""}
    ended = study.summarise(run_dir.parent, {"points": [point]})["points"][0]
    failed = study.summarise(run_dir.parent, {"points": [point | {"valid": False, "error": "burst"}]})["points"][0]
    assert ended["figures"]["score"]
    assert failed["figures"] == {}


def test_figures_of_a_run(run_dir: Path) -> None:
    found = study.figures(run_dir)
    assert found["score"]["value"] > 0.99 > found["score-unshifted"]["value"]
    assert found["mean-ms.cassini"]["value"] == pytest.approx(255, rel=0.01)
    assert found["up-ms.alone.vgg16-a"]["value"] == pytest.approx(114, rel=0.02)
    assert found["gain.together"]["value"] > 1.1 > found["gain.alone"]["value"]
    assert found["gain.together"]["low"] is not None
    assert found["ce.cassini.vgg16-b"]["value"] == 0
    assert found["marks.together"]["value"] > 0
    assert found["ce-ratio.vgg16-b"]["value"] is None  # none in cassini
    assert table.shown(found["ce-ratio.vgg16-b"]).endswith(" : 0")
    assert found["adjustments.cassini"]["value"] == 0
    assert found["ratio.together/cassini.ce"] | {"value": None} == found["ratio.together/cassini.ce"]


def test_rows_have_the_score_of_the_starts_there_were(run_dir: Path) -> None:
    found = rows(run_dir, synthetic.RATE_BPS, arms_of(run_dir))
    assert {(row["arm"], row["trial"]) for row in found} == {
        (arm, str(trial)) for arm in ("together", "random", "cassini") for trial in range(3)
    }
    by_arm = {arm: [row for row in found if row["arm"] == arm] for arm in ("together", "random", "cassini")}
    assert all(
        row["score"] < 0.8 and row["excess_bytes"] > 0 and row["marked_packets"] > 0 for row in by_arm["together"]
    )
    assert all(row["score"] > 0.99 and row["marked_packets"] == 0 for row in by_arm["cassini"])
    assert len({row["score"] for row in by_arm["random"]}) == 3
    assert all(row["slowdown"] == pytest.approx(1, abs=0.02) for row in by_arm["cassini"])


def row(score: float, marked: float, slow: float = 1.0) -> dict[str, Any]:
    excess = (1 - score) * 1e6
    return {
        "arm": "random", "score": score, "excess_bytes": excess, "marked_packets": marked, "slowdown": slow,
        "marked_share": marked / 10, "mean_queue_bytes": marked, "peak_queue_bytes": marked,
    }  # fmt: skip


def test_rank_correlation_counts_ties_as_ties() -> None:
    found = correlations([row(1.0, 0), row(1.0, 0), row(0.9, 5), row(0.8, 9)])[0]
    assert (found["rows"], found["scores"], found["ties"]) == (4, 3, {"predicted": 1, "measured": 1})
    assert (found["spearman"], found["kendall"]) == (pytest.approx(1), pytest.approx(1))
    tied = correlations([row(1.0, 3), row(1.0, 4), row(0.9, 5), row(0.8, 9)])[0]
    assert tied["kendall"] == pytest.approx(5 / (5 * 6) ** 0.5)  # five pairs in order, one tied, of six
    falling = correlations([row(1.0, 9), row(0.9, 5), row(0.8, 0)])[0]
    assert falling["spearman"] == pytest.approx(-1)


def test_nothing_is_claimed_where_all_are_equal_or_few() -> None:
    for few in ([], [row(1.0, 0), row(0.9, 1)], [row(1.0, 0)] * 9):
        assert {(one["spearman"], one["kendall"]) for one in correlations(few)} == {(None, None)}


def test_plots_over_points(run_dir: Path) -> None:
    of = study.figures(run_dir)
    points = [
        {"name": "a", "at": {"compute": 0.8, "kind": "x"}, "valid": True, "figures": of},
        {"name": "b", "at": {"compute": 1.0, "kind": "y"}, "valid": False, "figures": {}},
    ]
    [axes] = over_points(PLOT, points).axes
    assert [line.get_label() for line in axes.get_legend().get_texts()] != []
    [axes] = over_points(PLOT | {"x": "kind", "y": ["gain.random"]}, points).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["x", "y"]
    with pytest.raises(InputError, match="plot gain: no point has score and nonesuch"):
        over_points(PLOT | {"y": ["nonesuch"]}, points)
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(study.table({"title": "T", "plots": [PLOT], "points": points}))
    said = console.export_text()
    assert "b (not valid)" in said
    assert f"{of['gain.together']['value']:.4g}" in said
    assert len(ranks([row(1.0, 0), row(0.9, 5), row(0.8, 9)]).axes) == 3


ROWS = """
about = "What this is."
[[group]]
title = "Made up"
[[group.row]]
what = "VGG16 alone"
paper = 100
scenario = "cassini-tiny"
figure = "up-ms.alone.vgg16-a"
why = "it is made up"
[[group.row]]
what = "marks"
unpublished = "fewer"
scenario = "cassini-tiny"
figure = "ratio.together/cassini.ce"
[[group.row]]
what = "elsewhere"
paper = 2
scenario = "cassini-other"
figure = "score"
"""


def test_the_page_has_both_figures_their_ratio_and_the_reason(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.toml").write_text(ROWS)
    path = table.write(run_dir.parent, ["cassini-other", "cassini-tiny"], tmp_path / "rows.toml")
    text = path.read_text()
    [alone] = [line for line in text.splitlines() if line.startswith("| VGG16 alone")]
    assert alone.split("|")[2].strip() == "100"
    assert alone.split("|")[4].strip() == "1.14"
    assert alone.endswith("| `cassini-tiny` | it is made up |")
    [marks] = [line for line in text.splitlines() if line.startswith("| marks")]
    assert marks.split("|")[3].strip().endswith(" : 0")  # no division by zero
    assert "| elsewhere | 2 | not run | – | `cassini-other` |  |" in text
    assert "| `cassini-tiny` | 1 | 61 |" in text
    assert "c0de" in text
    assert (path.parent / "cassini-ranks.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("paper", ["cassini", "netstorm"])
def test_every_row_of_the_page_is_of_a_scenario_that_comes_along(paper: str) -> None:
    import tomllib

    from testbed.study import points

    said = tomllib.loads(table.ROWS.with_stem(paper).read_text())
    for group in said["group"]:
        for one in group["row"]:
            known = points.load(one["scenario"])
            assert one.get("point", "") in {"", *(point.name for point in known.points)}, one
            assert ("paper" in one) != ("unpublished" in one), one
