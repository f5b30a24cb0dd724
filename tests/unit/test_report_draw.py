"""Plots: all are drawn, the same bytes every time, and show what was measured."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import report_synthetic as synthetic

from testbed.errors import InputError
from testbed.report import series, style
from testbed.report.draw import decisions_of, draw_all
from testbed.report.figures.affinity import affinity
from testbed.report.figures.circles import circles
from testbed.report.figures.iterations import cdf, gantt
from testbed.report.figures.links import queue, utilisation
from testbed.report.figures.marks import ce_marks
from testbed.report.load import Arm, JobRun, Setting, arms_of

NAMES = ["iteration-times", "phases", "ce-marks", "utilisation", "queue", "affinity", "circles"]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    synthetic.make(folder, iterations=10)
    return folder


def texts(figure: matplotlib.figure.Figure) -> str:
    found = figure.findobj(matplotlib.text.Text)
    return "\n".join(text.get_text().replace("\n", " ") for text in found)  # long titles take several lines


def test_draws_every_plot_twice_the_same(run_dir: Path) -> None:
    before = dict(matplotlib.rcParams)
    paths = draw_all(run_dir, synthetic.scenario())
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in NAMES for kind in ("png", "svg")]
    first = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    draw_all(run_dir, synthetic.scenario())
    assert {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths} == first
    assert dict(matplotlib.rcParams) == before
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths if path.suffix == ".png")
    svg = (run_dir / "plots" / "circles.svg").read_text()
    assert "<dc:date>" not in svg
    assert "<title>Rotation takes the compatibility score" in svg  # what a screen reader says


def test_a_title_wider_than_the_figure_takes_more_lines() -> None:
    with style.styled():
        one, two = style.figure(4.0, 3.0, "short", "below"), style.figure(4.0, 3.0, "a long title " * 6, "below")
    assert "\n" in two.texts[0].get_text()
    assert two.get_figheight() > one.get_figheight()


def test_every_decision_has_its_circles_and_a_place_in_the_affinity_graph(run_dir: Path) -> None:
    [decision] = decisions_of(run_dir)
    other = dataclasses.replace(decision, link="tor9->agg9")
    with style.styled():
        said = texts(affinity([decision, other]))
    assert "2 jobs on 2 sets of shared links" in said
    assert {decision.link, "tor9->agg9", *decision.shifts_s} <= set(said.split("\n"))
    late = max(decision.shifts_s.values())
    assert said.count(f"+{1e3 * late:.1f} ms") == 2


def test_titles_say_what_was_measured(run_dir: Path) -> None:
    arms, setting = arms_of(run_dir), Setting.of(synthetic.scenario())
    [decision] = decisions_of(run_dir)
    with style.styled():
        assert "cassini 255 ms" in texts(cdf(arms, setting))
        assert "0 % cassini" in texts(gantt(arms, setting))
        assert "0 cassini" in texts(ce_marks(arms, setting))
        used = texts(utilisation(arms, setting, synthetic.LINK))
        assert f"Link {synthetic.LINK} in use" in used
        assert "link rate" in used
        said = texts(queue(arms, setting, synthetic.LINK))
        assert "marking starts, 80 kB" in said
        assert "all marked, 160 kB" in said
        assert f"from {decision.score_unshifted:.2f} to 1.00" in texts(circles(decision))


def test_p99_stands_in_the_cdf_from_200_iterations_on(tmp_path: Path) -> None:
    synthetic.make(tmp_path / "run", iterations=67, arms=("cassini",))
    with style.styled():
        said = texts(cdf(arms_of(tmp_path / "run"), Setting.of(synthetic.scenario())))
    assert "cassini: median 25" in said
    assert said.count("p99") == 2  # one for each job, none for the 67 iterations of each alone


def test_without_marking_the_queue_has_no_thresholds(run_dir: Path) -> None:
    setting = Setting.of(synthetic.scenario() | {"red": None})
    with style.styled():
        assert "marking" not in texts(queue(arms_of(run_dir), setting, synthetic.LINK))


def test_alone_only_gives_the_plots_that_need_no_more(tmp_path: Path) -> None:
    synthetic.make(tmp_path / "run", iterations=4, arms=())
    names = {path.stem for path in draw_all(tmp_path / "run", synthetic.scenario())}
    assert names == {"iteration-times", "affinity", "circles"}


def test_more_jobs_than_panels_share_one(tmp_path: Path) -> None:
    jobs = tuple(
        synthetic.Job(f"job{at}", (f"h{at}", f"h{at + 9}"), 0.08, 0.02 * synthetic.RATE_BPS / 8) for at in range(4)
    )
    synthetic.make(tmp_path / "run", jobs=jobs, iterations=4, trials=1)
    with style.styled():
        said = texts(cdf(arms_of(tmp_path / "run"), Setting.of(synthetic.scenario(jobs))))
    assert "all jobs" in said


def test_a_file_that_is_no_decision_is_refused(tmp_path: Path) -> None:
    (tmp_path / "decision.json").write_text(json.dumps({"link": "a->b"}))
    with pytest.raises(InputError, match="is not a decision"):
        decisions_of(tmp_path)
    assert decisions_of(tmp_path / "nowhere") == []


def test_rates_of_the_jobs_sum_to_the_link_and_belong_to_who_sends(run_dir: Path) -> None:
    arm = Arm(run_dir / "cassini")
    trial = arm.trials[0]
    begin_s, end_s = trial.window_s
    edges = np.arange(begin_s, end_s, synthetic.SAMPLE_S)
    rates = series.job_rates(arm, trial, synthetic.LINK, edges)
    total = 8 * np.diff(np.interp(edges, arm.queues[synthetic.LINK].t_s, arm.queues[synthetic.LINK].tx_bytes))
    assert np.sum(list(rates.values()), axis=0) == pytest.approx(total / np.diff(edges))
    for job, run in trial.jobs.items():
        up = series.up_share(run, edges) > 0.99
        assert rates[job][up].mean() > 0.95 * synthetic.RATE_BPS
        others = np.sum([rates[other] for other in trial.jobs if other != job], axis=0)
        assert others[up].max() < 0.05 * synthetic.RATE_BPS
    assert rates[series.OTHER].sum() < 0.01 * total.sum() / synthetic.SAMPLE_S


def test_without_a_decision_the_link_shown_is_the_one_that_marks(run_dir: Path) -> None:
    arms = arms_of(run_dir)
    quiet = dataclasses.replace(
        arms["together"].queues[synthetic.BACK], marked_packets=np.zeros_like(arms["together"].queues["agg1->tor1"].t_s)
    )
    arms["together"].queues[synthetic.BACK] = quiet
    assert series.busiest(arms, Setting.of(synthetic.scenario())) == synthetic.LINK


def test_overlap_and_up_share() -> None:
    def run(ups: list[float], ends: list[float]) -> JobRun:
        return JobRun("0", "job", np.array(ups) - 1, np.array(ups), np.array(ends), np.zeros(len(ups)))

    one, two = run([1.0, 5.0], [3.0, 7.0]), run([2.0, 8.0], [6.0, 9.0])
    assert series.overlap([one, two], 0.0, 10.0) == [(2.0, 3.0), (5.0, 6.0)]
    assert series.overlap([one, two], 2.5, 5.5) == [(2.5, 3.0), (5.0, 5.5)]
    assert series.up_share(one, np.array([0.0, 2.0, 4.0, 6.0, 8.0])) == pytest.approx([0.5, 0.5, 0.5, 0.5])


def test_jobs_and_arms_have_no_colour_in_common() -> None:
    assert not set(style.JOBS) & set(style.ARM_COLOURS.values())
    colours = style.job_colours([f"job{at}" for at in range(len(style.JOBS))])
    assert len(set(colours.values())) == len(style.JOBS)
