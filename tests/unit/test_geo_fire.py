"""What strikes systems with a scheduler, and the verdict that nothing came of it, which must see what did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from test_geo import SMALL, made

from testbed.errors import InputError
from testbed.geo import consistency
from testbed.geo.fire import BACK, script
from testbed.geo.keys import FireKeys
from testbed.geo.records import BELIEFS, CONTROL, POLICIES, STAGES
from testbed.telemetry.events import EventLog
from workloads.paramsync.records import CHUNKS

SCHEDULED = SMALL.replace('strategy = "star"\nroot = "each"', 'strategy = "fapt"\nscheduler = true').replace(
    'name = "fapt"\nstrategy = "fapt"', 'name = "whole"\nstrategy = "multi-root"\nawareness = true\nauxiliary = true'
)


def test_strikes_follow_from_the_seed_and_are_put_right() -> None:
    keys = FireKeys(kills=20, cuts=20, away="10 s", until="60 s")  # type: ignore[arg-type]
    tunnels = [("a", "b"), ("b", "c")]
    found = script(keys, 1, ("a", "b", "c"), tunnels)
    assert found == script(keys, 1, ("a", "b", "c"), tunnels) != script(keys, 2, ("a", "b", "c"), tunnels)
    assert len(found) > 4
    struck: set[tuple[str, str]] = set()
    for strike in found:
        if strike.what in BACK:
            assert strike.t_s < 60
            assert (BACK[strike.what], strike.whom) not in struck  # nobody is struck twice at once
            struck.add((BACK[strike.what], strike.whom))
        else:
            struck.remove((strike.what, strike.whom))
    assert not struck
    assert script(FireKeys(), 1, ("a", "b"), [("a", "b")]) == []


def test_a_scheduler_is_told_everything_at_the_scale(tmp_path: Path) -> None:
    built = made(tmp_path, SCHEDULED, "scheduler.site='b'", "scheduler.believed='20 Mbit/s'", "fire.kills=5")
    blind, whole = (system.sync.protocol for system in built.systems)
    assert blind is not None
    assert whole is not None
    assert (blind.strategy, blind.awareness, blind.paths) == ("fapt", False, 0)
    assert (whole.strategy, whole.awareness, whole.paths) == ("multi-root", True, 3)
    assert (whole.scheduler, whole.probe_bytes, whole.limit_bytes, whole.detect_s) == (1, 200_000, 200_000_000, 15.0)
    assert {tunnel.believed_bps for tunnel in whole.tunnels} == {2e6}
    plan = built.arm_plan(built.systems[0])
    assert plan["fire"] and plan["watchdog_s"] == 7200.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("scheduler.site='z'",), "scheduler.site: z is no site (sites are a, b, c)"),
        (("fire.cuts=1", "wan.tunnels=false"), "fire.cuts is of tunnels"),
        (("fire.kills=-1",), "fire.kills"),
        (("sync.watchdog=0",), "sync.watchdog"),
    ],
)
def test_what_no_scheduler_can_do_is_named(settings: tuple[str, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, SCHEDULED, *settings)
    assert message in str(caught.value)


def test_fire_and_meshed_trees_are_not_for_everybody(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fire is for systems with a scheduler"):
        made(tmp_path, SMALL, "fire.kills=1")
    with pytest.raises(InputError, match="a scheduler decides on tunnels, and star uses pairs without one"):
        made(tmp_path, SMALL.replace('root = "each"', "awareness = true"))


SENT = (3.0, "a", "sent", "push", "c", 0, 0, 400, 2.0, 0, "a", 1, "b", "b>c")
RELAYED = (3.5, "b", "relayed", "push", "a", 0, 0, 400, 2.0, 0, "a", 1, "a", "b>c")
RECEIVED = (4.0, "c", "received", "push", "a", 0, 0, 400, 3.5, 0, "a", 1, "b", "c")
ONWARD = (4.0, "b", "sent", "push", "c", 0, 0, 400, 3.5, 0, "a", 1, "c", "c")
MERGED = (4.1, "c", "merged", "push", "a", 0, 0, 400, 4.0, 0, "c", 1, "", "")


def arm(folder: Path, rows: Sequence[tuple[object, ...]], stages: Sequence[tuple[int, int]] = ((0, 0), (0, 1))) -> Path:
    with CHUNKS.writer(folder / CHUNKS.file) as writer:
        for row in rows:
            writer.row(*row)  # type: ignore[arg-type]
    with STAGES.writer(folder / STAGES.file) as writer:
        for number, (round_, attempt) in enumerate(stages):
            writer.row(float(number), round_, attempt, 1)
    with POLICIES.writer(folder / POLICIES.file) as writer:
        writer.row(0.5, 1, "c", 1.0, "a>c b>c")
    with BELIEFS.writer(folder / BELIEFS.file) as writer:
        writer.row(0.5, "a", "b", 1e6)
    with CONTROL.writer(folder / CONTROL.file) as writer:
        writer.row(0.5, "request", "a", 1)
    events = EventLog(folder / "events.jsonl")
    events.write(1.0, "site killed", whom="b")
    events.write(1.0, "tunnel cut", whom="a-b")
    events.close()
    return folder


def test_a_fair_arm_passes_and_is_counted(tmp_path: Path) -> None:
    folder = arm(tmp_path, [SENT, RELAYED, ONWARD, RECEIVED, MERGED])
    assert all(one["ok"] for one in consistency.check(folder))
    assert consistency.counts(folder) == {
        "policies": 1, "rounds_begun_again": 1, "reports": 1, "control_messages": 1, "chunks_sent": 2,
        "chunks_relayed": 1, "chunks_lost": 0, "kills": 1, "cuts": 1, "changes_of_links": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "stages", "what", "detail"),
    [
        ([MERGED, MERGED], ((0, 0),), "no contribution counts twice", "c (life 1) added chunk 0 of a 2 times in 0.0"),
        ([SENT, SENT], ((0, 0),), "no chunk goes in a circle", "a sent chunk 0 of a to c 2 times (push, 0.0)"),
        ([(*SENT[:-1], "b>a>c")], ((0, 0),), "no chunk goes in a circle", "chunk 0 of a in 0.0 goes a>b>a>c"),
        ([SENT], ((1, 0), (0, 0)), "rounds and attempts go forward", "2 attempts"),
    ],
)
def test_what_may_not_happen_is_seen(
    rows: list[tuple[object, ...]], stages: tuple[tuple[int, int], ...], what: str, detail: str, tmp_path: Path
) -> None:
    (failed,) = (one for one in consistency.check(arm(tmp_path, rows, stages)) if not one["ok"])
    assert failed["what"] == what
    assert detail in failed["detail"]
