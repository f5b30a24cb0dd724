"""A world that carries out a cluster's orders at once and to the second: every iteration takes what its job was
profiled with. Whatever a real one could not do, such as using an accelerator twice, is an error here."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from controllers.placement.cluster import Cluster
from controllers.placement.layout import Layout
from controllers.placement.orders import Beat, Retime, Start, Stop
from controllers.placement.state import Job, Placement, Server


@dataclass
class Run:
    """One stay of a job on accelerators."""

    job: str
    placement: Placement
    begin_s: float
    iteration_s: float
    iterations: int
    end_s: float
    beat: Beat | None = None
    stopped: bool = False


@dataclass
class World:
    """Runs `cluster` to its end; `runs` and `retimed` are what happened."""

    cluster: Cluster
    servers: tuple[Server, ...]
    jobs: dict[str, Job]
    now_s: float = 0.0
    on: dict[str, Run] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    retimed: list[tuple[float, Retime]] = field(default_factory=list)

    def play(self, most_steps: int = 20_000) -> World:
        """Run all jobs. Raises AssertionError for a trace that does not end."""
        for _ in range(most_steps):
            for order in self.cluster.advance(self.now_s):
                self._do(order)
            if self.cluster.finished:
                assert not self.on
                return self
            next_s = self.cluster.next_s
            first = min(self.on.values(), key=lambda run: (run.end_s, run.job), default=None)
            if first is not None and first.end_s <= (math.inf if next_s is None else next_s):
                self._end(first)
            else:
                assert next_s is not None, "nothing runs, and nothing is to come"
                assert next_s > self.now_s, "the time stands still"
                self.now_s = next_s
            for run in self.on.values():
                self.cluster.progressed(run.job, self._whole(run, self.now_s))
        raise AssertionError("the trace does not end")

    def _do(self, order: Start | Stop | Retime) -> None:
        if isinstance(order, Start):
            assert order.job not in self.on
            assert order.at_s >= self.now_s
            used = Counter(order.placement)
            for run in self.on.values():
                used += Counter(run.placement)
            for server in self.servers:
                assert used[server.name] <= server.accelerators, f"{server.name} is used twice"
            job, layout = self.jobs[order.job], Layout(self.servers)
            one_s = job.iteration_s(len(order.placement), layout.span(layout.counts(order.placement)))
            assert one_s is not None, f"{order.job} runs as it was not profiled"
            end_s = order.at_s + order.iterations * one_s
            self.on[order.job] = Run(order.job, order.placement, order.at_s, one_s, order.iterations, end_s, order.beat)
        elif isinstance(order, Stop):
            run = self.on[order.job]
            assert not run.stopped
            run.iterations = max(self._whole(run, self.now_s), min(run.iterations, self._begun(run)))
            run.end_s, run.stopped = max(self.now_s, run.begin_s + run.iterations * run.iteration_s), True
        else:
            self.on[order.job].beat = order.beat
            self.retimed.append((self.now_s, order))

    def _whole(self, run: Run, now_s: float) -> int:
        return max(0, min(run.iterations, math.floor((now_s - run.begin_s) / run.iteration_s + 1e-9)))

    def _begun(self, run: Run) -> int:
        return max(0, math.ceil((self.now_s - run.begin_s) / run.iteration_s - 1e-9))

    def _end(self, run: Run) -> None:
        self.now_s = max(self.now_s, run.end_s)
        del self.on[run.job]
        self.runs.append(run)
        self.cluster.ended(run.job, run.iterations, self.now_s)
