"""Topologies as text and pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.net import draw
from testbed.net.fabrics import build
from testbed.net.scale import Original, Scaling

FABRICS = ["cassini-48", "dumbbell(1)", "leaf-spine(3,2,2)"]
SETTINGS = Scaling(Original(), 50).settings


@pytest.mark.parametrize("name", FABRICS)
def test_the_text_names_every_node_and_cable(name: str) -> None:
    t = build(name, SETTINGS)
    page = draw.text(t)
    words = set(page.split())
    assert set(t.hosts) | set(t.switches) <= words
    for switch in t.switches:
        line = next(x.split() for x in reversed(page.splitlines()) if x.startswith(f"{switch} "))
        assert line[1:] == [word for a, b in t.directed() if a == switch for word in (str(t.port(a, b)), b)]


def test_the_text_tells_settings_and_oversubscription() -> None:
    page = draw.text(build("cassini-48", SETTINGS))
    assert "24 hosts, 13 switches, 48 links, 2:1 oversubscribed" in page
    assert "1 Gbit/s" in page
    assert "100 us" in page
    assert "80 kB to 160 kB, probability 1" in page


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize(("ending", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_pictures_are_made_and_come_out_the_same(tmp_path: Path, name: str, ending: str, magic: bytes) -> None:
    first, second = tmp_path / f"first{ending}", tmp_path / f"second{ending}"
    draw.picture(build(name, SETTINGS), first)
    draw.picture(build(name, SETTINGS), second)
    assert first.read_bytes().startswith(magic)
    assert first.stat().st_size > 4000
    assert first.read_bytes() == second.read_bytes()


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.png, \.svg"):
        draw.picture(build("dumbbell", SETTINGS), tmp_path / "picture.txt")
