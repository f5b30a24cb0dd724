"""One page: runs in packets beside their twins at flow level, arm by arm, and where the two do not agree.

A packet run is `results/NAME` (or a point of a study below it), its twin `results/fluid/NAME`, of the same scenario.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from testbed.report.reference import growth
from testbed.report.stats import CONFIDENCE

TWINS = "fluid"
PAGE = "fluid.md"
LEFT_OUT = ("alone", "ideal")
CLOSE = 0.05
"""How far a mean iteration time may be from that in packets."""
APART = 0.02
"""Arms closer than this are equal: their order says nothing."""
SNAPSHOTS = "cassini-snapshot-"

ABOUT = """\
The fluid engine (docs/fluid.md) runs the scenarios of this project without packets. Here every valid run in packets
that has a valid twin is put beside it: the mean iteration time of each arm (jobs weigh the same), and the order of the
arms. Two arms have an order where their means differ by more than 2 % and by more than their trials do (Welch's test
at 95 %; an arm of one trial counts as known exactly). An order of the packets is *the same* here if the means are 2 %
apart the same way, *reversed* if the other way round by more than the trials differ by, and else *not told apart*.
Nothing is fitted: what misses, misses, and why is said in docs/fluid.md, "Where it must not be trusted".
"""


@dataclass(frozen=True)
class Seen:
    """What a run has of an arm: its mean iteration time in s, that of each trial, and CE packets per iteration."""

    mean_s: float
    trials_s: tuple[float, ...]
    ce: float

    def before(self, other: Seen) -> bool:
        """Return whether this arm is faster: by more than APART, and by more than what trials differ by.

        That is Welch's test at 95 %: an arm of one trial counts as known exactly, since nothing is known of its spread.
        """
        return self.mean_s * (1 + APART) < other.mean_s - _doubt_s(self.trials_s, other.trials_s)


def _doubt_s(one: Sequence[float], other: Sequence[float]) -> float:
    """Return half the 95 % interval of the difference between the means of two arms, in s."""
    parts = [(np.var(of, ddof=1) / len(of), len(of) - 1) for of in (one, other) if len(of) > 1]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return 0.0
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom) * math.sqrt(variance))


@dataclass(frozen=True)
class Arm:
    """One arm of a run and of its twin."""

    name: str
    packets: Seen
    fluid: Seen

    @property
    def off(self) -> float:
        """How much longer an iteration of the fluid takes, relative."""
        return self.fluid.mean_s / self.packets.mean_s - 1


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
    def pairs(self) -> list[tuple[Arm, Arm]]:
        """Every two arms that are compared, both ways."""
        return list(itertools.permutations([arm for arm in self.arms if arm.name not in LEFT_OUT], 2))

    @property
    def ordered(self) -> list[tuple[str, str]]:
        """Pairs of arms that are told apart in packets, the faster one first."""
        return [(one.name, other.name) for one, other in self.pairs if one.packets.before(other.packets)]

    @property
    def reversed(self) -> list[tuple[str, str]]:
        """Those of them that the fluid tells apart the other way round."""
        return [(one.name, other.name) for one, other in self._apart() if other.fluid.before(one.fluid)]

    @property
    def level(self) -> list[tuple[str, str]]:
        """Those of them that are equal in the fluid, or the other way round by no more than its trials differ by."""
        return [
            (one.name, other.name)
            for one, other in self._apart()
            if one.fluid.mean_s * (1 + APART) >= other.fluid.mean_s and not other.fluid.before(one.fluid)
        ]

    @property
    def unseen(self) -> list[tuple[str, str]]:
        """Pairs that only the fluid tells apart, its faster one first."""
        return [
            (one.name, other.name)
            for one, other in self.pairs
            if one.fluid.before(other.fluid)
            and not one.packets.before(other.packets)
            and not other.packets.before(one.packets)
        ]

    def _apart(self) -> list[tuple[Arm, Arm]]:
        return [(one, other) for one, other in self.pairs if one.packets.before(other.packets)]


def twin_of(name: str, packets: Path, fluid: Path) -> Twin | None:
    """Return a run beside its twin; None where either is not there, is not valid, or they are of other scenarios."""
    one, other = _seen(packets), _seen(fluid)
    if one is None or other is None or not alike(packets, fluid):
        return None
    arms = tuple(Arm(arm, one[arm], other[arm]) for arm in one if arm in other)
    return Twin(name, arms) if arms else None


def _seen(folder: Path) -> dict[str, Seen] | None:
    """Return what a run has of every arm; None where there is no valid run."""
    try:
        summary: Mapping[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        valid = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["valid"]
    except FileNotFoundError:
        return None
    if not valid or "arms" not in summary:
        return None
    found = {}
    for name, arm in summary["arms"].items():
        mean_s, ce = arm["iteration_s"]["mean"]["value"], arm["ce_packets_per_iteration"]["value"] or 0.0
        found[name] = Seen(mean_s, tuple(arm["trial_mean_s"]), ce)
    return found


def alike(packets: Path, fluid: Path) -> bool:
    """Return whether two runs are of one scenario but for the engine: a scenario may have been changed in between."""
    one, other = (json.loads((at / "manifest.json").read_text(encoding="utf-8"))["scenario"] for at in (packets, fluid))
    return _agree({**one, "engine": ""}, {**other, "engine": ""})


def _agree(one: Any, other: Any) -> bool:
    """Return whether two values agree; keys that only one of them has are of another version, and say nothing."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_agree(one[key], other[key]) for key in one.keys() & other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_agree, one, other))
    return bool(one == other)


def places(results: Path, names: Sequence[str]) -> list[str]:
    """Return every run of the scenarios named that is there, points of studies too, as a place in `results`."""
    found = [[name, *(f"{name}/{path.name}" for path in sorted((results / name).glob("*")))] for name in names]
    return [place for of in found for place in of if (results / place / "summary.json").is_file()]


def twins(results: Path, names: Sequence[str]) -> list[Twin]:
    """Return every run of the scenarios named, points of studies too, that has a twin."""
    every = [twin_of(place, results / place, results / TWINS / place) for place in places(results, names)]
    return [twin for twin in every if twin is not None]


def write(results: Path, names: Sequence[str]) -> Path:
    """Write results/reference/fluid.md of the runs that are there; return its path."""
    path = results / "reference" / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    found = twins(results, names)
    without = sorted(set(places(results, names)) - {twin.name for twin in found})
    lines = [*page(found, without), *growth.section(path.parent, results)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def page(found: Sequence[Twin], without: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of the page. without: runs in packets that have no twin."""
    yield from ("# Packets and fluid", "", ABOUT)
    if not found:
        yield "No run in packets has a twin: `python -m testbed twins`."
        return
    yield from _sums(found)
    yield "| run | arm: packets / fluid (ms), difference | furthest off | order of arms | CE: packets / fluid |"
    yield "|---|---|--:|---|---|"
    for twin in found:
        times = "; ".join(map(_times, twin.arms))
        marked = [arm for arm in twin.arms if arm.name not in LEFT_OUT]
        marks = "; ".join(f"{arm.name} {arm.packets.ce:.0f} / {arm.fluid.ce:.0f}" for arm in marked)
        off = f"{twin.worst.off:+.1%}" + ("" if abs(twin.worst.off) <= CLOSE else " **beyond 5 %**")
        yield f"| `{twin.name}` | {times} | {off} | {_order(twin)} | {marks} |"
    if without:
        said = ", ".join(f"`{name}`" for name in without)
        yield from ("", f"Left out, since run and twin are not both there, valid, and of the same scenario: {said}.")


def _sums(found: Sequence[Twin]) -> Iterator[str]:
    """Yield what the rows come to."""
    arms = [arm for twin in found for arm in twin.arms]
    snapshots = [arm for twin in found if twin.name.startswith(SNAPSHOTS) for arm in twin.arms]
    for what, of in (("arms", arms), ("arms of CASSINI's snapshots", snapshots)):
        if of:
            most = max(abs(arm.off) for arm in of)
            within = sum(abs(arm.off) <= CLOSE for arm in of)
            yield f"- {within} of {len(of)} {what} are within {CLOSE:.0%}, the furthest {most:.1%} off."
    told = sum(len(twin.ordered) for twin in found)
    kinds = {"reversed": "reversed", "level": "not told apart"}
    missed = {kind: sum(len(getattr(twin, kind)) for twin in found) for kind in kinds}
    rest = ", ".join(f"{missed[kind]} {said}" for kind, said in kinds.items())
    same = told - sum(missed.values())
    yield f"- Of {told} pairs of arms that packets tell apart, {same} are in the same order, {rest}."
    runs = [twin for twin in found if twin.ordered]
    whole = sum(not twin.reversed and not twin.level for twin in runs)
    yield f"- In {whole} of {len(runs)} runs with such pairs the whole order is the same."
    yield ""


def _order(twin: Twin) -> str:
    """Return what is to be said of the order of a run's arms."""
    said = [f"**{one} before {other} in packets, the other way round here**" for one, other in twin.reversed]
    said += [f"{one} before {other} in packets, not told apart here" for one, other in twin.level]
    same = [] if twin.reversed or twin.level or not twin.ordered else ["the same"]
    said += [f"{one} before {other} here, not told apart in packets" for one, other in twin.unseen]
    return "; ".join([*same, *said]) or "–"


def _times(arm: Arm) -> str:
    return f"{arm.name} {1e3 * arm.packets.mean_s:.1f} / {1e3 * arm.fluid.mean_s:.1f}, {arm.off:+.1%}"
