"""What has to be there before the first packet, and what an idle network costs: wall seconds, stage by stage."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.guest import program, timed
from testbed.engine.kernel import Kernel
from testbed.engine.launch import Job
from testbed.net.fabrics import build
from testbed.net.scale import Original, Scaling

SCALE = 10
IDLE_S = 100.0
STAGES = ("guest up", "network", "controller", "read back", "agents")
"""In the order in which `benchmarks.inside.fabric` marks them."""


def boot(kernel: Kernel, open_vswitch: bool) -> dict[str, float]:
    """Return the wall seconds of a guest that runs `true`: until it is up, and until it is gone."""
    at_s = timed(Job(("true",), "/", open_vswitch=open_vswitch), kernel)
    return {"up": at_s["guest up"] - at_s["launched"], "gone": at_s["guest gone"] - at_s["launched"]}


def fabric(kernel: Kernel, interval_s: float, idle_s: float = IDLE_S) -> dict[str, float]:
    """Return the wall seconds of each stage of cassini-48, of all of them, and of `idle_s` with a controller that polls
    every `interval_s`."""
    topology = build("cassini-48", Scaling(Original(), SCALE).settings)
    arguments = {"topology": topology.to_dict(), "interval_s": interval_s, "idle_s": idle_s}
    at_s, _ = program("fabric", arguments, kernel)
    reached = [at_s[stage] for stage in ("launched", *STAGES)]
    stages = {stage: after - before for stage, (before, after) in zip(STAGES, pairwise(reached), strict=True)}
    return stages | {"all": reached[-1] - reached[0], "idle": at_s["idle ends"] - at_s["idle begins"]}
