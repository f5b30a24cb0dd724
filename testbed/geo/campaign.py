"""A whole wide-area scenario: every system in a guest of its own, then the verdict and what came of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

from testbed import results
from testbed.campaign import as_json, code_version
from testbed.engine.commands import PROJECT_IN_GUEST, RESULTS_IN_GUEST, program_job
from testbed.engine.kernel import Kernel
from testbed.engine.launch import Guest, Machine
from testbed.errors import NotValid, failure
from testbed.geo import consistency
from testbed.geo.experiment import System, WideExperiment
from testbed.geo.pictures import draw
from testbed.geo.summary import check_accounts, summarise
from testbed.geo.validation import validate
from testbed.live import Live, Watcher
from testbed.page import write as page
from testbed.versions import versions


@dataclass
class WideOutcome:
    """What became of a run: its folder, figures, predictions beside measurements, the verdict by system."""

    folder: Path
    summary: dict[str, Any]
    validation: dict[str, Any]
    checks: dict[str, list[dict[str, Any]]]
    wall_s: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        """Whether the results may be believed."""
        return all(check["ok"] for checks in self.checks.values() for check in checks)


@dataclass(frozen=True)
class WideCampaign:
    """How a wide-area scenario is run: from which source text, on which kernel, into which folder of `results`
    (`place`; without, that of its name), how many arms side by side."""

    experiment: WideExperiment
    source: str
    kernel: Kernel
    results: Path
    watcher: Watcher
    memory_bytes: int = 2 << 30
    place: str | None = None
    at_once: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    guests: list[Guest] = field(default_factory=list)
    stopped: Event = field(default_factory=Event)

    def run(self) -> WideOutcome:
        """Run every system and return what became of them.

        A valid run is in `results/NAME`, one that is not in `results/NAME.invalid`. Raises NotValid (GuestDied among
        them) when an arm did not come to its end, or sums were wrong; earlier results are untouched then.
        """
        name = self.place or self.experiment.scenario.name
        with results.in_progress(self.results, name) as folder:
            started = time.monotonic()
            (folder / "scenario.toml").write_text(self.source)
            live = Live(folder, name, self.watcher)
            told = replace(self, watcher=live)
            with ThreadPoolExecutor(self.at_once) as pool, self._stopped_on_error():
                wall_s = dict(pool.map(lambda system: told._run_arm(folder / system.name, system), self._systems))
            outcome = told._judge(folder)
            live.end()
            outcome.wall_s = wall_s | {"whole": {"total": time.monotonic() - started}}
            (folder / "wall.json").write_text(as_json(outcome.wall_s))
            place = self.results / (name if outcome.valid else f"{name}.invalid")
            outcome.folder = results.publish(folder, place)
            return outcome

    @property
    def _systems(self) -> tuple[System, ...]:
        return self.experiment.systems

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

    def _run_arm(self, folder: Path, system: System) -> tuple[str, dict[str, float]]:
        folder.mkdir()
        (folder / "plan.json").write_text(as_json(self.experiment.arm_plan(system)))
        self.watcher.arm(system.name, system.sync.rounds)
        started, wall_s = time.monotonic(), {}
        said: list[bytes] = []

        def hear(message: dict[str, Any]) -> None:
            if "stage" in message:
                wall_s[message["stage"]] = round(time.monotonic() - started, 3)
            self.watcher.message(system.name, message)

        job = program_job(("-m", "testbed.geo.arm", RESULTS_IN_GUEST), PROJECT_IN_GUEST, write=folder)
        guest = Guest(job, Machine(self.memory_bytes, self.experiment.scenario.measure.seed), self.kernel)
        self.guests.append(guest)
        if self.stopped.is_set():
            raise NotValid(f"system {system.name}: was stopped before it began")
        if (code := guest.run(said.append, said.append, hear)) != 0:
            raise failure(f"system {system.name}", said, code)
        wall_s["guest gone"] = round(time.monotonic() - started, 3)
        return system.name, wall_s

    def _judge(self, folder: Path) -> WideOutcome:
        """Write verdict, summary, validation, manifest and pictures."""
        self.watcher.stage("verdict and summary")
        summary = summarise(self.experiment, folder)
        validation = validate(self.experiment, summary, folder)
        checks = {system.name: check_accounts(folder / system.name) for system in self._systems}
        for one in summary["systems"]:
            agree = {"what": "every site holds the direct sum", "ok": one["digests_agree"]}
            checks[one["system"]].append(agree | {"detail": f"{one['rounds']} rounds"})
            if "protocol" in one:
                checks[one["system"]] += consistency.check(folder / one["system"])
        outcome = WideOutcome(folder, summary, validation, checks)
        for file, content in (
            ("summary.json", summary),
            ("validation.json", validation),
            ("manifest.json", self._manifest(outcome)),
        ):
            (folder / file).write_text(as_json(content))
        draw(self.experiment, summary, validation, folder)
        page.write(folder)
        return outcome

    def _manifest(self, outcome: WideOutcome) -> dict[str, Any]:
        scenario = self.experiment.scenario
        return {
            "valid": outcome.valid,
            "verdict": outcome.checks,
            "scenario": scenario.model_dump(mode="json"),
            "scenario_sha256": sha256(self.source.encode()).hexdigest(),
            "seed": scenario.measure.seed,
            "wan": self.experiment.wan.to_dict(),
            "kernel": {"version": self.kernel.version, "key": self.kernel.key, "seccomp": self.kernel.seccomp},
            "code": code_version(),
            "versions": versions(self.kernel.key),
        }
