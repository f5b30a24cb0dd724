"""What the points of a study are: their names, their settings, and everything that may be wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario_texts import FINE

from testbed import scenario_file
from testbed.errors import InputError
from testbed.study import points

VARIED = """
[[study.vary]]
label = "compute"
keys = ["job.*.jitter", "measure.seed"]
values = [0, 0.2]

[[study.vary]]
label = "topology"
keys = ["fabric.topology"]
values = ["dumbbell", "dumbbell(3)"]
"""
STANDING = """
[[study.point]]
name = "mine"
at = { threshold = 3 }
set = { "job.first.slow" = 2.0 }

[[study.point]]
name = "other"
of = "beside"
"""


def study(tmp_path: Path, text: str, *settings: str) -> points.Study:
    (tmp_path / "tiny.toml").write_text(FINE + text)
    (tmp_path / "beside.toml").write_text(FINE.replace('"tiny"', '"beside"'))
    return points.load(str(tmp_path / "tiny.toml"), settings)


def test_points_are_every_combination_of_what_is_varied(tmp_path: Path) -> None:
    made = study(tmp_path, VARIED.replace('"measure.seed"', '"job.second.slow"').replace("[0, 0.2]", "[0.1, 0.2]"))
    assert [point.name for point in made.points] == [
        "compute-0.1_topology-dumbbell", "compute-0.1_topology-dumbbell-3-",
        "compute-0.2_topology-dumbbell", "compute-0.2_topology-dumbbell-3-",
    ]  # fmt: skip
    last = made.points[-1]
    assert last.at == {"compute": 0.2, "topology": "dumbbell(3)"}
    assert [job.jitter for job in last.scenario.job] == [0.2, 0.2]
    assert [job.slow for job in last.scenario.job] == [1.0, 0.2]
    assert last.scenario.fabric.topology == "dumbbell(3)"
    assert last.source.startswith("# --set job.*.jitter=0.2\n# --set job.second.slow=0.2\n")


def test_points_of_their_own_may_be_of_another_scenario(tmp_path: Path) -> None:
    mine, other = study(tmp_path, STANDING, "measure.seed=9").points
    assert (mine.scenario.name, other.scenario.name) == ("tiny", "beside")
    assert [job.slow for job in mine.scenario.job] == [2.0, 1.0]
    assert mine.at == {"threshold": 3, "point": "mine"}
    assert mine.scenario.measure.seed == other.scenario.measure.seed == 9


def test_a_scenario_is_a_study_of_one_point(tmp_path: Path) -> None:
    made = study(tmp_path, "")
    assert not made.varied
    assert [point.name for point in made.points] == ["tiny"]


PLACES = """
[[study.vary]]
label = "places"
keys = ["job.first.workers"]
values = [["h1", "h3"], ["h3", "h1"]]

[[study.vary]]
label = "draw"
keys = ["measure.seed"]
values = [1, 2]
"""


def test_placements_are_varied_and_seeds_are_repetitions(tmp_path: Path) -> None:
    made = study(tmp_path, PLACES)
    assert [point.name for point in made.points] == [
        "places-h1-h3_draw-1", "places-h1-h3_draw-2", "places-h3-h1_draw-1", "places-h3-h1_draw-2"
    ]  # fmt: skip
    assert made.points[2].scenario.job[0].workers == ("h3", "h1")
    assert made.points[2].at == {"places": "h3 h1", "draw": 1}
    assert (made.labels, made.repeats) == (("places", "draw"), ("draw",))
    repeated = "[study]\nrepeats = ['places']\n" + PLACES
    assert study(tmp_path, repeated).repeats == ("places",)


def test_a_wide_area_scenario_is_a_study_too() -> None:
    made = points.load("netstorm-static")
    assert (made.varied, made.points[0].name) == (False, "netstorm-static")


def test_long_names_are_cut_and_differ(tmp_path: Path) -> None:
    hosts = ", ".join(f'"x{number}"' for number in range(90))
    text = (
        PLACES.replace('"h1", "h3"', hosts).replace('"h3", "h1"', hosts + ', "y"').replace("job.first.workers", "title")
    )
    with pytest.raises(InputError, match="title"):
        study(tmp_path, text)
    names = {points._point("a" * 200 + end, tmp_path / "tiny.toml", (), {}).name for end in "bc"}
    assert len(names) == 2
    assert {len(name) for name in names} == {points.LONGEST_NAME}


def test_one_point_can_be_picked(tmp_path: Path) -> None:
    made = study(tmp_path, STANDING)
    assert [point.name for point in made.only("other").points] == ["other"]
    with pytest.raises(InputError, match=r"no point 'nonesuch' .mine, other"):
        made.only("nonesuch")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[study]", "give ..study.point.. or"),
        ("[study]\nvayr = 3", "vayr: unknown key"),
        (VARIED.replace('"topology"\n', '"compute"\n'), "same label"),
        (VARIED.replace("job.*.jitter", "job.third.jitter"), "there is no 'third'"),
        (STANDING.replace('"other"', '"mine"'), "two points are called mine"),
        (STANDING.replace('"beside"', '"nonesuch"'), "nonesuch: no such scenario"),
        (VARIED.replace("[0, 0.2]", "[-1, 0.2]"), "jitter"),
        (VARIED.replace("[0, 0.2]", "[]"), "values: "),
        (VARIED.replace('"topology"\n', '"value"\n'), "value is a column of the results"),
        ('[[study.point]]\nname = "a"\nat = { valid = "x" }\n', "valid is a column of the results"),
        (
            '[[study.point]]\nname = "a"\n' + VARIED.replace('"topology"\n', '"point"\n'),
            "point is a column of the results",
        ),
        (
            '[study]\nrepeats = ["seed"]\n' + VARIED,
            "repeats: nothing is varied as 'seed'; labels are compute, topology",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        study(tmp_path, "\n" + text)


@pytest.mark.parametrize("name", [name for name in scenario_file.names() if name.startswith("cassini-")])
def test_every_study_that_comes_along_makes_sense(name: str) -> None:
    made = points.load(name)
    assert made.name == name
    figures = {"score", "score-mean", "gain", "marks", "ce", "mean-ms", "adjustments", "lost-ms", "padding-ms"}
    for plot in made.plots:
        labels = set.union(*(set(point.at) for point in made.points))
        assert {wanted.partition(".")[0] for wanted in (plot.x, *plot.y)} <= figures | labels
        assert plot.by is None or plot.by in labels
