"""Did the network do what it was told? The verdict on one arm, from its files alone.

Four independent accounts must agree: what was set, what the queues say (netlink), what the switches say (OpenFlow),
what the hosts say (InCEPkts). A run in which they do not is not valid, whatever its figures look like.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from testbed.events.seen import NOTHING, History, history
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
MANY_WINDOWS = 50
"""Fewer windows with a standing queue prove rates to within COARSE_TOLERANCE only: it may run empty inside them all."""
FEW_WINDOWS = 10
CEILING_SHARE = 0.5
"""A rate too low is a ceiling: of FEW_WINDOWS or more, such a share comes to within RATE_TOLERANCE of the fastest.

Bursts that empty the queue between samples reach no ceiling, and their fastest window is one of a kind.
"""


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
    """Yield the difference between the end and the begin of every trial, link by link (counters.csv).

    An end without its begin is left out: see `check_complete`.
    """
    columns = ("tx_packets", "ce_in_packets", "marked_packets", "dropped_packets", "ce_out_packets")
    values = {column: records.counts(column) for column in columns}
    begins: dict[tuple[str, str], dict[str, int | None]] = {}
    for row, (trial, label, link) in enumerate(
        zip(records.text("trial"), records.text("label"), records.text("link"), strict=True)
    ):
        here = {column: values[column][row] for column in columns}
        if label == "begin":
            begins[trial, link] = here
        if label != "end" or (trial, link) not in begins:
            continue
        passed = {column: _minus(here[column], begins[trial, link][column]) for column in columns}
        yield Counters(
            trial, link, passed["tx_packets"], passed["ce_in_packets"] or 0, passed["marked_packets"] or 0,
            passed["dropped_packets"] or 0, passed["ce_out_packets"] or 0,
        )  # fmt: skip


def _minus(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def check_complete(records: Records, topology: Topology) -> list[Check]:
    """Every source must have spoken of every directed link, once at the begin and once at the end of every trial."""
    counted = Counter(zip(records.text("trial"), records.text("label"), records.text("link"), strict=True))
    trials, links = sorted({trial for trial, _, _ in counted}), [f"{a}->{b}" for a, b in topology.directed()]
    wanted = [(trial, label, link) for trial in trials for label in ("begin", "end") for link in links]
    faults = [
        f"{link}, trial {trial}: {counted[trial, label, link]} counts at its {label}"
        for trial, label, link in wanted
        if counted[trial, label, link] != 1
    ]
    switches = set(topology.switches)
    silent = zip(records.text("link"), records.counts("ce_in_packets"), records.counts("ce_out_packets"), strict=True)
    for link, ce_in, ce_out in silent:
        a, _, b = link.partition("->")
        if ce_in is None and a in switches:
            faults.append(f"{link}: {a} did not say what it forwarded")
        if ce_out is None:
            faults.append(f"{link}: {b} did not say what it received")
    if not trials:
        faults.append("no trial was counted")
    return [check_of("all sources counted every link in every trial", faults, f"{len(wanted)} counts")]


def check_marks(counters: list[Counters], topology: Topology, events: History = NOTHING) -> list[Check]:
    """Hold the three accounts of CE marks against each other: on every directed link, in every switch, and in sum.

    RED counts a packet that was CE already as marked again, so with CE_in packets marked on entry and `marks` by the
    queue: max(CE_in, marks) <= CE_out <= CE_in + marks, and CE_out = marks where nothing came in marked. Packets that
    were lost on the way, in the queue, by the link's own random loss or by `events`, may be missing from CE_out. A
    switch forwards what it receives: what comes in marked on all its links together is what goes on to its queues
    marked. With a cable cut, rules go, and take their last counts with them: a link's CE_in may then be too small, but
    what its switch received is not.
    """
    received = _received(counters) if events.cut else {}
    faults = []
    for c in counters:
        sender = c.link.partition("->")[0]
        came = max(c.ce_in_packets, received.get((c.trial, sender), 0) if sender in topology.switches else 0)
        if not _least(c, topology, events) <= c.ce_out_packets <= came + c.marked_packets:
            faults.append(
                f"{c.link}, trial {c.trial}: {c.ce_in_packets} came marked, the queue marked {c.marked_packets}, "
                f"but {c.ce_out_packets} left marked"
            )
    total = sum(c.ce_out_packets for c in counters)
    what = "CE marks: queues, switches and hosts agree on every link"
    checks = [check_of(what, faults, f"{total} marked arrivals agree"), _check_switches(counters, topology, events.cut)]
    hosts = set(topology.hosts)
    at_hosts = sum(c.ce_out_packets for c in counters if c.link.rpartition("->")[2] in hosts)
    bound = sum(c.marked_packets for c in counters)
    into_last = sum(c.ce_in_packets + c.marked_packets for c in counters if c.link.rpartition("->")[2] in hosts)
    added_up = at_hosts <= bound and at_hosts <= into_last
    checks.append(
        Check("CE packets at the receivers add up", added_up, f"{at_hosts} received, {bound} marks by all queues")
    )
    return checks


def _least(c: Counters, topology: Topology, events: History) -> int:
    """Return how many marked packets must at least have arrived."""
    if c.link in events.lossy:
        return 0
    lossy = topology.direction(*c.link.split("->")).loss > 0
    return max(0, max(0 if lossy else c.ce_in_packets, c.marked_packets) - c.dropped_packets)


def _received(counters: list[Counters]) -> Mapping[tuple[str, str], int]:
    """Return how many marked packets came to each node, by trial and node."""
    received: dict[tuple[str, str], int] = defaultdict(int)
    for c in counters:
        received[c.trial, c.link.rpartition("->")[2]] += c.ce_out_packets
    return received


def _check_switches(counters: list[Counters], topology: Topology, cut: bool) -> Check:
    """With a cable `cut` a switch may have had no way for a packet; never may it send what it did not receive."""
    received, forwarded = _received(counters), defaultdict[tuple[str, str], int](int)
    for c in counters:
        forwarded[c.trial, c.link.partition("->")[0]] += c.ce_in_packets
    trials = sorted({c.trial for c in counters})
    places = [(trial, switch) for trial in trials for switch in topology.switches]
    faults = [
        f"{place[1]}, trial {place[0]}: {received[place]} came marked, {forwarded[place]} went on"
        for place in places
        if received[place] < forwarded[place] or (received[place] > forwarded[place] and not cut)
    ]
    total = sum(received[place] for place in places)
    return check_of("CE packets into every switch go on from it", faults, f"{total} marked packets forwarded")


def check_drops(counters: list[Counters], allowed: bool, events: History = NOTHING) -> list[Check]:
    """No queue may have dropped a packet, unless the scenario expects it, or an event cut its link."""
    dropped = [c for c in counters if c.dropped_packets and c.link not in events.lossy]
    faults = [f"{c.link}, trial {c.trial}: {c.dropped_packets} dropped" for c in dropped]
    if allowed:
        return [Check("drops (allowed)", True, "; ".join(faults) or "none")]
    return [check_of("no packet was dropped", faults, "none")]


def check_marking(queues: Records, topology: Topology, watched: Iterable[str]) -> list[Check]:
    """A queue above the threshold from which marking is certain must have marked, on every watched link (queues.csv).

    The queue cannot have grown from below the threshold to two packets above it without a packet that found it above.
    """
    packet_bytes = topology.mtu_bytes + ETHERNET_HEADER_BYTES
    faults, above = [], 0
    for link in watched:
        direction, seen = topology.direction(*link.split("->")), queues.where(link=link)
        if direction.aqm is None:
            continue
        # With several bands each has the threshold: only above their sum one of them is certainly above its own.
        surely_bytes = max(1, len(direction.bands)) * (direction.aqm.max_bytes + 2 * packet_bytes)
        times, backlogs = seen.numbers("t_s"), [backlog or 0 for backlog in seen.counts("backlog_bytes")]
        columns = (seen.counts("marked_packets"), seen.counts("dropped_packets"))
        marked = [(marks or 0) + (drops or 0) for marks, drops in zip(*columns, strict=True)]
        for before, after in pairwise(range(len(backlogs))):
            if backlogs[before] < direction.aqm.max_bytes and backlogs[after] >= surely_bytes:
                above += 1
                if marked[after] <= marked[before]:
                    faults.append(f"{link} held {backlogs[after]} B at {times[after]:.3f} s and marked nothing")
    what = "queues above the threshold marked"
    return [check_of(what, faults, f"{above} times" if above else "never above it")]


def check_growth(queues: Records, watched: Iterable[str]) -> list[Check]:
    """A counter that falls began anew: its queue was replaced, and what it had dropped or marked is lost."""
    columns = ("dropped_packets", "marked_packets", "tx_packets", "tx_bytes")
    faults = []
    for link in watched:
        seen = queues.where(link=link)
        times, counts = seen.numbers("t_s"), {column: seen.counts(column) for column in columns}
        faults += [
            f"{link}: {column} fell from {before} to {after} at {t_s:.3f} s"
            for column in columns
            for t_s, (before, after) in zip(times[1:], pairwise(counts[column]), strict=True)
            if (after or 0) < (before or 0)
        ]
    return [check_of("counters of watched queues only grow", faults, f"{len(queues)} samples")]


def check_rates(
    queues: Records,
    topology: Topology,
    interval_s: float,
    watched: Iterable[str],
    *,
    standing: bool = True,
    events: History = NOTHING,
) -> list[Check]:
    """Hold the rate of every watched link, while it was backlogged, against its setting (queues.csv).

    A link whose rate `events` changed is held against each of its rates while it had it. Without `standing` only that
    none carried more: queues were looked at too rarely to tell that one stood.
    """
    series: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    backlogs, sent = queues.counts("backlog_bytes"), queues.counts("tx_bytes")
    for t_s, link, backlog, tx in zip(queues.numbers("t_s"), queues.text("link"), backlogs, sent, strict=True):
        series[link].append((t_s, backlog or 0, tx or 0))
    checks = []
    for link in watched:
        direction = topology.direction(*link.split("->"))
        for set_bps, pieces in events.by_rate(link, direction.rate_bps, series[link]):
            of_rate = replace(direction, rate_bps=set_bps)
            checks.append(_check_rate(link, of_rate, topology.mtu_bytes, pieces, interval_s, standing))
    return checks


def _check_rate(
    link: str,
    direction: Direction,
    mtu_bytes: int,
    pieces: Sequence[list[tuple[float, int, int]]],
    interval_s: float,
    standing: bool,
) -> Check:
    """Hold a link's rate against one setting; `pieces` are its samples while it had it."""
    packet_bytes, standing_bps, fastest = mtu_bytes + ETHERNET_HEADER_BYTES, list[float](), 0.0
    for samples in pieces:
        here_bps, rates_bps = _rates(samples, WINDOW_PACKETS * packet_bytes, 2 * packet_bytes, interval_s)
        fastest, standing_bps = max(fastest, here_bps), standing_bps + rates_bps
    set_bps, name = direction.rate_bps, f"rate of {link}, set to {direction.rate_bps / 1e6:.2f} Mbit/s"
    tolerance, busy = _tolerance(direction, interval_s, len(standing_bps)), max(standing_bps, default=0.0)
    faults = [] if any(len(samples) > 1 for samples in pieces) else ["nobody watched it"]
    if fastest > set_bps * (1 + RATE_TOLERANCE):
        faults.append(f"carried {fastest / 1e6:.2f} Mbit/s")
    if standing and busy < set_bps * (1 - tolerance) and _is_ceiling(standing_bps):
        faults.append(f"gave no more than {busy / 1e6:.2f} Mbit/s to a standing queue")
    found = f"{busy / 1e6:.2f} Mbit/s to a standing queue" if busy else "never a standing queue"
    found = found if standing else f"{fastest / 1e6:.2f} Mbit/s at most"
    return check_of(f"{name}, to {tolerance:.0%}", faults, found)


def _tolerance(direction: Direction, interval_s: float, windows: int) -> float:
    """Return how far below its setting a link with a standing queue may seem to be.

    A queue seen at both ends of a sample may have run empty in between, the likelier the longer the sample is against
    the time in which the link sends all that is waiting where marking becomes certain. Of many windows one shows the
    rate all the same.
    """
    standing_bytes = direction.aqm.max_bytes if direction.aqm else direction.queue_bytes
    drains_s = 8 * standing_bytes / direction.rate_bps
    fine = interval_s <= LONG_SAMPLE * drains_s and windows >= MANY_WINDOWS
    return RATE_TOLERANCE if fine else COARSE_TOLERANCE


def _is_ceiling(rates_bps: Sequence[float]) -> bool:
    """Return whether rates while a queue stood show that the link gives no more (CEILING_SHARE)."""
    near = sum(rate >= max(rates_bps) * (1 - RATE_TOLERANCE) for rate in rates_bps)
    return len(rates_bps) >= FEW_WINDOWS and near >= CEILING_SHARE * len(rates_bps)


def _rates(
    samples: list[tuple[float, int, int]], window_bytes: int, least_bytes: int, interval_s: float
) -> tuple[float, list[float]]:
    """Return the highest rate in bit/s over any window of samples, and the rates of those with a queue at every sample.

    samples: (time in s, backlog in bytes, bytes sent). A window holds `window_bytes` or more, so that a packet more or
    less at its ends does not count; a queue stands where `least_bytes` wait. 0 where there is no such window.
    """
    fastest, standing_bps, first = 0.0, [], 0
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
            standing_bps.append(rate_bps)
    return fastest, standing_bps


def check_arm(
    folder: Path,
    topology: Topology,
    interval_s: float,
    drops_allowed: bool,
    watched: Iterable[str],
    *,
    standing: bool = True,
) -> list[Check]:
    """Return every check on the files of one arm, whose `watched` links were sampled every `interval_s`.

    `standing`: see `check_rates`.
    Raises InputError when a file is missing or not what it should be.
    """
    records, watched = COUNTERS.read(folder / COUNTERS.file), tuple(watched)
    counters = list(deltas(records))
    events = history(folder, topology)
    checks = [*check_complete(records, topology), *check_marks(counters, topology, events)]
    checks += check_drops(counters, drops_allowed, events)
    if watched:
        queues = QUEUES.read(folder / QUEUES.file)
        checks += check_growth(queues, watched)
        checks += check_marking(queues, topology, watched)
        checks += check_rates(queues, topology, interval_s, watched, standing=standing, events=events)
    return checks


def check_of(what: str, faults: list[str], good: str) -> Check:
    more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
    return Check(what, not faults, "; ".join(faults[:3]) + more if faults else good)
