"""Which way packets go: one stated rule, static and blind to jobs.

At each switch the candidates are the neighbours one hop nearer to the destination, in the order of their
ports, and candidate number (ingress port + number of the destination host) mod n is taken. So a path depends
on nothing but the ingress port and the destination, every hop comes nearer to the destination (no loops), and
hosts in a rack spread over the uplinks. When links go down the same rule applies to what is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from testbed.errors import NotValid
from testbed.net.topology import Topology, link_id


class Unreachable(NotValid):
    """No path is left between two hosts."""


class Hop(NamedTuple):
    """A decision: at `switch`, what enters by `in_port` for host `dst` leaves towards the neighbour `to`."""

    switch: str
    in_port: int
    dst: str
    to: str


class Routes:
    """All paths of a topology without the links of `down` (ids of directed links; either direction takes out
    both)."""

    def __init__(self, topology: Topology, down: Iterable[str] = ()) -> None:
        self._topology = topology
        out = set(down)
        neighbours: dict[str, list[tuple[int, str]]] = {node.name: [] for node in topology.nodes}
        for a, b in topology.directed():
            if link_id(a, b) not in out and link_id(b, a) not in out:
                neighbours[a].append((topology.port(a, b), b))
        self._neighbours = {name: [peer for _, peer in sorted(ports)] for name, ports in neighbours.items()}
        self._hosts = set(topology.hosts)
        self._between = {
            name: [peer for peer in peers if peer not in self._hosts]
            for name, peers in self._neighbours.items()
            if name not in self._hosts
        }
        self._candidates: dict[str, dict[str, list[str]]] = {}

    def _nearer(self, dst: str) -> dict[str, list[str]]:
        """For every switch that reaches `dst`, the neighbours one hop nearer, in the order of ports."""
        if dst not in self._candidates:
            self._candidates[dst] = self._found(dst, self._hosts) if dst in self._hosts else {}
        return self._candidates[dst]

    def _found(self, dst: str, hosts: set[str]) -> dict[str, list[str]]:
        beside = [peer for peer in self._neighbours[dst] if peer not in hosts]
        distance = dict.fromkeys(beside, 1)
        queue = deque(beside)
        while queue:
            node = queue.popleft()
            for peer in self._between[node]:  # hosts forward nothing
                if peer not in distance:
                    distance[peer] = distance[node] + 1
                    queue.append(peer)
        return {
            node: [dst] if hops == 1 else [peer for peer in self._between[node] if distance[peer] == hops - 1]
            for node, hops in distance.items()
        }

    def next_hop(self, switch: str, in_port: int, dst: str) -> str | None:
        """The neighbour to which `switch` sends what entered by `in_port` for `dst`; None when it cannot
        reach it."""
        return self._choose(switch, in_port, dst) if switch in self._nearer(dst) else None

    def _choose(self, switch: str, in_port: int, dst: str) -> str:
        candidates = self._nearer(dst)[switch]
        return candidates[(in_port + self._topology.host_number(dst)) % len(candidates)]

    def route(self, src: str, dst: str) -> list[str]:
        """Ids of the directed links from host `src` to host `dst`. Raises Unreachable when no path is
        left."""
        hops = list(self._walk(src, dst))
        if not hops:
            raise Unreachable(f"{dst} cannot be reached from {src}: no path is left")
        return [link_id(src, hops[0].switch), *(link_id(hop.switch, hop.to) for hop in hops)]

    def _walk(self, src: str, dst: str) -> Iterator[Hop]:
        """The decisions on the way from one host to another; none when there is no path."""
        at, switch = (
            src,
            next((peer for peer in self._neighbours[src] if peer in self._nearer(dst)), dst),
        )
        while switch != dst:
            in_port = self._topology.port(switch, at)
            to = self._choose(switch, in_port, dst)
            yield Hop(switch, in_port, dst, to)
            at, switch = switch, to

    def hops(self) -> list[Hop]:
        """Every decision that some pair of hosts needs, sorted."""
        hosts = self._topology.hosts
        return sorted({hop for src in hosts for dst in hosts if src != dst for hop in self._walk(src, dst)})

    def shared_links(self, jobs: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, list[str]]:
        """The directed links that at least two jobs use, with the jobs' names; a job is the pairs that
        send."""
        users: dict[str, set[str]] = {}
        for job, pairs in jobs.items():
            for src, dst in pairs:
                for link in self.route(src, dst):
                    users.setdefault(link, set()).add(job)
        order = [link_id(a, b) for a, b in self._topology.directed()]
        return {link: sorted(users[link]) for link in order if len(users.get(link, ())) > 1}
