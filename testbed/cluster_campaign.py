"""A scenario with a cluster, whole: every kind of job alone, then each arm's scheduler on the same trace, side by side.

Nothing is decided between the arms: scheduling is live, inside each arm's guest (`testbed.timeline`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from controllers.placement.layout import Layout
from testbed import plugins
from testbed.campaign import Campaign, Outcome, as_json
from testbed.cluster import ClusterExperiment, Measured
from testbed.fidelity import Check, check_arm
from testbed.page import write as page
from testbed.report.cluster import figures, summary
from testbed.report.cluster.load import IDEAL, JOBS_FILE, asked_of
from testbed.scenario import Scenario
from testbed.timeline_checks import check_timeline


@dataclass(frozen=True, kw_only=True)
class ClusterCampaign(Campaign):
    """How a scenario with a cluster is run. `experiment` is `cluster.alone`."""

    cluster: ClusterExperiment

    @property
    def scenario(self) -> Scenario:
        """The scenario as it was given."""
        return self.cluster.scenario

    @property
    def setting(self) -> dict[str, Any]:
        """What the report must know (testbed.report.cluster)."""
        keys = self.cluster.keys
        return {
            "kind": "cluster",
            "name": self.scenario.name,
            "shortened": keys.shortened,
            "rate_bps": self.experiment.scaling.settings.rate_bps,
            "links": list(self.cluster.watched),
            "servers": {server.name: server.accelerators for server in self.cluster.servers},
            "arms": list(keys.arms),
        }

    def _run_arms(self, folder: Path) -> dict[str, dict[str, float]]:
        """Measure every kind of job, then run the arms, as many at once as there are CPUs; return wall times."""
        played = [arm for arm in self.cluster.keys.arms if arm != IDEAL]
        with self._stopped_on_error():
            trials = self.experiment.trials("alone", {})
            plan = self.experiment.arm_plan("alone", trials)
            count = self.cluster.keys.profile_iterations * len(trials)
            wall_s = {"alone": self._run_guest(folder / "alone", "alone", plan, count)}
            self.watcher.stage("profiles of every kind of job")
            measured = self.cluster.measure(folder / "alone")
            jobs = jobs_of(self.cluster, measured)
            (folder / "profiles.json").write_text(as_json(measured.to_dict()))
            (folder / JOBS_FILE).write_text(as_json(jobs))
            iterations = sum(job["iterations"] for job in jobs)
            with ThreadPoolExecutor(max_workers=self.at_once) as pool:
                running = {arm: pool.submit(self._play, folder, arm, measured, iterations) for arm in played}
                try:
                    wall_s |= {arm: future.result() for arm, future in running.items()}
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        return wall_s

    def _play(self, folder: Path, arm: str, measured: Measured, iterations: int) -> dict[str, float]:
        plan, own = self.cluster.arm_plan(arm, measured), self.cluster.plugin
        files = {plugins.FILE: own.read_bytes()} if own and plugins.own_name(arm) else {}
        return self._run_guest(folder / arm, arm, plan, iterations, program="testbed.timeline", files=files)

    def _manifest(self, outcome: Outcome) -> dict[str, Any]:
        own = self.cluster.plugin
        found = {"file": own.name, "sha256": sha256(own.read_bytes()).hexdigest()} if own else None
        return super()._manifest(outcome) | {"plugin": found}

    def _judge(self, folder: Path, wall_s: dict[str, dict[str, float]]) -> Outcome:
        """Write verdict, summary, manifest and plots."""
        self.watcher.stage("verdict and report")
        checks = self._checks(folder)
        shown = summary.summarise(self.setting, summary.cluster_arms(folder, self.setting))
        outcome = Outcome(folder, shown, NOTHING_PREDICTED | {"scenario": self.scenario.name}, checks, wall_s)
        for file, content in (
            ("manifest.json", self._manifest(outcome)),
            ("summary.json", outcome.summary),
            ("validation.json", outcome.validation),
        ):
            (folder / file).write_text(as_json(content))
        if self.drawn:
            figures.draw_cluster(folder, self.setting)
            page.write(folder)
        return outcome

    def _checks(self, folder: Path) -> dict[str, list[Check]]:
        """Return every check on the files of every arm."""
        keys, topology = self.cluster.keys, self.experiment.topology
        drops, every_s = self.scenario.require.drops, self.scenario.telemetry.queue_interval
        checks: dict[str, list[Check]] = {
            "alone": check_arm(folder / "alone", topology, every_s, drops, self.experiment.shared)
        }
        jobs = asked_of(folder)
        asked = [vars(job) for trial in jobs.values() for job in trial.values()]
        for arm in keys.arms:
            if arm != IDEAL:
                seen = (keys.watch_interval, drops, self.cluster.watched)
                checks[arm] = check_arm(folder / arm, topology, *seen, standing=False)
                checks[arm] += check_timeline(folder / arm, asked, self.setting["servers"])
        return checks


NOTHING_PREDICTED: dict[str, Any] = {"held": 0, "of": 0, "verdict": "nothing was predicted", "predictions": []}


def jobs_of(cluster: ClusterExperiment, measured: Measured) -> list[dict[str, Any]]:
    """Return the jobs of all trials as the report needs them (testbed.report.cluster.load.Asked)."""
    layout = Layout(cluster.servers)
    found = []
    for trial, seed in enumerate(cluster.keys.seeds):
        for coming, job in cluster.jobs(measured, seed):
            sort, span = coming.sorts[job.workers], layout.tightest(layout.capacity, job.workers)
            assert span is not None  # a job larger than the cluster was refused
            ideal_s = job.iteration_s(job.workers, span)
            known = [wide for name, wide in measured.iteration_s if name == sort.name]
            found.append(
                {
                    "trial": str(trial),
                    "job": job.name,
                    "model": sort.keys.name,
                    "arrival_s": job.arrival_s,
                    "workers": job.workers,
                    "iterations": int(job.iterations),
                    "ideal_s": ideal_s,
                    "measured_as": f"{sort.name}.{span if span in known else known[0]}",
                }
            )
    return found
