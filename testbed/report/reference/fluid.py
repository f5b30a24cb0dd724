"""One page: runs in packets beside their twins at flow level, arm by arm, and where the two do not agree.

A packet run is `results/NAME` (or a point of a study below it), its twin `results/fluid/NAME`, of the same scenario.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TWINS = "fluid"
PAGE = "fluid.md"
LEFT_OUT = ("alone", "ideal")
CLOSE = 0.05
"""How far a mean iteration time may be from that in packets."""
APART = 0.02
"""Arms closer than this are equal: their order says nothing."""

ABOUT = """\
The fluid engine (docs/fluid.md) runs the scenarios of this project without packets. Here every valid run in packets
that has a valid twin is put beside it: the mean iteration time of each arm (jobs weigh the same), and whether arms
that differ by more than 2 % in packets are in the same order. Nothing is fitted: what misses, misses.

Why it may miss; none of these has been tested apart. *Shared links*: a ring goes step by step, and in packets each of
its connections gets its part of a link only in the mean, so a step may wait for the slower one. *Links without slack
and nobody held to ticks* (scores below 0.95, `hold = true`): a fluid leaves two jobs where they are on the circle,
since what one loses the other loses; with TCP they may drift. *Ticks that are just missed* (`hold = "always"` near
the score where jobs can keep them) may cost a whole iteration or nothing. *Unsteady compute* is drawn alike, but in
packets jobs that were pushed apart may meet again. *Short messages* (pipelines, all-to-all of DLRM) may wait for
windows and acknowledgements, of which a fluid has none.
"""


@dataclass(frozen=True)
class Arm:
    """One arm of a run and of its twin: mean iteration times in s, CE packets per iteration."""

    name: str
    packets_s: float
    fluid_s: float
    packets_ce: float
    fluid_ce: float

    @property
    def off(self) -> float:
        """How much longer an iteration of the fluid takes, relative."""
        return self.fluid_s / self.packets_s - 1


@dataclass(frozen=True)
class Twin:
    """A run in packets and its twin, arm by arm."""

    name: str
    arms: tuple[Arm, ...]

    @property
    def worst(self) -> Arm:
        """The arm that is furthest off."""
        return max(self.arms, key=lambda arm: abs(arm.off))

    @property
    def ordered(self) -> list[tuple[Arm, Arm]]:
        """Pairs of arms that differ by more than APART in packets, the faster one first."""
        compared = [arm for arm in self.arms if arm.name not in LEFT_OUT]
        pairs = itertools.permutations(compared, 2)
        return [(one, other) for one, other in pairs if one.packets_s < other.packets_s / (1 + APART)]

    @property
    def reversed(self) -> list[tuple[str, str]]:
        """Those of them that are the other way round in the fluid."""
        return [(one.name, other.name) for one, other in self.ordered if one.fluid_s > other.fluid_s]


def twin_of(name: str, packets: Path, fluid: Path) -> Twin | None:
    """Return a run beside its twin; None where either is not there, is not valid, or they have no arm in common."""
    one, other = _means(packets), _means(fluid)
    if one is None or other is None:
        return None
    arms = tuple(Arm(arm, one[arm][0], other[arm][0], one[arm][1], other[arm][1]) for arm in one if arm in other)
    return Twin(name, arms) if arms else None


def _means(folder: Path) -> dict[str, tuple[float, float]] | None:
    """Return (mean iteration time, CE packets per iteration) of every arm; the mean over jobs."""
    try:
        summary: Mapping[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        valid = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["valid"]
    except FileNotFoundError:
        return None
    if not valid or "arms" not in summary:
        return None
    found = {}
    for name, arm in summary["arms"].items():
        ce = arm["ce_packets_per_iteration"]["value"] or 0.0
        if summary.get("kind") == "cluster":
            found[name] = arm["iteration_s"]["mean"]["value"], ce
        else:
            jobs = arm["jobs"].values()
            found[name] = sum(job["iteration_s"]["mean"]["value"] for job in jobs) / len(jobs), ce
    return found


def twins(results: Path, names: Sequence[str]) -> list[Twin]:
    """Return every run of the scenarios named, points of studies too, that has a twin."""
    found = []
    for name in names:
        places = [name, *(f"{name}/{path.name}" for path in sorted((results / name).glob("*")) if path.is_dir())]
        for place in places:
            twin = twin_of(place, results / place, results / TWINS / place)
            if twin is not None:
                found.append(twin)
    return found


def write(results: Path, names: Sequence[str]) -> Path:
    """Write results/reference/fluid.md of the runs that are there; return its path."""
    path = results / "reference" / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(page(twins(results, names))) + "\n", encoding="utf-8")
    return path


def page(found: Sequence[Twin]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from ("# Packets and fluid", "", ABOUT)
    if not found:
        yield "No run in packets has a twin: `python -m testbed twins`."
        return
    arms = [arm for twin in found for arm in twin.arms]
    within = sum(abs(arm.off) <= CLOSE for arm in arms)
    told = [twin for twin in found if twin.ordered]
    alike = sum(not twin.reversed for twin in told)
    yield f"{within} of {len(arms)} arms are within {CLOSE:.0%}; in {alike} of {len(told)} runs with arms"
    yield f"that differ by more than {APART:.0%} they are in the same order."
    yield ""
    yield "| run | arm: packets / fluid (ms), difference | furthest off | order of arms | CE: packets / fluid |"
    yield "|---|---|--:|---|---|"
    for twin in found:
        times = "; ".join(map(_times, twin.arms))
        marked = [arm for arm in twin.arms if arm.name not in LEFT_OUT]
        marks = "; ".join(f"{arm.name} {arm.packets_ce:.0f} / {arm.fluid_ce:.0f}" for arm in marked)
        order = "; ".join(f"{one} before {other} in packets only" for one, other in twin.reversed)
        order = order or ("the same" if twin.ordered else "–")
        off = f"{twin.worst.off:+.1%}" + ("" if abs(twin.worst.off) <= CLOSE else " **beyond 5 %**")
        yield f"| `{twin.name}` | {times} | {off} | {order} | {marks} |"


def _times(arm: Arm) -> str:
    return f"{arm.name} {1e3 * arm.packets_s:.1f} / {1e3 * arm.fluid_s:.1f}, {arm.off:+.1%}"
