"""What schedulers made of the same trace: lives of jobs, summary, tables, plots and checks, from files by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cluster_synthetic import ALONE_S, SERVERS, SETTING, jobs, write_arm, write_run
from rich.console import Console

from testbed.errors import InputError
from testbed.report.cluster import figures, summary, table
from testbed.report.cluster.load import asked_of
from testbed.timeline_checks import check_timeline


def test_iterations_last_from_begin_to_begin_within_a_stay(tmp_path: Path) -> None:
    arms = summary.cluster_arms(write_run(tmp_path / "run"), SETTING)
    life = arms["themis+cassini"][1].jobs["01-vgg"]
    assert [stay.placement for stay in life.stays] == [("h1", "h2"), ("h3", "h4")]
    assert life.iteration_s == pytest.approx([0.2, 0.2, 0.2, 0.19, *[0.2] * 5, 0.19])  # the stop between is not one
    assert life.completion_s == pytest.approx(0.05 + 4 * 0.2 + 0.5 + 6 * 0.2 - 0.01)
    assert life.slowdown == pytest.approx(life.completion_s / 2.0)
    assert life.rho == pytest.approx(life.slowdown / 1.5)
    assert life.ce_packets.tolist() == [0.0] * 10
    assert life.waited_s == pytest.approx(0.1)
    assert arms["themis"][0].jobs["02-dlrm"].ce_packets.tolist() == [24.0] * 10
    assert arms["themis"][0].marked_packets == 480
    assert arms["themis"][1].moves == 1


def test_ideal_is_each_job_alone(tmp_path: Path) -> None:
    ideal = summary.cluster_arms(write_run(tmp_path / "run"), SETTING)["ideal"]
    assert len(ideal) == 2
    for trial in ideal:
        for job in trial.jobs.values():
            assert len(job.iteration_s) == 10
            assert job.slowdown == pytest.approx(1.0)
            assert job.iteration_s == pytest.approx(np.full(10, ALONE_S[job.asked.model]))


def test_the_summary_compares_and_never_divides_by_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    made = summary.summarise(SETTING, summary.cluster_arms(run, SETTING))
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    ratio = made["ratios"]["themis/themis+cassini"]
    assert ratio["mean"]["value"] == pytest.approx(1.5, rel=0.01)
    assert ratio["ce_packets_per_iteration"]["value"] is None
    assert (ratio["ce_packets_per_iteration"]["above"], ratio["ce_packets_per_iteration"]["below"]) == (24.0, 0.0)
    assert ratio["marked_packets_per_iteration"] == {
        "value": None, "low": None, "high": None, "above": 24.0, "below": 0.0,
    }  # fmt: skip
    assert ratio["p99"]["value"] is None  # of forty iterations there is no 99th percentile
    assert set(ratio["models"]) == {"vgg", "dlrm"}
    assert made["arms"]["themis"]["moves"] == 1
    assert made["arms"]["themis"]["models"]["dlrm"]["ce_packets_per_iteration"]["value"] == 24.0
    assert made["arms"]["ideal"]["marked_packets_per_iteration"]["value"] is None
    assert made["arms"]["themis"]["jobs"]["1/01-vgg"]["stays"] == 2
    assert set(made["ratios"]) == {"themis/themis+cassini", "themis/ideal", "themis+cassini/ideal"}


def test_a_model_that_came_in_some_trials_only_has_the_figures_of_those(tmp_path: Path) -> None:
    arms = summary.cluster_arms(write_run(tmp_path / "run"), SETTING)
    some = {}
    for name, (first, *_) in arms.items():
        vgg = {job: life for job, life in first.jobs.items() if life.asked.model == "vgg"}
        some[name] = [replace(first, jobs=vgg) for _ in range(3)] + [first]
    made = summary.summarise(SETTING, some)
    assert made["ratios"]["themis/themis+cassini"]["mean"]["low"] is not None
    assert made["ratios"]["themis/themis+cassini"]["models"]["vgg"]["mean"]["low"] is not None
    rare = made["ratios"]["themis/themis+cassini"]["models"]["dlrm"]["mean"]
    whole = summary.summarise(SETTING, {name: trials[:1] for name, trials in arms.items()})
    assert rare == whole["ratios"]["themis/themis+cassini"]["models"]["dlrm"]["mean"]
    assert (
        made["arms"]["themis"]["models"]["dlrm"]["iteration_s"]
        == whole["arms"]["themis"]["models"]["dlrm"]["iteration_s"]
    )


def test_tables_show_both_counts_where_one_is_zero(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    made = summary.summarise(SETTING, summary.cluster_arms(run, SETTING))
    console = Console(width=160, record=True, file=(tmp_path / "out").open("w"))
    for of in (table.arms_table, table.ratios_table, table.models_table):
        console.print(of(made))
    shown = console.export_text()
    assert "24 : 0" in shown
    assert "1.50x" in shown
    assert "shortened by 20" in shown


def test_plots_are_drawn_and_the_same_every_time(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    paths = figures.draw_cluster(run, SETTING)
    assert {path.stem for path in paths} == {"iteration-times", "marks-by-model", "servers"}
    before = [path.read_bytes() for path in paths]
    assert all(len(content) > 5000 for content in before)
    assert [path.read_bytes() for path in figures.draw_cluster(run, SETTING)] == before


def test_a_job_that_never_ends_is_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    events = run / "themis" / "events.jsonl"
    lines = events.read_text().splitlines()
    events.write_text("\n".join(line for line in lines if '"left"' not in line or "dlrm" not in line) + "\n")
    with pytest.raises(InputError, match="did not come to its end"):
        summary.cluster_arms(run, SETTING)
    (run / "jobs.json").unlink()
    with pytest.raises(InputError, match="is not the jobs of a run"):
        asked_of(run)


def test_checks_hold_for_a_run_that_is_fine(tmp_path: Path) -> None:
    write_arm(tmp_path / "arm", 1.0, 0)
    assert [check.what for check in check_timeline(tmp_path / "arm", jobs(), SERVERS) if not check.ok] == []


BREAKS = {
    "an iteration less": ('"iterations": 6, "complete"', '"iterations": 5, "complete"', "did all its iterations"),
    "too early": ('"t_s": 101.05, "event": "start"', '"t_s": 100.9, "event": "start"', "before it came"),
    "late": ('"t_s": 101.05, "event": "start"', '"t_s": 101.06, "event": "start"', "when they were told"),
    "twice": ('"placement": ["h5", "h6"]', '"placement": ["h1", "h6"]', "two jobs at once"),
    "no such server": ('"placement": ["h5", "h6"]', '"placement": ["h9", "h6"]', "two jobs at once"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_checks_notice(tmp_path: Path, name: str) -> None:
    old, new, what = BREAKS[name]
    write_arm(tmp_path / "arm", 1.0, 0)
    events = tmp_path / "arm" / "events.jsonl"
    assert old in events.read_text()
    events.write_text(events.read_text().replace(old, new))
    assert any(what in check.what for check in check_timeline(tmp_path / "arm", jobs(), SERVERS) if not check.ok)
