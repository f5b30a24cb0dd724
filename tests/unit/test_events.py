"""Events of a scenario: what is refused, what is planned, what the files tell of them, and when a run is not valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import experiment, scenario
from testbed.errors import InputError
from testbed.event_checks import check_events
from testbed.events.plan import LINE_S, Event, changed
from testbed.events.seen import NOTHING, History, history
from testbed.fidelity import check_marks, check_rates, deltas
from testbed.telemetry.tables import COUNTERS, EVENTS, QUEUES

HEAD = """
name = "tried"
title = "Tried"
[fabric]
topology = "dumbbell"
scale = 200
[[job]]
name = "a"
model = "vgg16"
workers = ["h1", "h3"]
[[job]]
name = "b"
model = "vgg16"
workers = ["h2", "h4"]
[measure]
arms = ["alone", "together"]
"""


def built(tmp_path: Path, *events: str, head: str = HEAD) -> experiment.Experiment:
    """A scenario with these events, each the lines of its table."""
    file = tmp_path / "tried.toml"
    file.write_text(head + "".join(f"[[event]]\n{event}\n" for event in events))
    return experiment.build(scenario.load(str(file)), file.name)


DOWN = 'at = "1 s"\nkind = "link-down"\nlink = "s1<->s2"'
KILL = 'at = "1 s"\nkind = "host-kill"\nhost = "h1"\nexpect = ["a"]'


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (['at = "1 s"\nkind = "earthquake"'], "event.0.kind: Input should be 'link-down'"),
        (['kind = "link-down"\nlink = "s1<->s2"'], "event.0.at: Field required"),
        (['at = 1\nkind = "controller-crash"'], "event.0.at:"),
        (['at = "1 s"\nkind = "link-down"'], "event.0: link-down needs link"),
        (['at = "1 s"\nkind = "rate"\nlink = "s1->s2"'], "event.0: rate needs rate"),
        (['at = "1 s"\nkind = "loss"\nlink = "s1->s2"\nloss = 1'], "event.0.loss: Input should be less than 1"),
        (['at = "1 s"\nkind = "host-kill"\nhost = "h1"\nlink = "s1->s2"'], "event.0: link is no key of host-kill"),
        (['at = "1 s"\nkind = "link-down"\nlink = "s1->s2"'], "event.0: link-down is of a whole cable"),
        (['at = "1 s"\nkind = "controller-crash"\nspeed = 3'], "event.0.speed: unknown key"),
        ([f'{DOWN}\narms = ["sideways"]'], "event.0.arms.0: Input should be"),
        ([DOWN, 'at = "2 s"\nkind = "link-up"\nlink = "s1<->s2"\nexpect = ["a"]'], "event.1: no job fails by link-up"),
        ([DOWN.replace("s2", "s9")], "event.0.link: there is no link 's1<->s9' (as in h1<->s1)"),
        ([KILL.replace("h1", "h9")], "event.0.host: there is no host 'h9' (hosts are h1 to h4)"),
        ([KILL.replace('["a"]', '["z"]')], "event.0.expect: there is no job 'z' (a, b)"),
        ([f'{DOWN}\narms = ["random"]'], "event.0.arms: there is no arm of measure.arms 'random' (alone, together)"),
        (['at = "1 s"\nkind = "rate"\nlink = "s1->s2"\nrate = "1 Mbit/s"'], "event.0.rate: 5000 bit/s once scaled"),
        (['at = "1 s"\nkind = "delay"\nlink = "s1->s2"\ndelay = "20 s"'], "event.0.delay: 4000 s once scaled"),
        ([DOWN, DOWN.replace("1 s", "2 s")], "event.1: link-down at 2 s of arm together: s1<->s2 is down already"),
        ([DOWN.replace("down", "up")], "event.0: link-up at 1 s of arm together: s1<->s2 is not down"),
        (['at = "1 s"\nkind = "host-thaw"\nhost = "h1"'], "event.0: host-thaw at 1 s of arm together: h1 is not"),
        (['at = "1 s"\nkind = "controller-restart"'], "controller is not crashed"),
        ([KILL, 'at = "2 s"\nkind = "host-freeze"\nhost = "h1"'], "event.1: host-freeze at 2 s of arm together: h1"),
        ([KILL, 'at = "2 s"\nkind = "link-down"\nlink = "h1<->s1"'], "h1<->s1 comes after h1 was killed"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, events: list[str], said: str) -> None:
    with pytest.raises(InputError) as refused:
        built(tmp_path, *events)
    assert said in str(refused.value)


def test_an_event_that_happens_in_no_arm_is_refused(tmp_path: Path) -> None:
    head = HEAD.replace('"alone", "together"', '"alone"')
    with pytest.raises(InputError, match=r"event\.0: happens in no arm"):
        built(tmp_path, DOWN, head=head)
    assert list(built(tmp_path, f'{DOWN}\narms = ["alone"]', head=head).events) == ["alone"]


def test_a_cluster_has_no_events() -> None:
    settings = ('event=[{at="1 s", kind="controller-crash"}]',)
    with pytest.raises(InputError, match=r"\[\[event\]\] is for \[\[job\]\]s"):
        scenario.load("cassini-dynamic", settings)


def test_events_are_scaled_ordered_and_kept_out_of_the_profiles(tmp_path: Path) -> None:
    made = built(
        tmp_path,
        'at = "2 s"\nkind = "delay"\nlink = "s1<->s2"\ndelay = "5 us"',
        'at = "1 s"\nkind = "rate"\nlink = "s1->s2"\nrate = "10 Gbit/s"',
        'at = "2 s"\nkind = "loss"\nlink = "s2->s1"\nloss = 0.1',
    )
    events = made.events["together"]
    assert [(event.at_s, event.kind, event.target) for event in events] == [
        (1.0, "rate", "s1->s2"),
        (2.0, "delay", "s1<->s2"),
        (2.0, "loss", "s2->s1"),
    ]
    assert [event.value for event in events] == [50_000_000, 0.001, 0.1]
    assert list(made.events) == ["together"]
    assert [Event.from_dict(raw) for raw in made.arm_plan("together", [])["events"]] == list(events)
    assert made.arm_plan("alone", [])["events"] == []
    # A delay line cannot be put in while packets flow: it is there from the beginning, in the arms that need it.
    for way in (("s1", "s2"), ("s2", "s1")):
        assert made.topology_of("together").direction(*way).delay_s == LINE_S
        assert made.topology_of("alone").direction(*way).delay_s == 0
    slower = changed(made.topology.direction("s1", "s2"), events[0])
    assert (slower.rate_bps, slower.delay_s) == (50_000_000, 0)


def rows(folder: Path, *lines: tuple[str, float | None, float | None, str, str, float | None, str]) -> Path:
    with EVENTS.writer(folder / EVENTS.file) as writer:
        for line in lines:
            writer.row(*line)
    return folder


PLAN = [Event(1.0, "host-kill", "h1", expect=("a",)), Event(2.0, "rate", "s1->s2", 5e7)]
KILLED = ("0", 1.5, 1.500004, "host-kill", "h1", None, "SIGKILL to 1 programs")
SLOWER = ("0", 2.5, 2.500008, "rate", "s1->s2", 5e7, "s1-eth3 rate_bytes_per_s 6250000")
FAILED = ("0", None, 1.5001, "job-failed", "a", None, "job a; rank 0 went away")


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        ([KILLED, SLOWER, FAILED], []),
        ([KILLED, SLOWER], ["a did not fail, trial 0"]),
        ([KILLED, SLOWER, FAILED, (*FAILED[:4], "b", None, "why")], ["b failed, trial 0: why"]),
        ([KILLED, FAILED], ["trial 0: 1 of 2 are on file"]),
        ([KILLED, (*SLOWER[:2], None, *SLOWER[3:]), FAILED], ["rate of s1->s2 at 2.500000 s, trial 0: the trial had"]),
        ([KILLED, (*SLOWER[:2], 2.502, *SLOWER[3:]), FAILED], ["trial 0: done at 2.502000 s"]),
        ([KILLED, (*SLOWER[:2], 2.4, *SLOWER[3:]), FAILED], ["trial 0: done at 2.400000 s"]),
    ],
)  # fmt: skip
def test_the_verdict_on_events(tmp_path: Path, lines: list[tuple[str, float, float, str, str, float, str]],
                               faults: list[str]) -> None:  # fmt: skip
    checks = check_events(rows(tmp_path, *lines), PLAN, [{"a": 0.0, "b": 0.0}])
    said = "; ".join(check.found for check in checks if not check.ok)
    assert bool(said) == bool(faults)
    for fault in faults:
        assert fault in said


def test_rates_are_held_against_what_was_set_when(tmp_path: Path) -> None:
    """A link that is halved for a second and put back: its samples prove both rates, and would prove no third."""
    made = built(tmp_path)
    topology, set_bps = made.topology, made.topology.direction("s1", "s2").rate_bps
    rows(
        tmp_path,
        ("0", 1.0, 1.0, "rate", "s1->s2", set_bps / 2, "x"),
        ("0", None, 2.0, "rate", "s1->s2", set_bps, "put back"),
    )
    events = history(tmp_path, topology)
    assert events.rates == {"s1->s2": [(1.0, set_bps // 2), (2.0, set_bps)]}
    with QUEUES.writer(tmp_path / QUEUES.file) as writer:
        sent = 0.0
        for at in range(3000):
            writer.row(at * 1e-3, "s1->s2", 200_000, 22, round(sent), 1, 0, 0)
            sent += set_bps / 8 * 1e-3 * (0.5 if 1000 <= at < 2000 else 1)
    queues = QUEUES.read(tmp_path / QUEUES.file)
    held = check_rates(queues, topology, 1e-3, ["s1->s2"], events=events)
    assert [check.ok for check in held] == [True, True]
    assert "set to 125.00 Mbit/s" in held[1].what
    assert "125.00 Mbit/s to a standing queue" in held[1].found
    wrong = History({"s1->s2": [(1.0, set_bps // 4), (2.0, set_bps)]})
    assert [check.ok for check in check_rates(queues, topology, 1e-3, ["s1->s2"], events=wrong)] == [True, False]


def test_marks_that_a_cut_cable_lost_are_no_fault_and_others_are(tmp_path: Path) -> None:
    topology = built(tmp_path).topology
    with COUNTERS.writer(tmp_path / COUNTERS.file) as writer:
        for label, marks, arrived in (("begin", 0, 0), ("end", 10, 7)):
            for a, b in topology.directed():
                here = (marks, arrived) if (a, b) == ("s1", "s2") else (0, 0)
                into = arrived if (a, b) == ("s2", "h3") else 0
                writer.row("0", label, f"{a}->{b}", 0, 0, into, here[0], 0, into or here[1])
    counters = list(deltas(COUNTERS.read(tmp_path / COUNTERS.file)))
    assert [check.ok for check in check_marks(counters, topology)] == [False, True, True]
    rows(tmp_path, ("0", 1.0, 1.0, "link-down", "s1<->s2", None, "s1-eth3 down"))
    cut = history(tmp_path, topology)
    assert (cut.cut, sorted(cut.lossy)) == (True, ["s1->s2", "s2->s1"])
    assert [check.ok for check in check_marks(counters, topology, cut)] == [True, True, True]
    rows(tmp_path, ("0", 1.0, None, "link-down", "s1<->s2", None, "the trial had ended"))
    assert history(tmp_path, topology) == NOTHING
    rows(tmp_path, ("0", 1.0, 1.0, "host-kill", "h1", None, "x"))
    assert sorted(history(tmp_path, topology).lossy) == ["h1->s1", "s1->h1"]


def test_a_file_goes_on_behind_its_last_whole_row(tmp_path: Path) -> None:
    path = rows(tmp_path, KILLED) / EVENTS.file
    path.write_text(path.read_text() + "0,2.5,2.5")
    with EVENTS.writer(path, resume=True) as writer:
        writer.row(*SLOWER)
    assert EVENTS.read(path).text("kind") == ["host-kill", "rate"]
    path.write_text("tri")
    with EVENTS.writer(path, resume=True) as writer:
        writer.row(*SLOWER)
    assert EVENTS.read(path).text("kind") == ["rate"]
