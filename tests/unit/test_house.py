"""The house stands: every room imports only from rooms below it (CONTRIBUTING.md), and the check can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from house import GUEST_PROGRAMS, NOT_IN_A_GUEST, modules, room, violations

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("controllers", "testbed", "workloads")


def test_every_import_goes_to_a_room_below() -> None:
    assert violations(ROOT) == []


def test_the_rooms_are_found_and_none_is_a_mere_name() -> None:
    found = modules(ROOT)
    assert {name.partition(".")[0] for name in found} >= set(PACKAGES)
    assert room("testbed.telemetry.tables") == "testbed.telemetry"
    assert len(found) > 80


# What is appended to which file, and how the checker must name it.
BREAKS = {
    "upwards": ("testbed/telemetry/qdisc.py", "from testbed.net.topology import Topology", "testbed.telemetry may"),
    "upwards in a function": (
        "testbed/net/topology.py",
        "def f():\n    import testbed.campaign",
        "imports testbed.campaign, which testbed.net may not",
    ),
    "upwards by a relative import": ("testbed/net/tc.py", "from .. import arm", "testbed.arm, which testbed.net may"),
    "a module as a package's name": ("workloads/models.py", "from testbed import cli", "which workloads may"),
    "sideways": ("controllers/sdn/paths.py", "import workloads.models", "which controllers.sdn may not"),
    "errors look up": ("testbed/errors.py", "from testbed.units import Rate", "which testbed.errors may not"),
    "the engine knows the network": ("testbed/engine/host.py", "import testbed.net.tc", "which testbed.engine may not"),
    "the report runs something": ("testbed/report/load.py", "import testbed.telemetry.qdisc", "testbed.report may not"),
    "a hall imports": ("testbed/__init__.py", "import testbed.errors", "which a hall may not"),
    "cassini does more than numbers": ("controllers/cassini/circle.py", "import scipy", "alone"),
    "cassini reads the testbed": ("controllers/cassini/circle.py", "import testbed.errors", "controllers.cassini may"),
    "init needs a library": ("testbed/engine/guest/init.py", "import numpy", "testbed.engine.guest.init uses"),
    "ryu by name": ("controllers/sdn/app.py", "from ryu.lib import hub", "only controllers.sdn.framework does"),
    "ryu by name in the framework": ("controllers/sdn/framework.py", "import os_ken", "and not by name"),
    "by a computed name": ("controllers/sdn/app.py", "__import__('ryu')", "imports by a computed name"),
    "pydantic in a guest": ("testbed/net/namespaces.py", "import pydantic", "testbed.arm needs it"),
    "rich in an agent": ("workloads/training/mesh.py", "from rich.console import Console", "which a guest must not"),
    "typer through a package": ("workloads/__init__.py", "import typer", "which a guest must not"),
    "matplotlib in a sampler's function": (
        "testbed/telemetry/schedule.py",
        "def f():\n    import matplotlib.pyplot",
        "which a guest must not",
    ),
    "a cycle": (
        "testbed/net/topology.py",
        "import testbed.net.fabrics",
        "these import each other: testbed.net.fabrics, testbed.net.topology",
    ),
    "itself": ("testbed/results.py", "import testbed.results", "these import each other: testbed.results"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BREAKS)
def test_a_broken_house_is_noticed(kind: str, tmp_path: Path) -> None:
    file, statement, said = BREAKS[kind]
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / file).open("a", encoding="utf-8") as broken:
        broken.write(f"\n{statement}\n")
    found = violations(tmp_path)
    assert any(said in one for one in found), found


def test_a_new_room_must_be_given_its_place(tmp_path: Path) -> None:
    for name in ("testbed", "testbed/engine", "testbed/weather", "kitchen"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    found = [one for one in violations(tmp_path) if "no room" in one]
    assert found == ["kitchen belongs to no room", "testbed.weather belongs to no room"]


def test_imports_for_the_type_checker_alone_make_no_cycle_and_weigh_nothing_in_a_guest(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    guarded = "\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import testbed.net.fabrics\n    import rich\n"
    with (tmp_path / "testbed/net/topology.py").open("a", encoding="utf-8") as file:
        file.write(guarded)
    assert violations(tmp_path) == []
    with (tmp_path / "testbed/net/topology.py").open("a", encoding="utf-8") as file:
        file.write("\nif TYPE_CHECKING:\n    import testbed.arm\n")
    assert len(violations(tmp_path)) == 1


def test_the_guests_programs_really_do_without_heavy_modules() -> None:
    """What is imported by third parties counts too, so this one looks at a process."""
    code = (
        f"import sys, {', '.join(GUEST_PROGRAMS)}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "testbed" in loaded
    assert sorted(set(loaded) & set(NOT_IN_A_GUEST)) == []
