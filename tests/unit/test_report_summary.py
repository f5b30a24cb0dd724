"""What is read from the files of a run, and the summary and tables made of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import report_synthetic as synthetic
from rich.console import Console

from testbed.errors import InputError
from testbed.report.load import Arm, Setting, arms_of
from testbed.report.summary import summarise
from testbed.report.table import arms_table, ratios_table, waits_table
from testbed.telemetry import tables

ITERATIONS = 12


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    synthetic.make(folder, iterations=ITERATIONS)
    return folder


@pytest.fixture(scope="module")
def summary(run_dir: Path) -> dict:
    return summarise(run_dir, synthetic.scenario())


def write(folder: Path, rows: list[tuple]) -> Arm:
    """An arm that has these iterations: trial, job, rank, iteration, begin, up_begin, end, ce, and what it waited."""
    folder.mkdir(parents=True, exist_ok=True)
    with tables.ITERATIONS.writer(folder / "iterations.csv") as writer:
        for trial, job, rank, iteration, begin, up, end, ce, *waits in rows:
            writer.row(trial, job, rank, f"h{rank}", iteration, begin, up, end, ce, *(waits or (0.0, 0.0, 0)))
    return Arm(folder)


def test_iterations_are_those_of_rank_0_and_marks_those_of_all(tmp_path: Path) -> None:
    rows = [("0", "a", 1, 0, 0.0, 0.1, 0.3, 5), ("0", "a", 0, 1, 0.25, 0.35, 0.5, 1)]
    rows += [("0", "a", 0, 0, 0.0, 0.1, 0.2, 2), ("0", "a", 1, 1, 0.3, 0.4, 0.5, 0)]
    [trial] = write(tmp_path / "cassini", rows).trials
    run = trial.jobs["a"]
    assert run.begin_s.tolist() == [0.0, 0.25]
    assert run.ce_packets.tolist() == [7, 1]
    assert run.iteration_s == pytest.approx([0.25, 0.25])  # waiting between iterations counts


def test_a_mean_over_jobs_counts_each_the_same_however_many_iterations_it_did(tmp_path: Path) -> None:
    rows = [("0", "long", 0, n, n, n + 0.5, n + 1.0, 0) for n in range(2)]
    rows += [("0", "short", 0, n, n / 5, n / 5 + 0.1, (n + 1) / 5, 0) for n in range(10)]
    write(tmp_path / "together", rows)
    with tables.QUEUES.writer(tmp_path / "together" / "queues.csv"):
        pass
    with tables.COUNTERS.writer(tmp_path / "together" / "counters.csv"):
        pass
    setting = synthetic.scenario() | {"shared_links": [], "jobs": {"long": ["h1"], "short": ["h2"]}}
    arm = summarise(tmp_path, setting)["arms"]["together"]
    assert arm["iterations"] == 12
    assert arm["iteration_s"]["mean"]["value"] == pytest.approx((1.0 + 0.2) / 2)
    assert arm["iteration_s"]["p50"]["value"] == pytest.approx(0.2)


def test_what_workers_waited_is_told_by_job_and_only_where_they_did(tmp_path: Path) -> None:
    rows = [("0", "a", 0, 0, 0.0, 0.1, 0.2, 0, 0.0, 0.0, 0), ("0", "a", 1, 0, 0.0, 0.1, 0.2, 0, 0.0, 0.0, 0)]
    rows += [("0", "a", 0, 1, 0.3, 0.4, 0.5, 0, 0.1, 0.0, 0), ("0", "a", 1, 1, 0.3, 0.4, 0.5, 0, 0.2, 0.0, 0)]
    rows += [("0", "a", 0, 2, 0.7, 0.8, 0.9, 0, 0.0, 0.2, 1), ("0", "a", 1, 2, 0.5, 0.8, 0.9, 0, 0.0, 0.0, 0)]
    run = write(tmp_path / "cassini", rows).trials[0].jobs["a"]
    assert run.held_s == pytest.approx([0.0, 0.15, 0.0])
    assert run.lost_s.tolist() == [0.0, 0.0, 0.2]
    assert run.adjusted.tolist() == [0, 0, 1]
    write(tmp_path / "alone", [row[:8] for row in rows])
    setting = synthetic.scenario() | {"shared_links": [], "jobs": {"a": ["h0", "h1"]}}
    for arm in ("alone", "cassini"):
        for table in (tables.QUEUES, tables.MARKS):
            table.writer(tmp_path / arm / table.file).close()
    found = summarise(tmp_path, setting)
    waited = found["arms"]["cassini"]["jobs"]["a"]
    assert waited["padding_s"] == pytest.approx(0.05)
    assert waited["lost_s"] == pytest.approx(0.2 / 3)
    assert (waited["adjustments"], waited["iterations"]) == (1, 3)
    shown = waits_table(found)
    assert shown is not None
    assert [list(column.cells) for column in shown.columns[1:]] == [["a"], ["50.00"], ["1 of 3"], ["66.67"]]
    assert waits_table({"arms": {"alone": found["arms"]["alone"]}}) is None


def test_marks_of_a_host_count_once_however_many_workers_it_has(tmp_path: Path) -> None:
    with tables.ITERATIONS.writer(tmp_path / "iterations.csv") as writer:
        for rank, host, marked in ((0, "h1", 5), (1, "h1", 6), (2, "h2", 3)):
            writer.row("0", "a", rank, host, 0, 0.0, 0.1, 0.2, marked, 0.0, 0.0, 0)
    assert Arm(tmp_path).trials[0].jobs["a"].ce_packets.tolist() == [8]


def test_trials_come_in_order_of_time(tmp_path: Path) -> None:
    rows = [(trial, "a", 0, 0, at, at, at + 1, 0) for trial, at in (("10", 5.0), ("9", 1.0))]
    assert [trial.name for trial in write(tmp_path / "random", rows).trials] == ["9", "10"]


def test_window_is_while_all_jobs_are_there(tmp_path: Path) -> None:
    rows = [("0", "a", 0, 0, 0.0, 0.5, 2.0, 0), ("0", "b", 0, 0, 1.0, 1.5, 3.0, 0)]
    rows += [("1", "a", 0, 0, 4.0, 4.5, 5.0, 0), ("1", "b", 0, 0, 6.0, 6.5, 7.0, 0)]
    first, second = write(tmp_path / "together", rows).trials
    assert (first.window_s, first.whole_s) == ((1.0, 2.0), (0.0, 3.0))
    assert second.window_s == (4.0, 7.0)  # one after another


def test_an_arm_without_rank_0_or_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no iteration of rank 0 of a"):
        _ = write(tmp_path / "alone", [("0", "a", 1, 0, 0.0, 0.1, 0.2, 0)]).trials
    with pytest.raises(InputError, match="holds no iteration"):
        _ = write(tmp_path / "random", []).trials


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the folder of a run"):
        arms_of(tmp_path)


def test_a_scenario_without_a_key_is_refused() -> None:
    raw = synthetic.scenario()
    del raw["shared_links"]
    with pytest.raises(InputError, match="shared_links"):
        Setting.of(raw)


def test_summary_has_every_arm_and_is_json(summary: dict) -> None:
    assert list(summary["arms"]) == ["together", "random", "cassini", "alone"]
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_figures_of_the_arms(run_dir: Path, summary: dict) -> None:
    together, cassini, alone = (summary["arms"][name] for name in ("together", "cassini", "alone"))
    assert (together["trials"], together["iterations"]) == (3, 3 * 2 * ITERATIONS)
    times = np.concatenate(
        [run.iteration_s for trial in Arm(run_dir / "together").trials for run in trial.jobs.values()]
    )
    assert together["iteration_s"]["mean"]["value"] == pytest.approx(times.mean())
    assert together["iteration_s"]["p50"]["value"] == pytest.approx(np.median(times))
    assert together["iteration_s"]["worst"]["value"] == times.max()
    assert cassini["iteration_s"]["mean"]["value"] == pytest.approx(0.255, rel=0.01)
    assert cassini["utilisation"]["value"] == pytest.approx(0.228 / 0.255, rel=0.02)
    assert alone["utilisation"]["value"] == pytest.approx(0.114 / 0.255, rel=0.05)
    assert cassini["ce_packets_per_iteration"]["value"] == 0
    assert together["links"][synthetic.LINK]["peak_backlog_bytes"] > 80_000
    assert together["links"][synthetic.LINK]["dropped_packets"] == 0


def test_marks_of_queue_and_receivers_agree(summary: dict) -> None:
    """One link's marks are received once; the made-up run has the same marks on two links."""
    together = summary["arms"]["together"]
    received = together["ce_packets_per_iteration"]["value"]
    assert together["links"][synthetic.LINK]["marked_packets_per_iteration"]["value"] == pytest.approx(
        received, rel=0.01
    )
    assert together["marked_packets_per_iteration"]["value"] == pytest.approx(2 * received, rel=0.01)


def test_p99_only_from_200_iterations_on(summary: dict, tmp_path: Path) -> None:
    assert summary["arms"]["together"]["iteration_s"]["p99"]["value"] is None  # 72 of them
    folder = tmp_path / "run"
    synthetic.make(folder, iterations=34, arms=("together",))
    p99 = summarise(folder, synthetic.scenario())["arms"]["together"]
    assert p99["iterations"] == 204
    assert (
        p99["iteration_s"]["p50"]["value"] < p99["iteration_s"]["p99"]["value"] <= p99["iteration_s"]["worst"]["value"]
    )
    assert p99["jobs"]["vgg16-a"]["iteration_s"]["p99"]["value"] is None  # 102 of its own


def test_intervals_only_from_three_trials_on(summary: dict) -> None:
    assert summary["arms"]["together"]["iteration_s"]["mean"]["low"] is not None
    assert summary["arms"]["alone"]["trials"] == 2
    assert summary["arms"]["alone"]["iteration_s"]["mean"]["low"] is None


def test_three_jobs_alone_are_three_trials_but_no_interval(tmp_path: Path) -> None:
    """What differs between them are the jobs, not the starts."""
    synthetic.make(tmp_path / "run", jobs=synthetic.LOPSIDED, iterations=3, arms=())
    alone = summarise(tmp_path / "run", synthetic.scenario(synthetic.LOPSIDED))["arms"]["alone"]
    assert alone["trials"] == 3
    assert alone["iteration_s"]["mean"]["low"] is None


def test_ratios(summary: dict) -> None:
    found = summary["ratios"]["together/cassini"]
    arms = summary["arms"]
    assert found["mean"]["value"] == pytest.approx(
        arms["together"]["iteration_s"]["mean"]["value"] / arms["cassini"]["iteration_s"]["mean"]["value"]
    )
    assert found["mean"]["low"] <= found["mean"]["value"] <= found["mean"]["high"]
    assert found["ce_packets_per_iteration"]["value"] is None
    assert found["ce_packets_per_iteration"]["above"] > 100
    assert found["ce_packets_per_iteration"]["below"] == 0
    assert summary["ratios"]["cassini/alone"]["mean"]["low"] is None


def test_tables_say_what_the_summary_says(summary: dict) -> None:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(arms_table(summary), ratios_table(summary))
    said = console.export_text()
    mean = summary["arms"]["together"]["iteration_s"]["mean"]
    assert f"{1e3 * mean['value']:.1f} [{1e3 * mean['low']:.1f}, {1e3 * mean['high']:.1f}]" in said
    assert "together / cassini" in said
    assert f"{summary['ratios']['together/cassini']['mean']['value']:.2f}x" in said
    assert f"{summary['arms']['together']['ce_packets_per_iteration']['value']:.0f} : 0" in said
    assert "p99" not in said
    assert max(len(line) for line in said.splitlines()) <= 120
