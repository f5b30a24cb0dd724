"""What events did to an arm, from its events.csv: where packets were lost, and which rate a link had when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.events.plan import partition
from testbed.net.topology import Topology
from testbed.telemetry.tables import EVENTS

CUTS = ("link-down", "host-kill")
Sample = tuple[float, int, int]


@dataclass(frozen=True)
class History:
    """What happened: `rates` has (t_s, bit/s) of every directed link whose rate was changed, in order of time.

    On links of `lossy` packets were lost by an event, of which no queue knows; `cut` says whether a cable was down, so
    that a switch may have had no way for a packet.
    """

    rates: Mapping[str, Sequence[tuple[float, int]]] = field(default_factory=dict)
    lossy: frozenset[str] = frozenset()
    cut: bool = False

    def by_rate(self, link: str, set_bps: int, samples: Sequence[Sample]) -> Iterator[tuple[int, list[list[Sample]]]]:
        """Yield every rate a link had, with its samples (time first) while it had it, in unbroken series."""
        series: dict[int, list[list[Sample]]] = {}
        changes = [(float("-inf"), set_bps), *self.rates.get(link, ())]
        for at, (begin_s, rate_bps) in enumerate(changes):
            end_s = changes[at + 1][0] if at + 1 < len(changes) else float("inf")
            series.setdefault(rate_bps, []).append([one for one in samples if begin_s <= one[0] < end_s])
        yield from series.items()


NOTHING = History()


def history(folder: Path, topology: Topology) -> History:
    """Read an arm's events; an arm without the file had none. Raises InputError when it is not what it should be."""
    if not (folder / EVENTS.file).is_file():
        return NOTHING
    records = EVENTS.read(folder / EVENTS.file)
    rates: dict[str, list[tuple[float, int]]] = defaultdict(list)
    lossy, cut = set[str](), False
    columns = (records.text("kind"), records.text("target"), records.text("value"), records.numbers("done_s"))
    for kind, target, value, done_s in zip(*columns, strict=True):
        if done_s != done_s:  # it did not happen
            continue
        a, way, b = partition(target) if kind != "host-kill" else (target, "<->", topology.uplink(target))
        ways = [f"{a}->{b}", f"{b}->{a}"] if way == "<->" else [f"{a}->{b}"]
        if kind == "rate":
            for link in ways:
                rates[link].append((done_s, int(float(value))))
        if kind in CUTS or kind == "loss":
            lossy.update(ways)
            cut |= kind in CUTS
    return History(rates, frozenset(lossy), cut)
