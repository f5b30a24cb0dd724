"""What was measured as a table for people (Markdown)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.decisions import LONGER, Crowded, Precise, Ranked, Timed
from benchmarks.guest import Moved
from benchmarks.loops import Reached
from benchmarks.measure import Spread, Turns
from benchmarks.netstorm import Fired

GUEST, COPYING, NS3, NATIVE = "guest", "guest, payload copied", "ns-3", "this kernel"
TRAFFIC_NOTES = """\
A packet-hop is one packet (data or ACK) sent onto one link. Median [lowest, highest]; ratios within one turn. All
systems keep to the same CPU, one after another. *Guest*: the product's own network under its own controller; *payload
copied*: the same with programs that copy what they send and receive, as most do. *ns-3*: Debian's build, which has
logging and assertions; not scaled (an optimised build of ns-3.37 was 1.5 times as fast in an experiment on an idle
machine of this kind, 213 k against 142 k, so 6 times Debian's build is 4 times an optimised one). *This kernel*: host -
bridge - bridge - host, a token bucket per link, Reno, no Open vSwitch, no RED, no delay.
"""


def rows(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is text, all others figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def show(spread: Spread | None, digits: int = 0, factor: float = 1.0) -> str:
    """Return "median [low, high]"; a dash where there is none."""
    if spread is None:
        return "-"
    median, low, high = (f"{number * factor:.{digits}f}" for number in (spread.median, spread.low, spread.high))
    return f"{median} [{low}, {high}]"


def _rate(moved: Moved) -> float:
    return moved.hops_per_s


def traffic(cases: Mapping[str, Turns[Moved]]) -> str:
    """Return packet-hops per wall second of every system in every case, and the ratios."""
    header = ["1000 packet-hops per wall second", GUEST, COPYING, NS3, NATIVE, "guest / ns-3", "guest / this kernel"]
    body = []
    for name, turns in cases.items():
        rates = [show(turns.spread(system, _rate), 0, 1e-3) for system in (GUEST, COPYING, NS3, NATIVE)]
        ratios = [show(turns.ratio(GUEST, other, _rate), 1) for other in (NS3, NATIVE)]
        body.append([name, *rates, *ratios])
    reasons = {f"{system} is missing: {why}\n" for turns in cases.values() for system, why in turns.skipped.items()}
    return rows(header, body) + "\n" + TRAFFIC_NOTES + "".join(f"\n{reason}" for reason in sorted(reasons))


def seconds(measured: Mapping[str, Turns[dict[str, float]]]) -> str:
    """Return the wall seconds of everything that has stages."""
    body = [
        [f"{name}: {stage}", show(turns.spread(name, _stage(stage)), 2)]
        for turns in measured.values()
        for name, runs in turns.given.items()
        for stage in runs[0]
    ]
    return rows(["wall seconds", "median [lowest, highest]"], body)


def _stage(name: str) -> Callable[[dict[str, float]], float]:
    return lambda stages: stages[name]


def deciding(turns: Turns[Timed]) -> str:
    """Return how long decisions for one link take."""
    body = [
        [
            name,
            show(turns.spread(name, lambda one: one.wall_s), 3),
            f"{runs[0].score:.3f}",
            f"{runs[0].bound:.3f}",
            "yes" if runs[0].proved else "no",
        ]
        for name, runs in turns.given.items()
    ]
    return rows(
        ["CASSINI's decision for one link", "wall seconds", "score", "at most", "proved best (within 0.01)"], body
    )


def ranking(turns: Turns[Ranked]) -> str:
    """Return how long the module takes, and what it reaches."""
    body = [
        [
            name,
            f"{runs[0].jobs}",
            f"{runs[0].links}",
            show(turns.spread(name, lambda one: one.wall_s), 2),
            show(turns.spread(name, lambda one: one.cpu_s), 2),
            f"{max(one.peak_bytes for one in runs) / 1e6:.0f}",
            f"{runs[0].unshifted:.3f}",
            f"{runs[0].score:.3f}",
            f"{runs[0].best:.3f}",
        ]
        for name, runs in turns.given.items()
    ]
    header = [
        "the module",
        "jobs",
        "links",
        "wall seconds",
        "CPU seconds",
        "peak MB",
        "without shifts",
        "score",
        "each link by itself",
    ]
    return rows(header, body)


def crowded(links: Sequence[Crowded]) -> str:
    """Return how near the best decisions for many jobs are known to be, and what more work would find."""
    body = [
        [
            f"{number}",
            f"{one.jobs}",
            f"{one.wall_s:.2f}",
            f"{one.score:.4f}",
            f"{one.bound:.4f}",
            "yes" if one.proved else "no",
            f"{one.longer - one.score:+.4f}",
        ]
        for number, one in enumerate(links, start=1)
    ]
    more = f"found with {LONGER} times the work"
    header = ["link of 4 to 8 jobs", "jobs", "wall seconds", "score", "at most", "proved best (within 0.01)", more]
    return rows(header, body)


def precision(turns: Turns[Precise]) -> str:
    """Return what a decision loses and takes by precision."""
    best = max(runs[0].score for runs in turns.given.values())
    body = [
        [
            name,
            f"{runs[0].score:.4f}",
            f"{100 * runs[0].score / best:.2f} %",
            show(turns.spread(name, lambda one: one.wall_s), 1, 1e3),
        ]
        for name, runs in turns.given.items()
    ]
    return rows(["precision", "score, on half a degree", "of the best", "ms for three jobs"], body)


def loops(reached: Reached) -> str:
    """Return what each rule for loops reaches."""
    body = [[rule, f"{reached.single[rule]:.4f}", f"{reached.chosen[rule]:.4f}"] for rule in reached.single]
    note = (
        f"\n{reached.looped} of {reached.placements} placements have a loop; in {reached.hopeless} of "
        f"{reached.decisions} decisions every candidate has one. Each link by itself could have {reached.best:.4f} in "
        "the mean of the placements with loops.\n"
    )
    return rows(["rule", "score where there is a loop", "score of the chosen candidate"], body) + note


def fired(one: Fired) -> str:
    """Return what the model of NETSTORM's protocol went through, and what went wrong."""
    counts = ", ".join(f"{count} {what}" for what, count in sorted(one.counts.items()))
    faults = "".join(f"- {fault}\n" for fault in one.faults)
    return (
        f"NETSTORM under fire: {one.seeds} seeds in {one.wall_s:.0f} s, {len(one.faults)} faults; {counts}.\n{faults}"
    )


def compared(medians: Mapping[str, Mapping[str, float]]) -> str:
    """Return strategies as multiples of the lower bound, in the event simulation."""
    names = list(next(iter(medians.values())))
    body = [[name, *(f"{of_one[name]:.2f}" for of_one in medians.values())] for name in names]
    return rows(["a round, in multiples of the lower bound (median, event simulation)", *medians], body)


def dynamic(mean_s: Mapping[str, float]) -> str:
    """Return the mean round of systems on a network that changes, in the event simulation."""
    body = [[name, f"{one:.1f}", f"{mean_s['star'] / one:.2f}"] for name, one in mean_s.items()]
    return rows(["netstorm-9, drawn again every 180 s (event simulation)", "mean round, s", "times faster"], body)
