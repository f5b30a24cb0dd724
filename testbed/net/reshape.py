"""Settings of links changed while they carry packets, at once and without losing what waits in their queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from testbed.errors import InputError
from testbed.net import tc
from testbed.net.emulation import Emulation
from testbed.net.topology import Direction, link_id


def reshape(net: Emulation, changed: Mapping[tuple[str, str], Direction]) -> None:
    """Gives these egresses, by (from, to), other settings, as `net.topology` then says and `net.read_back` checks.

    A queue keeps its packets and counters; one that marks loses its packets when its size changes. Raises
    KernelRefused, and InputError for a delay or loss where there was neither, or for marking: those would need another
    queue.
    """
    t = net.topology
    for (a, b), direction in changed.items():
        kinds = [[w.kind for w in tc.wanted(d)] for d in (t.direction(a, b), direction)]
        if kinds[0] != kinds[1]:
            raise InputError(
                f"link {link_id(a, b)}", f"would change from {'+'.join(kinds[0])} to {'+'.join(kinds[1])}",
                "give it a delay, however small, from the beginning",
            )  # fmt: skip
    links = tuple(
        dataclasses.replace(k, a_to_b=changed.get((k.a, k.b), k.a_to_b), b_to_a=changed.get((k.b, k.a), k.b_to_a))
        for k in t.links
    )
    net.topology = dataclasses.replace(t, links=links)
    for (a, b), direction in changed.items():
        interface = net.interfaces[link_id(a, b)]
        net.place(a).kernel.do(tc.changes(interface.ifindex, interface.name, t.direction(a, b), direction))
