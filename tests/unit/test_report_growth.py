"""The section on growing clusters: what the study's points say, row by row; nothing is put in the place of what is not
there."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.report.reference import growth


def study(folder: Path, figures: dict[str, dict[str, float]]) -> None:
    """Write what a run of cluster-growth leaves of two sizes, the second of which was not run."""
    (folder / "plots").mkdir(parents=True)
    (folder / "plots" / "gain.png").write_bytes(b"a picture")
    points = [
        {"name": "24", "at": {"accelerators": 24.0}, "folder": "24", "figures": figures},
        {"name": "256", "at": {"accelerators": 256.0}, "folder": "256", "figures": {}},
    ]
    (folder / "study.json").write_text(json.dumps({"points": points, "plots": [{"title": "What is gained"}]}))
    (folder / "24").mkdir()
    arm = {"trials": 3, "jobs": {f"{trial}/{job}": {} for trial in range(3) for job in range(24)}}
    (folder / "24" / "summary.json").write_text(json.dumps({"arms": {"themis": arm}}))


def test_a_run_that_is_not_there_has_no_section(tmp_path: Path) -> None:
    assert list(growth.section(tmp_path, tmp_path)) == []


def test_every_size_has_a_row_with_its_traces_and_ratios_and_the_figure_is_beside(tmp_path: Path) -> None:
    gain = {"value": 1.25, "low": 1.2, "high": 1.3}
    study(tmp_path / growth.GROWTH, {"ratio.themis/themis+cassini.relative": gain})
    place = tmp_path / "reference"
    place.mkdir()
    lines = list(growth.section(place, tmp_path))
    (small,) = [line for line in lines if line.startswith("| 24 |")]
    assert small.startswith("| 24 | 24, 3 | 1.25 [1.2, 1.3] | – |")
    (large,) = [line for line in lines if line.startswith("| 256 |")]
    assert large.startswith("| 256 | not run | – |")
    assert lines[-1] == f"![What is gained]({growth.PICTURE})"
    assert (place / growth.PICTURE).read_bytes() == b"a picture"
