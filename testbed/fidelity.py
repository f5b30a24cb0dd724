"""Did the network do what it was told? The verdict on one arm, from its files alone.

Four independent accounts must agree: what was set, what the queues say (netlink), what the switches say (OpenFlow),
what the hosts say (InCEPkts). A run in which they do not is not valid, whatever its figures look like.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.net.fabrics import ETHERNET_HEADER_BYTES
from testbed.net.topology import Direction, Topology
from testbed.telemetry.tables import COUNTERS, QUEUES, Records

RATE_TOLERANCE = 0.01
"""A link with a standing queue must carry its rate to within this, and no link may ever carry more."""
COARSE_TOLERANCE = 0.05
LONG_SAMPLE = 5
"""Samples longer than so many times a standing queue takes to drain prove rates to within COARSE_TOLERANCE only."""
WINDOW_PACKETS = 200
"""Rates are taken over at least so many full packets, so that one more or less at the ends is half the tolerance."""


@dataclass(frozen=True)
class Check:
    """One thing held against another: `what` was checked, whether it is `ok`, and what was found."""

    what: str
    ok: bool
    found: str


@dataclass(frozen=True)
class Counters:
    """What all sources say of one directed link over one trial, in packets; None where a source has no say."""

    trial: str
    link: str
    tx_packets: int | None
    ce_in_packets: int
    marked_packets: int
    dropped_packets: int
    ce_out_packets: int


def deltas(records: Records) -> Iterator[Counters]:
    """Yield the difference between the end and the begin of every trial, link by link (counters.csv)."""
    columns = ("tx_packets", "ce_in_packets", "marked_packets", "dropped_packets", "ce_out_packets")
    values = {column: records.counts(column) for column in columns}
    begins: dict[tuple[str, str], dict[str, int | None]] = {}
    for row, (trial, label, link) in enumerate(
        zip(records.text("trial"), records.text("label"), records.text("link"), strict=True)
    ):
        here = {column: values[column][row] for column in columns}
        if label == "begin":
            begins[trial, link] = here
            continue
        before = begins[trial, link]
        passed = {column: _minus(here[column], before[column]) for column in columns}
        yield Counters(
            trial, link, passed["tx_packets"], passed["ce_in_packets"] or 0, passed["marked_packets"] or 0,
            passed["dropped_packets"] or 0, passed["ce_out_packets"] or 0,
        )  # fmt: skip


def _minus(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def check_marks(counters: list[Counters], topology: Topology) -> list[Check]:
    """Hold the three accounts of CE marks against each other, on every directed link and in sum.

    RED counts a packet that was CE already as marked again, so with CE_in packets marked on entry and `marks` by the
    queue: max(CE_in, marks) <= CE_out <= CE_in + marks, and CE_out = marks where nothing came in marked.
    """
    faults = [
        f"{c.link}, trial {c.trial}: {c.ce_in_packets} came marked, the queue marked {c.marked_packets}, "
        f"but {c.ce_out_packets} left marked"
        for c in counters
        if not max(c.ce_in_packets, c.marked_packets) <= c.ce_out_packets <= c.ce_in_packets + c.marked_packets
    ]
    total = sum(c.ce_out_packets for c in counters)
    what = "CE marks: queues, switches and hosts agree on every link"
    checks = [_check(what, faults, f"{total} marked arrivals agree")]
    hosts = set(topology.hosts)
    at_hosts = sum(c.ce_out_packets for c in counters if c.link.rpartition("->")[2] in hosts)
    bound = sum(c.marked_packets for c in counters)
    into_last = sum(c.ce_in_packets + c.marked_packets for c in counters if c.link.rpartition("->")[2] in hosts)
    added_up = at_hosts <= bound and at_hosts <= into_last
    checks.append(
        Check("CE packets at the receivers add up", added_up, f"{at_hosts} received, {bound} marks by all queues")
    )
    return checks


def check_drops(counters: list[Counters], allowed: bool) -> list[Check]:
    """No queue may have dropped a packet, unless the scenario expects it."""
    faults = [f"{c.link}, trial {c.trial}: {c.dropped_packets} dropped" for c in counters if c.dropped_packets]
    if allowed:
        return [Check("drops (allowed)", True, "; ".join(faults) or "none")]
    return [_check("no packet was dropped", faults, "none")]


def check_rates(queues: Records, topology: Topology, interval_s: float) -> list[Check]:
    """Hold the rate of every watched link, while it was backlogged, against its setting (queues.csv)."""
    series: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    backlogs, sent = queues.counts("backlog_bytes"), queues.counts("tx_bytes")
    for t_s, link, backlog, tx in zip(queues.numbers("t_s"), queues.text("link"), backlogs, sent, strict=True):
        series[link].append((t_s, backlog or 0, tx or 0))
    checks = []
    for link in sorted(series):
        direction = topology.direction(*link.split("->"))
        packet_bytes = topology.mtu_bytes + ETHERNET_HEADER_BYTES
        fastest, busy = _fastest(series[link], WINDOW_PACKETS * packet_bytes, 2 * direction.burst_bytes, interval_s)
        set_bps, name = direction.rate_bps, f"rate of {link}, set to {direction.rate_bps / 1e6:.2f} Mbit/s"
        tolerance = _tolerance(direction, interval_s)
        faults = []
        if fastest > set_bps * (1 + RATE_TOLERANCE):
            faults.append(f"carried {fastest / 1e6:.2f} Mbit/s")
        if busy and busy < set_bps * (1 - tolerance):
            faults.append(f"gave no more than {busy / 1e6:.2f} Mbit/s to a standing queue")
        found = f"{busy / 1e6:.2f} Mbit/s to a standing queue" if busy else "never a standing queue"
        checks.append(_check(f"{name}, to {tolerance:.0%}", faults, found))
    return checks


def _tolerance(direction: Direction, interval_s: float) -> float:
    """Return how far below its setting a link with a standing queue may seem to be.

    A queue seen at both ends of a sample may have run empty in between, the likelier the longer the sample is against
    the time in which the link sends all that is waiting where marking becomes certain.
    """
    standing_bytes = direction.aqm.max_bytes if direction.aqm else direction.queue_bytes
    drains_s = 8 * standing_bytes / direction.rate_bps
    return RATE_TOLERANCE if interval_s <= LONG_SAMPLE * drains_s else COARSE_TOLERANCE


def _fastest(
    samples: list[tuple[float, int, int]], window_bytes: int, least_bytes: int, interval_s: float
) -> tuple[float, float]:
    """Return the highest rate in bit/s over any window of samples, and over any in which a queue stood at every sample.

    samples: (time in s, backlog in bytes, bytes sent). A window holds `window_bytes` or more, so that a packet more or
    less at its ends does not count; a queue stands where `least_bytes` wait. 0 where there is no such window.
    """
    fastest = busy = 0.0
    first = 0
    for last in range(1, len(samples)):
        while samples[last][2] - samples[first + 1][2] >= window_bytes:
            first += 1
        window = samples[first : last + 1]
        sent, length_s = window[-1][2] - window[0][2], window[-1][0] - window[0][0]
        if sent < window_bytes or length_s < 0.5 * interval_s:
            continue
        rate_bps = 8 * sent / length_s
        fastest = max(fastest, rate_bps)
        if all(backlog >= least_bytes for _, backlog, _ in window) and length_s < (len(window) - 0.5) * interval_s:
            busy = max(busy, rate_bps)
    return fastest, busy


def check_arm(folder: Path, topology: Topology, interval_s: float, drops_allowed: bool) -> list[Check]:
    """Return every check on the files of one arm. Raises InputError when a file is missing or not what it should be."""
    counters = list(deltas(COUNTERS.read(folder / COUNTERS.file)))
    checks = [*check_marks(counters, topology), *check_drops(counters, drops_allowed)]
    if (folder / QUEUES.file).exists():
        checks += check_rates(QUEUES.read(folder / QUEUES.file), topology, interval_s)
    return checks


def _check(what: str, faults: list[str], good: str) -> Check:
    more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
    return Check(what, not faults, "; ".join(faults[:3]) + more if faults else good)
