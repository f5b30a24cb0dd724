"""From decisions to what workers are told: when to start, and which iteration time to keep to."""

from pathlib import Path

from scenario_texts import FINE

from controllers.cassini.decision import decide
from controllers.cassini.profile import Profile
from testbed import experiment, scenario
from testbed.decide import time_shifts


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
