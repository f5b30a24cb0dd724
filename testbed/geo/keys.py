"""The scenario file of a wide-area experiment: its tables `wan`, `sync`, `system`, every default visible here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from testbed.capture_keys import CaptureKeys
from testbed.part import Name, Part
from testbed.scenario_file import read, validated
from testbed.units import Delay, Rate, Size
from workloads.paramsync.tensors import CHUNK_ELEMENTS, MODELS, TRAINED

Strategy = Literal[
    "star",
    "k-ary",
    "binary",
    "spanning",
    "packed",
    "fapt",
    "multi-root",
    "placed-star",
    "ordered-star",
    "quantised-star",
    "steiner",
    "planned",
]
STARS = ("star", "placed-star", "ordered-star", "quantised-star")
MESHED = (*STARS, "k-ary", "binary")
ROOTLESS = ("multi-root", "placed-star", "planned")
EACH = "each"


class WanKeys(Part):
    """The network, unscaled. `topology`: netstorm-9, topohub:NAME, or a file .graphml, .csv or .toml.

    `rate`, `delay`, `jitter`, `loss` and `queue` are for links of which the source does not say it. `scale` divides
    rates and bytes and multiplies delays. `redraw` draws all rates again every so often, `trace` is a CSV of changes;
    both count from the first round on, and are not scaled in time. `spread` draws the rates that the source says
    together: 0 gives all links their mean. `routing` is for pairs without a tunnel.
    `join` makes links between the same two sites one, with the sum of their rates; without it they are refused.
    With `ecn` the queues of links mark packets from a quarter of their size on, and all from three quarters; without it
    they drop them when full.
    """

    topology: str = "netstorm-9"
    rate: Rate | None = None
    delay: Delay | None = None
    jitter: Delay = 0.0
    loss: Annotated[float, Field(ge=0, lt=1)] = 0.0
    queue: Size | None = None
    ecn: bool = True
    scale: Annotated[float, Field(ge=1, le=10)] = 10.0
    join: bool = False
    mtu_bytes: Annotated[int, Field(ge=1280, le=9000)] = 1500
    tunnels: bool = True
    routing: Literal["hops", "widest"] = "hops"
    spread: Annotated[float, Field(ge=0, le=1)] = 1.0
    redraw: Delay | None = None
    trace: str | None = None


class WanTransportKeys(Part):
    """What the sockets of servers use; `rto_min` is multiplied by the scale."""

    congestion_control: Literal["cubic", "reno", "bbr"] = "cubic"
    ecn: bool = True
    rto_min: Delay = 0.2
    socket_buffer: Annotated[Size, Field(ge=4096, lt=2**31)] = 16_000_000


class SyncKeys(Part):
    """What is synchronised, unscaled. `compute` is how long workers compute in a round, one for all or one for each
    site; `merge_rate` how fast a server adds up what its children push. When no site has ended a round for `watchdog`,
    in virtual time and unscaled, the run fails with the state of every node. The model mlp is really trained, on data
    that is generated, at scale 1; `target` is the accuracy of which the time is asked for. `rounds` are those of the
    full length; `shortened` times fewer are run, one at least."""

    model: str = "alexnet"
    target: Annotated[float, Field(gt=0, lt=1)] = 0.8
    chunk_elements: Annotated[int, Field(ge=1000, le=100_000_000)] = CHUNK_ELEMENTS
    rounds: Annotated[int, Field(ge=1, le=10_000)] = 3
    shortened: Annotated[float, Field(ge=1, le=10_000)] = 1.0
    compute: Delay | tuple[Delay, ...] = 0.1
    merge_rate: Rate | None = 8 * 10**9
    watchdog: Annotated[Delay, Field(gt=0)] = 7200.0

    @model_validator(mode="after")
    def _known(self) -> SyncKeys:
        if self.model not in MODELS:
            raise ValueError(f"model is one of {', '.join(MODELS)}")
        return self


class SystemKeys(Part):
    """One way to synchronise. `root` is a site, or "each" for one run with every site as its root (not for multi-root);
    `arity` is of k-ary trees, `roots` how many roots multi-root has (none: all sites), `servers` how many a star has,
    `active` are the sites that take part in a round of steiner (the others only forward), `window` how many chunks a
    sender of ordered-star may be ahead of the server. `rounds` are its own (none: sync.rounds): where links change,
    slow systems need fewer to see as much of it.

    With `scheduler` sites ask one before every round; `awareness` (it learns throughputs and decides anew) and
    `auxiliary` (chunks go around long queues) imply it. Not for trees that use pairs without a tunnel."""

    name: Name
    strategy: Strategy
    root: str | None = None
    arity: Annotated[int, Field(ge=1, le=64)] = 3
    roots: Annotated[int, Field(ge=1, le=1000)] | None = None
    servers: Annotated[int, Field(ge=1, le=1000)] = 1
    active: tuple[str, ...] = ()
    window: Annotated[int, Field(ge=1, le=1000)] = 2
    rounds: Annotated[int, Field(ge=1, le=10_000)] | None = None
    scheduler: bool = False
    awareness: bool = False
    auxiliary: bool = False

    @property
    def scheduled(self) -> bool:
        """Whether its sites ask a scheduler."""
        return self.scheduler or self.awareness or self.auxiliary

    @model_validator(mode="after")
    def _fitting(self) -> SystemKeys:
        if self.strategy in ROOTLESS and self.root is not None:
            raise ValueError(f"{self.strategy} chooses its roots itself: leave root out")
        if self.servers > 1 and (self.strategy != "star" or self.root is not None):
            raise ValueError("servers is for star, and they are the first sites: leave root out")
        if (self.strategy == "steiner") != (len(self.active) > 1):
            raise ValueError("steiner needs two or more active sites, and nobody else has any")
        if self.strategy != "multi-root" and self.roots is not None:
            raise ValueError("roots is for multi-root")
        if self.scheduled and self.strategy in MESHED:
            raise ValueError(f"a scheduler decides on tunnels, and {self.strategy} uses pairs without one")
        return self


class SchedulerKeys(Part):
    """The scheduler of systems that have one. `site` is where it runs (none: the first), `believed` the throughput that
    it takes every tunnel to have at first (none: what they have). Messages of `probe` and more tell a throughput; it
    looks every `look` (unscaled); reports and policies are due beyond relative changes. A worker stops while
    `backpressure` waits to be sent. A tunnel over which nothing is answered for `detect` times the scale is taken to be
    cut."""

    site: str | None = None
    believed: Rate | None = None
    probe: Annotated[Size, Field(ge=1)] = 2_000_000
    look: Annotated[Delay, Field(gt=0)] = 5.0
    report_change: Annotated[float, Field(ge=0, le=10)] = 0.1
    decide_change: Annotated[float, Field(ge=0, le=10)] = 0.1
    backpressure: Annotated[Size, Field(ge=1)] = 2_000_000_000
    detect: Annotated[Delay, Field(ge=0.3, le=60)] = 1.5


class FireKeys(Part):
    """What strikes systems with a scheduler, by the seed: `kills` of sites and `cuts` of tunnels per minute, each for
    `away` on average, until `until`; control messages come `late` later on average, and out of order. Unscaled."""

    kills: Annotated[float, Field(ge=0, le=60)] = 0.0
    cuts: Annotated[float, Field(ge=0, le=60)] = 0.0
    away: Annotated[Delay, Field(gt=0)] = 10.0
    late: Delay = 0.0
    until: Delay = 60.0


class WanMeasureKeys(Part):
    """The seed of everything that is drawn; the system that speed-ups are against (none: the first one); which `arms`
    are run, by the names of systems or, where every site is the root, of their arms (none: all)."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    baseline: str | None = None
    arms: tuple[str, ...] = ()


class WanTelemetryKeys(Part):
    """Packets kept of directed links between sites, named as in "dc1->dc2"."""

    capture: CaptureKeys = CaptureKeys()


class WideScenario(Part):
    """A whole experiment on a wide-area network."""

    name: Name
    title: str
    wan: WanKeys
    transport: WanTransportKeys = WanTransportKeys()
    sync: SyncKeys = SyncKeys()
    system: Annotated[tuple[SystemKeys, ...], Field(min_length=1, max_length=32)]
    scheduler: SchedulerKeys = SchedulerKeys()
    fire: FireKeys = FireKeys()
    measure: WanMeasureKeys = WanMeasureKeys()
    telemetry: WanTelemetryKeys = WanTelemetryKeys()

    def rounds_of(self, system: SystemKeys) -> int:
        """How many rounds a system runs."""
        return max(1, round((system.rounds or self.sync.rounds) / self.sync.shortened))

    @model_validator(mode="after")
    def _together(self) -> WideScenario:
        names = [system.name for system in self.system]
        if len(set(names)) != len(names):
            raise ValueError("two systems have the same name")
        if self.measure.baseline is not None and self.measure.baseline not in names:
            raise ValueError(f"measure.baseline {self.measure.baseline} is no system; there are {', '.join(names)}")
        if self.fire.kills + self.fire.cuts + self.fire.late and not all(system.scheduled for system in self.system):
            raise ValueError("fire is for systems with a scheduler: the others stop at the first thing that breaks")
        if self.sync.model == TRAINED and self.wan.scale != 1:
            raise ValueError(f"sync.model {TRAINED} is trained for real, with all of its bytes: set wan.scale = 1")
        if self.sync.model == TRAINED and self.fire.kills:
            raise ValueError(f"sync.model {TRAINED} has its parameters in memory alone: leave fire.kills out")
        if self.wan.spread < 1 and self.wan.redraw is not None:
            raise ValueError("wan.spread is of rates that stay; wan.redraw draws others")
        if self.fire.cuts and not self.wan.tunnels:
            raise ValueError("fire.cuts is of tunnels, and wan.tunnels is off")
        if not 1e-3 <= self.transport.rto_min * self.wan.scale <= 120:
            raise ValueError("transport.rto_min must be 1 ms to 120 s once multiplied by the scale")
        return self


def load(path: Path, settings: tuple[str, ...] = ()) -> WideScenario:
    """Read and validate a scenario file. Raises InputError that names the file and the key."""
    raw = read(path, settings)
    raw.pop("study", None)  # how a scenario is varied (testbed.study), no part of any one run
    return validated(WideScenario, raw, path)
