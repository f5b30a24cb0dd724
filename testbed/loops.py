"""What else than deciding jointly can be done about a loop in the affinity graph: the paper's traversal of a tree.

The paper drops placements with loops. To see what that misses, the loop can be broken instead: links are taken one
after another, the one with the least slack first, each decided by itself; one that would close a loop is left out.
What is taken is a forest, on which the paper's traversal gives every job one time-shift; the links left out have what
comes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from controllers.cassini.affinity import SharedLink, Vertex, affinity_graph, has_loop, merge, time_shifts
from controllers.cassini.circle import UnifiedCircle, unify
from controllers.cassini.compatibility import Rotation, best_rotation, score
from controllers.cassini.decision import TIE, Decision, describe
from controllers.cassini.module import rotations


def along_a_tree(links: Sequence[SharedLink], angles: int) -> list[Decision]:
    """Return the decision of every link vertex, named after its first link, for shifts found along a forest."""
    vertices = {vertex.name: vertex for vertex in merge(links)}
    circles = {name: unify(vertex.profiles, angles=angles) for name, vertex in vertices.items()}
    own = {name: best_rotation(circle, vertices[name].capacity_bps, tie=TIE) for name, circle in circles.items()}
    taken: dict[str, Sequence[str]] = {}
    for name in sorted(vertices, key=lambda name: (sum(own[name].slack) * circles[name].slot_s, name)):
        if not has_loop(affinity_graph(taken | {name: vertices[name].jobs})):
            taken[name] = vertices[name].jobs
    delays = {
        name: {
            job: turned * circles[name].slot_s
            for job, turned in zip(circles[name].jobs, own[name].rotations, strict=True)
        }
        for name in taken
    }
    lengths = {job: circle.quantised_s(at) for circle in circles.values() for at, job in enumerate(circle.jobs)}
    shifts_s, _ = time_shifts(delays, lengths)
    return [_decision(vertex, circles[name], own[name], shifts_s) for name, vertex in vertices.items()]


def _decision(vertex: Vertex, circle: UnifiedCircle, own: Rotation, shifts_s: dict[str, float]) -> Decision:
    turned = rotations(circle, shifts_s)
    reached = replace(
        own,
        rotations=turned,
        slack=(0,) * len(turned),
        score=score(circle, turned, vertex.capacity_bps),
        proved=False,
    )
    made = describe(vertex.name, vertex.profiles, circle, reached, vertex.capacity_bps, tie=TIE)
    return replace(made, jobs=tuple(replace(job, time_shift_s=shifts_s[job.job]) for job in made.jobs))
