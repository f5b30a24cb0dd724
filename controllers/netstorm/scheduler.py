"""The scheduler as a state machine: it answers a round's topology requests once all nodes have asked.

A new policy comes into force with a round or an attempt, never within one; auxiliary paths are released at once. When a
node was restarted, or a tunnel was cut, in the middle of a round, what was on its way is lost: the round is begun again
as another attempt, without tunnels that are down. While those leave the overlay in pieces the scheduler waits.

Assumed: the scheduler itself is never killed, and what nodes tell it arrives.
"""

from __future__ import annotations

from collections.abc import Callable

from controllers.netstorm.auxiliary import MOST_PATHS, for_ways
from controllers.netstorm.awareness import DEFAULTS, Awareness, Settings
from controllers.netstorm.messages import Answer, Hello, Link, Policy, Report, Request, Routes, Stage, ToNode
from controllers.netstorm.overlay import Overlay
from controllers.netstorm.tree import Plan

Tunnels = frozenset[str]


class Scheduler:
    """Decides for an overlay by a strategy. chunk_bytes: what auxiliary paths are to carry; most_paths: per pair."""

    def __init__(
        self,
        overlay: Overlay,
        strategy: Callable[[Overlay], Plan],
        *,
        chunk_bytes: float,
        awareness: Settings = DEFAULTS,
        most_paths: int = MOST_PATHS,
    ) -> None:
        self.stage: Stage = (0, 0)
        self.down: set[Tunnels] = set()
        self._overlay, self._strategy = overlay, strategy
        self._chunk_bytes, self._most_paths = chunk_bytes, most_paths
        self._awareness = Awareness(overlay, awareness)
        self._policy = Policy(0, (), ())
        self._routes = Routes(0)
        self._stale = True
        self._stuck: Stage | None = None
        self._asked = dict.fromkeys(overlay.nodes, 0)
        self._known = dict.fromkeys(overlay.nodes, 0)
        self._incarnation = dict.fromkeys(overlay.nodes, 1)
        self._links: dict[tuple[Tunnels, str], tuple[tuple[int, int], bool]] = {}

    @property
    def policy(self) -> Policy:
        """The policy decided last; version 0 before there is one."""
        return self._policy

    def heard(self, message: Request | Hello | Link | Report) -> list[ToNode]:
        """Return the answers that follow from what a node has said."""
        if isinstance(message, Report):
            self.report(message.source, message.target, message.throughput_bps)
            return []
        if isinstance(message, Request):
            return self._requested(message)
        if isinstance(message, Hello):
            return self._greeted(message)
        return self._told(message)

    def report(self, source: str, target: str, throughput_bps: float) -> None:
        """Take a tunnel's throughput in bit/s, as `awareness` measures it."""
        self._awareness.report(source, target, throughput_bps)

    def look(self, now_s: float) -> list[ToNode]:
        """Look at the reports if it is time: decide anew if enough has changed, and release auxiliary paths at once."""
        fresh = self._awareness.look(now_s)
        if fresh is None:
            return []
        self._overlay, self._stale = fresh, True
        usable = self._usable()
        if usable is None or not self.stage[0]:
            return []
        self._release(usable)
        return [ToNode(node, self._routes) for node in self._overlay.nodes]

    def __str__(self) -> str:
        late = sorted(node for node, asked in self._asked.items() if asked <= self.stage[0])
        return f"scheduler: stage {self.stage}, stuck {self._stuck}, down {sorted(map(sorted, self.down))}, late {late}"

    def _requested(self, message: Request) -> list[ToNode]:
        node = message.node
        self._asked[node] = max(self._asked[node], message.round)
        if message.incarnation >= self._incarnation[node]:
            self._known[node] = message.version
        if message.round <= self.stage[0]:
            return [] if self._stuck else [self._answer(node)]
        if min(self._asked.values()) > self.stage[0] and not self._stuck:
            return self._begin((self.stage[0] + 1, 0))
        return []

    def _greeted(self, message: Hello) -> list[ToNode]:
        node = message.node
        if message.incarnation < self._incarnation[node]:
            return []
        if message.incarnation > self._incarnation[node]:
            self._incarnation[node], self._known[node] = message.incarnation, -1
            for tunnel in [tunnel for tunnel, end in self._links if end == node]:
                # Whoever starts again says anew which tunnels are down.
                self._note(tunnel, node, (message.incarnation, 0), True)
            if self.stage[0]:
                return self._again()
        return [] if self._stuck else [self._answer(node)]

    def _told(self, message: Link) -> list[ToNode]:
        tunnel, number = frozenset((message.node, message.peer)), (message.incarnation, message.count)
        last, _ = self._links.get((tunnel, message.node), ((message.incarnation, 0), True))
        if number <= last:
            return []
        # An "up" whose "down" is still on its way tells of a cut as well.
        cut = not message.up or message.count != (last[1] if last[0] == message.incarnation else 0) + 1
        was_down = tunnel in self.down
        self._note(tunnel, message.node, number, message.up)
        if cut and not was_down and self.stage[0]:
            return self._again()
        return self._begin(self._stuck) if self._stuck else []

    def _note(self, tunnel: Tunnels, end: str, number: tuple[int, int], up: bool) -> None:
        """Take note of what one end says of a tunnel; it is up if both ends say so."""
        was_down = tunnel in self.down
        self._links[tunnel, end] = number, up
        if all(says for (one, _), (_, says) in self._links.items() if one == tunnel):
            self.down.discard(tunnel)
        else:
            self.down.add(tunnel)
        self._stale = self._stale or (tunnel in self.down) != was_down

    def _again(self) -> list[ToNode]:
        number, attempt = max(self.stage, self._stuck or self.stage)
        return self._begin((number, attempt + 1))

    def _begin(self, stage: Stage) -> list[ToNode]:
        """Begin a round or an attempt, by a new policy if there is reason for one."""
        if self._stale:
            usable = self._usable()
            if usable is None:
                self._stuck = stage
                return []
            plan = self._strategy(usable)
            self._policy = Policy(self._policy.version + 1, plan.ways, plan.way_of)
            self._release(usable)
            self._stale = False
        self.stage, self._stuck = stage, None
        return [self._answer(node) for node in self._overlay.nodes]

    def _usable(self) -> Overlay | None:
        gone = [pair for pair in self._overlay.by_pair if frozenset(pair) in self.down]
        try:
            return self._overlay.without(gone)
        except ValueError:  # in pieces
            return None

    def _release(self, usable: Overlay) -> None:
        paths = for_ways(usable, self._policy.ways, self._chunk_bytes, self._most_paths)
        self._routes = Routes(self._routes.number + 1, paths)

    def _answer(self, node: str) -> ToNode:
        known = self._known[node] == self._policy.version
        policy = None if known else self._policy
        return ToNode(node, Answer(self.stage, self._policy.version, policy, self._routes))
