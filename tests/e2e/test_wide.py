"""Small wide-area scenarios end to end, as a user runs them: tunnels, sums, changing links, a scheduler under fire."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.commands.capture import NO_TUNNEL_FILTER, carried
from testbed.geo.records import BELIEFS
from workloads.paramsync.records import ROUNDS

pytestmark = pytest.mark.e2e

Run = Callable[..., subprocess.CompletedProcess[str]]

SCENARIO = """
name = "row"
title = "Three sites in a row, and the far one's link halves while it is in use"
[wan]
topology = "row-links.toml"
scale = 10
trace = "row-trace.csv"
[sync]
model = "mobilenet"
rounds = 2
[[system]]
name = "star"
strategy = "star"
[[system]]
name = "chain"
strategy = "fapt"
root = "a"
[telemetry.capture]
links = ["b->a"]
packets = 100_000
"""
WG_FILTER = "wg.type == 4"  # transport data
FIRE = """
name = "ring"
title = "Four sites under fire, with a scheduler"
[wan]
topology = "ring-links.toml"
scale = 10
[sync]
model = "mobilenet"
rounds = 3
compute = "2 s"
watchdog = "600 s"
[scheduler]
probe = "100 kB"
[fire]
kills = 8
cuts = 8
away = "5 s"
late = "300 ms"
until = "20 s"
[[system]]
name = "netstorm"
strategy = "multi-root"
awareness = true
auxiliary = true
"""
RING = "".join(
    f'[[link]]\nbetween = ["{a}", "{b}"]\nrate = "{rate} Mbit/s"\ndelay = "100 us"\n'
    for a, b, rate in (("a", "b", 100), ("a", "c", 60), ("b", "c", 40), ("c", "d", 80), ("b", "d", 30))
)
LINKS = """
[[link]]
between = ["a", "b"]
rate = "100 Mbit/s"
delay = "100 us"
[[link]]
between = ["b", "c"]
rate = "50 Mbit/s"
delay = "50 us"
"""
TRACE = "t_s,link,attribute,value\n1.5,c->b,rate_bps,25e6\n1.5,b->c,rate_bps,25e6\n"


@pytest.fixture(scope="module")
def folders(orrery: Run, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The results of two runs."""
    folder = tmp_path_factory.mktemp("row")
    for name, text in (("row.toml", SCENARIO), ("row-links.toml", LINKS), ("row-trace.csv", TRACE)):
        (folder / name).write_text(text)
    found = []
    for number in range(2):
        ended = orrery("run", folder / "row.toml", "--results", folder / f"results{number}")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        found.append(folder / f"results{number}" / "row")
    return found


def test_every_site_holds_the_direct_sum_and_all_accounts_agree(folders: list[Path]) -> None:
    verdict = json.loads((folders[0] / "manifest.json").read_text())["verdict"]
    assert list(verdict) == ["star", "chain"]
    assert all(check["ok"] for checks in verdict.values() for check in checks)
    assert {check["what"] for check in verdict["star"]} >= {
        "every site holds the direct sum",
        "every account of every link agrees",
    }


def test_the_simulation_foretells_the_packets(folders: list[Path]) -> None:
    rows = json.loads((folders[0] / "validation.json").read_text())["rounds"]
    simulated = {row["system"]: row for row in rows if row["prediction"] == "chunks on shared links"}
    for row in simulated.values():
        assert abs(row["relative_error"]) < 0.15


def test_tunnels_carry_everything_that_a_link_carries(folders: list[Path]) -> None:
    """A capture of a link has the packets that its counters have, and nothing that is not WireGuard's."""
    for system in ("star", "chain"):
        arm = folders[0] / system
        captured = json.loads((arm / "manifest.json").read_text())["captures"]["b->a"]
        assert captured["whole"]
        assert captured["packets"] >= carried(arm, "b->a") > 100
        for filtered, some in ((WG_FILTER, True), (NO_TUNNEL_FILTER, False)):
            command = ["tshark", "-r", str(arm / "capture-b-a.pcapng"), "-Y", filtered]
            seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert bool(seen) == some, filtered


def test_links_change_at_the_exact_moment(folders: list[Path]) -> None:
    for system in ("star", "chain"):
        events = [json.loads(line) for line in (folders[0] / system / "events.jsonl").read_text().splitlines()]
        (changed,) = (event for event in events if event["event"] == "links changed")
        rounds = ROUNDS.read(folders[0] / system / "rounds.csv")
        assert changed["t_s"] == pytest.approx(min(rounds.numbers("begin_s")) + 1.5, abs=1e-5)


def test_two_runs_are_the_same_to_the_byte(folders: list[Path]) -> None:
    for system in ("star", "chain"):
        for file in ("rounds.csv", "chunks.csv", "tunnels.csv", "wan-links.csv", "manifest.json", "events.jsonl"):
            one, other = ((folder / system / file).read_bytes() for folder in folders)
            assert one == other, f"{system}/{file}"


def test_sites_that_are_killed_and_tunnels_that_are_cut_cost_time_and_nothing_else(orrery: Run, tmp_path: Path) -> None:
    (tmp_path / "ring.toml").write_text(FIRE)
    (tmp_path / "ring-links.toml").write_text(RING)
    ended = orrery("run", tmp_path / "ring.toml", "--results", tmp_path / "results")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    folder = tmp_path / "results" / "ring"
    verdict = json.loads((folder / "manifest.json").read_text())["verdict"]["netstorm"]
    assert all(check["ok"] for check in verdict)
    assert {"no contribution counts twice", "no chunk goes in a circle"} <= {check["what"] for check in verdict}
    (system,) = json.loads((folder / "summary.json").read_text())["systems"]
    found = system["protocol"]
    assert found["kills"] > 0
    assert found["cuts"] > 0
    assert found["rounds_begun_again"] > 0
    assert system["digests_agree"]
    believed = BELIEFS.read(folder / "netstorm" / BELIEFS.file)
    assert len(believed) > 10  # what the scheduler began with, and more
