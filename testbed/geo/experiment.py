"""From a wide-area scenario to what each system's arm does, and what is predicted of it. Nothing runs here."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controllers.netstorm.auxiliary import MOST_PATHS
from controllers.netstorm.named import Choice
from controllers.netstorm.overlay import Overlay
from controllers.netstorm.strategies import BIG_ARRAY_ELEMENTS
from controllers.netstorm.tree import Plan
from controllers.netstorm.tree import Tree as PlannedTree
from testbed.errors import InputError
from testbed.geo.fire import Strike, script
from testbed.geo.keys import EACH, SystemKeys, WideScenario
from testbed.geo.prediction import Decider, Prediction, overlay_of, predict
from testbed.net.transport import Transport
from testbed.net.wan import dynamics, routing, underlay
from testbed.net.wan.build import Defaults
from testbed.net.wan.model import Wan, link_name
from testbed.net.wan.sources import load
from testbed.net.wireguard import HANDSHAKE_S
from workloads.paramsync import tensors
from workloads.paramsync.plan import FULL_BITS, Policy, SyncPlan, Tree, Way
from workloads.paramsync.protocol import Protocol, Tunnel

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = (PROJECT / "wan", PROJECT.parent / "shared" / "data" / "wan")
PORT = 5300
HELD = "/run/orrery/sums"
"""Where the first site keeps its sums, in the guest, if they are to be near direct ones rather than equal."""
DISK = "/run/orrery/disk"
"""What sites under a scheduler have on disk, in the guest."""
HORIZON_S = 7200.0
"""So long the rates are drawn again, if they are: no run lasts longer."""


@dataclass(frozen=True)
class System:
    """One arm: `name` (of `group`, a system of the scenario), the plan decided, what is run, what is expected.

    `default` is whether its root is the one that its strategy takes where none is named.
    """

    name: str
    group: str
    plan: Plan
    sync: SyncPlan
    prediction: Prediction
    default: bool = True


@dataclass(frozen=True)
class WideExperiment:
    """A validated scenario made concrete; `wan` and `changes` are scaled."""

    scenario: WideScenario
    wan: Wan
    changes: tuple[dynamics.Change, ...]
    transport: Transport
    systems: tuple[System, ...]

    @property
    def fire(self) -> list[Strike]:
        """What strikes every system."""
        return script(self.scenario.fire, self.scenario.measure.seed, self.wan.names, self.wan.tunnels)

    def arm_plan(self, system: System) -> dict[str, Any]:
        """What the arm of a system is told, for JSON."""
        keys = self.scenario.wan
        return {
            "scenario": self.scenario.name,
            "system": system.name,
            "seed": self.scenario.measure.seed,
            "mtu_bytes": keys.mtu_bytes,
            "tunnels": keys.tunnels,
            "routing": keys.routing,
            "wan": self.wan.to_dict(),
            "changes": [dataclasses.astuple(change) for change in self.changes],
            "transport": dataclasses.asdict(self.transport),
            "sync": system.sync.to_dict(),
            "watchdog_s": self.scenario.sync.watchdog,
            "capture": {
                "links": list(self.scenario.telemetry.capture.links),
                "packets": self.scenario.telemetry.capture.packets,
                "snap_bytes": self.scenario.telemetry.capture.snap_bytes,
                "size_bytes": self.scenario.telemetry.capture.size,
            },
            "fire": [dataclasses.astuple(one) for one in self.fire],
        }


def build(scenario: WideScenario, base: Path) -> WideExperiment:
    """Make a scenario concrete; files are looked for beside it (`base`), in the folders of ORRERY_WAN, in wan/ and in a
    folder kept for them. Raises InputError."""
    keys, seed = scenario.wan, scenario.measure.seed
    folders = [base, *map(Path, filter(None, os.environ.get("ORRERY_WAN", "").split(":"))), *FOLDERS]
    defaults = Defaults(keys.rate, keys.delay, keys.jitter, keys.loss, keys.queue, keys.join)
    original = load(keys.topology, folders, seed, defaults)
    changes = _changes(scenario, original, folders)
    wan = replace(_drawn_together(original, keys.spread).scaled(keys.scale), ecn=keys.ecn)
    transport = scenario.transport
    spoken = Transport(
        transport.congestion_control, transport.ecn, transport.rto_min * keys.scale, transport.socket_buffer
    )
    scaled = tuple(dynamics.scaled(original, changes, keys.scale))
    _check_captured(scenario, wan)
    _check_far(scenario, wan)
    systems = tuple(made for system in scenario.system for made in _systems(scenario, system, wan, scaled))
    names = [system.name for system in systems]
    for name in names:
        if names.count(name) > 1:
            raise InputError("system", f"two arms are called {name}", "call a system otherwise than a root's arm")
    for arm in scenario.measure.arms:
        if arm not in {name for made in systems for name in (made.name, made.group)}:
            known = ", ".join(system.name for system in scenario.system)
            raise InputError("measure.arms", f"{arm} is no system", f"systems are {known}")
    return WideExperiment(scenario, wan, scaled, spoken, systems)


def _check_captured(scenario: WideScenario, wan: Wan) -> None:
    known = [link_name(a, b) for a, b, _ in wan.directed()]
    links = scenario.telemetry.capture.links
    for link in ("shared",) if links == "shared" else links:
        if link not in known:
            raise InputError("telemetry.capture.links", f"there is no link {link!r}", f"as in {known[0]!r}")


def _check_far(scenario: WideScenario, wan: Wan) -> None:
    """Tunnels agree on keys only where an answer comes in time."""
    delays_s = routing.tunnel_delays_s(wan) if scenario.wan.tunnels else {}
    for (a, b), delay_s in delays_s.items():
        trip_s = delay_s + delays_s[b, a]
        if trip_s >= HANDSHAKE_S:
            said = (
                f"{a} and {b} are {trip_s:g} s apart, there and back; WireGuard awaits an answer for {HANDSHAKE_S:g} s"
            )
            raise InputError(
                "wan.scale", said, f"at most {scenario.wan.scale * HANDSHAKE_S / trip_s:.2g}, to be sure less"
            )


def _drawn_together(wan: Wan, spread: float) -> Wan:
    """The network with every rate so far from the mean of all."""
    rates_bps = [of.rate_bps for _, _, of in wan.directed()]
    mean_bps = sum(rates_bps) / len(rates_bps)
    if spread == 1:
        return wan
    return wan.with_attributes(
        {
            link_name(a, b): replace(of, rate_bps=8 * round((mean_bps + spread * (of.rate_bps - mean_bps)) / 8))
            for a, b, of in wan.directed()
        }
    )


def _changes(scenario: WideScenario, wan: Wan, folders: list[Path]) -> list[dynamics.Change]:
    keys, found = scenario.wan, []
    if keys.redraw is not None:
        found += dynamics.redrawn(wan, scenario.measure.seed, keys.redraw, HORIZON_S)
    if keys.trace is not None:
        path = next((folder / keys.trace for folder in folders if (folder / keys.trace).is_file()), None)
        if path is None:
            raise InputError("wan.trace", f"{keys.trace} is not there", "put it beside the scenario")
        found += dynamics.read(path, wan)
    return sorted(found)


def _systems(
    scenario: WideScenario, system: SystemKeys, wan: Wan, changes: tuple[dynamics.Change, ...]
) -> Iterator[System]:
    if system.root not in (None, EACH, *wan.names):
        raise InputError(f"system.{system.name}.root", f"{system.root} is no site", f"sites are {', '.join(wan.names)}")
    believed, arms = _believed(scenario, system, wan), scenario.measure.arms
    own = _decider(scenario, system, wan, None)(believed).ways[0].root if system.root == EACH else system.root
    for root in wan.names if system.root == EACH else (system.root,):
        name = f"{system.name}-{wan.number(root)}" if system.root == EACH and root else system.name
        if arms and not {name, system.name} & set(arms):
            continue
        decide = _decider(scenario, system, wan, root)
        plan = decide(believed)
        sync = _sync(scenario, system, wan, plan, root)
        prediction = predict(scenario, wan, plan, sync, changes, decide if system.scheduled else None)
        yield System(name, system.name, plan, sync, prediction, root == own)


def _believed(scenario: WideScenario, system: SystemKeys, wan: Wan) -> Overlay:
    """The overlay on which the first plan is decided: a scheduler may take tunnels for something else."""
    overlay, rate = overlay_of(wan), scenario.scheduler.believed
    if rate is None or not system.scheduled:
        return overlay
    return overlay.with_throughputs(dict.fromkeys(overlay.by_pair, rate / scenario.wan.scale))


def _decider(scenario: WideScenario, system: SystemKeys, wan: Wan, root: str | None) -> Decider:
    """What a system decides for an overlay."""
    sizes, size = _sizes(scenario)
    for site in system.active:
        if site not in wan.names:
            known = ", ".join(wan.names)
            raise InputError(f"system.{system.name}.active", f"{site} is no site", f"sites are {known}")
    split = max(1, round(BIG_ARRAY_ELEMENTS / scenario.wan.scale))
    choice = Choice(
        system.strategy, root, system.roots, system.arity, min(system.servers, len(wan.names)), split, system.active
    )
    return lambda overlay: choice.decide(overlay, sizes, size)


def _sizes(scenario: WideScenario) -> tuple[list[int], int]:
    """The tensors, scaled and in the order of a backward pass, and how large a chunk may be, in elements."""
    sizes = tensors.scaled(tensors.tensors(scenario.sync.model), scenario.wan.scale)
    sizes.reverse()
    return sizes, max(1, round(scenario.sync.chunk_elements / scenario.wan.scale))


def _sync(scenario: WideScenario, system: SystemKeys, wan: Wan, plan: Plan, root: str | None) -> SyncPlan:
    keys, names = scenario.sync, _part_of(plan, wan)
    given_s = keys.compute if isinstance(keys.compute, tuple) else (keys.compute,) * len(wan.names)
    if len(given_s) != len(wan.names):
        raise InputError("sync", f"{len(given_s)} compute_s for {len(wan.names)} sites", "one each")
    silent = tuple(number for number, name in enumerate(names) if plan.active and name not in plan.active)
    compute_s = tuple(0.0 if n in silent else given_s[wan.number(name) - 1] for n, name in enumerate(names))
    bits = tuple(round(FULL_BITS * plan.push_share.get(name, 1.0)) for name in names) if plan.push_share else ()
    trained = keys.model == tensors.TRAINED
    ways = tuple(Way(_tree(way.push, names), _tree(way.pull, names)) for way in plan.ways)
    return SyncPlan(
        sites=names,
        ips=tuple(underlay.address(wan, site, scenario.wan.tunnels) for site in names),
        port=PORT,
        chunks=tuple(chunk.elements for chunk in plan.chunks),
        policy=Policy(1, ways, plan.way_of),
        rounds=scenario.rounds_of(system),
        compute_s=compute_s,
        merge_bytes_per_s=keys.merge_rate / 8 / scenario.wan.scale if keys.merge_rate else None,
        seed=scenario.measure.seed,
        congestion_control=scenario.transport.congestion_control,
        protocol=_protocol(scenario, system, wan, root) if system.scheduled else None,
        silent=silent,
        bits=bits,
        window=system.window if plan.ordered else 0,
        oldest_first=plan.oldest_first,
        held=HELD if trained or bits else "",
        trained=trained,
    )


def _part_of(plan: Plan, wan: Wan) -> tuple[str, ...]:
    """The sites that a plan has anything for: all, but for those that a Steiner tree does not pass."""
    found = {node for way in plan.ways for tree in (way.push, way.pull) for node in tree.order}
    return tuple(name for name in wan.names if name in found)


def _protocol(scenario: WideScenario, system: SystemKeys, wan: Wan, root: str | None) -> Protocol:
    keys, scale = scenario.scheduler, scenario.wan.scale
    if keys.site not in (None, *wan.names):
        raise InputError("scheduler.site", f"{keys.site} is no site", f"sites are {', '.join(wan.names)}")
    sizes, size = _sizes(scenario)
    number = {name: i for i, name in enumerate(wan.names)}
    tunnels = (
        Tunnel(number[one.source], number[one.target], one.throughput_bps, one.latency_s)
        for one in _believed(scenario, system, wan).tunnels
    )
    return Protocol(
        tunnels=tuple(tunnels),
        scheduler=0 if keys.site is None else number[keys.site],
        strategy=system.strategy,
        root=root,
        roots=system.roots,
        tensors=tuple(sizes),
        chunk_elements=size,
        awareness=system.awareness,
        paths=MOST_PATHS if system.auxiliary else 0,
        probe_bytes=max(1, round(keys.probe / scale)),
        look_s=keys.look,
        report_change=keys.report_change,
        decide_change=keys.decide_change,
        limit_bytes=max(1, round(keys.backpressure / scale)),
        detect_s=keys.detect * scale,
        late_s=scenario.fire.late,
        folder=DISK,
    )


def _tree(tree: PlannedTree, names: tuple[str, ...]) -> Tree:
    number = {name: i for i, name in enumerate(names)}
    parents = (number[tree.parent[name]] if name in tree.parent else None for name in names)
    return Tree(number[tree.root], tuple(parents))
