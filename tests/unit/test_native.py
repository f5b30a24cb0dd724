"""The native engine without its network: what goes with a run, what is put back, and when a machine did not keep up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import scenario
from testbed.engine.native import inside, launch, ledger
from testbed.errors import EnvironmentLacks, InputError
from testbed.machine_checks import check_machine
from testbed.net import namespaces
from testbed.net.transport import BACKLOG, CONGESTION_CONTROL_ALLOWED
from testbed.study import points, work
from testbed.telemetry.events import EventLog
from testbed.telemetry.lag import busiest, cpu_ticks
from testbed.telemetry.tables import MACHINE

ROOT = Path(__file__).parents[2]
GONE_WITHIN_S = 60.0


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A /proc/sys with the settings that a run changes."""
    for name, value in zip(ledger.SETTINGS, ("reno cubic", "1000"), strict=True):
        (tmp_path / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / name).write_text(f"{value}\n")
    return tmp_path


def values(machine: Path) -> list[str]:
    return [(machine / "sys" / name).read_text().strip() for name in ledger.SETTINGS]


def change(machine: Path) -> None:
    for name in ledger.SETTINGS:
        (machine / "sys" / name).write_text("changed\n")


def test_rooms_that_do_not_see_each_other_mean_the_same() -> None:
    assert set(ledger.SETTINGS) == {CONGESTION_CONTROL_ALLOWED, BACKLOG}
    assert inside.MACHINE_NETWORK == namespaces.MACHINE_NETWORK


def test_settings_are_put_back_after_a_run_and_after_an_error(machine: Path) -> None:
    with ledger.kept(machine / "run", machine / "sys"):
        change(machine)
    assert values(machine) == ["reno cubic", "1000"]
    with pytest.raises(RuntimeError), ledger.kept(machine / "run", machine / "sys"):
        change(machine)
        raise RuntimeError
    assert values(machine) == ["reno cubic", "1000"]
    assert ledger.clean(machine / "run", machine / "sys") == []
    assert sorted(path.name for path in (machine / "run").iterdir()) == ["lock"]


@pytest.mark.parametrize("how", ["clean", "another run"])
def test_what_a_killed_run_left_is_put_back(machine: Path, how: str) -> None:
    code = (
        "import sys, time; from pathlib import Path; from testbed.engine.native import ledger\n"
        "folder, sys_ = map(Path, sys.argv[1:])\n"
        "with ledger.kept(folder, sys_):\n"
        "    [(sys_ / name).write_text('changed') for name in ledger.SETTINGS]\n"
        "    print('changed', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(machine / "run"), str(machine / "sys")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"changed\n"
        with pytest.raises(EnvironmentLacks, match="another native run goes on"):
            ledger.clean(machine / "run", machine / "sys")
        run.kill()
    assert values(machine) == ["changed", "changed"]
    assert set(json.loads((machine / "run" / "ledger.json").read_text())) == set(ledger.SETTINGS)
    decoy = machine / "sys" / "net/core/netdev_max_backlog_of_others"
    decoy.write_text("1")
    if how == "clean":
        assert ledger.clean(machine / "run", machine / "sys") == list(ledger.SETTINGS)
    else:
        with ledger.kept(machine / "run", machine / "sys"):
            change(machine)
    assert values(machine) == ["reno cubic", "1000"]
    assert decoy.read_text() == "1"


def test_a_namespace_without_the_machines_settings_is_refused(machine: Path) -> None:
    (machine / "sys" / ledger.SETTINGS[1]).unlink()
    with pytest.raises(EnvironmentLacks, match="not the machine's first network namespace"):
        ledger.kept(machine / "run", machine / "sys").__enter__()


def may_unshare() -> bool:
    return subprocess.run(["unshare", *launch.NAMESPACES, "true"], check=False, capture_output=True).returncode == 0


needs_root = pytest.mark.skipif(not may_unshare(), reason="needs root and namespaces")
RUN = """
import sys; from contextlib import nullcontext; from testbed.engine.launch import Job
from testbed.engine.native import launch
launch.check, launch.ledger.kept = (lambda: None), (lambda: nullcontext())  # no Open vSwitch, nothing of the machine
job = Job(("bash", "-c", sys.argv[1]), "/", write=(sys.argv[2], "/run/results"), open_vswitch=False)
say = lambda chunk: (sys.stdout.buffer.write(chunk), sys.stdout.flush())
sys.exit(launch.NativeRun(job).run(say, say, print))
"""
LIVES = "orrery-lives-in-there"
LEAVES = f"""
ip link add mgmt type veth && touch /run/there /tmp/there /run/results/there
setsid bash -c 'exec -a {LIVES} sleep 300' & setsid nohup bash -c 'exec -a {LIVES} sleep 301' >/dev/null 2>&1 &
sleep 0.3; ip -br link; echo up
"""


def living(name: str) -> list[str]:
    """The processes whose first word is `name`."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [file.parent.name] if file.read_bytes().split(b"\0")[0].decode() == name else []
        except OSError:
            continue
    return found


def of_machine() -> list[Path]:
    """What the machine has of the kinds that the job makes."""
    places = (Path("/sys/class/net"), Path("/run"), Path("/tmp"))
    return sorted(path for place in places for path in place.iterdir() if place.name == "net" or path.name == "there")


@needs_root
@pytest.mark.parametrize("end", ["ends", "killed"])
def test_all_that_a_job_makes_goes_with_it_and_nothing_else(tmp_path: Path, end: str) -> None:
    before = of_machine()
    decoy = subprocess.Popen([f"{LIVES}-too", "60"], executable="/usr/bin/sleep")
    script = LEAVES + ("sleep 300" if end == "killed" else "exit 7")
    with subprocess.Popen([sys.executable, "-c", RUN, script, tmp_path], cwd=ROOT, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        said = []
        while not said or said[-1] not in ("up", ""):
            said.append(run.stdout.readline().decode().strip())
        assert any(line.startswith("mgmt@") for line in said), said
        assert len(living(LIVES)) == 2 or end == "ends"
        if end == "killed":
            run.kill()
    assert run.returncode == (-9 if end == "killed" else 7)
    give_up_s = time.monotonic() + GONE_WITHIN_S
    while living(LIVES) and time.monotonic() < give_up_s:
        time.sleep(0.05)
    assert living(LIVES) == []
    assert decoy.poll() is None
    decoy.kill()
    decoy.wait()
    assert (tmp_path / "there").exists()
    assert before == of_machine()


@needs_root
def test_a_run_that_dies_inside_says_why(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", RUN.replace('"bash"', '"no-such-program"'), "", tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "GuestDied: the native run ended before its command did" in ended.stderr
    assert "no-such-program" in ended.stderr


@pytest.mark.parametrize(
    ("rows", "faults"),
    [
        ([(0.1 * at, 0.0002, 0.3) for at in range(40)], []),
        ([(0.1 * at, 0.0061 if at == 7 else 0.0002, 0.3) for at in range(40)], ["6.1 ms late at most, above 5 ms"]),
        ([(0.1 * at, 0.0002, 0.99 if at > 20 else 0.3) for at in range(40)], ["99% of the busiest one"]),
        ([(0.1 * at, 0.0002, 1.0 if at == 7 else 0.3) for at in range(40)], []),
        ([], ["nobody watched them"]),
    ],
)  # fmt: skip
def test_a_machine_that_does_not_keep_up_is_noticed(
    tmp_path: Path, rows: list[tuple[float, float, float]], faults: list[str]
) -> None:
    events = EventLog(tmp_path / "events.jsonl")
    events.write(0.0, "trial", trial="0", starts_s={})
    events.write(4.0, "trial done", trial="0")
    events.close()
    with MACHINE.writer(tmp_path / MACHINE.file) as writer:
        for row in [(-0.1, 0.1, 1.0), *rows, *((4.1 + 0.1 * at, 0.1, 1.0) for at in range(20))]:  # no job ran
            writer.row(*row)
    found = [check.found for check in check_machine(tmp_path) if not check.ok]
    assert len(found) == len(faults)
    for fault, said in zip(faults, found, strict=True):
        assert fault in said


def test_busy_time_is_all_but_idle_and_waiting_for_disks_on_the_busiest_processor() -> None:
    stat = "cpu  20 2 10 160 8 4 6 14 0 0\ncpu0 10 1 5 80 4 2 3 7 0 0\ncpu1 10 1 5 80 4 2 3 7 0 0\nintr 7 0\n"
    before = cpu_ticks(stat)
    assert before == {"cpu0": (28, 112), "cpu1": (28, 112)}
    after = {"cpu0": (28 + 9, 112 + 10), "cpu1": (28 + 1, 112 + 10)}
    assert busiest(before, after) == 0.9
    assert busiest(before, before) == 0.0


def test_the_watch_writes_what_it_saw_when_it_is_ended(tmp_path: Path) -> None:
    out = tmp_path / MACHINE.file
    command = [sys.executable, "-m", "testbed.telemetry.lag", f"--epoch={time.time()}", f"--out={out}"]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ) as program:
        give_up_s = time.monotonic() + GONE_WITHIN_S
        while not out.exists() and time.monotonic() < give_up_s:
            time.sleep(0.05)
        time.sleep(0.3)
        program.terminate()
    assert program.returncode == 0
    records = MACHINE.read(out)
    assert len(records) >= 1
    assert all(0 <= share <= 1 for share in records.numbers("busy_share"))
    assert all(lag_s >= 0 for lag_s in records.numbers("lag_s"))


def test_a_cluster_does_not_run_natively() -> None:
    with pytest.raises(InputError, match=r"the native engine runs \[\[job\]\]s"):
        scenario.load("cassini-dynamic", ("engine=native",))
    assert scenario.load("smoke", ("engine=native",)).engine == "native"


def test_every_engine_has_its_way_to_run_and_in_real_time_arms_run_one_after_the_other(tmp_path: Path) -> None:
    engines = scenario.Scenario.model_fields["engine"].annotation.__args__  # type: ignore[union-attr]
    assert set(work.FABRICS) == set(engines)
    assert set(work.CLUSTERS) == set(engines) - {"native"}
    for engine, at_once in (("native", 1), ("fluid", 3)):
        (point,) = points.load("smoke", (f"engine={engine}",)).points
        campaign = work.campaign_of(point, None, tmp_path, work.Telling(None, print, 1), 1, 3)  # type: ignore[arg-type]
        assert type(campaign) is work.FABRICS[engine]
        assert campaign.at_once == at_once
        assert not point.needs_kernel
