"""From the keys of a job to the job itself: made of a model or of a trace, on given hosts of a fabric."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from testbed.net.topology import Topology
from testbed.scenario import JobKeys, Scenario
from workloads import models, traces
from workloads.models import inference
from workloads.strategies.experts import Inference
from workloads.training.plan import Conduct, JobPlan

PROJECT = Path(__file__).resolve().parents[1]
TRACE_FOLDERS = (PROJECT / "traces", PROJECT.parent / "shared" / "data" / "traces")


def job_on(
    keys: JobKeys, hosts: Sequence[str], dscp: int, scenario: Scenario, topology: Topology, base: Path, where: str
) -> JobPlan:
    """The job that `keys` describe on `hosts` (rank order); its trace is looked for from `base` on.

    Raises InputError that begins with `where`, names the job and the key, and says how to mend it.
    """
    common: dict[str, Any] = {
        "name": keys.name, "hosts": tuple(hosts), "fabric_ips": tuple(topology.ip(host) for host in hosts),
        "dscp": dscp, "iterations": math.ceil(scenario.measure.iterations * keys.iterations_factor - 1e-9),
        "congestion_control": scenario.transport.congestion_control, "scale": scenario.fabric.scale,
    }  # fmt: skip
    try:
        conduct = conduct_of(keys, len(hosts))
        plan = _planned(keys, scenario, base, common)
        return replace(plan, conduct=conduct, seed=scenario.measure.seed) if conduct else plan
    except InputError as error:
        raise InputError(where, f"{error.where}: {error.what}", error.mend) from error


def conduct_of(keys: JobKeys, workers: int) -> tuple[Conduct, ...]:
    """How each worker of a job departs from its plan; empty where all keep to it.

    Raises InputError where a list is not as long as there are workers.
    """
    columns = []
    for key in ("jitter", "slow", "late"):
        value = getattr(keys, key)
        if isinstance(value, tuple) and len(value) != workers:
            what = f"{len(value)} values for {workers} workers"
            raise InputError(f"job.{keys.name}.{key}", what, "give one for each, in rank order, or one for all")
        columns.append(value if isinstance(value, tuple) else (value,) * workers)
    conduct = tuple(Conduct(*values) for values in zip(*columns, strict=True))
    return conduct if any(each != Conduct() for each in conduct) else ()


def _planned(keys: JobKeys, scenario: Scenario, base: Path, common: dict[str, Any]) -> JobPlan:
    if keys.model == inference.NAME:
        return inference.job_plan(_inference(keys, len(common["hosts"])), **common)
    if keys.model is not None:
        return models.job_plan(
            keys.model, mtu_bytes=scenario.fabric.mtu_bytes, sizing=keys.sizing, batch=keys.batch,
            communication_s=keys.communication, compute_factor=keys.compute_factor, volume=keys.volume,
            strategy=keys.strategy, **common,
        )  # fmt: skip
    assert keys.trace is not None
    return traces.job_plan(_trace(keys.trace, base), trace_format=keys.trace_format, clock_hz=keys.clock_hz, **common)


def _inference(keys: JobKeys, workers: int) -> Inference:
    moe = keys.moe
    expert_workers = workers // 2 if moe.expert_workers is None else moe.expert_workers
    if not 1 <= expert_workers < workers:
        mend = f"give 1 to {workers - 1}: the others compute attention"
        raise InputError(f"job {keys.name}, moe.expert_workers", f"{expert_workers} of {workers} workers", mend)
    try:
        return Inference(
            experts=moe.experts, top=moe.top, tokens=moe.tokens, hidden=moe.hidden, layers=moe.layers,
            attention_s=moe.attention * keys.compute_factor, expert_s=moe.expert * keys.compute_factor,
            attention_workers=workers - expert_workers, expert_workers=expert_workers, microbatches=moe.microbatches,
        )  # fmt: skip
    except InputError as error:
        raise InputError(f"job {keys.name}, moe.{error.where}", error.what, error.mend) from None


def _trace(name: str, base: Path) -> Path:
    """Return the file of a trace: beside the scenario, in $ORRERY_TRACES, or in a folder kept for them.

    Raises InputError that says where it was looked for.
    """
    folders = [base, *map(Path, os.environ.get("ORRERY_TRACES", "").split(":")), *TRACE_FOLDERS]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise InputError(
        "trace", f"{name} is not there", "put it beside the scenario, into traces/, or name its folder in ORRERY_TRACES"
    )
