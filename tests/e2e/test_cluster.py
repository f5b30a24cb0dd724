"""Jobs that come and go, end to end: scheduled live, moved, shifted in time, every one of them to its end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

Run = Callable[..., subprocess.CompletedProcess[str]]

SCENARIO = """\
name = "coming"
title = "Three jobs want eight accelerators"

[fabric]
topology = "leaf-spine(2, 1, 4)"
scale = 200
red = { min = "27 kB", max = "54 kB" }

[cluster]
arrivals = "jobs.csv"
epoch = "2 s"
restart = "100 ms"
arms = ["themis", "random", "random+cassini", "ideal"]
candidates = 1

[[cluster.kind]]
name = "vgg16"
model = "vgg16"
workers = 4
iterations = [14, 14]

[telemetry]
controller_interval = "500 ms"
"""

ARRIVALS = """\
arrival_s,model,workers,batch,iterations
0,vgg16,4,1400,14
0,vgg16,4,1400,14
0.25,vgg16,4,1400,14
"""


@pytest.fixture(scope="module")
def folder(orrery: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("results")
    (where / "coming.toml").write_text(SCENARIO)
    (where / "jobs.csv").write_text(ARRIVALS)
    ended = orrery("run", where / "coming.toml", "--results", where)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "VALID" in ended.stdout
    return where / "coming"


def events(folder: Path, arm: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / arm / "events.jsonl").read_text().splitlines()]


def test_every_job_ends_in_every_arm(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    for arm in ("themis", "random", "random+cassini", "ideal"):
        assert summary["arms"][arm]["iterations"] == 3 * 14
        assert set(summary["arms"][arm]["jobs"]) == {"0/01-vgg16", "0/02-vgg16", "0/03-vgg16"}
    assert {path.stem for path in (folder / "plots").glob("*.png")} == {"iteration-times", "marks-by-model", "servers"}


def test_a_lease_ends_and_another_job_has_its_turn(folder: Path) -> None:
    told = events(folder, "themis")
    stops = [event for event in told if event["event"] == "stop"]
    assert stops
    for stop in stops:
        left = next(e for e in told if e["event"] == "left" and e["job"] == stop["job"] and e["t_s"] >= stop["t_s"])
        assert not left["complete"]
        again = next(e for e in told if e["event"] == "start" and e["job"] == stop["job"] and e["t_s"] > left["t_s"])
        assert again["t_s"] >= left["t_s"] + 0.1
        assert again["first_iteration"] == left["iterations"]


def test_cassini_shifts_jobs_that_must_share_and_they_do_not_collide(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    rounds = [event for event in events(folder, "random+cassini") if event["event"] == "round" and event["shifts"]]
    assert rounds
    assert rounds[0]["expects"]["score"] > 0.95
    assert [event for event in events(folder, "random+cassini") if event["event"] == "start" and event["beat"]]
    ratio = summary["ratios"]["random/random+cassini"]
    assert ratio["mean"]["value"] > 1.0
    assert ratio["worst"]["value"] > 1.0
    assert ratio["marked_packets_per_iteration"]["above"] > ratio["marked_packets_per_iteration"]["below"]
