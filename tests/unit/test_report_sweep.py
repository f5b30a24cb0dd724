"""Results of a sweep: one Parquet file of everything, metrics with bands over repetitions, and plots of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from testbed.errors import InputError
from testbed.report import parquet, sweep
from testbed.report.figures.bands import bands
from testbed.report.style import styled


def study(seeds: int = 4, labels: tuple[str, ...] = ("rate", "threshold", "seed")) -> dict[str, Any]:
    """A study of two rates, two thresholds and some seeds; seed s adds s ms."""
    points = []
    for rate in ("40 Gbit/s", "50 Gbit/s"):
        for threshold in (80, 320):
            for seed in range(1, seeds + 1):
                value = 300.0 + threshold / 10 + seed
                figures = {
                    "mean-ms.together": {"value": value, "low": value - 2, "high": value + 2},
                    "mean-ms.cassini": {"value": value - 50, "low": None, "high": None},
                    "mean-ms.together.vgg16-a": {"value": 1.0},
                    "score": {"value": 0.9},
                    "gain.together": {"value": None},
                }
                at = {"rate": rate, "threshold": threshold, "seed": seed}
                name = f"r{rate[:2]}-t{threshold}-s{seed}"
                points.append(
                    {"name": name, "folder": name, "at": at, "settings": [], "valid": True, "error": "",
                     "wall_s": 2.5, "figures": figures}
                )  # fmt: skip
    made = {"name": "rates", "title": "Two rates", "plots": [], "points": points}
    return made | {"labels": list(labels), "repeats": ["seed"] if "seed" in labels else [], "metrics": []}


def test_a_row_for_each_figure_of_each_point(tmp_path: Path) -> None:
    made = study()
    made["points"][3] |= {"valid": False, "error": "arm together: burst", "figures": {}}
    path = parquet.write(made, tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["results.parquet"]
    read = pq.read_table(path)
    assert read.num_rows == 15 * 5 + 1
    kinds = {field.name: str(field.type) for field in read.schema}
    assert (kinds["rate"], kinds["threshold"], kinds["seed"], kinds["value"]) == ("string", "int64", "int64", "double")
    assert read.schema.metadata[b"study"] == b"rates"
    rows = read.to_pylist()
    assert rows[0] | {"value": None} == {
        "run": "r40-t80-s1", "rate": "40 Gbit/s", "threshold": 80, "seed": 1, "valid": True, "error": "",
        "wall-s": 2.5, "figure": "mean-ms.together", "metric": "mean-ms", "arm": "together", "part": None,
        "value": None, "low": 307.0, "high": 311.0,
    }  # fmt: skip
    failed = [row for row in rows if not row["valid"]]
    assert [(row["run"], row["error"], row["figure"]) for row in failed] == [
        ("r40-t80-s4", "arm together: burst", None)
    ]


@pytest.mark.parametrize(
    ("values", "kind"),
    [((True, None), "bool"), ((1, 2), "int64"), ((1, 2.5), "double"), ((1, "x"), "string"), ((True, 2), "string")],
)
def test_labels_are_numbers_where_all_of_their_values_are(values: tuple[Any, ...], kind: str) -> None:
    made = study(seeds=1)
    made["points"] = [point | {"at": {"x": value}} for point, value in zip(made["points"], values, strict=False)]
    assert str(parquet.table(made).schema.field("x").type) == kind


def test_a_large_seed_is_kept_to_the_last_digit() -> None:
    made = study(seeds=1)
    large = 2**63 - 1
    made["points"] = [point | {"at": {"x": large}} for point in made["points"]]
    assert set(parquet.table(made).column("x").to_pylist()) == {large}


def test_bands_are_over_repetitions_from_three_on() -> None:
    four = {(cell.arm, cell.at): cell for cell in sweep.cells(study(), "mean-ms")}
    assert len(four) == 2 * 4  # arms by rate and threshold; jobs and what has no value are left out
    cell = four["together", ("40 Gbit/s", 80)]
    assert (cell.mean, cell.count) == (310.5, 4)
    assert cell.low is not None
    assert 309 <= cell.low < 310.5 < cell.high <= 312
    two = sweep.cells(study(seeds=2), "mean-ms")
    assert {(one.low, one.high, one.count) for one in two} == {(None, None, 2)}
    one = sweep.cells(study(seeds=1), "mean-ms")[0]
    assert (one.mean, one.low, one.high) == (309, 307, 311)  # its own, over trials


def test_points_that_are_not_valid_count_nowhere() -> None:
    made = study()
    made["points"][0]["valid"] = False
    cell = next(one for one in sweep.cells(made, "mean-ms") if one.at == ("40 Gbit/s", 80))
    assert (cell.count, cell.mean) == (3, 311)


def test_metrics_are_those_there_are_or_those_asked_for() -> None:
    assert sweep.metrics(study()) == ["mean-ms", "score"]  # of gain there is no value
    assert sweep.metrics(study() | {"metrics": ["score"]}) == ["score"]
    with pytest.raises(InputError, match="no point has mean-sm"):
        sweep.metrics(study() | {"metrics": ["mean-sm"]})
    nothing = study()
    nothing["points"] = [point | {"figures": {}, "valid": False} for point in nothing["points"]]
    assert sweep.metrics(nothing | {"metrics": ["score"]}) == []
    assert sweep.table(nothing) is None


def test_a_plot_for_each_metric(tmp_path: Path) -> None:
    paths = sweep.draw(study(), tmp_path)
    names = {path.name for path in paths}
    assert names == {"mean-ms.png", "mean-ms.svg", "score.png", "score.svg"}
    assert all(path.stat().st_size > 1000 for path in paths)
    first = (tmp_path / "mean-ms.svg").read_bytes()
    sweep.draw(study(), tmp_path)
    assert (tmp_path / "mean-ms.svg").read_bytes() == first


def test_a_third_label_makes_files(tmp_path: Path) -> None:
    names = {path.name for path in sweep.draw(study() | {"repeats": []}, tmp_path)}
    assert {f"mean-ms_seed-{seed}.png" for seed in range(1, 5)} < names


def test_panels_lines_and_bands() -> None:
    with styled():
        panels = sweep._panels(study(), sweep.cells(study(), "mean-ms"))
        made = bands(panels, "t", "s", "rate", "ms")
        assert [axes.get_title(loc="left") for axes in made.axes] == ["threshold 80", "threshold 320"]
        for axes in made.axes:
            assert [line.get_label() for line in axes.get_lines()] == ["together", "cassini"]
            assert [list(line.get_xdata()) for line in axes.get_lines()] == [[40, 50]] * 2
            assert len(axes.collections) == 2
        assert made.axes[0].get_xlabel() == "rate (Gbit/s)"
        mixed = study(seeds=1)
        for point, value in zip(mixed["points"], ("a", "a", "b", "b"), strict=True):
            point["at"] = {"rate": value, "threshold": 80}
        made = bands(sweep._panels(mixed, sweep.cells(mixed, "mean-ms")[:1]), "t", "s", "rate", "ms")
        assert [tick.get_text() for tick in made.axes[0].get_xticklabels()] == ["a"]
