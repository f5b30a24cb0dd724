"""Fabrics out of files: switches, hosts and links as they stand there, and every fault in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.net import fabric_file, fabrics
from testbed.net.scale import Original, Scaling
from testbed.net.topology import Topology

SETTINGS = Scaling(Original(), 50).settings
FINE = """
[[switch]]
name = "left"
role = "tor"
hosts = ["h1", "h2"]
[[switch]]
name = "right"
hosts = ["h3"]
[[link]]
between = ["left", "right"]
times = 2
"""


def test_a_fabric_is_what_its_file_says(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(FINE)
    made = fabric_file.build("mine.toml", SETTINGS, tmp_path)
    assert made.name == "mine"
    assert made.hosts == ("h1", "h2", "h3")
    assert [(node.name, node.role) for node in made.nodes[3:]] == [("left", "tor"), ("right", "switch")]
    assert made.direction("left", "right").rate_bps == 2 * SETTINGS.rate_bps
    assert made.direction("right", "left") == made.direction("left", "right")
    assert made.direction("h1", "left").aqm is None
    assert made.direction("left", "h1").aqm == SETTINGS.red
    assert made.direction("h1", "left").delay_s == SETTINGS.host_delay_s
    assert Topology.from_dict(made.to_dict()) == made


def test_a_dumbbell_written_out_is_the_dumbbell(tmp_path: Path) -> None:
    switches = "".join(f'[[switch]]\nname="s{at}"\nhosts={hosts}\n' for at, hosts in ((1, ["h1"]), (2, ["h2"])))
    (tmp_path / "mine.toml").write_text(switches + '[[link]]\nbetween=["s1", "s2"]\n')
    made, ours = fabric_file.build("mine.toml", SETTINGS, tmp_path), fabrics.build("dumbbell(1)", SETTINGS)
    assert (made.nodes, made.links) == (ours.nodes, ours.links)
    assert fabric_file.build("dumbbell(1)", SETTINGS, tmp_path) == ours


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", "nothing = 1\n", "unknown key 'nothing'"),
        ('name = "left"', 'nome = "left"', "unknown key switch.nome"),
        ('name = "left"', "name = 3", "a switch has no name"),
        ('role = "tor"', 'role = "host"', "role 'host'"),
        ('hosts = ["h3"]', 'hosts = "h3"', "hosts are not names"),
        ('between = ["left", "right"]', 'between = ["left", "up"]', "a link is between"),
        ('between = ["left", "right"]', 'between = ["left"]', "a link is between"),
        ("times = 2", "times = 0", "times 0"),
        ("times = 2", 'times = "2"', "times '2'"),
        ('hosts = ["h3"]', 'hosts = ["h1"]', "h1"),
        ("[[link]]", "[link]", "link is not a list of tables"),
        ("[[link]]", "[[link", "is not TOML"),
    ],
)
def test_every_fault_is_said(tmp_path: Path, before: str, after: str, said: str) -> None:
    text = FINE.replace(before, after, 1) if before else after + FINE
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError) as refused:
        fabric_file.build("mine.toml", SETTINGS, tmp_path)
    assert said in str(refused.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        fabric_file.build("gone.toml", SETTINGS, tmp_path)
