"""A study end to end: two points of a short scenario side by side, their summary and plot, and nothing run twice."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

STUDY = """
[[study.vary]]
label = "scale"
keys = ["fabric.scale"]
values = [200, 400]

[[study.plot]]
name = "gain"
title = "Gain over scale"
x = "scale"
y = ["gain.together"]
"""


def test_two_points_are_run_compared_and_drawn(
    orrery: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    smoke = (Path(__file__).resolve().parents[2] / "scenarios" / "smoke.toml").read_text()
    (tmp_path / "study.toml").write_text(smoke.replace('"smoke"', '"pair"') + STUDY)
    ended = orrery("run", tmp_path / "study.toml", "--results", tmp_path / "results")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    study = json.loads((tmp_path / "results" / "pair" / "study.json").read_text())
    assert [point["name"] for point in study["points"]] == ["scale-200", "scale-400"]
    for point in study["points"]:
        assert point["valid"]
        assert point["figures"]["gain.together"]["value"] > 1.1
        assert (tmp_path / "results" / "pair" / point["folder"] / "plots" / "phases.png").is_file()
    assert (tmp_path / "results" / "pair" / "plots" / "gain.png").is_file()
    assert "scale-400" in ended.stdout
