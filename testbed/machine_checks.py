"""Did a machine in real time keep up with what it emulated? The verdict on an arm of the native engine, from its files.

In the manner of Mininet-HiFi (CoNEXT 2012): whether timers rang in time, and whether the processors had time left. That
links reached their rates, testbed.fidelity checks for every engine.
"""

from __future__ import annotations

from pathlib import Path

from testbed.fidelity import Check
from testbed.telemetry.events import read_events
from testbed.telemetry.tables import MACHINE

LAG_S = 5e-3
"""The latest that a timer may ring: a fiftieth of an iteration of VGG16, and the interval at which queues are read."""
BUSY_SHARE, BUSY_S = 0.95, 1.0
"""A processor in use by so much for so long is saturated: whatever is to run on it next waits, packets too."""
KEEP_UP = "make it smaller or slower (fabric.scale), leave the machine alone, or run it in virtual time"


def check_machine(folder: Path) -> list[Check]:
    """Return the checks of the time in which jobs ran, from the first trial's begin to the last one's end.

    Raises InputError when machine.csv is missing or not what it should be.
    """
    records = MACHINE.read(folder / MACHINE.file)
    columns = (records.numbers(column) for column in ("t_s", "lag_s", "busy_share"))
    begin_s, end_s = _trials(folder / "events.jsonl")
    seen = [(t_s, lag_s, share) for t_s, lag_s, share in zip(*columns, strict=True) if begin_s <= t_s <= end_s]
    times_s, lags_s, shares = [list(column) for column in zip(*seen, strict=True)] or ([], [], [])
    return [_timers(times_s, lags_s), _processors(times_s, shares)]


def _trials(events: Path) -> tuple[float, float]:
    times_s: dict[object, list[float]] = {"trial": [], "trial done": []}
    for event in read_events(events):
        times_s.setdefault(event["event"], []).append(float(str(event["t_s"])))
    return min(times_s["trial"], default=0.0), max(times_s["trial done"], default=0.0)


def _timers(times_s: list[float], lags_s: list[float]) -> Check:
    what = "timers rang in time"
    if not times_s:
        return Check(what, False, "nobody watched them")
    late_s = [t_s for t_s, lag_s in zip(times_s, lags_s, strict=True) if lag_s > LAG_S]
    found = f"{1e3 * max(lags_s):.1f} ms late at most"
    if late_s:
        found += f", above {1e3 * LAG_S:g} ms in {len(late_s)} of {len(lags_s)} rows, first at {late_s[0]:.1f} s"
        found += f": {KEEP_UP}"
    return Check(what, not late_s, found)


def _processors(times_s: list[float], shares: list[float]) -> Check:
    """No stretch of BUSY_S may be busy throughout, in the mean."""
    worst, first = 0.0, 0
    for last in range(len(times_s)):
        while times_s[last] - times_s[first] > BUSY_S:
            first += 1
        if first:
            window = shares[first : last + 1]
            worst = max(worst, sum(window) / len(window))
    mend = f": {KEEP_UP}" if worst >= BUSY_SHARE else ""
    found = f"{worst:.0%} of the busiest one in the busiest {BUSY_S:g} s{mend}"
    return Check("processors had time left", worst < BUSY_SHARE, found)
