"""What is to happen in an arm, from the scenario's [[event]] tables, checked against its network. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from testbed.errors import InputError
from testbed.net.topology import Direction, Topology

if TYPE_CHECKING:
    from testbed.event_keys import EventKeys
    from testbed.net.scale import Scaling

CONTROLLER = "controller"
LINE_S = 1e-9
"""The delay of a direction that is given a delay or loss later: its delay line has to be there from the beginning."""
LEAST_RATE_BPS, LONGEST_DELAY_S = 10**5, 3600.0
ATTRIBUTES = {"rate": "rate_bps", "delay": "delay_s", "loss": "loss"}
"""What each kind that changes a link changes of its direction."""


@dataclass(frozen=True)
class Event:
    """One event, `at_s` after a trial's zero. `target` is "a->b" or "a<->b", a host, or "controller".

    `value` is scaled: bit/s, s, or a probability; None where there is none. Jobs in `expect` are to fail by it.
    """

    at_s: float
    kind: str
    target: str
    value: float | None = None
    expect: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Event:
        """The inverse of `to_dict`."""
        return cls(**{**raw, "expect": tuple(raw["expect"])})

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """The directions of the link that it is about, as (from, to); none where it is about no link."""
        a, way, b = partition(self.target)
        return ((a, b), (b, a)) if way == "<->" else ((a, b),) if way else ()


def partition(link: str) -> tuple[str, str, str]:
    """Return (a, "->" or "<->", b) of a link, the name and two empty strings where it is none."""
    way = "<->" if "<->" in link else "->"
    return link.partition(way)


def concrete(
    keys: Sequence[EventKeys],
    arms: Sequence[str],
    jobs: Iterable[str],
    topology: Topology,
    scaling: Scaling,
    where: str,
) -> dict[str, tuple[Event, ...]]:
    """Return the events of every arm that has some, in the order in which they happen.

    Raises InputError that names the event by its place in the file, from 0, and the key.
    """
    made = [_event(each, f"event.{at}", arms, set(jobs), topology, scaling, where) for at, each in enumerate(keys)]
    found = {}
    for arm in arms:
        chosen = [(made[at], at) for at, each in enumerate(keys) if arm in (each.arms or set(arms) - {"alone"})]
        chosen.sort(key=lambda one: (one[0].at_s, one[1]))
        _check_order(chosen, arm, where)
        if chosen:
            found[arm] = tuple(event for event, _ in chosen)
    for at, each in enumerate(keys):
        if not each.arms and set(arms) == {"alone"}:
            raise InputError(where, f"event.{at}: happens in no arm", 'add arms = ["alone"] to it')
    return found


def _event(
    keys: EventKeys, name: str, arms: Sequence[str], jobs: set[str], topology: Topology, scaling: Scaling, where: str
) -> Event:
    target, value = keys.link or keys.host or CONTROLLER, keys.loss
    if keys.link is not None:
        a, way, b = partition(keys.link)
        if not way or (a, b) not in set(topology.directed()):
            known = next(topology.directed())
            raise InputError(where, f"{name}.link: there is no link {keys.link!r}", f"as in {'<->'.join(known)}")
    if keys.host is not None and keys.host not in topology.hosts:
        mend = f"hosts are {topology.hosts[0]} to {topology.hosts[-1]}"
        raise InputError(where, f"{name}.host: there is no host {keys.host!r}", mend)
    for key, given, known_names in (("expect", keys.expect, jobs), ("arms", keys.arms, set(arms))):
        if unknown := sorted(set(given) - known_names):
            what = "job" if key == "expect" else "arm of measure.arms"
            raise InputError(where, f"{name}.{key}: there is no {what} {unknown[0]!r}", ", ".join(sorted(known_names)))
    if keys.rate is not None:
        value = scaling.rate_bps(keys.rate)
        if not LEAST_RATE_BPS <= value <= 100 * 10**9:
            raise InputError(where, f"{name}.rate: {value} bit/s once scaled", "100 kbit/s to 100 Gbit/s")
    elif keys.delay is not None:
        value = scaling.delay_s(keys.delay)
        if value >= LONGEST_DELAY_S:
            raise InputError(where, f"{name}.delay: {value:g} s once scaled", "below an hour")
    return Event(keys.at, keys.kind, target, value, keys.expect)


def _check_order(events: Sequence[tuple[Event, int]], arm: str, where: str) -> None:
    """What is up can only go down, who is frozen only thaw, and a dead host stays as it is."""
    down, frozen, dead, crashed = set[frozenset[str]](), set[str](), set[str](), False
    for event, at in events:
        a, _, b = partition(event.target)
        cable, host = frozenset((a, b)), event.target
        faults = {
            "link-down": (cable in down, "is down already"),
            "link-up": (cable not in down, "is not down"),
            "host-freeze": (host in frozen, "is frozen already"),
            "host-thaw": (host not in frozen, "is not frozen"),
            "controller-crash": (crashed, "is crashed already"),
            "controller-restart": (not crashed, "is not crashed"),
        }
        wrong, why = faults.get(event.kind, (False, ""))
        if hit := next((name for name in (host, a, b) if name in dead), None):
            wrong, why = True, f"comes after {hit} was killed"
        if wrong:
            what = f"event.{at}: {event.kind} at {event.at_s:g} s of arm {arm}: {event.target} {why}"
            raise InputError(where, what, "events happen in the order of their times, equal ones in that of the file")
        if event.kind.startswith("link-"):
            (down.add if event.kind == "link-down" else down.remove)(cable)
        elif event.kind in ("host-freeze", "host-thaw"):
            (frozen.add if event.kind == "host-freeze" else frozen.remove)(host)
        elif event.kind == "host-kill":
            dead.add(host)
        elif event.kind.startswith(CONTROLLER):
            crashed = event.kind == "controller-crash"


def with_lines(topology: Topology, events: Iterable[Event]) -> Topology:
    """The network whose links have a delay line wherever an event gives them a delay or loss."""
    lines = {way for event in events if event.kind in ("delay", "loss") for way in event.directions}

    def lined(d: Direction, way: tuple[str, str]) -> Direction:
        return replace(d, delay_s=max(d.delay_s, LINE_S)) if way in lines else d

    links = (replace(k, a_to_b=lined(k.a_to_b, (k.a, k.b)), b_to_a=lined(k.b_to_a, (k.b, k.a))) for k in topology.links)
    return replace(topology, links=tuple(links)) if lines else topology


def changed(direction: Direction, event: Event) -> Direction:
    """A direction after an event of a kind in ATTRIBUTES."""
    assert event.value is not None
    if event.kind == "rate":
        return replace(direction, rate_bps=round(event.value))
    if event.kind == "delay":
        return replace(direction, delay_s=max(event.value, LINE_S))
    return replace(direction, loss=event.value)
