"""What would take more memory than there is is refused, with what is too large and how much may be."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from controllers.placement import arrivals
from testbed import files, scenario, scenario_file
from testbed.errors import InputError
from testbed.net import fabrics
from testbed.net.scale import Original, Scaling
from testbed.net.wan import graphml, pairwise, toml
from testbed.net.wan.build import Defaults
from testbed.net.wan.model import MAX_SITES
from testbed.study import points
from workloads.traces import container, formats

DEFAULTS = Defaults(rate_bps=10**9, delay_s=0.01)
READERS: dict[str, Callable[[Path], object]] = {
    "scenario.toml": lambda path: scenario.load(str(path)),
    "network.toml": lambda path: toml.read(path, DEFAULTS),
    "network.graphml": lambda path: graphml.read(path, DEFAULTS),
    "network.csv": lambda path: pairwise.read(path, DEFAULTS),
    "arrivals.csv": arrivals.read,
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_without_an_end_is_no_hang(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"larger than 4 MB|no such scenario or file"):
        READERS[name](path)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_too_large_is_refused_and_its_size_said(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"#" * (files.TEXT_BYTES + 1))
    with pytest.raises(InputError, match="larger than 4 MB"):
        READERS[name](tmp_path / name)


def test_a_file_of_just_that_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\r\nb")
    assert files.read_text(tmp_path / "file", 4) == "a\nb"
    with pytest.raises(InputError):
        files.read_text(tmp_path / "file", 3)


def test_traces_have_a_limit_packed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "LARGEST_BYTES", 10**6)
    (tmp_path / "plain.et").write_bytes(b"\0" * (10**6 + 1))
    (tmp_path / "packed.et").write_bytes(gzip.compress(b"\0" * (10**6 + 1)))
    for name, words in (("plain.et", "larger than 1 MB"), ("packed.et", "holds more than 1000000 bytes")):
        with pytest.raises(InputError, match=words):
            container.contents(tmp_path / name)
    (tmp_path / "endless").symlink_to("/dev/zero")
    assert formats.format_of(tmp_path / "endless") == "chakra"
    with pytest.raises(InputError, match="larger than"):
        container.contents(tmp_path / "endless")


def test_entities_that_unfold_without_end_are_refused(tmp_path: Path) -> None:
    entities = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    text = f'<?xml version="1.0"?><!DOCTYPE g [{entities}]><graphml>&a11;</graphml>'
    (tmp_path / "laughs.graphml").write_text(text)
    with pytest.raises(InputError, match="is not XML"):
        graphml.read(tmp_path / "laughs.graphml", DEFAULTS)


FABRICS = ("dumbbell(4001)", "leaf-spine(8001, 1, 1)", "leaf-spine(2000, 2000, 1)", "dumbbell(9999999999999)")


@pytest.mark.parametrize("name", FABRICS)
def test_fabrics_have_a_limit(name: str) -> None:
    with pytest.raises(InputError, match=r"at most|more than 100000 links"):
        fabrics.build(name, Scaling(Original()).settings)


def test_networks_have_a_limit_of_sites(tmp_path: Path) -> None:
    links = "".join(f'[[link]]\nbetween = ["a", "b{n}"]\n' for n in range(MAX_SITES))
    (tmp_path / "wide.toml").write_text(links)
    with pytest.raises(InputError, match=f"at most {MAX_SITES}"):
        toml.read(tmp_path / "wide.toml", DEFAULTS)


def test_studies_have_a_limit_of_points(tmp_path: Path) -> None:
    values = ", ".join(map(str, range(1, 102)))
    text = (scenario_file.FOLDER / "smoke.toml").read_text()
    for label, key in (("a", "measure.seed"), ("b", "measure.iterations")):
        text += f'\n[[study.vary]]\nlabel = "{label}"\nkeys = ["{key}"]\nvalues = [{values}]\n'
    (tmp_path / "wide.toml").write_text(text)
    with pytest.raises(InputError, match="10201 points \\(at most 1000"):
        points.load(str(tmp_path / "wide.toml"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("measure.iterations=100000", "measure.trials.together=1000"), "workers times iterations times trials"),
        (
            ("telemetry.capture.packets=10000000", "telemetry.capture.snap_bytes=9000", "telemetry.capture.size=1GB"),
            "packets times snap_bytes",
        ),
        (("job.*.workers=5000",), "less than or equal to 4096"),
        (("measure.iterations=1000000",), "less than or equal to 100000"),
    ],
)
def test_scenarios_have_limits(settings: tuple[str, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        scenario.load("smoke", settings)
