"""From decisions to what workers are told: when to start, and which iteration time to keep to."""

from pathlib import Path

import pytest
from scenario_texts import FINE

from controllers.cassini.decision import Decision, decide
from controllers.cassini.profile import Profile
from testbed import experiment, scenario
from testbed.decide import link_decisions, measured_profiles, refined_decisions, time_shifts
from testbed.telemetry.tables import ITERATIONS, QUEUES


def test_who_cannot_keep_a_period_is_not_held_to_it(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(FINE)
    crowded = [Profile(name, 0.25, (0.0,) * 12 + (2.5e8,) * 60) for name in ("first", "second")]
    decision = decide("s1->s2", crowded, 2.5e8)
    for setting, held in (("true", set()), ("always", {"first", "second"})):
        made = experiment.build(scenario.load(str(tmp_path / "tiny.toml"), (f"measure.hold={setting}",)), "x")
        assert set(time_shifts(made, [decision]).periods_s) == held


def test_every_job_has_a_start_and_those_that_share_a_link_a_period(tmp_path: Path) -> None:
    third = FINE.replace("[measure]", '[[job]]\nname = "third"\nmodel = "vgg16"\nworkers = 2\n\n[measure]')
    (tmp_path / "tiny.toml").write_text(
        third.replace('"dumbbell"', '"dumbbell(3)"').replace('"h4"', '"h5"').replace('"h3"', '"h4"')
    )
    made = experiment.build(scenario.load(str(tmp_path / "tiny.toml")), "x")
    half = (0.0,) * 36 + (2e8,) * 36
    profiles = [Profile("first", 0.2503, half), Profile("second", 0.2496, half)]
    decision = decide("s1->s2", profiles, 2.5e8)
    found = time_shifts(made, [decision])
    assert found.starts_s["third"] == 0.0
    assert set(found.starts_s) == {"first", "second", "third"}
    assert found.starts_s["first"] == 0.0
    assert 0.12 < found.starts_s["second"] < 0.13
    assert set(found.periods_s) == {"first", "second"}
    assert all(0.2503 <= period_s <= 0.252 for period_s in found.periods_s.values())


SEAM_S = 0.001


def left_by_cassini(folder: Path, decision: Decision, link: str, other: str, marked: bool) -> None:
    """Files of two trials of six rounds, as of the arm cassini, in which what the first job sends first is marked."""
    period_s = decision.jobs[0].quantised_s
    iterations = [",".join(ITERATIONS.columns)]
    queues, count = [",".join(QUEUES.columns), f"0,{other},0,0,0,0,0,0"], 0
    for trial in range(2):
        zero_s = 3.0 + 10 * trial
        for job in decision.jobs:
            for index in range(6):
                begin_s = zero_s + job.time_shift_s + index * period_s
                iterations.append(f"{trial},{job.job},0,h1,{index},{begin_s:.6f},0,{begin_s + period_s:.6f},0,0,0,0")
        for index in range(7):
            at_s = zero_s + (index + 0.5) * period_s  # the first job's Up begins, the second's ends
            for later_s, more in ((0.0, 0), (SEAM_S, 10 * marked), (2 * SEAM_S, 10 * marked)):
                count += more
                queues.append(f"{at_s + later_s:.6f},{link},0,0,0,0,{count},0")
    (folder / ITERATIONS.file).write_text("\n".join(iterations) + "\n")
    (folder / QUEUES.file).write_text("\n".join(queues) + "\n")


@pytest.mark.parametrize("marked", [True, False])
def test_shifts_are_refined_by_the_marks_of_the_arm_cassini(tmp_path: Path, marked: bool) -> None:
    """Each sends for half of the time, so where one begins the other ends; marked is one of the two seams alone."""
    (tmp_path / "tiny.toml").write_text(FINE)
    made = experiment.build(scenario.load(str(tmp_path / "tiny.toml")), "x")
    half = (0.0,) * 36 + (2e8,) * 36
    [link, other] = made.shared
    decision = decide(link, [Profile("first", 0.25, half), Profile("second", 0.25, half)], 2.5e8)
    left_by_cassini(tmp_path, decision, link, other, marked)
    found = refined_decisions(made, [decision], tmp_path)
    assert (found.given_marks > 0) == marked
    if marked:  # 20 a round, unless they are where nobody else sends
        assert 10 <= found.given_marks <= 30
        assert found.refined_marks < found.given_marks
        assert found.decisions[0].shifts_s["second"] < decision.shifts_s["second"]
    else:
        assert found.decisions == (decision,)


def test_where_jobs_share_no_link_there_is_nothing_to_decide(tmp_path: Path) -> None:
    """And nothing to read: no queue is watched."""
    apart = FINE.replace('"dumbbell"', '"scale-up(8)"') + "\n[require]\nshared_links = false\n"
    (tmp_path / "tiny.toml").write_text(apart)
    made = experiment.build(scenario.load(str(tmp_path / "tiny.toml")), "x")
    assert not made.shared
    assert measured_profiles(made, tmp_path) == {}
    assert link_decisions(made, {}) == []
    assert refined_decisions(made, [], tmp_path).decisions == ()
    assert set(time_shifts(made, []).starts_s.values()) == {0.0}
