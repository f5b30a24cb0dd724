"""From a wide-area scenario to what each system's arm does, and what is predicted of it. Nothing runs here."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controllers.netstorm import strategies
from controllers.netstorm.metric import Aggregation, round_s
from controllers.netstorm.overlay import Overlay, Tunnel
from controllers.netstorm.simulate import Change, Conditions, simulate
from controllers.netstorm.tree import Plan
from controllers.netstorm.tree import Tree as PlannedTree
from testbed.errors import InputError
from testbed.geo.keys import EACH, SystemKeys, WideScenario
from testbed.net.transport import Transport
from testbed.net.wan import dynamics, routing, underlay
from testbed.net.wan.build import Defaults
from testbed.net.wan.model import Wan
from testbed.net.wan.sources import load
from workloads.paramsync import tensors
from workloads.paramsync.plan import Policy, SyncPlan, Tree, Way

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = (PROJECT / "wan", PROJECT.parent / "shared" / "data" / "wan")
PORT = 5300
HORIZON_S = 7200.0
"""So long the rates are drawn again, if they are: no run lasts longer."""
TCP_BYTES = 52
"""IPv4's and TCP's headers with timestamps."""
ETHERNET_BYTES = 14
TUNNEL_BYTES = 60


@dataclass(frozen=True)
class Prediction:
    """How long a round takes, computing apart, in seconds: by the published metric on the links as they are first, and
    on average over all rounds by a simulation of chunks that share links."""

    metric_s: float
    simulated_s: float


@dataclass(frozen=True)
class System:
    """One arm: `name` (of `group`, a system of the scenario), the plan decided, what is run, what is expected."""

    name: str
    group: str
    plan: Plan
    sync: SyncPlan
    prediction: Prediction


@dataclass(frozen=True)
class WideExperiment:
    """A validated scenario made concrete; `wan` and `changes` are scaled."""

    scenario: WideScenario
    wan: Wan
    changes: tuple[dynamics.Change, ...]
    transport: Transport
    systems: tuple[System, ...]

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
        }


def build(scenario: WideScenario, base: Path) -> WideExperiment:
    """Make a scenario concrete; files are looked for beside it (`base`), in the folders of ORRERY_WAN, in wan/ and in a
    folder kept for them. Raises InputError."""
    keys, seed = scenario.wan, scenario.measure.seed
    folders = [base, *map(Path, filter(None, os.environ.get("ORRERY_WAN", "").split(":"))), *FOLDERS]
    defaults = Defaults(keys.rate, keys.delay, keys.jitter, keys.loss, keys.queue)
    original = load(keys.topology, folders, seed, defaults)
    changes = _changes(scenario, original, folders)
    wan = original.scaled(keys.scale)
    transport = scenario.transport
    spoken = Transport(
        transport.congestion_control, transport.ecn, transport.rto_min * keys.scale, transport.socket_buffer
    )
    scaled = tuple(dynamics.scaled(original, changes, keys.scale))
    systems = tuple(made for system in scenario.system for made in _systems(scenario, system, wan, scaled))
    return WideExperiment(scenario, wan, scaled, spoken, systems)


def overlay_of(wan: Wan) -> Overlay:
    """The network as planners see it: its tunnels, with the links that they run over."""
    rates_bps, delays_s = routing.tunnel_rates_bps(wan), routing.tunnel_delays_s(wan)
    capacities = {f"{a}->{b}": float(attributes.rate_bps) for a, b, attributes in wan.directed()}
    tunnels = (
        Tunnel(*ends, float(rates_bps[ends]), delays_s[ends], tuple(links))
        for ends, links in routing.tunnel_links(wan).items()
    )
    return Overlay(wan.names, tuple(tunnels), capacities)


def goodput(scenario: WideScenario) -> float:
    """The part of a link's rate that is left for TCP's payload."""
    mtu_bytes = scenario.wan.mtu_bytes
    payload = mtu_bytes - TCP_BYTES - (TUNNEL_BYTES if scenario.wan.tunnels else 0)
    return payload / (mtu_bytes + ETHERNET_BYTES)


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
    for root in wan.names if system.root == EACH else (system.root,):
        name = f"{system.name}-{wan.number(root)}" if system.root == EACH and root else system.name
        plan = _plan(scenario, system, overlay_of(wan), root)
        sync = _sync(scenario, wan, plan)
        yield System(name, system.name, plan, sync, _predict(scenario, wan, plan, sync, changes))


def _plan(scenario: WideScenario, system: SystemKeys, overlay: Overlay, root: str | None) -> Plan:
    sizes = tensors.scaled(tensors.tensors(scenario.sync.model), scenario.wan.scale)
    sizes.reverse()  # the order of a backward pass
    size = max(1, round(scenario.sync.chunk_elements / scenario.wan.scale))
    if system.strategy == "star":
        return strategies.star(overlay, sizes, [root] if root else (), chunk_elements=size)
    if system.strategy == "k-ary":
        return strategies.k_ary(overlay, sizes, root, arity=system.arity, chunk_elements=size)
    if system.strategy == "multi-root":
        return strategies.multi_root(overlay, sizes, system.roots, chunk_elements=size)
    rest = {
        "binary": strategies.binary,
        "spanning": strategies.spanning,
        "packed": strategies.packed,
        "fapt": strategies.fapt,
    }
    return rest[system.strategy](overlay, sizes, root, chunk_elements=size)


def _sync(scenario: WideScenario, wan: Wan, plan: Plan) -> SyncPlan:
    keys, names = scenario.sync, wan.names
    compute_s = keys.compute if isinstance(keys.compute, tuple) else (keys.compute,) * len(names)
    ways = tuple(Way(_tree(way.push, names), _tree(way.pull, names)) for way in plan.ways)
    return SyncPlan(
        sites=names,
        ips=tuple(underlay.address(wan, site, scenario.wan.tunnels) for site in names),
        port=PORT,
        chunks=tuple(chunk.elements for chunk in plan.chunks),
        policy=Policy(1, ways, plan.way_of),
        rounds=keys.rounds,
        compute_s=compute_s,
        merge_bytes_per_s=keys.merge_rate / 8 / scenario.wan.scale if keys.merge_rate else None,
        seed=scenario.measure.seed,
        congestion_control=scenario.transport.congestion_control,
    )


def _tree(tree: PlannedTree, names: tuple[str, ...]) -> Tree:
    number = {name: i for i, name in enumerate(names)}
    parents = (number[tree.parent[name]] if name in tree.parent else None for name in names)
    return Tree(number[tree.root], tuple(parents))


def _predict(
    scenario: WideScenario, wan: Wan, plan: Plan, sync: SyncPlan, changes: tuple[dynamics.Change, ...]
) -> Prediction:
    overlay, part = overlay_of(wan), goodput(scenario)
    merge_bps = 8 * sync.merge_bytes_per_s if sync.merge_bytes_per_s else math.inf
    seen = overlay.mesh(scenario.wan.routing) if plan.meshed else overlay
    payload = seen.with_throughputs({ends: tunnel.throughput_bps * part for ends, tunnel in seen.by_pair.items()})
    sizes = [0.0] * len(plan.ways)
    for chunk, way in zip(plan.chunks, plan.way_of, strict=True):
        sizes[way] += chunk.size_bytes
    metric_s = max(
        round_s([way], [size_bytes], payload, Aggregation(child_s=8 * size_bytes / merge_bps))
        for way, size_bytes in zip(plan.ways, sizes, strict=True)
    )
    return Prediction(metric_s, _simulated_s(scenario, wan, plan, sync, changes))


def _simulated_s(
    scenario: WideScenario, wan: Wan, plan: Plan, sync: SyncPlan, changes: tuple[dynamics.Change, ...]
) -> float:
    """The mean of all rounds, one simulated after the other, each on the links that it meets with."""
    merge_bps = 8 * sync.merge_bytes_per_s if sync.merge_bytes_per_s else math.inf
    waiting, now_s = list(changes), 0.0
    for _ in range(sync.rounds):
        while waiting and waiting[0].t_s <= now_s:
            wan = dynamics.apply(wan, waiting.pop(0))
        later = [Change(c.t_s - now_s, c.link, c.value) for c in waiting if c.attribute == "rate_bps"]
        conditions = Conditions(
            ready_s=dict(zip(sync.sites, sync.compute_s, strict=True)), merge_bps=merge_bps, goodput=goodput(scenario),
            changes=later, rule=scenario.wan.routing,
        )  # fmt: skip
        now_s += simulate(overlay_of(wan), plan, conditions).round_s
    return now_s / sync.rounds - max(sync.compute_s)
