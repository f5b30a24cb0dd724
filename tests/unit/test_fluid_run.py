"""Whole scenarios at flow level, without a kernel: files, verdict, what is refused, and the page beside packets."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from testbed import cli, experiment, scenario
from testbed.errors import InputError
from testbed.fluid.arm import run_arm
from testbed.fluid.checks import check_arm
from testbed.live import Watcher
from testbed.net import fabrics
from testbed.net.scale import Original, Scaling
from testbed.report.reference import fluid
from testbed.report.rerun import redraw
from testbed.study import points, twins, work
from testbed.telemetry.tables import FLOWS, ITERATIONS, MARKS, QUEUES


class Quiet(Watcher):
    def arm(self, arm: str, iterations: int) -> None: ...

    def message(self, arm: str, message: dict[str, object]) -> None: ...

    def stage(self, text: str) -> None: ...


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of smoke, run at flow level."""
    results = tmp_path_factory.mktemp("results")
    (point,) = points.load("smoke", ("engine=fluid",)).points
    assert not point.needs_kernel
    outcome = work.alone(point, None, results, Quiet(), 0)
    assert outcome.valid
    return outcome.folder


def test_a_run_leaves_the_files_of_a_run_in_packets_and_says_what_it_is(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["engine"] == "fluid"
    assert "estimate" in manifest["estimated"]
    assert all(check["ok"] for checks in manifest["verdict"].values() for check in checks)
    for arm in ("alone", "together", "cassini"):
        for table in (ITERATIONS, QUEUES, MARKS, FLOWS):
            assert len(table.read(run / arm / table.file))
    assert {path.stem for path in redraw(run)} >= {"iteration-times", "utilisation", "queue", "circles"}


def test_smoke_s_iteration_times_are_those_that_can_be_worked_out(run: Path) -> None:
    """VGG16: 141 ms of Down and 114 ms of Up alone; together Up takes twice as long, shifted as long as alone."""
    arms = json.loads((run / "summary.json").read_text())["arms"]
    mean_ms = {arm: 1e3 * of["iteration_s"]["mean"]["value"] for arm, of in arms.items()}
    assert mean_ms["alone"] == pytest.approx(255, rel=0.005)
    assert mean_ms["together"] == pytest.approx(141 + 2 * 114, rel=0.01)
    assert mean_ms["cassini"] == pytest.approx(256, rel=0.005)
    assert arms["cassini"]["ce_packets_per_iteration"]["value"] == 0
    assert arms["together"]["ce_packets_per_iteration"]["value"] > 100


def test_bytes_that_are_missing_or_too_many_make_an_arm_not_valid(tmp_path: Path) -> None:
    made = experiment.build(scenario.load("smoke", ("engine=fluid", "measure.iterations=2")), "smoke")
    plan = json.loads(json.dumps(made.arm_plan("together", made.trials("together", {}))))
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    arm = run_arm(plan, tmp_path)
    assert all(check.ok for check in check_arm(tmp_path, arm.traces))
    trace = arm.traces.of_job["s1->s2", "vgg16-a"]
    trace.counters["bytes"][-1] *= 0.999
    arm.traces.fullest = 1.01
    faults = [check.what for check in check_arm(tmp_path, arm.traces) if not check.ok]
    assert faults == [
        "no link's data came to more than its rate",
        "watched links carried the bytes that were planned, to a millionth and 2 B of every operation",
    ]  # fmt: skip
    file = tmp_path / ITERATIONS.file
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert "every worker did all its iterations" in [c.what for c in check_arm(tmp_path, arm.traces) if not c.ok]


def test_an_engine_that_does_not_exist_is_refused_and_so_is_a_wide_area_network() -> None:
    with pytest.raises(InputError, match="engine"):
        points.load("smoke", ("engine=solid",))
    with pytest.raises(InputError, match="engine"):
        points.load("netstorm-static", ("engine=fluid",))


@pytest.mark.parametrize("ports", [0, 3, 32, 100])
def test_fat_trees_that_are_not_built_are_refused(ports: int) -> None:
    with pytest.raises(InputError, match="fat-tree"):
        fabrics.build(f"fat-tree({ports})", Scaling(Original()).settings)


def test_a_fat_tree_has_the_published_numbers() -> None:
    made = fabrics.build("fat-tree(4)", Scaling(Original()).settings)
    assert len(made.hosts) == 16
    assert len(made.switches) == 20
    assert len(made.links) == 48
    assert {made.graph().degree(switch) for switch in made.switches} == {4}


def test_runs_are_put_beside_their_twins_and_what_misses_is_said(run: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "smoke", tmp_path / "fluid" / "smoke"):
        place.mkdir(parents=True)
        for file in ("summary.json", "manifest.json"):
            shutil.copy(run / file, place / file)
    (twin,) = fluid.twins(tmp_path, ["smoke", "two-jobs"])
    assert twin.worst.off == 0
    assert twin.reversed == []
    summary = json.loads((run / "summary.json").read_text())
    summary["arms"]["cassini"]["iteration_s"]["mean"]["value"] *= 2
    (tmp_path / "smoke" / "summary.json").write_text(json.dumps(summary))
    (twin,) = fluid.twins(tmp_path, ["smoke"])
    assert twin.worst.name == "cassini"
    assert twin.worst.off == pytest.approx(-0.5)
    assert twin.reversed == [("together", "cassini")]
    text = twins.page(["smoke"], tmp_path).read_text()
    assert "-50.0% **beyond 5 %** | **together before cassini in packets, the other way round here**" in text
    assert "2 of 3 arms are within 5%" in text
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["scenario"]["measure"]["iterations"] += 1
    (tmp_path / "smoke" / "manifest.json").write_text(json.dumps(manifest))
    assert fluid.twins(tmp_path, ["smoke"]) == []
    manifest["scenario"]["measure"] = {"of another version": 1}
    (tmp_path / "smoke" / "manifest.json").write_text(json.dumps(manifest))
    assert len(fluid.twins(tmp_path, ["smoke"])) == 1
    (tmp_path / "fluid" / "smoke" / "manifest.json").unlink()
    assert "has a twin" in twins.page(["smoke"], tmp_path).read_text()


def seen(*trials_s: float) -> fluid.Seen:
    return fluid.Seen(sum(trials_s) / len(trials_s), trials_s, 0.0)


def two(fast: tuple[fluid.Seen, fluid.Seen], slow: tuple[fluid.Seen, fluid.Seen]) -> fluid.Twin:
    return fluid.Twin("two", (fluid.Arm("fast", *fast), fluid.Arm("slow", *slow)))


def test_arms_whose_trials_differ_as_much_as_they_do_have_no_order() -> None:
    sure, unsure = (
        (seen(0.200, 0.201, 0.199), seen(0.220, 0.221, 0.219)),
        (seen(0.20, 0.18, 0.22), seen(0.22, 0.25, 0.2)),
    )
    twin = two((sure[0], unsure[0]), (sure[1], unsure[1]))
    assert twin.ordered == [("fast", "slow")]
    assert twin.reversed == twin.level == twin.unseen == []
    assert two((sure[0], unsure[1]), (sure[1], unsure[0])).level == [("fast", "slow")]
    mirrored = two((unsure[0], sure[0]), (unsure[1], sure[1]))
    assert mirrored.ordered == []
    assert mirrored.unseen == [("fast", "slow")]
    assert two((sure[0], sure[1]), (sure[1], sure[0])).reversed == [("fast", "slow")]
    assert two((seen(0.2), seen(0.2)), (seen(0.203), seen(0.203))).ordered == []  # one and a half per cent are nothing
    assert two((seen(0.2), seen(0.2)), (seen(0.21), seen(0.21))).ordered == [("fast", "slow")]  # no spread is known


def test_the_doubt_of_two_means_is_welch_s() -> None:
    """The textbook's numbers: variances 0.0004 and 0.0001 of three each, 2.94 degrees of freedom, t = 3.21."""
    one, other = (0.10, 0.12, 0.14), (0.30, 0.31, 0.32)
    assert fluid._doubt_s(one, other) == pytest.approx(3.21 * (0.0005 / 3) ** 0.5, rel=0.01)
    assert fluid._doubt_s(one, (0.3,)) == pytest.approx(4.303 * (0.0004 / 3) ** 0.5, rel=0.001)


def test_twins_are_run_of_what_is_there_and_kept(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, tmp_path / "smoke")
    assert twins.chosen(tmp_path) == ["smoke"]
    assert twins.chosen(tmp_path, ["two-jobs"]) == []
    with pytest.raises(InputError):
        twins.chosen(tmp_path, ["no-such"])
    monkeypatch.setattr(sys, "argv", ["testbed", "twins", "--only", "smoke", "--results", str(tmp_path)])
    for told in ("smoke: valid", "1 points, 1 of them kept from before"):
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        said = capsys.readouterr().out
        assert told in said
        assert "fluid.md" in said
    assert (tmp_path / "fluid" / "smoke" / "summary.json").is_file()
    assert "3 of 3 arms are within 5%" in (tmp_path / "reference" / "fluid.md").read_text()
