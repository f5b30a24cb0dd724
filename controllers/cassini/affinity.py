"""The affinity graph: which jobs meet on which links, and one time-shift for each job out of those of its links.

On one side are jobs, on the other link vertices: one *direction* of a link, where two jobs or more send. An edge
weighs the delay t_j^l of the job on the circle of that link (paper, section 4). One traversal then gives each job a
single time-shift, relative to a reference job that is not delayed:

    t_k = (t_j - w(j, l) + w(l, k)) mod iter_k

Without loops every two jobs of a link keep the distance that the link asked for, modulo the greatest common divisor
of their iteration times (Theorem 1; its equality holds only up to that, since shifts are taken modulo iterations).

Loops are common: a ring of workers that spans two racks shares several links with the next such ring. Links with the
same jobs and the same circles ask for the same, so they are *merged* first. What is left entangled is a *knot*: link
vertices that share loops. Two knots share one job at most, so with every knot in the place of a link vertex the graph
has no loop, and the traversal and its theorem hold for delays found for whole knots. A link outside loops is a knot
of its own. The paper drops placements whose graph has a loop; here nothing is dropped.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from controllers.cassini.profile import Profile

Node = tuple[str, str]


@dataclass(frozen=True)
class SharedLink:
    """One direction of a link, its capacity, and what each job sends over it while alone there."""

    link: str
    capacity_bps: float
    profiles: tuple[Profile, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for a capacity that is none and for a job that is there twice."""
        if not self.capacity_bps > 0:
            raise ValueError(f"{self.link}: a capacity of {self.capacity_bps} bit/s cannot be shared")
        if len({profile.job for profile in self.profiles}) != len(self.profiles):
            raise ValueError(f"{self.link}: a job has two profiles")


@dataclass(frozen=True)
class Vertex:
    """Links whose jobs and circles are equal. `profiles` in the order of the jobs' names, for the first link."""

    links: tuple[str, ...]
    capacity_bps: float
    profiles: tuple[Profile, ...]

    @property
    def name(self) -> str:
        """The first of its links by name."""
        return self.links[0]

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs' names in order."""
        return tuple(profile.job for profile in self.profiles)


def merge(links: Sequence[SharedLink]) -> tuple[Vertex, ...]:
    """Return the link vertices in the order of their names: links where two jobs or more send, equal ones merged.

    Raises ValueError for two links of one name.
    """
    if len({link.link for link in links}) != len(links):
        raise ValueError("a placement names a link twice")
    equal: dict[tuple[object, ...], list[SharedLink]] = defaultdict(list)
    for link in sorted(links, key=lambda link: link.link):
        sending = sorted((profile for profile in link.profiles if any(profile.demand_bps)), key=lambda at: at.job)
        if len(sending) >= 2:
            shares = (np.array(profile.demand_bps) / link.capacity_bps for profile in sending)
            circles = ((at.job, at.period_s, share.tobytes()) for at, share in zip(sending, shares, strict=True))
            equal[tuple(circles)].append(SharedLink(link.link, link.capacity_bps, tuple(sending)))
    return tuple(
        Vertex(tuple(link.link for link in same), same[0].capacity_bps, same[0].profiles) for same in equal.values()
    )


def affinity_graph(vertices: Mapping[str, Sequence[str]]) -> nx.Graph:
    """Return the bipartite graph of ("job", name) and ("link", name), from the jobs of each link vertex."""
    graph = nx.Graph()
    for name, jobs in sorted(vertices.items()):
        graph.add_edges_from((("job", job), ("link", name)) for job in sorted(jobs))
    return graph


def has_loop(graph: nx.Graph) -> bool:
    """Return whether the graph has a loop; two jobs on two links are one."""
    return bool(graph) and not nx.is_forest(graph)


def components(graph: nx.Graph) -> list[nx.Graph]:
    """Return the connected parts of the graph, by the name of each part's first job."""
    return [graph.subgraph(part) for part in sorted(nx.connected_components(graph), key=min)]


def knots(graph: nx.Graph) -> list[tuple[str, ...]]:
    """Return the names of the link vertices of each knot, in order: those joined by loops, each other one alone."""
    tied = nx.Graph()
    tied.add_nodes_from(name for side, name in graph if side == "link")
    for block in nx.biconnected_components(graph):  # a job that alone joins two blocks only passes its delay on
        tied.add_edges_from(itertools.pairwise(sorted(name for side, name in block if side == "link")))
    return sorted(tuple(sorted(part)) for part in nx.connected_components(tied))


def time_shifts(
    delays_s: Mapping[str, Mapping[str, float]], iterations_s: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the time-shift and the reference of every job, from the delay in seconds each knot asks of its jobs.

    The reference of each connected component is its first job by name; it is not delayed. Raises ValueError where
    the knots form a loop.
    """
    graph = affinity_graph({knot: list(delays) for knot, delays in delays_s.items()})
    if has_loop(graph):
        raise ValueError("time-shifts along a loop contradict each other")
    shifts: dict[str, float] = {}
    references: dict[str, str] = {}
    for part in components(graph):
        reference: Node = min(node for node in part if node[0] == "job")
        shifts[reference[1]], references[reference[1]] = 0.0, reference[1]
        for (side, knot), node in nx.bfs_predecessors(part, reference, sort_neighbors=sorted):
            if side == "link":
                before = node[1]
                for job in sorted(delays_s[knot].keys() - {before}):
                    distance_s = delays_s[knot][job] - delays_s[knot][before]
                    shifts[job] = (shifts[before] + distance_s) % iterations_s[job]
                    references[job] = reference[1]
    return shifts, references
