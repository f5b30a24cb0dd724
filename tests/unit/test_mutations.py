"""Some dozens of mutated files of every kind that is read before a guest starts; the ten thousand are a command
(benchmarks.mutations)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks import mutations
from testbed import scenario_file
from testbed.errors import InputError


def test_no_mutated_file_does_any_harm(tmp_path: Path) -> None:
    counts = mutations.trial(40, seed=7, keep=tmp_path / "faults")
    became: Counter[str] = Counter()
    for (_, what), count in counts.items():
        became[what] += count
    assert {what for what in became if what.startswith("FAULT")} == set()
    assert became["accepted"] >= 2
    assert became["accepted"] + became["refused"] >= 20


def test_a_file_is_data_and_nothing_in_it_is_evaluated(tmp_path: Path) -> None:
    """Values that would be a program somewhere are names that do not exist here."""
    good = (scenario_file.FOLDER / "smoke.toml").read_text()
    for number, value in enumerate((f"__import__('os').mkdir('{tmp_path}/was-here')", f"$(mkdir {tmp_path}/was-here)")):
        for key in ('topology = "dumbbell"', 'model = "vgg16"', 'name = "vgg16-a"'):
            text = good.replace(key, f'{key.partition("=")[0]}= "{value}"', 1)
            path = tmp_path / f"case{number}.toml"
            kind = mutations.Kind("scenario", ".toml", (), mutations.read_scenario, ())
            assert mutations.tried(kind, text.encode(), path) == "refused"
    assert not (tmp_path / "was-here").exists()


def test_a_trial_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = mutations.trial(12, seed=2, keep=tmp_path / "faults")
    state = tmp_path / "state.json"
    mutations.trial(5, seed=2, keep=tmp_path / "faults", state=state)
    assert mutations.trial(12, seed=2, keep=tmp_path / "faults", state=state) == whole
    assert mutations.trial(12, seed=2, keep=tmp_path / "faults", state=state) == whole
    with pytest.raises(InputError, match="seed 2"):
        mutations.trial(12, seed=3, keep=tmp_path / "faults", state=state)


def test_every_kind_of_file_is_tried(tmp_path: Path) -> None:
    counts = mutations.trial(60, seed=1, keep=tmp_path / "faults")
    assert {kind for kind, _ in counts} >= {"scenario", "arrivals", "chakra", "network"}


def test_shares_are_of_all_cases() -> None:
    counts = Counter({("a", "accepted"): 1, ("a", "refused"): 5, ("b", "no such file"): 3, ("b", "FAULT x"): 1})
    assert mutations.shares(counts) == (0.6, 0.1, 1)
