"""The worker of one site: it computes, pushes its gradients to the site's server, and takes the sums back."""

from __future__ import annotations

import socket
import time

import numpy as np

from workloads.paramsync import gradients, held, wire
from workloads.paramsync.control import Control
from workloads.paramsync.learner import Learner
from workloads.paramsync.ledger import WORKER, ProtocolError
from workloads.paramsync.plan import SyncPlan
from workloads.paramsync.records import RoundRecord
from workloads.paramsync.server import connect
from workloads.paramsync.sleeping import sleep_until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Worker:
    """The worker of `node`, connected to its server."""

    def __init__(self, plan: SyncPlan, node: int, connection: socket.socket) -> None:
        self._plan, self._node, self._connection = plan, node, connection
        self._learner = Learner(plan.seed, plan.chunks) if plan.trained else None

    def resume(self) -> int:
        """How many rounds are complete, as a server under a scheduler says. It is given the gradients of the last one
        again: somebody may still need them."""
        message = wire.receive(self._connection)
        if message is None or message[0].kind != wire.HELLO:
            raise ProtocolError(f"the server does not say which round is complete: {message}")
        done = message[0].round
        if done:
            self._push(done - 1)
        return done

    def noted(self, round_: int) -> None:
        """Tell a server under a scheduler that a round's sums have been taken note of."""
        wire.send(self._connection, wire.Header(wire.DONE, WORKER, round=round_))

    def rounds(self, start_s: float, first: int = 0) -> Iterator[RoundRecord]:
        """All rounds from `first` on, that from time.time() = `start_s` on, each from the end of the one before.

        Raises OSError, wire.BrokenOffError and ProtocolError.
        """
        begin_s = start_s
        for round_ in range(first, self._plan.rounds):
            sleep_until(begin_s + self._plan.compute_s[self._node])
            push_s = time.time()
            self._push(round_)
            digest = self._pull(round_)
            yield RoundRecord(self._node, round_, begin_s, push_s, end_s := time.time(), digest)
            begin_s = end_s

    def _push(self, round_: int) -> None:
        for chunk, values in enumerate(self._gradients(round_)):
            header = wire.Header(wire.PUSH, WORKER, self._plan.policy.version, round_, chunk)
            wire.send(self._connection, header, values.data.cast("B"))

    def _gradients(self, round_: int) -> Iterable[gradients.Array]:
        if self._learner is not None and self._node not in self._plan.silent:
            return self._learner.chunks(self._learner.gradient(self._node, round_))
        chunks = range(len(self._plan.chunks))
        return (gradients.contribution(self._plan, self._node, round_, chunk) for chunk in chunks)

    def _take(self, round_: int, sums: dict[int, gradients.Array]) -> None:
        """Learn from the sums of a round, and keep them where they are to be looked at."""
        total = np.concatenate([sums[chunk] for chunk in sorted(sums)])
        if self._learner is not None:
            self._learner.step(total, len(self._plan.sites) - len(self._plan.silent))
        if self._node == 0:
            np.save(held.path(self._plan, round_), total)

    def _pull(self, round_: int) -> str:
        digests: dict[int, bytes] = {}
        sums: dict[int, gradients.Array] = {}
        while len(digests) < len(self._plan.chunks):
            message = wire.receive(self._connection)
            if message is None:
                raise wire.BrokenOffError("the server hung up")
            header, payload = message
            if header.kind != wire.PULL or header.round != round_ or header.chunk in digests:
                raise ProtocolError(f"round {round_}: the server sent {header}")
            values = np.frombuffer(payload, dtype=np.float32)
            digests[header.chunk] = gradients.digest(values)
            if self._plan.held:
                sums[header.chunk] = values
        if self._plan.held:
            self._take(round_, sums)
        return gradients.together(digests[chunk] for chunk in sorted(digests))


def serve(control: Control, node: int, plan: SyncPlan) -> None:
    """Be the worker of a site until the conductor says bye. Raises OSError, wire.BrokenOffError, ProtocolError."""
    control.say("listening")
    control.hear()
    worker = Worker(plan, node, connect(plan, node, node, WORKER))
    control.say("connected", sockets={})
    while (order := control.hear())["do"] == "run":
        first = worker.resume() if plan.protocol else 0
        for record in worker.rounds(order["start_s"], first):
            control.say("round", record=vars(record))
            if plan.protocol:
                worker.noted(record.round)
        control.say("done")
