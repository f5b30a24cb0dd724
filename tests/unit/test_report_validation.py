"""Predictions beside measurements: what holds, what does not, and what cannot be said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import report_synthetic as synthetic
from rich.console import Console

from controllers.cassini.decision import Decision
from testbed.report.draw import decisions_of
from testbed.report.load import JobRun
from testbed.report.table import validation_table
from testbed.report.validation import offset_s, validate


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    synthetic.make(folder, iterations=12)
    return folder


def find(validation: dict, what: str, arm: str) -> list[dict]:
    return [one for one in validation["predictions"] if (one["what"], one["arm"]) == (what, arm)]


def changed(decision: Decision, index: int, **fields: float) -> Decision:
    jobs = list(decision.jobs)
    jobs[index] = replace(jobs[index], **fields)
    return replace(decision, jobs=tuple(jobs))


def run_of(up_begin_s: np.ndarray) -> JobRun:
    return JobRun("0", "job", up_begin_s - 0.1, up_begin_s, up_begin_s + 0.1, np.zeros(len(up_begin_s)))


def test_all_predictions_of_the_made_up_run_hold(run_dir: Path) -> None:
    validation = validate(run_dir, synthetic.scenario(), decisions_of(run_dir))
    assert validation["verdict"] == "10 of 10 predictions held"
    assert json.loads(json.dumps(validation, allow_nan=False)) == validation
    for one in validation["predictions"]:
        assert one["difference"] == pytest.approx(one["measured"] - one["predicted"])
        assert one["verdict"].startswith("held: ")
    [shift] = find(validation, "time-shift", "cassini")
    assert shift["predicted"] == pytest.approx(0.1275)
    assert abs(shift["difference"]) < 0.003


def test_jobs_that_stand_elsewhere_are_found_out(run_dir: Path) -> None:
    [decision] = decisions_of(run_dir)
    wrong = changed(decision, 1, time_shift_s=decision.jobs[1].time_shift_s - 0.060)
    validation = validate(run_dir, synthetic.scenario(), [wrong])
    [shift] = find(validation, "time-shift", "cassini")
    assert shift["held"] is False
    assert shift["difference"] == pytest.approx(0.060, abs=0.003)
    assert validation["held"] < validation["of"]


def test_score_is_that_of_the_real_offsets(run_dir: Path) -> None:
    [decision] = decisions_of(run_dir)
    slots = round(0.060 / decision.slot_s)
    wrong = changed(
        decision,
        1,
        time_shift_s=decision.jobs[1].time_shift_s - slots * decision.slot_s,
        rotation_slots=decision.jobs[1].rotation_slots - slots,
    )
    wrong = replace(wrong, score=0.7)
    [score] = find(validate(run_dir, synthetic.scenario(), [wrong]), "score", "cassini")
    assert score["measured"] == pytest.approx(decision.score, abs=0.01)
    assert score["held"] is False


def test_an_iteration_time_that_is_missed_does_not_hold(run_dir: Path) -> None:
    [decision] = decisions_of(run_dir)
    wrong = changed(decision, 0, period_s=0.2, iteration_s=0.2)
    one, two = find(validate(run_dir, synthetic.scenario(), [wrong]), "iteration time", "cassini")
    assert (one["held"], two["held"]) == (False, True)
    assert one["difference"] == pytest.approx(0.055, abs=0.002)


def test_marks_and_queue_where_none_were_predicted_do_not_hold(run_dir: Path) -> None:
    [decision] = decisions_of(run_dir)
    wrong = replace(decision, score_unshifted=1.0, excess_bytes_unshifted=0.0)
    validation = validate(run_dir, synthetic.scenario(), [wrong])
    for what in ("excess bytes", "peak queue"):
        [one] = find(validation, what, "together")
        assert one["held"] is False
        assert one["verdict"].startswith("did not hold: ")
        [one] = find(validation, what, "cassini")
        assert one["held"] is True


def test_an_offset_that_is_free_is_left_open(tmp_path: Path) -> None:
    """Iterations of 255 and 243 ms have 7 ms in common, on a beat of 7 ms: the jobs drift through every offset."""
    other = replace(synthetic.JOBS[1], down_s=0.129)
    jobs = (synthetic.JOBS[0], other)
    synthetic.make(tmp_path / "run", jobs=jobs, iterations=6)
    decisions = decisions_of(tmp_path / "run")
    validation = validate(tmp_path / "run", synthetic.scenario(jobs), decisions)
    [shift] = find(validation, "time-shift", "cassini")
    assert shift["held"] is None
    assert "nothing to compare" in shift["verdict"]
    assert not find(validation, "score", "cassini")
    assert validation["of"] == len(validation["predictions"]) - 1


def test_offset_is_a_circular_mean() -> None:
    lead = run_of(np.arange(20) * 0.25)
    late = np.where(np.arange(20) % 2, 0.24, 0.26)  # just before and just after the next one of the lead
    offset, spread = offset_s(lead, run_of(np.arange(20) * 0.25 + late), 0.25)
    assert min(offset, 0.25 - offset) == pytest.approx(0, abs=1e-3)
    assert spread == pytest.approx(0.01, rel=0.1)


def test_table_has_every_prediction(run_dir: Path) -> None:
    validation = validate(run_dir, synthetic.scenario(), decisions_of(run_dir))
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(validation_table(validation))
    said = console.export_text()
    assert "10 of 10 predictions held" in said
    for one in validation["predictions"]:
        assert one["verdict"] in said
