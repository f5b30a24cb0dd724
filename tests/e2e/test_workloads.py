"""Every kind of workload as packets: text traces, all-to-alls, pipelines, tokens, with the bytes their plans say."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import experiment, scenario
from testbed.experiment import Experiment, pairs
from testbed.telemetry.tables import COUNTERS, ITERATIONS

pytestmark = pytest.mark.e2e

Run = Callable[..., subprocess.CompletedProcess[str]]

ITERATIONS_EACH = 2
ASTRA = """\
DATA
2
conv\t-1\t4000000\tNONE\t0\t4000000\tNONE\t0\t6000000\tALLREDUCE\t40000000\t100
dense\t-1\t4000000\tNONE\t0\t4000000\tNONE\t0\t6000000\tALLREDUCE\t80000000\t100
"""
AICB = """\
HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 2 checkpoints: 0 \
checkpoint_initiates: 0
2
embedding\t-1\t5000000\tBROADCAST\t6000000\t5000000\tALLREDUCE\t30000000\t5000000\tALLREDUCE\t60000000\t100
attention\t-1\t5000000\tALLGATHER\t30000000\t5000000\tREDUCESCATTER\t30000000\t5000000\tNONE\t0\t100
"""
SCENARIO = f"""\
name = "kinds"
title = "One job of every kind"

[fabric]
topology = "leaf-spine(2, 1, 5)"
scale = 200

[[job]]
name = "astra"
trace = "astra.txt"
workers = ["h1", "h6"]

[[job]]
name = "aicb"
trace = "aicb.txt"
trace_format = "aicb"
workers = ["h2", "h7"]

[[job]]
name = "dlrm"
model = "dlrm"
batch = 512
compute_factor = 100
workers = ["h3", "h8"]
jitter = 0.02

[[job]]
name = "moe"
model = "moe-dispatch-combine"
moe = {{ layers = 6, microbatches = 2 }}
workers = ["h4", "h9"]
late = ["0 s", "20 ms"]

[[job]]
name = "gpt2"
model = "gpt2"
strategy = "pipeline"
workers = ["h5", "h10"]
slow = [1, 1.2]

[measure]
arms = ["alone", "together"]
iterations = {ITERATIONS_EACH}
trials = {{ alone = 1, together = 1 }}
"""


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "kinds.toml").write_text(SCENARIO)
    (folder / "astra.txt").write_text(ASTRA)
    (folder / "aicb.txt").write_text(AICB)
    return folder


@pytest.fixture(scope="module")
def made(where: Path) -> Experiment:
    return experiment.build(scenario.load(str(where / "kinds.toml")), "kinds", where)


@pytest.fixture(scope="module")
def ran(orrery: Run, where: Path) -> Path:
    ended = orrery("run", where / "kinds.toml", "--results", where)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return where / "kinds"


def test_every_job_does_all_its_iterations_together_with_the_others(ran: Path, made: Experiment) -> None:
    rows = ITERATIONS.read(ran / "together" / ITERATIONS.file)
    for job in made.jobs:
        for rank in range(job.workers):
            assert len(rows.where(job=job.name, rank=rank)) == ITERATIONS_EACH, (job.name, rank)


def test_links_carry_what_the_plans_say(ran: Path, made: Experiment) -> None:
    """As packets of at most 9000 B: no fewer than the bytes need, and few more (acknowledgements, short ones)."""
    counters = COUNTERS.read(ran / "alone" / COUNTERS.file)
    payload_bytes = made.topology.mtu_bytes - 52
    for trial, job in enumerate(made.jobs):
        for source, destination in pairs(job):
            down = f"{made.topology.uplink(destination)}->{destination}"
            own = counters.where(trial=str(trial), link=down)
            begin, end = (own.where(label=label).counts("tx_packets")[0] or 0 for label in ("begin", "end"))
            sent, back = (
                sum(size_bytes for (a, b), size_bytes in job.traffic().items() if (job.hosts[a], job.hosts[b]) == ends)
                * ITERATIONS_EACH
                for ends in ((source, destination), (destination, source))
            )
            least = sent / payload_bytes
            most = 2 * (least + back / payload_bytes) + 8 * len(job.program(0)) * ITERATIONS_EACH + 50
            assert least <= end - begin <= most, (job.name, down, least, end - begin, most)


def test_a_profile_is_what_the_port_carried(orrery: Run, tmp_path: Path) -> None:
    ended = orrery("profile", "vgg16", "--workers", "2", "--batch", "1400", "--results", tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [folder] = [path.parent for path in tmp_path.rglob("profiles.json")]
    profiles = json.loads((folder / "profiles.json").read_text())
    assert len(profiles) == 2  # a port for each worker
    for [profile] in profiles.values():
        bits = sum(profile["demand_bps"]) / len(profile["demand_bps"]) * profile["period_s"]
        assert bits == pytest.approx(8 * 553430176 / 50, rel=0.02)  # its gradients, two workers, at a fiftieth
