"""What `profile` on the command line does: jobs one by one on an empty fabric, and what the ports of each carried.

A job's profile is the bandwidth of a worker's egress over one iteration, the circle that time-shifts are decided on. It
is measured as every arm `alone` is, from the counters of ports (scenario key telemetry.watch).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controllers.cassini.profile import Profile
from testbed.errors import InputError
from testbed.report.figures.traffic import trial_of
from testbed.report.load import Arm

LONGEST_NAME = 41
SCENARIO = """\
name = {name}
title = {title}

[fabric]
topology = "leaf-spine(1, 1, {hosts})"
scale = 50

[measure]
arms = ["alone"]
iterations = 6

[telemetry]
watch = "workers"
queue_interval = "2 ms"
"""


@dataclass(frozen=True)
class Row:
    """What one port carried while a job was alone: times in seconds, rates in bit/s as they would be unscaled."""

    job: str
    link: str
    iteration_s: float
    up_s: float
    mean_bps: float
    peak_bps: float


def source(models: Sequence[str], workers: int, keys: Mapping[str, Any]) -> str:
    """The text of the scenario that profiles these models on so many `workers` each, with the same further `keys`.

    All workers are on one switch, so that none is in another's way.
    Raises InputError where a model is named twice.
    """
    if len(set(models)) != len(models):
        raise InputError("profile", "a model is named twice", "name each once")
    name = "-".join(models)[:LONGEST_NAME].strip("-")
    text = SCENARIO.format(
        name=json.dumps(name), title=json.dumps(f"Profile of {', '.join(models)}"), hosts=workers * len(models)
    )
    for model in models:
        lines = {"name": model[:LONGEST_NAME], "model": model, "workers": workers, **keys}
        text += "\n[[job]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
    return text


def rows(folder: Path, scale: float) -> Iterator[Row]:
    """What the run in `folder` measured, one row for every worker's port."""
    arm = Arm(folder / "alone")
    for link, profiles in json.loads((folder / "profiles.json").read_text()).items():
        for profile in map(Profile.from_dict, profiles):
            run = trial_of(arm, profile.job).jobs[profile.job]
            rates = [scale * rate for rate in profile.demand_bps]
            up_s = float((run.end_s - run.up_begin_s)[1:].mean())
            yield Row(profile.job, link, profile.period_s, up_s, sum(rates) / len(rates), max(rates))
