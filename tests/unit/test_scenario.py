"""Reading a scenario: every default visible, every fault named with file, key and mend."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenario_texts import BAD, CLUSTER, FINE, NOT_TOML

from testbed import experiment, scenario, scenario_file
from testbed.errors import InputError
from testbed.schema import schema

WORDS = [
    "",
    "0",
    "1",
    "-1",
    "2",
    "4097",
    "1e9",
    "nan",
    "true",
    '"h1"',
    "[]",
    '["h1", "h2"]',
    "5 ms",
    "80 kB",
    "1 Gbit/s",
]
WORDS += [
    "9e17 s",
    "0 B",
    "0 bit/s",
    "{}",
    "[[]]",
    '"dumbbell(3)"',
    '"leaf-spine(2,1,2)"',
    "bbr",
    '"shared"',
    '["s1->s2"]',
]
KEYS = [key.replace("job[]", "job") for key, _, _ in schema()] + [
    "",
    ".",
    "a.b",
    "job.name",
    "fabric",
    "name.x",
]


@pytest.fixture
def fine(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(FINE)
    return path


def build(path: Path) -> experiment.Experiment:
    return experiment.build(scenario.load(str(path)), str(path), path.parent)


def test_the_fine_one_is_fine(fine: Path) -> None:
    made = build(fine)
    assert made.scenario.name == "tiny"
    assert sorted(made.shared) == ["s1->s2", "s2->s1"]


@pytest.mark.parametrize("kind", BAD)
def test_what_is_wrong_is_named_with_file_key_and_mend(kind: str, tmp_path: Path) -> None:
    bad, path = BAD[kind], tmp_path / "tiny.toml"
    path.write_text(bad.text)
    tomllib.loads(bad.text)
    with pytest.raises(InputError) as caught:
        build(path)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert message.startswith(f"{path}: ")
    assert bad.key in message
    assert bad.mend in message


@pytest.mark.parametrize("kind", NOT_TOML)
def test_a_file_that_is_no_toml_is_called_so(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_bytes(NOT_TOML[kind])
    with pytest.raises(InputError, match=r"tiny\.toml: is not TOML: "):
        scenario.load(str(path))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nonesuch", "no such scenario or file .*two-jobs"),
        (".", "no such scenario or file"),
        ("scenarios/", "no such scenario or file"),
        ("", "no such scenario or file"),
        ("x" * 300, "cannot be read: File name too long"),
        ("/proc/self/mem", "/proc/self/mem: cannot be read: "),  # a file that even root cannot read
    ],
)
def test_a_file_that_cannot_be_read_is_called_so(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        scenario.load(name)


def test_a_folder_is_no_scenario(tmp_path: Path) -> None:
    (tmp_path / "two.toml").mkdir()
    with pytest.raises(InputError, match=r"two\.toml: no such scenario or file"):
        scenario.load(str(tmp_path / "two.toml"))


def test_a_file_behind_a_locked_door_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an ordinary user meets it; root can go anywhere."""

    def forbidden(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", forbidden)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        scenario_file.find("/private/mine.toml")


def test_a_file_of_that_name_gives_way_to_the_projects_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("smoke").write_text(FINE)
    assert scenario_file.find("smoke") == scenario_file.FOLDER / "smoke.toml"
    Path("mine").write_text(FINE)
    assert scenario.load("mine").name == "tiny"


def test_settings_override_the_file_with_or_without_quotes(fine: Path) -> None:
    overrides = (
        "fabric.rate=25 Gbit/s",
        'fabric.topology="dumbbell(3)"',
        "measure.trials.together=7",
        " measure.seed = 5",
    )
    loaded = scenario.load(str(fine), overrides)
    assert loaded.fabric.rate == 25 * 10**9
    assert loaded.fabric.topology == "dumbbell(3)"
    assert (loaded.measure.trials.together, loaded.measure.seed) == (7, 5)
    assert loaded.measure.iterations == 8


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("fabric.scale", "--set fabric.scale: is not KEY=VALUE .*as in"),
        ("fabric.scael=3", r"tiny\.toml: fabric\.scael: unknown key"),
        ("name.first=3", "--set name.first=3: name is not a table"),
        ("job.0.workers=2", "--set job.0.workers=2: there is no '0' .there are first, second"),
        ("job=3", r"tiny\.toml: job: "),
        ("=3", "unknown key"),
        ("fabric.rate=", "fabric.rate: "),
    ],
)
def test_a_setting_that_cannot_be_is_named(fine: Path, setting: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        scenario.load(str(fine), (setting,))


@settings(max_examples=300)
@given(
    key=st.sampled_from(KEYS), value=st.sampled_from(WORDS), other=st.sampled_from(KEYS), word=st.sampled_from(WORDS)
)
def test_no_setting_ends_in_a_traceback(key: str, value: str, other: str, word: str) -> None:
    """Whatever a scenario says, it can be run or is refused with the one error."""
    try:
        loaded = scenario.load("smoke", (f"{key}={value}", f"{other}={word}"))
        made = experiment.build(loaded, "smoke")
    except InputError:
        return
    assert made.topology.hosts


def test_every_default_that_is_listed_is_the_default(fine: Path) -> None:
    """`list --keys` shows what may be written: writing it changes nothing."""
    text = FINE.replace("scale = 200\n", "").replace('rate = "50 Gbit/s"\n', "").partition("[measure]")[0]
    fine.write_text(text.replace("dumbbell", "cassini-48"))
    plain, listed = scenario.load(str(fine)), schema()
    defaults = [(key, shown) for key, _, shown in listed if shown not in ("required", "none") and "[]" not in key]
    assert len(defaults) > 25
    clusters = [one for one in defaults if one[0].startswith("cluster.")]
    defaults = [one for one in defaults if one not in clusters]
    for key, shown in defaults:
        assert scenario.load(str(fine), (f"{key}={shown}",)) == plain, key
    assert scenario.load(str(fine), tuple(f"{key}={shown}" for key, shown in defaults)) == plain
    fine.write_text(CLUSTER)
    assert len(clusters) > 15
    plain = scenario.load(str(fine))
    for key, shown in clusters:
        assert scenario.load(str(fine), (f"{key}={shown}",)) == plain, key


def test_the_list_of_keys_has_every_key(fine: Path) -> None:
    listed = {key: (kind, shown) for key, kind, shown in schema()}
    assert listed["fabric.red.min"] == ("size", "80 kB")
    assert listed["fabric.host_delay"] == ("delay", "2 us")
    assert listed["fabric.host_rate"] == ("rate", "none")
    assert listed["job[].workers"][1] == "required"
    assert listed["transport.congestion_control"] == ("dctcp | cubic | reno | bbr", '"dctcp"')

    def leaves(value: object, prefix: str = "") -> set[str]:
        if isinstance(value, dict):
            return {
                leaf for key, inner in value.items() for leaf in leaves(inner, f"{prefix}.{key}" if prefix else key)
            }
        return {prefix}

    dumped = scenario.load("smoke").model_dump()
    dumped["job[]"] = dumped.pop("job")[0]
    dumped["event[]"] = scenario.load("events").model_dump()["event"][0]
    del dumped["event"]
    fine.write_text(CLUSTER)
    dumped["cluster"] = scenario.load(str(fine)).model_dump()["cluster"]
    dumped["cluster"]["kind[]"] = dumped["cluster"].pop("kind")[0]
    assert leaves(dumped) == set(listed)


def test_what_was_run_can_be_run_again(fine: Path) -> None:
    text = scenario_file.effective(fine, ("fabric.scale=100", "measure.seed=3"))
    assert text.splitlines()[:2] == ["# --set fabric.scale=100", "# --set measure.seed=3"]
    assert tomllib.loads(text) == tomllib.loads(FINE)


def test_nothing_changes_a_scenario_once_it_is_read(fine: Path) -> None:
    loaded = scenario.load(str(fine))
    with pytest.raises(ValueError, match="frozen"):
        loaded.fabric.scale = 1.0


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("cluster.shortened=0.5", "cluster.shortened"),
        ("cluster.arms=['fifo']", "cluster.arms"),
        ("cluster.arms=['random', 'random']", "list one twice"),
        ("cluster.epoch=0 s", "longer than 0 s"),
        ("cluster.arrivals=dynamic", "arrives = true"),
        ("job=[{name='a', model='vgg16', workers=2}]", "give [[job]] for jobs with places"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(fine: Path, setting: str, what: str) -> None:
    fine.write_text(CLUSTER)
    assert scenario.load(str(fine)).cluster is not None
    with pytest.raises(InputError) as caught:
        scenario.load(str(fine), (setting,))
    assert what in str(caught.value)
