"""Pictures of a run on a wide-area network: trees over the map, round times beside the bound, bandwidth over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from testbed.geo.experiment import System, WideExperiment
from testbed.geo.records import POLICIES
from testbed.net.wan.model import Wan
from testbed.report import style
from workloads.paramsync.records import CHUNKS, RECEIVED, ROUNDS, TRAINING

PLOTS = "plots"
MOST_PANELS, MOST_LINES, BINS = 12, 8, 200
FEW_SITES = 15
"""Up to so many there is room for every link's rate."""
NAME_POINTS = 11.0
Place = tuple[float, float]


def draw(experiment: WideExperiment, summary: Mapping[str, Any], validation: Mapping[str, Any], folder: Path) -> None:
    """Draw all pictures of a run's folder into its plots/."""
    (folder / PLOTS).mkdir(exist_ok=True)
    with style.styled():
        for name, made in (
            ("trees", trees(experiment, summary)),
            ("round-times", round_times(experiment, summary, validation)),
            ("bandwidth", bandwidth(experiment, folder)),
            ("training", training(experiment, folder)),
        ):
            if made is not None:
                style.save(made, folder / PLOTS / name)


def places(wan: Wan) -> dict[str, Place]:
    """Where each site is drawn: where it is on the map, or, where that is not known, so that links are short."""
    if all(site.latitude is not None and site.longitude is not None for site in wan.sites):
        north = math.radians(sum(site.latitude or 0 for site in wan.sites) / len(wan.sites))
        return {site.name: ((site.longitude or 0) * math.cos(north), site.latitude or 0) for site in wan.sites}
    graph = nx.Graph()
    graph.add_nodes_from(wan.names)
    graph.add_edges_from((link.a, link.b) for link in wan.links)
    return {name: (float(x), float(y)) for name, (x, y) in nx.kamada_kawai_layout(graph).items()}


def trees(experiment: WideExperiment, summary: Mapping[str, Any]) -> Figure:
    """Draw the map with the rates of its links, then each system's trees: of those with a run per root the best one."""
    wan, at = experiment.wan, places(experiment.wan)
    took = {one["system"]: one["mean_round_s"] for one in summary["systems"]}
    shown: dict[str, System] = {}
    for system in experiment.systems:
        held = shown.get(system.group)
        if held is None or took[system.name] < took[held.name]:
            shown[system.group] = system
    panels = list(shown.values())[: MOST_PANELS - 1]
    few = len(at) <= FEW_SITES
    columns = min(4 if few else 3, len(panels) + 1)
    rows = math.ceil((len(panels) + 1) / columns)
    size = 3.2 if few else 4.6
    rates = "their unscaled rates in Mbit/s, at the end that sends" if few else "how fast they are (wider: faster)"
    made = style.figure(
        (size + 0.1) * columns, size * rows + 0.6, f"{experiment.scenario.name}: aggregation trees over the map",
        f"first: links and {rates}; then what each system decided first "
        "(wider: more bytes; dashed: a pair without a tunnel of its own)",
    )  # fmt: skip
    axes = list(made.subplots(rows, columns, squeeze=False).flat)
    _map(axes[0], experiment, at, rates=True)
    axes[0].set_title(f"{wan.name}, {len(wan.links)} links")
    for place, system in zip(axes[1:], panels, strict=False):
        _map(place, experiment, at, rates=False)
        _trees(place, experiment, system, at)
        place.set_title(f"{system.name}: {took[system.name]:.1f} s a round")
    for place in axes[1 + len(panels) :]:
        place.axis("off")
    return made


def _map(axes: Axes, experiment: WideExperiment, at: Mapping[str, Place], *, rates: bool) -> None:
    axes.axis("off")
    axes.margins(0.12)
    few = len(at) <= FEW_SITES
    small = 6.5 if few else 5.0
    least_bps = min(of.rate_bps for _, _, of in experiment.wan.directed())
    for link in experiment.wan.links:
        (ax, ay), (bx, by) = at[link.a], at[link.b]
        slower_bps = min(link.a_to_b.rate_bps, link.b_to_a.rate_bps)
        width = 1.0 if few or not rates else 0.6 + math.log2(slower_bps / least_bps) / 2
        axes.plot([ax, bx], [ay, by], color=style.GRID if not rates else "#b5b5b5", linewidth=width, zorder=1)
        if rates and few:
            for (x, y), (to_x, to_y), of in (((ax, ay), (bx, by), link.a_to_b), ((bx, by), (ax, ay), link.b_to_a)):
                text = f"{of.rate_bps * experiment.scenario.wan.scale / 1e6:.3g}"
                axes.text(
                    x + 0.28 * (to_x - x), y + 0.28 * (to_y - y), text, fontsize=small - 1, color=style.FAINT,
                    ha="center", va="center", zorder=2, bbox={"fc": "white", "ec": "none", "pad": 0.4},
                )  # fmt: skip
    for name, (x, y) in at.items():
        axes.plot([x], [y], "o", color="white", markeredgecolor=style.INK, markersize=5, zorder=4)
        axes.annotate(
            name, (x, y), xytext=_free_side(experiment.wan, at, name), textcoords="offset points", ha="center",
            va="center", fontsize=small, zorder=6, path_effects=[withStroke(linewidth=1.8, foreground="white")],
        )  # fmt: skip


def _free_side(wan: Wan, at: Mapping[str, Place], site: str) -> Place:
    """Where a site's name stands, in points from it: in the middle of the widest gap between its links."""
    peers = [link.b if link.a == site else link.a for link in wan.links if site in (link.a, link.b)]
    towards = sorted(math.atan2(at[peer][1] - at[site][1], at[peer][0] - at[site][0]) for peer in peers)
    gaps = [(after - before, before) for before, after in pairwise([*towards, towards[0] + 2 * math.pi])]
    gap, before = max(gaps)
    return NAME_POINTS * math.cos(before + gap / 2), NAME_POINTS * 0.8 * math.sin(before + gap / 2)


def _trees(axes: Axes, experiment: WideExperiment, system: System, at: Mapping[str, Place]) -> None:
    tunnels = {frozenset(ends) for ends in experiment.wan.tunnels}
    shares = system.plan.shares()
    weight: dict[tuple[str, str], dict[str, float]] = {}
    for way, size_bytes in zip(system.plan.ways, system.plan.way_bytes(), strict=True):
        for edge in way.push.edges():
            of = weight.setdefault(edge, {})
            of[way.root] = of.get(way.root, 0.0) + size_bytes / system.plan.size_bytes
    colours = {root: style.JOBS[n % len(style.JOBS)] for n, root in enumerate(dict.fromkeys(shares))}
    for edge, by_root in weight.items():
        root = max(by_root, key=lambda one: by_root[one])
        arrow = FancyArrowPatch(
            at[edge[0]], at[edge[1]], arrowstyle="-|>", mutation_scale=7, shrinkA=3, shrinkB=3,
            linewidth=0.6 + 2.2 * sum(by_root.values()), color=colours[root] if len(shares) > 1 else style.JOBS[0],
            linestyle="-" if frozenset(edge) in tunnels else (0, (3, 1.5)),
            connectionstyle="arc3,rad=0.12", zorder=3,
        )  # fmt: skip
        axes.add_patch(arrow)
    for root, share in shares.items():
        axes.plot(*at[root], "o", color=colours[root] if len(shares) > 1 else style.JOBS[0],
                  markersize=5 + 6 * share, zorder=5)  # fmt: skip


def round_times(experiment: WideExperiment, summary: Mapping[str, Any], validation: Mapping[str, Any]) -> Figure:
    """Draw each system's mean round time, the best and the worst root where there are several, and the bound."""
    groups = dict(summary["groups"])
    made = style.figure(
        7.2, 1.5 + 0.36 * len(groups), f"{experiment.scenario.name}: time of a round, by system",
        "bars: mean; whiskers: best and worst root; ticks: as simulated before; grey: no schedule is faster",
    )  # fmt: skip
    axes = made.subplots()
    names = list(groups)
    compute_s = max(max(system.sync.compute_s) for system in experiment.systems)
    bounds_s = [one["flow_s"] for one in validation["bounds"]["systems"].values() if one["flow_s"] is not None]
    bound_s = min(bounds_s, default=0.0) + compute_s
    predicted: dict[str, list[float]] = {}
    for system in experiment.systems:
        predicted.setdefault(system.group, []).append(system.prediction.simulated_s + compute_s)
    for row, name in enumerate(names):
        of = groups[name]
        axes.barh(row, of["mean_s"], height=0.62, color=style.JOBS[row % len(style.JOBS)], zorder=2)
        if of["runs"] > 1:
            axes.plot([of["best_s"], of["worst_s"]], [row, row], color=style.INK, linewidth=1.1, zorder=3)
        expected = sum(predicted[name]) / len(predicted[name])
        axes.plot([expected, expected], [row - 0.31, row + 0.31], color=style.INK, linewidth=1.6, zorder=4)
        end = max(of["worst_s"], expected)
        axes.text(end, row, f"  {of['mean_s']:.1f} s, {of['speed_up']:.2f}×", va="center", fontsize=8, zorder=4)
    axes.axvspan(0, bound_s, color="#dddddd", zorder=1)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.22 * max(of["worst_s"] for of in groups.values()))
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"round, computing included (s); × over {summary['baseline']}")
    return made


def bandwidth(experiment: WideExperiment, folder: Path) -> Figure:
    """Draw what all sites together received over time, link changes as lines, policies as triangles."""
    systems = experiment.systems[:MOST_LINES]
    made = style.figure(
        7.2, 1.4 + 0.95 * len(systems), f"{experiment.scenario.name}: payload received by all sites, over time",
        "dotted: the links change; triangles: the scheduler decides anew; rates are unscaled",
    )  # fmt: skip
    most_mbps, last_s = 0.0, 0.0
    for number, (axes, system) in enumerate(zip(style.stack(made, len(systems)), systems, strict=True)):
        start_s = min(ROUNDS.read(folder / system.name / ROUNDS.file).numbers("begin_s"))
        edges, rate_bps = _received(folder / system.name / CHUNKS.file, start_s)
        rate_mbps = rate_bps * experiment.scenario.wan.scale / 1e6
        most_mbps, last_s = max(most_mbps, float(rate_mbps.max())), max(last_s, float(edges[-1]))
        axes.stairs(rate_mbps, edges, fill=True, color=style.tint(style.JOBS[number % len(style.JOBS)], 0.55))
        for t_s in sorted({change.t_s for change in experiment.changes if change.t_s <= edges[-1]}):
            axes.axvline(t_s, color=style.FAINT, linewidth=0.9, linestyle=(0, (1, 2)))
        decided = _decided(folder / system.name / POLICIES.file, start_s)
        if decided:  # an empty line that is not clipped would be laid out at the figure's corner
            axes.plot(decided, [0.0] * len(decided), "^", color=style.CONTENTION, markersize=5, clip_on=False, zorder=5)
        axes.set_title(system.name)
        axes.set_ylabel("Mbit/s")
        axes.set_ylim(0, 1.05 * most_mbps)
        axes.set_xlim(0, last_s)
        if number == len(systems) - 1:
            axes.set_xlabel("since the first round began (s, virtual)")
    return made


def training(experiment: WideExperiment, folder: Path) -> Figure | None:
    """Draw the accuracy of the model that the sums have trained, over time; None where none was."""
    curves = {}
    for system in experiment.systems:
        path = folder / system.name / TRAINING.file
        records = TRAINING.read(path) if path.is_file() else None
        if records is not None and records.text("accuracy")[0]:
            curves[system.name] = records.numbers("t_s"), records.numbers("accuracy")
    if not curves:
        return None
    made = style.figure(
        6.4, 3.9, f"{experiment.scenario.name}: accuracy over time", "on examples that nobody learns from"
    )
    axes = made.subplots()
    for number, (name, (t_s, accuracy)) in enumerate(curves.items()):
        axes.plot(t_s, accuracy, color=style.JOBS[number % len(style.JOBS)], linewidth=1.3, label=name)
    axes.axhline(experiment.scenario.sync.target, color=style.FAINT, linewidth=0.8, linestyle=(0, (2, 2)))
    axes.set_xlabel("since the first round began (s, virtual)")
    axes.set_ylabel("accuracy")
    axes.legend()
    return made


def _received(path: Path, start_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The edges of bins in seconds since `start_s`, and the payload's rate in bit/s in each: a chunk's bytes are taken
    to have come evenly between its sending and its arrival."""
    records = CHUNKS.read(path)
    rows = [
        (begin_s - start_s, t_s - start_s, size_bytes or 0)
        for event, peer, begin_s, t_s, size_bytes in zip(
            records.text("event"), records.text("peer"), records.numbers("begin_s"), records.numbers("t_s"),
            records.counts("bytes"), strict=True,
        )
        if event == RECEIVED and peer
    ]  # fmt: skip
    edges = np.linspace(0.0, max((row[1] for row in rows), default=1.0), BINS + 1)
    total = np.zeros(BINS + 1)  # bytes that have come by each edge
    for begin_s, end_s, size_bytes in rows:
        total += size_bytes * np.clip((edges - begin_s) / max(end_s - begin_s, 1e-9), 0.0, 1.0)
    return edges, 8 * np.diff(total) / np.diff(edges)


def _decided(path: Path, start_s: float) -> Sequence[float]:
    if not path.is_file():
        return ()
    records = POLICIES.read(path)
    return sorted({t_s - start_s for t_s in records.numbers("t_s") if t_s > start_s})
