"""What every source of networks needs: values it does not state, delays from distances, links put together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from testbed.errors import InputError
from testbed.net.wan.model import Attributes, Site, Wan, WanLink, default_queue_bytes

KM_PER_S = 200_000.0
"""Light in glass: two thirds of its speed in vacuum. Real fibres are no straight lines: 1.5 times as long is common."""
_EARTH_KM = 6371.0


@dataclass(frozen=True)
class Defaults:
    """What a link is given where its source says nothing. None for `rate_bps` and `delay_s` means: the source has to
    say it, or the positions of the sites. `queue_bytes` None: by `default_queue_bytes`. `join`: links between the same
    two sites become one, with the sum of their rates; otherwise there may be one only."""

    rate_bps: int | None = None
    delay_s: float | None = None
    jitter_s: float = 0.0
    loss: float = 0.0
    queue_bytes: int | None = None
    join: bool = False

    def direction(self, where: str, rate_bps: float | None, delay_s: float | None) -> Attributes:
        """A direction from what is known of it; raises InputError, naming `where`, if that is not enough."""
        rate_bps = self.rate_bps if rate_bps is None else rate_bps
        delay_s = self.delay_s if delay_s is None else delay_s
        if rate_bps is None:
            raise InputError(where, "has no capacity", "give every link a rate, or set wan.rate for those without")
        if delay_s is None:
            raise InputError(where, "has no delay", "give positions or delays, or set wan.delay for those without")
        if not math.isfinite(rate_bps) or not math.isfinite(delay_s):
            raise InputError(where, f"rate {rate_bps:g} bit/s, delay {delay_s:g} s", "finite numbers")
        queue_bytes = self.queue_bytes or default_queue_bytes(max(rate_bps, 0), max(delay_s, 0))
        return Attributes(8 * round(rate_bps / 8), round(delay_s, 9), queue_bytes, self.jitter_s, self.loss)


@dataclass(frozen=True)
class RawLink:
    """A link as a source has it; None where it says nothing. `back_bps` None: as `rate_bps`."""

    a: str
    b: str
    rate_bps: float | None = None
    delay_s: float | None = None
    back_bps: float | None = None


def assemble(where: str, sites: Iterable[Site], links: Iterable[RawLink], defaults: Defaults) -> Wan:
    """The network of these sites and links, with a tunnel for every link; raises InputError."""
    sites = tuple(sites)
    places = {site.name: site for site in sites}
    made = []
    for raw in _joined(where, links) if defaults.join else links:
        at = f"{where}, link {raw.a}-{raw.b}"
        for end in (raw.a, raw.b):
            if end not in places:
                raise InputError(at, f"{end} is no site", "name only sites that are there")
        delay_s = raw.delay_s
        if delay_s is None and defaults.delay_s is None:
            delay_s = _delay_s(places[raw.a], places[raw.b])
        there = defaults.direction(at, raw.rate_bps, delay_s)
        back = defaults.direction(at, raw.rate_bps if raw.back_bps is None else raw.back_bps, delay_s)
        made.append(WanLink(raw.a, raw.b, there, back))
    return Wan(where, sites, tuple(made), tuple((k.a, k.b) for k in made))


def _joined(where: str, links: Iterable[RawLink]) -> Iterable[RawLink]:
    """The links, those between the same two sites as one; raises InputError where one says no rate."""
    found: dict[frozenset[str], RawLink] = {}
    for raw in links:
        ends = frozenset((raw.a, raw.b))
        if (one := found.get(ends)) is None:
            found[ends] = raw
            continue
        if one.rate_bps is None or raw.rate_bps is None or one.back_bps is not None or raw.back_bps is not None:
            raise InputError(
                f"{where}, link {raw.a}-{raw.b}", "is there twice, and has no rates to add up", "give it one"
            )
        found[ends] = replace(one, rate_bps=one.rate_bps + raw.rate_bps)
    return found.values()


def number(where: str, what: str, text: object) -> float:
    """A number that must be there and not negative; raises InputError."""
    try:
        value = float(str(text))
    except ValueError:
        raise InputError(where, f"{what} is {text!r}", "a number") from None
    if not math.isfinite(value) or value < 0:
        raise InputError(where, f"{what} is {value:g}", "a number that is not negative")
    return value


def distance_km(a: Site, b: Site) -> float | None:
    """The great circle between two sites, None unless both positions are known."""
    if a.latitude is None or a.longitude is None or b.latitude is None or b.longitude is None:
        return None
    north_a, north_b = math.radians(a.latitude), math.radians(b.latitude)
    north, east = (north_b - north_a) / 2, math.radians(b.longitude - a.longitude) / 2
    chord = math.sin(north) ** 2 + math.cos(north_a) * math.cos(north_b) * math.sin(east) ** 2
    return 2 * _EARTH_KM * math.asin(math.sqrt(min(1.0, chord)))


def _delay_s(a: Site, b: Site) -> float | None:
    km = distance_km(a, b)
    return None if km is None else km / KM_PER_S
