"""A node of NETSTORM as a state machine: what it hears goes in, what it does comes out.

Before a push every worker sends a topology request (TRP) and waits for the new topology or "no change". Data that
belongs to a stage a node does not know yet is buffered until it does; data of an earlier stage is dropped, since all
of it is sent again. Nodes that a chunk only passes follow the path in its metadata and nothing else. A worker stops
handing over chunks when `limit_bytes` wait to be sent, and goes on below a fifth of it; what is merged for others is
always sent on, so that a node that has stopped holds up nobody for good.

A node that is killed loses everything but, on disk, the number of its last complete round with its parameters and
gradients, and how often it has been started.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, Literal

from controllers.netstorm import auxiliary
from controllers.netstorm.messages import (
    Answer,
    Complete,
    Data,
    Hello,
    Link,
    Order,
    Policy,
    Request,
    Routes,
    Stage,
    ToScheduler,
    Transmit,
    V,
)

What = Literal["merged", "handed"]
LIMIT_BYTES = 2_000_000_000
GO_ON = 0.2


class Node(Generic[V]):
    """One data centre: its worker and its server.

    sizes: bytes of each chunk; own: the worker's gradients by round and chunk; add: the sum of two, which changes
    neither; noted: told what counts, as (merged or handed to a queue, stage, chunk, push, from or to whom).
    """

    def __init__(
        self,
        name: str,
        sizes: Sequence[int],
        own: Callable[[int, int], V],
        add: Callable[[V, V], V],
        *,
        incarnation: int = 1,
        complete: int = 0,
        limit_bytes: int = LIMIT_BYTES,
        noted: Callable[[What, Stage, int, bool, str], None] | None = None,
    ) -> None:
        self.name, self.incarnation, self.complete = name, incarnation, complete
        self.stage: Stage = (0, 0)
        self.ready_round = complete
        self._sizes, self._own, self._add, self._limit_bytes = sizes, own, add, limit_bytes
        self._greeting = incarnation > 1
        self._policies: dict[int, Policy] = {}
        self._policy: Policy | None = None
        self._routes = Routes(0)
        self._queues: dict[str, deque[Data[V]]] = {}
        self._sending: dict[str, int] = {}
        self._early: list[Data[V]] = []
        self._missing: list[set[str]] = []
        self._sums: dict[int, V] = {}
        self._results: dict[int, V] = {}
        self._handed = 0
        self._stopped = False
        self._seen: dict[str, int] = {}
        self._noted = noted
        self._orders: list[Order[V]] = []

    def start(self) -> list[Order[V]]:
        """Say hello if this is not the first time."""
        return self.tick()

    def ready(self, number: int) -> list[Order[V]]:
        """The worker has its gradients of a round: ask for the topology."""
        self.ready_round = max(self.ready_round, number)
        self._request()
        self._hand_over()
        return self._done()

    def tick(self) -> list[Order[V]]:
        """Some time has passed: ask again for what has not been answered."""
        if self._greeting:
            self._orders.append(ToScheduler(Hello(self.name, self.incarnation)))
        if self.ready_round > self.complete:
            self._request()
        return self._done()

    def link(self, peer: str, up: bool) -> list[Order[V]]:
        """The tunnel to a peer was cut, or is back."""
        self._seen[peer] = self._seen.get(peer, 0) + 1
        self._orders.append(ToScheduler(Link(self.name, peer, self.incarnation, self._seen[peer], up)))
        return self._done()

    def heard(self, message: Answer | Routes) -> list[Order[V]]:
        """The scheduler has said something; what is older than what is known has no effect."""
        if isinstance(message, Routes):
            if message.number > self._routes.number:
                self._routes = message
        else:
            if message.policy is not None and message.version > max(self._policies, default=-1):
                self._policies = {message.version: message.policy}
            policy = self._policies.get(message.version)
            if policy is not None:  # else it was meant for an earlier life: ask again
                self._greeting = False
            if message.stage > self.stage and policy is not None:
                self._enter(message, policy)
        return self._done()

    def arrived(self, data: Data[V]) -> list[Order[V]]:
        """Data has come over a tunnel."""
        rest = data.path[1:]
        if rest:
            if data.stage >= self.stage:
                self._enqueue(replace(data, path=rest))
        elif data.stage > self.stage:
            self._early.append(data)
        elif data.stage == self.stage:
            self._take(data)
        return self._done()

    def sent(self, peer: str) -> list[Order[V]]:
        """What was transmitted to a peer has left, or is lost: the next may go."""
        del self._sending[peer]
        self._next(peer)
        self._spread()
        self._hand_over()
        return self._done()

    def cached_bytes(self) -> int:
        """Return what waits to be sent or is being sent."""
        waiting = sum(self._sizes[one.chunk] for queue in self._queues.values() for one in queue)
        return waiting + sum(self._sizes[chunk] for chunk in self._sending.values())

    def __str__(self) -> str:
        missing = {chunk: sorted(names) for chunk, names in enumerate(self._missing) if names}
        return (
            f"{self.name}: stage {self.stage}, ready {self.ready_round}, complete {self.complete}, started "
            f"{self.incarnation} times, {len(self._results)} results, waits for {missing}, {len(self._early)} early, "
            f"{sum(map(len, self._queues.values()))} queued, {'stopped' if self._stopped else 'handed'} {self._handed}"
        )

    def _done(self) -> list[Order[V]]:
        orders, self._orders = self._orders, []
        return orders

    def _request(self) -> None:
        if self.ready_round > self.stage[0]:
            version = max(self._policies, default=0)
            self._orders.append(ToScheduler(Request(self.name, self.incarnation, self.ready_round, version)))

    def _enter(self, answer: Answer, policy: Policy) -> None:
        """Begin a stage: nothing of an earlier one counts any more."""
        self.stage, self._policy = answer.stage, policy
        if answer.routes.number > self._routes.number:
            self._routes = answer.routes
        for peer, queue in self._queues.items():  # others may have begun this stage before, and send through here
            self._queues[peer] = deque(data for data in queue if data.stage >= self.stage)
        self._sums, self._results, self._handed, self._stopped = {}, {}, 0, False
        self._missing = [{self.name, *policy.way(n).push.children[self.name]} for n in range(len(self._sizes))]
        early, self._early = self._early, []
        for data in early:
            if data.stage == self.stage:
                self._take(data)
            elif data.stage > self.stage:
                self._early.append(data)
        self._hand_over()

    def _hand_over(self) -> None:
        """Let the worker hand over its gradients, chunk by chunk, as far as there is room for them."""
        if self._policy is None or self.stage[0] > self.ready_round:
            return
        if self._stopped and self.cached_bytes() < GO_ON * self._limit_bytes:
            self._stopped = False
        while self._handed < len(self._sizes) and not self._stopped:
            self._handed += 1
            self._deliver(self._handed - 1, self.name, self._own(self.stage[0], self._handed - 1))
            self._stopped = self.cached_bytes() >= self._limit_bytes

    def _take(self, data: Data[V]) -> None:
        if data.push:
            self._deliver(data.chunk, data.source, data.value)
        else:
            self._result(data.chunk, data.value)

    def _deliver(self, chunk: int, source: str, value: V) -> None:
        """Add what a child, or the own worker, has delivered; from nobody twice."""
        assert self._policy is not None
        missing = self._missing[chunk]
        if source not in missing:
            return
        missing.discard(source)
        if self._noted is not None:
            self._noted("merged", self.stage, chunk, True, source)
        self._sums[chunk] = self._add(self._sums[chunk], value) if chunk in self._sums else value
        if missing:
            return
        way = self._policy.way(chunk)
        if way.root == self.name:
            self._result(chunk, self._sums.pop(chunk))
        else:
            self._send(chunk, True, way.push.parent[self.name], self._sums.pop(chunk))

    def _result(self, chunk: int, value: V) -> None:
        assert self._policy is not None
        if chunk in self._results:
            return
        self._results[chunk] = value
        for child in self._policy.way(chunk).pull.children[self.name]:
            self._send(chunk, False, child, value)
        if len(self._results) == len(self._sizes) and self.stage[0] > self.complete:
            self.complete = self.stage[0]
            self._orders.append(Complete(self.complete, dict(self._results)))

    def _send(self, chunk: int, push: bool, target: str, value: V) -> None:
        if self._noted is not None:
            self._noted("handed", self.stage, chunk, push, target)
        self._enqueue(Data(self.stage, chunk, push, self.name, (target,), value))
        self._spread()

    def _enqueue(self, data: Data[V]) -> None:
        self._queues.setdefault(data.path[0], deque()).append(data)
        self._next(data.path[0])

    def _next(self, peer: str) -> None:
        if self._queues.get(peer) and peer not in self._sending:
            data = self._queues[peer].popleft()
            self._sending[peer] = data.chunk
            self._orders.append(Transmit(peer, data))

    def _spread(self) -> None:
        """Apply the queue rule to what waits for a tunnel of its tree; what is on its way counts as queued."""
        for peer in list(self._queues):
            others = self._routes.paths.get((self.name, peer), ())
            waiting = (None, *self._queues[peer]) if peer in self._sending else tuple(self._queues[peer])
            for data in list(auxiliary.behind(waiting)) if others else ():
                if data is None or data.source != self.name or data.path != (peer,):
                    continue
                queued = {one: len(queue) + (one in self._sending) for one, queue in self._queues.items()}
                path = auxiliary.choose((self.name, peer), others, {**dict.fromkeys(self._sending, 1), **queued})
                if path[1] == peer:
                    break
                self._queues[peer].remove(data)
                self._enqueue(replace(data, path=path[1:]))
