"""`two-jobs` end to end, as a user runs it: the effect is there, predicted, valid, and on file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

Run = Callable[..., subprocess.CompletedProcess[str]]

ARMS = ("alone", "together", "random", "cassini")
PLOTS = ("iteration-times", "phases", "ce-marks", "utilisation", "queue", "circles")


class Ran:
    """A finished run: what it said, and its files."""

    def __init__(self, ended: subprocess.CompletedProcess[str], folder: Path) -> None:
        self.ended, self.folder = ended, folder

    def read(self, name: str) -> Any:
        """A JSON file of the run."""
        return json.loads((self.folder / name).read_text())


@pytest.fixture(scope="module")
def ran(orrery: Run, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    results = tmp_path_factory.mktemp("results")
    return Ran(orrery("run", "two-jobs", "--results", results), results / "two-jobs")


def test_is_valid_and_says_so(ran: Ran) -> None:
    assert ran.ended.returncode == 0, ran.ended.stdout + ran.ended.stderr
    assert "VALID" in ran.ended.stdout
    assert "NOT VALID" not in ran.ended.stdout
    assert ran.read("manifest.json")["valid"] is True


def test_the_time_shift_takes_the_contention_away(ran: Ran) -> None:
    summary = ran.read("summary.json")
    mean = {arm: summary["arms"][arm]["iteration_s"]["mean"]["value"] for arm in ARMS}
    assert mean["together"] > 1.2 * mean["cassini"]
    assert mean["random"] > 1.05 * mean["cassini"]
    assert mean["cassini"] == pytest.approx(mean["alone"], rel=0.01)
    assert mean["alone"] == pytest.approx(0.255, rel=0.01)  # the published iteration of VGG16
    marks = {arm: summary["arms"][arm]["marked_packets_per_iteration"]["value"] for arm in ARMS}
    assert marks["together"] > 100
    assert marks["cassini"] < 0.01 * marks["together"]
    assert summary["ratios"]["together/cassini"]["mean"]["low"] > 1.2


def test_the_decision_predicted_it(ran: Ran) -> None:
    (decision,) = ran.read("decision.json")
    assert decision["score"] > 0.99 > 0.7 > decision["score_unshifted"]
    held = {(one["what"], one["arm"]): one["held"] for one in ran.read("validation.json")["predictions"]}
    assert all(
        held[what, "cassini"] for what in ("time-shift", "score", "iteration time", "excess bytes", "peak queue")
    )


def test_every_file_is_there(ran: Ran) -> None:
    for name in ("scenario.toml", "manifest.json", "summary.json", "validation.json", "decision.json", "profiles.json"):
        assert (ran.folder / name).stat().st_size > 0, name
    for arm in ARMS:
        tables = ("iterations", "links", "flows", "tables", "queues", "marks", "counters")
        for name in (*(f"{table}.csv" for table in tables), "events.jsonl", "manifest.json"):
            assert (ran.folder / arm / name).stat().st_size > 0, f"{arm}/{name}"
        assert len(list((ran.folder / arm).glob("capture-*.pcapng"))) == 4
    for plot in PLOTS:
        assert (ran.folder / "plots" / f"{plot}.png").read_bytes().startswith(b"\x89PNG")
        assert (ran.folder / "plots" / f"{plot}.svg").stat().st_size > 0


def test_every_socket_is_what_it_should_be(ran: Ran) -> None:
    for arm in ARMS:
        sockets = ran.read(f"{arm}/manifest.json")["sockets"]
        assert len(sockets) == 8  # two ends of each of a worker's connections, four workers
        assert {(socket["congestion_control"], socket["ecn"]) for socket in sockets} == {("dctcp", True)}
