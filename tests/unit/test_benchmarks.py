"""The benchmarks measure what they say: the same work everywhere, in turns, and nothing lost up to the table."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import cases, decisions, fluid, guest, loops, measure, native, netstorm, ns3, placements, setup, table
from benchmarks.guest import Moved
from benchmarks.inside import flows
from benchmarks.inside.fabric import job_of_all
from benchmarks.inside.network import Folder
from controllers.cassini import search
from controllers.sdn.paths import Routes
from testbed.engine.kernel import Kernel
from testbed.engine.launch import Job, Machine
from testbed.errors import EnvironmentLacks, NotValid

KERNEL = Kernel(Path("/nowhere/linux"), "7.2", "key", True)
STANDARD = cases.standard()


@pytest.mark.parametrize("case", [*STANDARD, STANDARD[0].with_copies()], ids=lambda case: f"{case.name} {case.copied}")
def test_a_case_arrives_in_the_guest_as_it_left(case: cases.Case) -> None:
    assert cases.Case.from_dict(json.loads(json.dumps(case.to_dict()))) == case


def test_the_fabric_sends_every_host_s_bytes_into_the_next_rack() -> None:
    case = cases.fabric(1000)
    assert (len(case.topology.hosts), len(case.topology.links)) == (24, 48)
    racks = {host: case.topology.uplink(host) for host in case.topology.hosts}
    assert sorted(flow.source for flow in case.flows) == sorted(flow.destination for flow in case.flows)
    assert all(racks[flow.source] != racks[flow.destination] for flow in case.flows)
    assert case.sized
    assert not STANDARD[0].sized


def test_short_cases_are_the_same_networks() -> None:
    for case, short in zip(STANDARD, cases.standard(short=True), strict=True):
        assert (short.name, short.topology) == (case.name, case.topology)


def parsed(text: str) -> dict[str, list[list[str]]]:
    """The items of a description for ns-3 by their kind."""
    items: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        kind, *values = line.split()
        items.setdefault(kind, []).append(values)
    return items


@pytest.mark.parametrize("case", STANDARD, ids=lambda case: case.name)
def test_ns3_takes_the_controller_s_paths(case: cases.Case) -> None:
    items = parsed(ns3.describe(case))
    names = [*case.topology.hosts, *case.topology.switches]
    routes = [[names[int(number)] for number in route] for route in items["route"]]
    rules = {(at, before, host): to for at, before, host, to in routes}
    assert len(rules) == len(items["route"]), "two ways from one port to one host"
    for flow in case.flows:
        for source, destination in ((flow.source, flow.destination), (flow.destination, flow.source)):
            before, at, path = source, case.topology.uplink(source), [f"{source}->{case.topology.uplink(source)}"]
            while at != destination:
                before, at = at, rules[at, before, destination]
                path.append(f"{before}->{at}")
            assert path == Routes(case.topology).route(source, destination)


def test_ns3_gets_the_same_rates_sizes_and_delay() -> None:
    case = cases.dumbbell(10**9, 1500, 2.0, way_delay_s=60e-6)
    items = parsed(ns3.describe(case))
    assert [(rate, delay_ns) for _, _, rate, delay_ns in items["link"]] == [("1000000000", "20000")] * 5
    assert items["network"] == [["4", "2", "1500", "1448", str(cases.BUFFER_BYTES), "2666", "40"]]
    assert items["flow"] == [["0", "2", "0"], ["1", "3", "0"]]
    assert items["end"] == [["2.0"]]


@pytest.mark.skipif(not ns3.HEADER.is_file(), reason=f"ns-3 is not installed: {ns3.MEND}")
def test_ns3_moves_every_byte_over_every_link_of_its_path() -> None:
    size_bytes, case = 100_000, cases.fabric(100_000)
    moved = ns3.run(case, min(os.sched_getaffinity(0)))
    links = sum(len(Routes(case.topology).route(flow.source, flow.destination)) for flow in case.flows)
    assert moved.details["received_bytes"] == size_bytes * len(case.flows)
    data_hops = links * -(-size_bytes // case.segment_bytes)
    assert data_hops * 1.4 < moved.hops < data_hops * 2.2, "and an acknowledgement for every second packet or so"
    assert moved.details["drops"] == 0


def test_without_ns3_the_mend_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ns3, "HEADER", tmp_path / "no.h")
    with pytest.raises(EnvironmentLacks, match="libns3-dev"):
        ns3.program()


def test_without_root_the_native_chain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EnvironmentLacks, match="root"):
        native.run(1500, 0.1, 0)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("size_bytes", [1, 70_000, flows.PIECE_BYTES, 2 * flows.PIECE_BYTES + 12_345])
def test_a_flow_ends_when_its_last_byte_came(size_bytes: int, copied: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        out = socket.create_connection(listener.getsockname())
        inward, _ = listener.accept()
    with out, inward:
        file = None if copied else flows.memory_file()
        ends = [
            threading.Thread(target=flows.receive, args=(inward, size_bytes, copied), daemon=True),
            threading.Thread(target=flows.send, args=(out, size_bytes, 0.0, file), daemon=True),
        ]
        for end in ends:
            end.start()
        for end in ends:
            end.join(20)
        assert not any(end.is_alive() for end in ends)
        inward.setblocking(False)
        with pytest.raises(BlockingIOError):
            inward.recv(1)


def test_a_flow_without_end_is_over_when_the_connection_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        out = socket.create_connection(listener.getsockname())
        inward, _ = listener.accept()
    with inward:
        receiver = threading.Thread(target=flows.receive, args=(inward, None, False), daemon=True)
        receiver.start()
        with out:
            out.sendall(b"some")
        receiver.join(20)
        assert not receiver.is_alive()


def test_systems_take_turns_and_ratios_are_taken_within_one() -> None:
    order = []
    figures = {"a": iter([10.0, 40.0, 20.0]), "b": iter([5.0, 10.0, 4.0])}

    def system(name: str) -> Any:
        def run() -> float:
            order.append(name)
            return next(figures[name])

        return run

    turns = measure.in_turns({name: system(name) for name in "ab"}, 3, lambda _: None)
    assert order == ["a", "b"] * 3
    assert turns.ratio("a", "b", float) == measure.Spread(4.0, 2.0, 5.0)
    assert turns.spread("a", float) == measure.Spread(20.0, 10.0, 40.0)


def test_a_system_that_is_missing_is_asked_once_and_says_why() -> None:
    asked = []

    def missing() -> float:
        asked.append(1)
        raise EnvironmentLacks("no such thing", "get one")

    turns = measure.in_turns({"there": lambda: 1.0, "missing": missing}, 3, lambda _: None)
    assert len(asked) == 1
    assert turns.skipped == {"missing": "no such thing; mend: get one"}
    assert turns.ratio("there", "missing", float) is None
    assert turns.spread("missing", float) is None


def test_a_system_that_fails_ends_the_run() -> None:
    def broken() -> float:
        raise NotValid("wrong")

    with pytest.raises(NotValid):
        measure.in_turns({"broken": broken}, 1, lambda _: None)


def test_the_table_has_rates_ratios_and_reasons() -> None:
    turns = measure.Turns(
        {table.GUEST: [Moved(600_000, 1.0, {}), Moved(400_000, 1.0, {})], table.NS3: [Moved(100_000, 1.0, {})] * 2},
        {table.NATIVE: "it is not there; mend: get one"},
    )
    text = table.traffic({"a case": turns})
    assert "| a case | 500 [400, 600] | - | 100 [100, 100] | - | 5.0 [4.0, 6.0] | - |" in text
    assert "this kernel is missing: it is not there; mend: get one" in text


class FakeGuest:
    """A guest that does what the program would, in the folder it is lent."""

    exit_code = 0

    def __init__(self, job: Job, machine: Machine, kernel: Kernel) -> None:
        self.job = job
        assert (machine.memory_bytes, kernel) == (guest.MEMORY_BYTES, KERNEL)

    def run(self, _: Any, stderr: Any, status: Any) -> int:
        assert self.job.write is not None
        folder = Folder(Path(self.job.write[0]))
        status({"stage": "guest up"})
        for number, mark in enumerate(("network", "begin", "sent")):
            folder.mark(mark)
            os.utime(folder.path / f"{mark}.mark", (0, 1000 + number))
        folder.answer({"hops": len(folder.asked()["flows"]), "marks": 7})
        stderr(b"it went wrong\n")
        return self.exit_code


def test_the_host_s_file_stamps_are_the_stopwatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "Guest", FakeGuest)
    assert guest.moved(STANDARD[0], KERNEL) == Moved(2, 1.0, {"marks": 7})


def test_a_program_that_fails_is_not_valid_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGuest, "exit_code", 1)
    monkeypatch.setattr(guest, "Guest", FakeGuest)
    with pytest.raises(NotValid, match="it went wrong"):
        guest.moved(STANDARD[0], KERNEL)


def test_stages_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    at_s = dict(zip(("launched", *setup.STAGES, "idle begins", "idle ends"), (0, 1, 3, 6, 10, 15, 21, 28), strict=True))
    monkeypatch.setattr(setup, "program", lambda *_: (at_s, {}))
    stages = setup.fabric(KERNEL, 1.0)
    assert stages == dict(zip(setup.STAGES, (1, 2, 3, 4, 5), strict=True)) | {"all": 15, "idle": 7}


def test_every_host_has_an_agent() -> None:
    topology = cases.fabric(1).topology
    assert job_of_all(topology).hosts == topology.hosts


@pytest.mark.parametrize("count", [2, 3])
def test_decisions_are_about_jobs_that_do_not_all_fit(count: int) -> None:
    made = decisions.decide_for(count)
    assert made.proved
    assert 0 < made.score < 1
    assert len({profile.period_s for profile in decisions.profiles(8)}) == 8


def test_candidates_are_of_one_cluster_with_few_jobs_a_link() -> None:
    drawn = placements.candidates(4, 8, 3, seed=2)
    assert drawn == placements.candidates(4, 8, 3, seed=2)
    assert all(2 <= len(link.profiles) <= 3 for placement in drawn for link in placement.links)
    assert len({placement.links for placement in drawn}) == 4


def test_scattered_jobs_are_on_twice_as_many_links() -> None:
    made = decisions.grown(6)
    assert (made.jobs, made.links) == (6, 12)
    assert made.unshifted <= made.score <= made.best
    assert made.peak_bytes > 10_000_000


def test_more_work_finds_hardly_more_for_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing is proved a budget comes within a hundredth of eight times as much."""
    monkeypatch.setattr(search, "BUDGET", search.BUDGET // 4)
    link = decisions.crowded(10)
    assert 4 <= link.jobs <= 8
    assert link.score - 1e-3 <= link.longer <= min(link.bound, link.score + 0.01) + 1e-9


def test_finer_angles_lose_no_score() -> None:
    fine, coarse = decisions.precision(8), decisions.precision(128)
    assert fine.score > coarse.score


def test_rules_for_loops() -> None:
    """Every rule on placements with and without a loop; the module's is the best of them by its own measure."""
    drawn = [loops.Case(placement) for placement in placements.candidates(3, 4, 2, 0, periods_s=placements.EVEN_S)]
    for case in drawn:
        found = {rule: case.score(shifts(case)) for rule, shifts in loops.RULES.items()}
        assert found["together"] >= max(found.values()) - 0.01
        assert max(found.values()) <= case.best + 0.01
        if case.looped:
            assert found["drop"] == found["nothing"]
        else:
            assert found["drop"] == pytest.approx(case.best, abs=0.01)


def test_a_choice_without_a_candidate_free_of_loops_is_the_schedulers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "CANDIDATES", 2)
    monkeypatch.setattr(loops, "WORKERS", 2)
    reached = loops.measure(2)
    assert reached.placements == 4
    assert 1 <= reached.looped <= 4
    assert reached.chosen["together"] >= reached.chosen["drop"] - 1e-9
    if reached.hopeless == 2:
        assert reached.chosen["drop"] == reached.chosen["nothing"]


def test_the_program_keeps_table_and_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "ready_kernel", lambda: KERNEL)
    monkeypatch.setattr(decisions, "JOB_COUNTS", (2,))
    monkeypatch.setattr(decisions, "GROWTH", (4,))
    monkeypatch.setattr(decisions, "CROWDED_LINKS", 1)
    monkeypatch.setattr(decisions, "PRECISIONS_DEG", (5, 64))
    assert program.main(["--only", "decisions", "--runs", "2", "--results", str(tmp_path)]) == 0
    text = (tmp_path / "bench" / "bench.md").read_text()
    figures = json.loads((tmp_path / "bench" / "bench.json").read_text())
    assert capsys.readouterr().out == text
    assert "| 2 jobs |" in text
    assert "| 4 jobs, tied by loops | 4 | 8 |" in text
    assert "| 64° |" in text
    assert (tmp_path / "bench" / "precision.png").stat().st_size > 5000
    assert [run["proved"] for run in figures["decisions"]["runs"]["2 jobs"]] == [True, True]
    assert [path.name for path in tmp_path.iterdir()] == ["bench"]


def test_the_program_without_a_kernel_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> Kernel:
        raise EnvironmentLacks("the guest kernel is not built yet", "python -m testbed kernel build")

    monkeypatch.setattr(program, "ready_kernel", none)
    assert program.main(["--results", str(tmp_path)]) == EnvironmentLacks.exit_code
    assert "python -m testbed kernel build" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_netstorm_s_decisions_are_timed_and_compared() -> None:
    assert all(wall_s > 0 for stages in (netstorm.trees(9), netstorm.policy_change()) for wall_s in stages.values())
    fired = netstorm.under_fire(2)
    assert fired.counts["rounds completed"] == 2 * 24
    assert "2 seeds" in table.fired(fired)
    assert "0 faults" in table.fired(fired)
    compared = netstorm.Compared("x", 2.0, {name: 2.0 + number for number, name in enumerate(netstorm.STRATEGIES)})
    text = table.compared(netstorm.medians([compared, compared]))
    assert "| star | 1.00 |" in text
    assert "| star, best place | 1.50 |" in text
    assert "| planned | 5.0 | 2.00 |" in table.dynamic({"star": 10.0, "planned": 5.0})


def test_the_fluid_engine_is_timed_and_its_skipping_held_against_none() -> None:
    (small,) = fluid.growth((24,))
    assert small.accelerators == 24
    assert small.jobs == 24
    assert small.played < small.proven + small.sampled
    lost = fluid.errors(3, ("themis",))
    assert [one.skipping for one in lost] == ["none", "periodic", "sampled"]
    assert abs(lost[1].mean) < 1e-3
    assert lost[1].share_skipped > 0.5
    text = fluid.table(small, [small], lost)
    assert "| a day: 24 accelerators, 24 jobs |" in text
    assert "| themis | periodic | 3 |" in text
