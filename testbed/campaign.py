"""A whole scenario: its arms in guests of their own, side by side where there are CPUs, then decision, verdict, report.

The arm `alone` runs first or beside arms that need nothing of it; `cassini` waits for the profiles measured there, and
`refined` for the marks measured in `cassini`. What a run leaves is described in docs/results.md.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any, Protocol

from testbed import decide, results
from testbed.engine.commands import PROJECT_IN_GUEST, RESULTS_IN_GUEST, program_job
from testbed.engine.kernel import Kernel
from testbed.engine.launch import Guest, Job, Machine, Sink
from testbed.errors import NotValid, failure
from testbed.event_checks import check_events
from testbed.experiment import Experiment
from testbed.fidelity import Check, check_arm
from testbed.live import Live, Watcher
from testbed.page import write as page
from testbed.report import draw, summary, validation
from testbed.scenario import Arm, Scenario
from testbed.versions import versions

SHIFTED: tuple[Arm, ...] = ("cassini", "refined")  # what is to run before them decides their time-shifts
STAGES = ("guest up", "network", "controller", "read back", "agents", "trials", "files")


class Runs(Protocol):
    """Where an arm runs, as testbed.engine.launch.Guest."""

    def run(self, stdout: Sink, stderr: Sink, status: Callable[[dict[str, Any]], None]) -> int:
        """Run it to its end and return its exit code."""

    def stop(self) -> None:
        """End it."""


@dataclass
class Outcome:
    """What became of a run: its folder, the verdict's checks by arm, the wall time of each stage in seconds."""

    folder: Path
    summary: dict[str, Any]
    validation: dict[str, Any]
    checks: dict[str, list[Check]]
    wall_s: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        """Whether the results may be believed."""
        return all(check.ok for checks in self.checks.values() for check in checks)


@dataclass(frozen=True)
class Campaign:
    """How a scenario is run: from which source text, on which kernel, with how much memory, into which folder."""

    experiment: Experiment
    source: str
    kernel: Kernel | None
    results: Path
    watcher: Watcher
    memory_bytes: int = 2 << 30
    place: str | None = None
    """The run's folder in `results`; that of the scenario's name without."""
    at_once: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    """How many arms run side by side."""
    drawn: bool = True
    """Whether plots and a page are made; `report` makes them later."""
    guests: list[Runs] = field(default_factory=list)
    stopped: Event = field(default_factory=Event)

    @property
    def scenario(self) -> Scenario:
        """The scenario as it was given."""
        return self.experiment.scenario

    @property
    def setting(self) -> dict[str, Any]:
        """What the report must know of the scenario."""
        return report_setting(self.experiment)

    def run(self) -> Outcome:
        """Run all arms and return what became of them.

        A valid run is in `results/NAME`, one that is not in `results/NAME.invalid`. Raises NotValid (GuestDied among
        them) when an arm did not come to its end; the earlier results are untouched then.
        """
        name = self.place or self.scenario.name
        with results.in_progress(self.results, name) as folder:
            started = time.monotonic()
            (folder / "scenario.toml").write_text(self.source)
            live = Live(folder, name, self.watcher)
            told = replace(self, watcher=live)
            wall_s = told._run_arms(folder)
            outcome = told._judge(folder, wall_s)
            live.end()
            wall_s["whole"] = {"total": time.monotonic() - started}
            (folder / "wall.json").write_text(as_json(wall_s))
            place = self.results / (name if outcome.valid else f"{name}.invalid")
            outcome.folder = results.publish(folder, place)
            return outcome

    def _run_arms(self, folder: Path) -> dict[str, dict[str, float]]:
        """Run every arm as soon as it can be, as many at once as there are CPUs; return their stages' wall times."""
        waiting = list(self.experiment.scenario.measure.arms)
        if "alone" in waiting:  # the only one that another arm waits for
            waiting.remove("alone")
            waiting.insert(0, "alone")
        wall_s: dict[str, dict[str, float]] = {}
        shifts: dict[Arm, decide.TimeShifts] = {}
        running: dict[Future[dict[str, float]], Arm] = {}
        with ThreadPoolExecutor(max_workers=self.at_once) as pool, self._stopped_on_error():
            while waiting or running:
                for arm in [arm for arm in waiting if arm not in SHIFTED or arm in shifts]:
                    if len(running) < self.at_once:
                        waiting.remove(arm)
                        running[pool.submit(self._run_arm, folder / arm, arm, shifts.get(arm))] = arm
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    arm = running.pop(future)
                    wall_s[arm] = future.result()
                    if arm == "alone" and self.scenario.telemetry.watch == "workers":
                        self._profile(folder)
                    elif arm == "alone" and "cassini" in waiting:
                        shifts["cassini"] = self._decide(folder, self._profile(folder))
                    if arm == "cassini" and "refined" in waiting:
                        shifts["refined"] = self._refine(folder)
        return wall_s

    @contextmanager
    def _stopped_on_error(self) -> Iterator[None]:
        """When one arm fails, or the user has had enough, the others must not go on to their ends."""
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all arms, and begin no other; `run` then raises NotValid. Any thread may call it."""
        self.stopped.set()
        for guest in self.guests:
            guest.stop()

    def _run_arm(self, folder: Path, arm: Arm, shifts: decide.TimeShifts | None) -> dict[str, float]:
        trials = self.experiment.trials(arm, shifts.starts_s if shifts else {})
        held = shifts.periods_s if shifts else {}
        plan = self.experiment.arm_plan(arm, trials, held)
        of_job = {job.name: job.iterations for job in self.experiment.jobs}
        iterations = sum(of_job[job] for trial in trials for job in trial.starts_s)
        return self._run_guest(folder, arm, plan, iterations)

    def _run_guest(
        self, folder: Path, arm: str, plan: dict[str, Any], iterations: int, program: str = "testbed.arm",
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> dict[str, float]:  # fmt: skip
        """Run the guest of an arm, which is told `plan` and leaves its files in a new folder; return wall times.

        files: what lies in the folder beside the plan, by name.
        """
        self._begin(folder, arm, plan, iterations, files)
        started, wall_s = time.monotonic(), {}
        said: list[bytes] = []

        def hear(message: dict[str, Any]) -> None:
            if "stage" in message:
                wall_s[message["stage"]] = round(time.monotonic() - started, 3)
            self.watcher.message(arm, message)

        guest = self._guest(program_job(("-m", program, RESULTS_IN_GUEST), PROJECT_IN_GUEST, write=folder))
        self.guests.append(guest)
        if self.stopped.is_set():
            raise NotValid(f"arm {arm}: was stopped before it began")
        if (code := guest.run(said.append, said.append, hear)) != 0:
            raise failure(f"arm {arm}", said, code)
        wall_s["guest gone"] = round(time.monotonic() - started, 3)
        return wall_s

    def _begin(self, folder: Path, arm: str, plan: dict[str, Any], iterations: int, files: Mapping[str, bytes]) -> None:
        """Make the folder of an arm, with its plan and `files`, and say that it has begun."""
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        (folder / "plan.json").write_text(as_json(plan))
        self.watcher.arm(arm, iterations)

    def _guest(self, job: Job) -> Runs:
        """Where an arm runs: a guest in virtual time."""
        assert self.kernel is not None  # engines that need none do not come here
        return Guest(job, Machine(self.memory_bytes, self.experiment.scenario.measure.seed), self.kernel)

    def _profile(self, folder: Path) -> decide.Profiles:
        """Write profiles.json from the arm alone; return the profiles by link."""
        profiles = decide.measured_profiles(self.experiment, folder / "alone")
        (folder / "profiles.json").write_text(
            as_json({link: [profile.to_dict() for profile in own] for link, own in profiles.items()})
        )
        return profiles

    def _decide(self, folder: Path, profiles: decide.Profiles) -> decide.TimeShifts:
        """Write decision.json from the profiles; return the time-shifts."""
        self.watcher.stage("deciding time-shifts")
        decisions = decide.link_decisions(self.experiment, profiles)
        (folder / "decision.json").write_text(as_json([decision.to_dict() for decision in decisions]))
        return decide.time_shifts(self.experiment, decisions)

    def _refine(self, folder: Path) -> decide.TimeShifts:
        """Write decision_refined.json from the marks of the arm cassini; return the time-shifts."""
        self.watcher.stage("refining time-shifts")
        refined = decide.refined_decisions(self.experiment, draw.decisions_of(folder), folder / "cassini")
        (folder / "decision_refined.json").write_text(as_json(refined.to_dict()))
        return decide.time_shifts(self.experiment, list(refined.decisions))

    def _judge(self, folder: Path, wall_s: dict[str, dict[str, float]]) -> Outcome:
        """Write verdict, summary, validation, manifest, plots and the page."""
        self.watcher.stage("verdict and report")
        checks = self._checks(folder)
        setting = report_setting(self.experiment)
        outcome = Outcome(
            folder,
            summary.summarise(folder, setting),
            validation.validate(folder, setting, draw.decisions_of(folder)),
            checks,
            wall_s,
        )
        for file, content in (
            ("manifest.json", self._manifest(outcome)),
            ("summary.json", outcome.summary),
            ("validation.json", outcome.validation),
        ):
            (folder / file).write_text(as_json(content))
        if self.drawn:
            draw.draw_all(folder, setting)
            page.write(folder)
        return outcome

    def _checks(self, folder: Path) -> dict[str, list[Check]]:
        """Return every check on the files of every arm."""
        scenario = self.experiment.scenario
        interval_s, drops = scenario.telemetry.queue_interval, scenario.require.drops
        checks: dict[str, list[Check]] = {
            arm: check_arm(folder / arm, self.experiment.topology_of(arm), interval_s, drops, self.experiment.shared)
            for arm in scenario.measure.arms
        }
        for arm, events in self.experiment.events.items():
            trials = json.loads((folder / arm / "plan.json").read_text())["trials"]
            checks[arm] += check_events(folder / arm, events, trials)
        return checks

    def _kernel(self) -> dict[str, Any]:
        """What the arms ran on."""
        assert self.kernel is not None
        return {"version": self.kernel.version, "key": self.kernel.key, "seccomp": self.kernel.seccomp}

    def _manifest(self, outcome: Outcome) -> dict[str, Any]:
        scenario = self.scenario
        return {
            "valid": outcome.valid,
            "verdict": {arm: [asdict(check) for check in checks] for arm, checks in outcome.checks.items()},
            "scenario": scenario.model_dump(mode="json"),
            "scenario_sha256": sha256(self.source.encode()).hexdigest(),
            "report_setting": self.setting,
            "seed": scenario.measure.seed,
            "scaling": [asdict(row) for row in self.experiment.scaling.rows()],
            "jobs": {job.name: job.note for job in self.experiment.jobs},
            "kernel": self._kernel(),
            "code": code_version(),
            "versions": versions(self.kernel.key if self.kernel else None),
        }


def report_setting(experiment: Experiment) -> dict[str, Any]:
    """Return what the report must know of a scenario (testbed.report.load.Setting)."""
    settings = experiment.scaling.settings
    red = settings.red
    return {
        "name": experiment.scenario.name,
        "rate_bps": settings.rate_bps,
        "red": {"min_bytes": red.min_bytes, "max_bytes": red.max_bytes} if red else None,
        "shared_links": list(experiment.shared),
        "jobs": {job.name: list(job.hosts) for job in experiment.jobs},
        "scale": experiment.scaling.scale,
    }


def code_version() -> str:
    """Return one hash over every source file of ours, so that a result can be told from one of changed code."""
    root, state = Path(__file__).resolve().parents[1], sha256()
    for package in ("controllers", "testbed", "workloads"):
        for path in sorted((root / package).rglob("*.py")):
            state.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return state.hexdigest()[:16]


def as_json(content: Any) -> str:
    """Return the text of a JSON file; a value that JSON does not know is an error."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
