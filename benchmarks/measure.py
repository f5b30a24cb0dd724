"""Measuring in turns: every system once, then every system again, so that a drifting machine wrongs none of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from testbed.errors import EnvironmentLacks

T = TypeVar("T")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Spread:
    """The median of some figures, and the lowest and the highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: list[float]) -> Spread:
        """Return the spread of at least one figure."""
        return cls(statistics.median(figures), min(figures), max(figures))


@dataclass
class Turns(Generic[T]):
    """What each system gave in each turn, in order, and why a system could not take part."""

    given: dict[str, list[T]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def spread(self, system: str, figure: Callable[[T], float]) -> Spread | None:
        """Return the spread of one figure of a system; None when it did not take part."""
        return Spread.of([figure(one) for one in self.given[system]]) if system in self.given else None

    def ratio(self, system: str, other: str, figure: Callable[[T], float]) -> Spread | None:
        """Return the spread of the ratios between two systems, each within one turn."""
        if system not in self.given or other not in self.given:
            return None
        pairs = zip(self.given[system], self.given[other], strict=True)
        return Spread.of([figure(mine) / figure(theirs) for mine, theirs in pairs])


def in_turns(systems: Mapping[str, Callable[[], T]], runs: int, tell: Tell) -> Turns[T]:
    """Run every system `runs` times, in turns. One that this machine lacks is skipped from its first turn on.

    Raises what a system raises, but EnvironmentLacks.
    """
    turns: Turns[T] = Turns()
    for turn in range(1, runs + 1):
        for name, run in systems.items():
            if name in turns.skipped:
                continue
            tell(f"{name}, run {turn} of {runs}")
            try:
                turns.given.setdefault(name, []).append(run())
            except EnvironmentLacks as lack:
                turns.given.pop(name, None)
                turns.skipped[name] = f"{lack.what}; mend: {lack.mend}"
    return turns
