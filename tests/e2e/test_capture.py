"""A capture as a user takes it: whole, opened by tshark, and its CE packets are those that the counters saw."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.commands.capture import CE_FILTER, captures, marked

pytestmark = pytest.mark.e2e

Run = Callable[..., subprocess.CompletedProcess[str]]
LINKS = ("--link", "s1->s2", "--link", "s2->h3")


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_ce_packets_of_a_whole_capture_are_those_of_the_counters(orrery: Run, tmp_path: Path) -> None:
    ended = orrery("capture", "smoke", *LINKS, "--arm", "together", "--results", tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    arm = tmp_path / "smoke" / "together"
    found = {link: of for _, link, of in captures(tmp_path / "smoke")}
    assert {link: of["whole"] for link, of in found.items()} == {"s1->s2": True, "s2->h3": True}
    for link, of in found.items():
        file = str(arm / f"capture-{link.replace('->', '-')}.pcapng")
        read = [
            subprocess.run(
                ["tshark", "-r", file, *filtered], capture_output=True, text=True, check=True
            ).stdout.splitlines()
            for filtered in ((), ("-Y", CE_FILTER))
        ]
        assert len(read[0]) == of["packets"]
        assert len(read[1]) == marked(arm, link)
    assert marked(arm, "s1->s2") > 0


def test_no_file_is_larger_than_allowed_and_a_cut_one_says_so(orrery: Run, tmp_path: Path) -> None:
    settings = ("--arm", "together", "--max-size", "50 kB", "--set", "measure.iterations=2")
    ended = orrery("capture", "smoke", "--link", "s1->s2", *settings, "--results", tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ((_, _, of),) = captures(tmp_path / "smoke")
    size = (tmp_path / "smoke" / "together" / "capture-s1-s2.pcapng").stat().st_size
    assert (size == of["size_bytes"], of["whole"]) == (True, False)
    assert 40_000 < size <= 50_000
    assert "no, cut" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("smoke", "--link", "s1->s9"), "there is no link 's1->s9'"),
        (("smoke", "--max-size", "lots"), "telemetry.capture.size"),
        (("smoke", "--arm", "cassini"), "needs the arm alone"),
        (("smoke", "--packets", "0"), "--packets"),
        (("smoke-sweep",), "is a study"),
        (("smoke", "--set", "engine=fluid"), "has no packets"),
    ],
)
def test_what_cannot_be_captured_is_said(orrery: Run, arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ended = orrery("capture", *arguments, "--results", tmp_path)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []
