"""Fingerprints: what is hashed, how changes and other versions are told, what is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from testbed import cli, fingerprint, scenario, scenario_file, versions
from testbed.engine.kernel import Kernel
from testbed.errors import EnvironmentLacks, InputError, NotValid


def test_captures_and_tables_are_hashed_and_wall_clock_is_not(tmp_path: Path) -> None:
    kept = ("together/manifest.json", "together/a.pcapng")
    for name in ("wall.json", "point.json", "manifest.json", "report.html", "plots/cdf.png", *kept):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found = fingerprint.hashes(tmp_path)
    assert set(found) == set(kept)
    (tmp_path / "together" / "a.pcapng").write_text("other")
    assert fingerprint.changes(found, fingerprint.hashes(tmp_path)) == ["together/a.pcapng: changed"]


def test_new_and_gone_files_are_changes() -> None:
    assert fingerprint.changes({"a": "1", "b": "2"}, {"b": "2", "c": "3"}) == ["a: gone", "c: new"]
    assert fingerprint.changes({"a": "1"}, {"a": "1"}) == []


@pytest.mark.parametrize("name", scenario_file.names())
def test_every_scenario_has_a_short_form(name: str) -> None:
    made = fingerprint.shortened(name).scenario
    if not isinstance(made, scenario.Scenario):
        assert [made.rounds_of(system) for system in made.system] == [1]
    elif made.cluster is None:
        assert len(made.measure.arms) == 1
        assert made.measure.iterations == 2
    else:
        assert len(made.cluster.arms) == 1


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    kept = fingerprint.Kept({"numpy": "1"}, {"b": {"x": "1"}, "a": {}})
    kept.save(tmp_path / "f.json")
    assert fingerprint.read(tmp_path / "f.json") == kept
    assert fingerprint.read(tmp_path / "none.json") == fingerprint.Kept()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"versions": 1, "runs": {}}', '{"versions": {}, "runs": {"a": 1}}'])
def test_a_file_that_is_something_else_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(InputError, match="no file of fingerprints"):
        fingerprint.read(tmp_path / "f.json")


def test_what_is_run() -> None:
    kept = fingerprint.Kept({}, {"smoke": {}})
    assert fingerprint.chosen([], kept, everything=False) == ["smoke"]
    assert fingerprint.chosen([], kept, everything=True) == scenario_file.names()
    assert fingerprint.chosen(["two-jobs"], kept, everything=False) == ["two-jobs"]
    with pytest.raises(InputError, match="no such scenario"):
        fingerprint.chosen(["two-jbos"], kept, everything=False)
    with pytest.raises(InputError, match="no fingerprints yet"):
        fingerprint.chosen([], fingerprint.Kept(), everything=False)


def test_versions_that_differ_are_named() -> None:
    lines = versions.differences({"numpy": "2.4.6", "glibc": "2.36"}, {"numpy": "2.5.0", "ryu": "4.34"})
    assert lines == ["numpy 2.4.6, here 2.5.0", "glibc 2.36, here not there", "ryu not there, here 4.34"]
    here = versions.versions("7.3-abc")
    assert {"machine", "guest kernel", "python", "open vswitch", "numpy", "scipy"} <= here.keys()


class Taken:
    """Stands in for runs: what every scenario's files are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
        self.files = files
        kernel = Kernel(Path("/linux"), "7.3", "7.3-abc", seccomp=True)
        monkeypatch.setattr("testbed.engine.commands.ready_kernel", lambda: kernel)
        monkeypatch.setattr(fingerprint, "taken", lambda *_: self.files)

    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(cli.app, ["fingerprint", *arguments])


def test_the_command_keeps_compares_and_names_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, file = Taken(monkeypatch, {"together/a.csv": "1"}), f"--file={tmp_path / 'f.json'}"
    assert isinstance(runs.run(file).exception, InputError)
    assert isinstance(runs.run(file, "smoke").exception, NotValid)  # none is kept
    assert runs.run(file, "smoke", "--renew").exit_code == 0
    same = runs.run(file)
    assert (same.exit_code, "smoke: the same" in same.output) == (0, True)
    runs.files = {"together/a.csv": "2"}
    other = runs.run(file)
    assert isinstance(other.exception, NotValid)
    assert "together/a.csv: changed" in other.output
    renewed = runs.run(file, "--renew")
    assert "together/a.csv: changed" in renewed.output
    assert runs.run(file).exit_code == 0


def test_of_other_versions_the_command_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, file = Taken(monkeypatch, {"a": "1"}), tmp_path / "f.json"
    assert runs.run(f"--file={file}", "smoke", "--renew").exit_code == 0
    said = json.loads(file.read_text())
    said["versions"]["numpy"] = "1.0"
    said["runs"]["two-jobs"] = {"b": "2"}
    file.write_text(json.dumps(said))
    assert runs.run(f"--file={file}", "smoke").exit_code == 0  # the same bytes all the same
    runs.files = {"a": "2"}
    other = runs.run(f"--file={file}", "smoke")
    assert isinstance(other.exception, EnvironmentLacks)
    assert "numpy 1.0, here" in str(other.exception)
    dropped = runs.run(f"--file={file}", "smoke", "--renew")
    assert "two-jobs: dropped" in dropped.output
    assert set(json.loads(file.read_text())["runs"]) == {"smoke"}
