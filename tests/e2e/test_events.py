"""The scenario `events`: what was asked for happened then, and a job that fails unexpectedly makes a run not valid."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import experiment, scenario, scenario_file
from testbed.telemetry.events import read_events
from testbed.telemetry.tables import EVENTS, ITERATIONS, LINKS

pytestmark = pytest.mark.e2e

Run = Callable[..., subprocess.CompletedProcess[str]]
ONE_ARM = ("--set", 'measure.arms=["together"]', "--set", "measure.trials.together=1")


def test_everything_happens_when_it_is_asked_for(orrery: Run, tmp_path: Path) -> None:
    ended = orrery("run", "events", *ONE_ARM, "--set", "measure.trials.together=2", "--results", tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    folder = tmp_path / "events" / "together"
    asked = experiment.build(scenario.load("events"), "events").events["together"]
    for trial in ("0", "1"):
        rows = EVENTS.read(folder / EVENTS.file).where(trial=trial)
        wanted = [(event.kind, event.target) for event in asked]
        assert list(zip(rows.text("kind"), rows.text("target"), strict=True))[: len(wanted)] == wanted
        times = rows.numbers("asked_s")[: len(wanted)], rows.numbers("done_s")[: len(wanted)]
        late_s = [
            done_s - asked_s
            for kind, asked_s, done_s in zip(rows.text("kind"), *times, strict=False)
            if kind != "controller-restart"
        ]
        assert max(late_s) < 1e-4
        begun_s = times[0][0] - asked[0].at_s
        assert [asked_s - begun_s for asked_s in times[0]] == pytest.approx([event.at_s for event in asked], abs=2e-6)
        assert rows.where(kind="job-failed").text("target") == ["vgg16-b"]
    # Frozen for 0.5 s, h1 ends no iteration; without a controller packets go on, and no row is written.
    done_s = EVENTS.read(folder / EVENTS.file).where(trial="0")
    at_s = dict(zip(done_s.text("kind"), done_s.numbers("done_s"), strict=True))
    iterations = ITERATIONS.read(folder / ITERATIONS.file).where(trial="0", host="h1").numbers("end_s")
    assert not [end_s for end_s in iterations if at_s["host-freeze"] < end_s < at_s["host-thaw"]]
    crash_s = done_s.where(kind="controller-crash").numbers("done_s")[0]
    back_s = done_s.where(kind="controller-restart").numbers("done_s")[0]
    seen_s = LINKS.read(folder / LINKS.file).numbers("t_s")
    assert not [t_s for t_s in seen_s if crash_s < t_s < back_s]
    assert [end_s for end_s in iterations if crash_s < end_s < back_s]
    assert "adopted" in [event["event"] for event in read_events(folder / "events.jsonl")]
    links = LINKS.read(folder / LINKS.file)
    for link in set(links.text("link")):
        for column in ("tx_packets", "ce_packets", "ect_packets"):
            counts = [count for count in links.where(link=link).counts(column) if count is not None]
            assert counts == sorted(counts), f"{column} of {link} fell"


def test_a_job_that_nobody_expects_to_fail_makes_the_run_not_valid(orrery: Run, tmp_path: Path) -> None:
    file = tmp_path / "unexpected.toml"
    text = scenario_file.find("events").read_text()
    file.write_text(text.replace('expect = ["vgg16-b"]', "").replace('"events"', '"unexpected"'))
    ended = orrery("run", file, *ONE_ARM, "--results", tmp_path)
    assert ended.returncode == 1
    assert "NOT VALID: 1 of" in ended.stdout
    assert "vgg16-b failed, trial 0: job vgg16-b; rank 1 on h6 went away" in " ".join(ended.stdout.split())
    assert (tmp_path / "unexpected.invalid" / "together" / EVENTS.file).exists()
