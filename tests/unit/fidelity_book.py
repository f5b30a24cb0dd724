"""Counters of a run, made from packets that are followed through a dumbbell one by one; and the checks on them."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path

from controllers.sdn.paths import Routes
from testbed.fidelity import (
    Check,
    check_arm,
)
from testbed.net.fabrics import build
from testbed.net.scale import Original, Scaling
from testbed.telemetry.tables import COUNTERS

TOPOLOGY = build("dumbbell", Scaling(Original(), 50).settings)
BOTTLENECK, BACK, LAST = "s1->s2", "s2->s1", "s2->h3"
FLOWS = (("h1", "h3"), ("h2", "h4"), ("h3", "h1"))
TRIALS = ("0", "1")
INTERVAL_S = 5e-3
RATE_BPS = TOPOLOGY.direction("s1", "s2").rate_bps
PACKET_BYTES = TOPOLOGY.mtu_bytes + 14
RED_MAX_BYTES = 160_000

Row = dict[str, int | None]
Book = dict[tuple[str, str, str], Row]
Break = Callable[[Book], object]


def book(marking: float = 0.3, always: str = "none") -> Book:
    """What all sources say, by (trial, label, link), of packets marked with some probability at every switch's egress.

    Every packet is marked on the links out of the switch `always`. RED counts a packet that is marked already as marked
    again when it meets a long queue.
    """
    draw, routes, switches = random.Random(7), Routes(TOPOLOGY), set(TOPOLOGY.switches)
    now = {f"{a}->{b}": {"tx": 0, "ce_in": 0, "marked": 0, "dropped": 0, "ce_out": 0} for a, b in TOPOLOGY.directed()}
    written: Book = {}
    for trial, label in product(TRIALS, ("begin", "end")):
        for source, destination in FLOWS if label == "end" else ():
            for _ in range(200):
                ce = False
                for link in routes.route(source, destination):
                    switch = link.partition("->")[0]
                    marks = switch in switches and (switch == always or draw.random() < marking)
                    now[link]["tx"] += 1
                    now[link]["ce_in"] += ce
                    now[link]["marked"] += marks
                    ce = ce or marks
                    now[link]["ce_out"] += ce
        for link, counts in now.items():
            source = link.partition("->")[0]
            host = source not in switches
            written[trial, label, link] = counts | ({"tx": None, "ce_in": None} if host else {})
    return written


def write(folder: Path, rows: Book) -> Path:
    with COUNTERS.writer(folder / COUNTERS.file) as writer:
        for (trial, label, link), row in rows.items():
            sent = None if row["tx"] is None else row["tx"] * PACKET_BYTES
            writer.row(trial, label, link, row["tx"], sent, row["ce_in"], row["marked"], row["dropped"], row["ce_out"])
    return folder


def checked(folder: Path, rows: Book, drops_allowed: bool = False) -> list[Check]:
    return check_arm(write(folder, rows), TOPOLOGY, INTERVAL_S, drops_allowed, ())


def faults(checks: list[Check]) -> str:
    return "\n".join(f"{check.what}: {check.found}" for check in checks if not check.ok)
