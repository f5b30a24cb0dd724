"""A hundred mutated files of every kind that is read before a guest starts; the ten thousand are a command
(benchmarks.mutations)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks import mutations
from testbed import scenario


def test_no_mutated_file_does_any_harm(tmp_path: Path) -> None:
    counts = mutations.trial(100, seed=7, keep=tmp_path / "faults")
    became: Counter[str] = Counter()
    for (_, what), count in counts.items():
        became[what] += count
    assert {what for what in became if what.startswith("FAULT")} == set()
    assert became["accepted"] >= 5
    assert became["accepted"] + became["refused"] >= 50


def test_a_file_is_data_and_nothing_in_it_is_evaluated(tmp_path: Path) -> None:
    """Values that would be a program somewhere are names that do not exist here."""
    good = (scenario.FOLDER / "smoke.toml").read_text()
    for number, value in enumerate((f"__import__('os').mkdir('{tmp_path}/was-here')", f"$(mkdir {tmp_path}/was-here)")):
        for key in ('topology = "dumbbell"', 'model = "vgg16"', 'name = "vgg16-a"'):
            text = good.replace(key, f'{key.partition("=")[0]}= "{value}"', 1)
            path = tmp_path / f"case{number}.toml"
            kind = mutations.Kind("scenario", ".toml", (), mutations.read_scenario, ())
            assert mutations.tried(kind, text.encode(), path) == "refused"
    assert not (tmp_path / "was-here").exists()
