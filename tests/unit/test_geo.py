"""Wide-area scenarios: what they may say, what they become, and what their files are made of."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from rich.console import Console

from controllers.netstorm import named, strategies
from testbed import scenario_file
from testbed.errors import InputError
from testbed.geo import experiment, keys, prediction, show, summary
from testbed.geo.bounds import Bounds
from testbed.geo.campaign import WideOutcome
from testbed.geo.experiment import System, WideExperiment
from testbed.geo.keys import WideScenario
from testbed.geo.measured import Pushes
from testbed.geo.records import BELIEFS, TUNNELS, WAN_LINKS
from testbed.geo.validation import validate
from testbed.report import wide
from testbed.study import points
from workloads.paramsync.records import CHUNKS, ROUNDS

SMALL = """
name = "small"
title = "Three sites in a row"
[wan]
topology = "row.toml"
scale = 10
[sync]
model = "mobilenet"
rounds = 2
compute = ["1 s", "2 s", "500 ms"]
[[system]]
name = "star"
strategy = "star"
root = "each"
[[system]]
name = "fapt"
strategy = "fapt"
"""
ROW = """
[[link]]
between = ["a", "b"]
rate = "100 Mbit/s"
delay = "5 ms"
[[link]]
between = ["b", "c"]
rate = "50 Mbit/s"
back_rate = "25 Mbit/s"
delay = "1 ms"
"""

CAPTURE = """
[telemetry.capture]
links = ["a->b"]
"""


def made(folder: Path, text: str = SMALL, *settings: str) -> WideExperiment:
    (folder / "small.toml").write_text(text)
    (folder / "row.toml").write_text(ROW)
    return experiment.build(keys.load(folder / "small.toml", settings), folder)


@pytest.mark.parametrize("name", scenario_file.names(wide=True))
def test_every_wide_scenario_that_comes_along_makes_sense(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its points become plans; what is predicted of them, which takes long, is left out."""
    nothing = prediction.Prediction(1.0, 1.0, None, {})  # type: ignore[arg-type]
    monkeypatch.setattr(experiment, "predict", lambda *_: nothing)
    monkeypatch.setitem(named.WITHOUT_ROOT, "planned", strategies.multi_root)
    study = points.load(name)
    assert (study.name, study.title) == (name, scenario_file.title(name))
    for point in study.points:
        assert isinstance(point.scenario, WideScenario)
        assert point.scenario.wan.tunnels  # every shipped scenario uses them
        try:
            built = experiment.build(point.scenario, point.path.parent)
        except InputError as error:  # a table that is not ours to give
            assert name in ("netstorm-aws10", "netstorm-rediris")
            assert f"{point.scenario.wan.topology}: there is no such network" in str(error)
            continue
        for system in built.systems:
            json.dumps(built.arm_plan(system), allow_nan=False)
    figures = {"round-s", "speed-up", "speed-up-best", "speed-up-default", "bound", "error"}
    for plot in study.plots:
        assert plot.x in set.union(*(set(point.at) for point in study.points))
        assert {wanted.partition(".")[0] for wanted in plot.y} <= figures


def test_more_strategies_become_plans_for_packets(tmp_path: Path) -> None:
    more = """
[[system]]
name = "two"
strategy = "star"
servers = 2
[[system]]
name = "turns"
strategy = "ordered-star"
[[system]]
name = "bits"
strategy = "quantised-star"
[[system]]
name = "some"
strategy = "steiner"
active = ["a", "c"]
[[system]]
name = "pair"
strategy = "steiner"
active = ["b", "c"]
[[system]]
name = "planned"
strategy = "planned"
"""
    built = made(tmp_path, SMALL + more)
    two, turns, bits, some, pair, planned = (system.sync for system in built.systems[4:])
    assert {way.push.root for way in two.policy.ways} == {0, 1}
    assert (turns.window, two.window) == (2, 0)
    assert bits.bits[0] == 32 > min(bits.bits)
    assert bits.held and not bits.trained
    assert (some.sites, some.silent, some.compute_s) == (("a", "b", "c"), (1,), (1.0, 0.0, 0.5))
    assert (pair.sites, pair.silent, pair.compute_s) == (("b", "c"), (), (2.0, 0.5))
    assert sum(planned.chunks) == sum(some.chunks)


def test_rates_are_drawn_together_by_their_spread(tmp_path: Path) -> None:
    wide, half, none = (made(tmp_path, SMALL, f"wan.spread={spread}").wan for spread in (1.0, 0.5, 0.0))
    assert [of.rate_bps for _, _, of in wide.directed()] == [10_000_000, 10_000_000, 5_000_000, 2_500_000]
    assert {of.rate_bps for _, _, of in none.directed()} == {6_875_000}
    assert half.direction("c", "b").rate_bps == pytest.approx((2_500_000 + 6_875_000) / 2, abs=8)


def test_a_scenario_becomes_scaled_links_systems_and_plans(tmp_path: Path) -> None:
    built = made(tmp_path)
    assert [system.name for system in built.systems] == ["star-1", "star-2", "star-3", "fapt"]
    assert built.wan.direction("c", "b").rate_bps == 2_500_000
    assert built.wan.direction("a", "b").delay_s == 0.05
    assert built.transport.rto_min_s == 2.0
    star, fapt = built.systems[0].sync, built.systems[3].sync
    assert star.policy.ways[0].push.parents == (None, 0, 0)
    assert fapt.policy.ways[0].push.parents[1] in (None, 0, 2)
    assert star.compute_s == (1.0, 2.0, 0.5)
    assert star.ips == ("10.64.0.1", "10.64.0.2", "10.64.0.3")
    assert sum(star.chunks) == pytest.approx(321_665, rel=1e-3)
    assert max(star.chunks) <= 100_000
    assert star.merge_bytes_per_s == 1e8


def test_predictions_know_what_is_sent_over_what(tmp_path: Path) -> None:
    """A star at the end of the row: the far site is ready first, and its bytes take longest, on the slow link."""
    built = made(tmp_path)
    size_bits = 32 * sum(built.systems[0].sync.chunks)
    part = prediction.goodput(built.scenario)
    assert part == (1500 - 60 - 52) / 1514
    star = built.systems[0].prediction
    longest_s = 0.5 + size_bits / (2.5e6 * part) - 2.0
    assert star.simulated_s > longest_s
    assert star.simulated_s == pytest.approx(4.14, rel=0.12)  # which it took in packets: windows open slowly
    assert star.metric_s > 2 * size_bits / (5e6 * part)
    plain = made(tmp_path, SMALL, "wan.tunnels=false")
    assert prediction.goodput(plain.scenario) == (1500 - 52) / 1514
    assert plain.systems[0].sync.ips == ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def test_some_arms_are_run_and_rounds_are_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = prediction.Prediction(1.0, 1.0, None, {})  # type: ignore[arg-type]
    monkeypatch.setattr(experiment, "predict", lambda *_: nothing)
    text = SMALL.replace('strategy = "fapt"', 'strategy = "fapt"\nrounds = 30') + CAPTURE
    built = made(tmp_path, text, "measure.arms=['star-2', 'fapt']", "sync.rounds=20", "sync.shortened=10")
    assert [(system.name, system.sync.rounds) for system in built.systems] == [("star-2", 2), ("fapt", 3)]
    assert built.arm_plan(built.systems[0])["capture"]["links"] == ["a->b"]
    assert made(tmp_path, text, "sync.rounds=4", "sync.shortened=100").systems[0].sync.rounds == 1
    for setting, message in (
        ("measure.arms=['star-9']", "star-9 is no system (systems are star, fapt)"),
        ("telemetry.capture.links=['a->c']", "there is no link 'a->c' (as in 'a->b')"),
        ("telemetry.capture.links='shared'", "there is no link 'shared'"),
    ):
        with pytest.raises(InputError) as caught:
            made(tmp_path, text, setting)
        assert message in str(caught.value)


def test_a_scheduler_s_first_plan_is_of_what_it_believes(tmp_path: Path) -> None:
    """On a triangle with a slow link, who takes all links to be alike uses it all the same, until it learns."""
    (tmp_path / "corner.toml").write_text(ROW + '[[link]]\nbetween = ["a", "c"]\nrate = "10 Mbit/s"\ndelay = "1 ms"\n')
    text = SMALL.replace('"row.toml"', '"corner.toml"').replace(
        'strategy = "fapt"', 'strategy = "fapt"\nroot = "a"\nawareness = true'
    )
    knows, guesses = (made(tmp_path, text, *more).systems[-1] for more in ((), ("scheduler.believed='20 Mbit/s'",)))
    assert dict(knows.plan.ways[0].push.parent) == {"b": "a", "c": "b"}
    assert dict(guesses.plan.ways[0].push.parent) == {"b": "a", "c": "a"}
    assert guesses.sync.protocol is not None
    assert {tunnel.believed_bps for tunnel in guesses.sync.protocol.tunnels} == {2e6}
    assert guesses.prediction.simulated_s > knows.prediction.simulated_s


def test_sites_that_no_handshake_reaches_are_named(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "row.toml").write_text(ROW.replace('"5 ms"', '"260 ms"'))
    with pytest.raises(InputError, match=r"a and b are 5.2 s apart.*at most 9.6"):
        experiment.build(keys.load(tmp_path / "small.toml"), tmp_path)


def test_links_change_by_rule_and_by_trace(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("t_s,link,attribute,value\n2.5,a->b,delay_s,0.01\n")
    built = made(tmp_path, SMALL, "wan.redraw='180 s'", "wan.trace='trace.csv'")
    first, second = built.changes[:2]
    assert dataclasses.astuple(first) == (2.5, "a->b", "delay_s", 0.1)
    assert (second.t_s, second.attribute) == (180.0, "rate_bps")
    assert len(built.changes) == 1 + 4 * 39
    with pytest.raises(InputError, match=r"wan\.trace: none\.csv is not there"):
        made(tmp_path, SMALL, "wan.trace='none.csv'")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("wan.scale=20",), "wan.scale: Input should be less than or equal to 10"),
        (("sync.model='mlp'",), "set wan.scale = 1"),
        (("wan.spread=0.5", "wan.redraw='180 s'"), "wan.spread is of rates that stay"),
        (("sync.model='lenet'",), "sync: model is one of alexnet"),
        (("sync.compute=3",), "sync.compute"),
        (("wan.colour=1",), "wan.colour: unknown key"),
        (("measure.baseline='tree'",), "measure.baseline tree is no system; there are star, fapt"),
        (("transport.rto_min='20 s'",), "transport.rto_min must be 1 ms to 120 s"),
    ],
)
def test_a_wrong_key_is_named(settings: tuple[str, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, SMALL, *settings)
    assert message in str(caught.value)
    assert "small.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('root = "each"', 'root = "z"'), "system.star.root: z is no site (sites are a, b, c)"),
        (('strategy = "fapt"', 'strategy = "multi-root"\nroot = "a"'), "multi-root chooses its roots itself"),
        (('strategy = "fapt"', 'strategy = "fapt"\nroots = 2'), "roots is for multi-root"),
        (('strategy = "fapt"', 'strategy = "fapt"\nservers = 2'), "servers is for star"),
        (('strategy = "fapt"', 'strategy = "steiner"'), "steiner needs two or more active sites"),
        (('strategy = "fapt"', 'strategy = "steiner"\nactive = ["a", "z"]'), "z is no site (sites are a, b, c)"),
        (('strategy = "fapt"', 'strategy = "planned"\nroot = "a"'), "planned chooses its roots itself"),
        (('name = "fapt"', 'name = "star"'), "two systems have the same name"),
        (('name = "fapt"', 'name = "star-2"'), "two arms are called star-2"),
        (('["1 s", "2 s", "500 ms"]', '["1 s"]'), "1 compute_s for 3 sites"),
    ],
)
def test_what_does_not_fit_together_is_named(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, SMALL.replace(*change))
    assert message in str(caught.value)


def journey(system: System, round_: int, t_s: float) -> list[tuple[object, ...]]:
    """Chunk 0 of a round on its way: a second for each tunnel, half a second for adding a child's part."""
    tree, rows, done = system.plan.ways[system.plan.way_of[0]].push, [], {}
    for site in reversed(tree.order):
        rows.append((t_s, site, "received", "push", "", round_, 0, 400_000, t_s))
        done[site] = t_s
        for child in tree.children[site]:
            rows.append((done[child] + 1, site, "received", "push", child, round_, 0, 400_000, done[child]))
            done[site] = max(done[site], done[child] + 1) + 0.5
        rows.append((done[site], site, "merged", "push", "", round_, 0, 400_000, done[site] - 0.5))
        if site != tree.root:
            rows.append((done[site], site, "forwarded", "push", tree.parent[site], round_, 0, 400_000, done[site]))
    rows += [(done[tree.root] + tree.depth[site], site, "received", "pull", tree.parent[site], round_, 0, 400_000, 0.0)
             for site in tree.order[1:]]  # fmt: skip
    return rows


def files(folder: Path, system: System, end_s: tuple[float, float], received: int = 900) -> None:
    """An arm's files: two rounds that end at these times, and counters of which one may be wrong."""
    folder.mkdir()
    with ROUNDS.writer(folder / ROUNDS.file) as writer:
        for round_, (begin_s, last_s) in enumerate(((1.0, end_s[0]), (end_s[0], end_s[1]))):
            for i, site in enumerate(system.sync.sites):
                writer.row(round_, site, begin_s, begin_s + 2, last_s - i / 10, f"d{round_}")
    with CHUNKS.writer(folder / CHUNKS.file) as writer:
        for round_, begin_s in enumerate((1.0, end_s[0])):
            for row in journey(system, round_, begin_s + 2):
                writer.row(*row, 0, row[1], 1, "", "")
    with TUNNELS.writer(folder / TUNNELS.file) as writer:
        writer.row("a", "b", 10_000_000, 0.1, 9.1e6)
    with WAN_LINKS.writer(folder / WAN_LINKS.file) as writer:
        writer.row("begin", "a->b", 100, 150_000, 100, 100, 150_000, 0, 2)
        writer.row("end", "a->b", 1000, 1_500_000, 100 + received, 1000, 1_500_000, 3, 9)


def test_systems_are_compared_by_their_round_times(tmp_path: Path) -> None:
    built = made(tmp_path)
    for system, end_s in zip(built.systems, ((11.0, 21.0), (9.0, 17.0), (13.0, 25.0), (5.0, 9.0)), strict=True):
        files(tmp_path / system.name, system, end_s)
    found = summary.summarise(built, tmp_path)
    assert [one["round_s"] for one in found["systems"]] == [[10.0, 10.0], [8.0, 8.0], [12.0, 12.0], [4.0, 4.0]]
    assert [one["speed_up"] for one in found["systems"]] == pytest.approx([1.0, 1.25, 10 / 12, 2.5])
    assert found["groups"]["star"] == {
        "runs": 3, "mean_s": 10.0, "best_s": 8.0, "worst_s": 12.0, "speed_up": 1.0, "best_against_best": 1.0,
        "default_s": 10.0, "default_against_default": 1.0,
    }  # fmt: skip
    assert found["groups"]["fapt"]["best_against_best"] == 2.0
    first = found["systems"][0]
    assert (first["mean_sync_s"], first["wan_bytes"]) == (8.0, 1_350_000)
    assert (first["wan_drops"], first["wan_marks"]) == (3, 7)
    assert first["digests_agree"]
    valid = validate(built, found, tmp_path)
    assert len(valid["rounds"]) == 8
    simulated_s = built.systems[0].prediction.simulated_s
    assert valid["rounds"][1]["relative_error"] == pytest.approx(simulated_s / 8 - 1)
    checks = {system.name: summary.check_accounts(tmp_path / system.name) for system in built.systems}
    console = Console(record=True, width=140)
    show.outcome(console, WideOutcome(tmp_path, found, valid, checks))
    text = console.export_text()
    assert "valid (12 checks)" in text
    assert "2.50×" in text
    figures = dict(wide.figures(found, json.loads(json.dumps(valid))))
    assert figures["round-s.star"] == {"value": 10.0, "low": 8.0, "high": 12.0}
    assert figures["speed-up-default.fapt"] == 2.5
    assert figures["bound.fapt"]["value"] == pytest.approx(valid["bounds"]["systems"]["fapt"]["of_flow"])


def test_the_packets_delays_shares_and_roots_stand_beside_what_was_predicted(tmp_path: Path) -> None:
    built = made(tmp_path)
    for system in built.systems:
        files(tmp_path / system.name, system, (11.0, 21.0))
    with BELIEFS.writer(tmp_path / "fapt" / BELIEFS.file) as writer:
        true_bps = 10e6 * prediction.goodput(built.scenario)
        writer.row(2.0, "a", "b", 1.2 * true_bps)
        writer.row(3.0, "a", "b", 0.9 * true_bps)
        writer.row(3.0, "b", "c", 0.5 * true_bps)
    valid = validate(built, summary.summarise(built, tmp_path), tmp_path)
    at = {(row["system"], row["site"]): row for row in valid["nodes"] if row["of"] == "chunks"}
    star = at["star-1", "b"]["measured"]
    assert (star["transmission_s"], star["blocking_s"], star["aggregation_s"]) == (1.0, 0.0, 0.0)
    assert at["star-1", "a"]["measured"]["aggregation_s"] == 1.0  # two children, half a second each
    assert at["star-1", "b"]["predicted"]["transmission_s"] > 0
    root = next(row for row in valid["roots"] if row["system"] == "star-1")
    assert (root["root"], root["share"], root["planned_share"]) == ("a", 1.0, pytest.approx(1.0))
    assert root["measured_s"] == pytest.approx(2 + 1 + 1 + 1)
    assert valid["choices"][0]["best_root"] == "star-1"
    believed = valid["believed"]["fapt"]
    assert believed["median_error"] == pytest.approx(0.1)
    assert believed["tunnels_seen"] == 2
    assert set(valid["believed"]) == {"fapt"}


def test_of_a_round_begun_again_the_last_attempt_counts(tmp_path: Path) -> None:
    system = made(tmp_path).systems[0]
    with CHUNKS.writer(tmp_path / CHUNKS.file) as writer:
        for attempt, begin_s in enumerate((0.0, 100.0)):
            for row in journey(system, 0, begin_s):
                writer.row(*row, attempt, row[1], 1, "", "")
    pushes = Pushes(CHUNKS.read(tmp_path / CHUNKS.file))
    assert pushes.by_chunk()["b"].transmission_s == 1.0
    assert min(pushes.merged.values()) >= 100
    assert pushes.shares() == {"a": 1.0}


def test_a_bound_is_of_the_links_as_they_were_meanwhile(tmp_path: Path) -> None:
    """The slow link c->b doubles half way through the second round: its bound is of 1.5 times the rate."""
    (tmp_path / "trace.csv").write_text("t_s,link,attribute,value\n15,c->b,rate_bps,50e6\n")
    built = made(tmp_path, SMALL, "wan.trace='trace.csv'", "sync.compute='1 s'")
    for system in built.systems:
        files(tmp_path / system.name, system, (11.0, 21.0))
    bounds = Bounds(built.scenario, built.wan, built.changes)
    size = 4 * sum(built.systems[0].sync.chunks)
    slow, mixed, fast = (bounds.between(*span, size) for span in ((0.0, 10.0), (10.0, 20.0), (20.0, 30.0)))
    assert slow.cut_s == pytest.approx(8 * size / (2.5e6 * prediction.goodput(built.scenario)))
    assert slow.flow_s >= slow.cut_s
    assert mixed.cut_s == pytest.approx(slow.cut_s / 1.5)
    assert fast.cut_s == pytest.approx(slow.cut_s / 2)


def test_accounts_that_differ_are_named(tmp_path: Path) -> None:
    system = made(tmp_path).systems[0]
    files(tmp_path / "arm", system, (11.0, 21.0), received=899)
    first, *rest = summary.check_accounts(tmp_path / "arm")
    assert first == {
        "what": "every account of every link agrees",
        "ok": False,
        "detail": "a->b: port 900, queue 900, other end 899 packets",
    }
    assert all(check["ok"] for check in rest)


def test_the_dry_run_shows_links_and_predictions(tmp_path: Path) -> None:
    console = Console(record=True, width=140)
    show.experiment(console, made(tmp_path))
    text = console.export_text()
    assert "2 WireGuard tunnels; 2 ordered pairs without one (hops rule: the longest way is c b a)" in text
    assert "star-3" in text
