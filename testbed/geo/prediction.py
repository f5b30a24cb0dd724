"""What is predicted of a system's rounds: by the published metric, and by a simulation of chunks that share links."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from controllers.netstorm import loop
from controllers.netstorm.awareness import Settings
from controllers.netstorm.metric import Aggregation, Delay, delays, round_s
from controllers.netstorm.overlay import Overlay, Tunnel
from controllers.netstorm.simulate import Change, Conditions, Outcome
from controllers.netstorm.tree import Plan
from controllers.netstorm.windows import Queues
from testbed.geo.keys import WideScenario
from testbed.net.wan import dynamics, routing, underlay
from testbed.net.wan.model import Wan
from workloads.paramsync.plan import SyncPlan

TCP_BYTES = 52
"""IPv4's and TCP's headers with timestamps."""
ETHERNET_BYTES = 14
TUNNEL_BYTES, TUNNEL_PAD_BYTES = 60, 16
"""WireGuard's with the outer headers; it pads what it carries."""
ACKED_SEGMENTS = 2
"""Segments that an acknowledgement is for, unless one is lost (RFC 9293, 3.8.6.3)."""
FIRST_SEGMENTS = 10
"""Linux' window of a new connection (RFC 6928)."""
Decider = Callable[[Overlay], Plan]
"""What a system decides for an overlay as it takes it to be."""


@dataclass(frozen=True)
class Prediction:
    """How long a round takes, computing apart, in seconds: by the published metric on the links as they are first, and
    on average over all rounds by a simulation of chunks that share links, in which a scheduler learns and decides as
    it would in packets. `first` is the first round simulated, `nodes` the metric's delays by root and site."""

    metric_s: float
    simulated_s: float
    first: Outcome
    nodes: dict[str, dict[str, Delay]]


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
    return segment_bytes(scenario) / (mtu_bytes + ETHERNET_BYTES)


def segment_bytes(scenario: WideScenario) -> int:
    """TCP's payload in a full packet."""
    return scenario.wan.mtu_bytes - TCP_BYTES - (TUNNEL_BYTES if scenario.wan.tunnels else 0)


def acknowledged(scenario: WideScenario) -> float:
    """The part of a flow's payload that its acknowledgements need of the payload's part of the links back."""
    tunnels = scenario.wan.tunnels
    padded = -(-TCP_BYTES // TUNNEL_PAD_BYTES) * TUNNEL_PAD_BYTES + TUNNEL_BYTES if tunnels else TCP_BYTES
    return goodput(scenario) * (padded + ETHERNET_BYTES) / (ACKED_SEGMENTS * segment_bytes(scenario))


def queues(scenario: WideScenario, wan: Wan) -> Queues:
    """The queues of links, as whoever sends payload sees them."""
    part = goodput(scenario)
    return Queues(
        {f"{a}->{b}": attributes.queue_bytes * part for a, b, attributes in wan.directed()}, segment_bytes(scenario),
        FIRST_SEGMENTS, scenario.transport.rto_min * scenario.wan.scale, underlay.MARK_FROM, underlay.MARK_ALL,
        underlay.MARK_PROBABILITY if wan.ecn and scenario.transport.ecn else 0.0,
    )  # fmt: skip


def payload_overlay(scenario: WideScenario, wan: Wan) -> Overlay:
    """The network with what is left of its rates for payload."""
    one, part = overlay_of(wan), goodput(scenario)
    throughputs = {ends: tunnel.throughput_bps * part for ends, tunnel in one.by_pair.items()}
    capacities = {link: rate_bps * part for link, rate_bps in one.capacity_bps.items()}
    return replace(one.with_throughputs(throughputs), capacity_bps=capacities)


def predict(
    scenario: WideScenario,
    wan: Wan,
    plan: Plan,
    sync: SyncPlan,
    changes: Sequence[dynamics.Change],
    decide: Decider | None = None,
) -> Prediction:
    """What is to be expected of a system; `decide` is what its scheduler does again and again, if it has one."""
    payload = payload_overlay(scenario, wan)
    seen = payload.mesh(scenario.wan.routing) if plan.meshed else payload
    sizes = [0.0] * len(plan.ways)
    for chunk, number in zip(plan.chunks, plan.way_of, strict=True):
        sizes[number] += chunk.size_bytes
    rounds_s, nodes = [0.0], {}
    for way, size_bytes in zip(plan.ways, sizes, strict=True):
        added = Aggregation(child_s=8 * size_bytes / merge_bps(sync))
        rounds_s.append(round_s([way], [size_bytes], seen, added) if size_bytes else 0.0)
        nodes[way.root] = delays(way.push, seen, size_bytes, added)
    first, lengths_s = simulated(scenario, wan, plan, sync, changes, decide)
    simulated_s = sum(lengths_s) / len(lengths_s) - max(sync.compute_s)
    return Prediction(max(rounds_s), simulated_s, first, nodes)


def merge_bps(sync: SyncPlan) -> float:
    """How fast a server adds up, in bits of what it is pushed."""
    return 8 * sync.merge_bytes_per_s if sync.merge_bytes_per_s else math.inf


def simulated(
    scenario: WideScenario,
    wan: Wan,
    plan: Plan,
    sync: SyncPlan,
    changes: Sequence[dynamics.Change],
    decide: Decider | None,
) -> tuple[Outcome, Sequence[float]]:
    """The first round, and how long each of them takes, one simulated after the other on the links that it meets."""
    rates = [Change(change.t_s, change.link, change.value) for change in changes if change.attribute == "rate_bps"]
    conditions = Conditions(
        ready_s=dict(zip(sync.sites, sync.compute_s, strict=True)), merge_bps=merge_bps(sync),
        goodput=goodput(scenario), ack=acknowledged(scenario), rule=scenario.wan.routing, queues=queues(scenario, wan),
    )  # fmt: skip
    system = loop.System(lambda _: plan)
    if sync.protocol is not None and decide is not None:
        told = sync.protocol
        settings = Settings(
            told.probe_bytes, look_s=told.look_s, report_change=told.report_change, decide_change=told.decide_change
        )
        system = loop.System(decide, told.awareness, told.paths > 0, settings)
    overlay = overlay_of(wan)
    believed = overlay if sync.protocol is None else planned_for(sync, overlay)
    ran = loop.run(overlay, believed, system, sync.rounds, changes=rates, conditions=conditions)
    return ran.first, ran.round_s


def planned_for(sync: SyncPlan, overlay: Overlay) -> Overlay:
    """The overlay as the scheduler of a plan takes it to be at first."""
    assert sync.protocol is not None
    believed = {(sync.sites[t.source], sync.sites[t.target]): t.believed_bps for t in sync.protocol.tunnels}
    return overlay.with_throughputs(believed)
