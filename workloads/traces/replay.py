"""A data-parallel job from a Chakra trace: which buckets, in which order, after how much compute.

The rules, in words:

- *Compute* are the nodes that ran on the device; if none did, all compute nodes. Ids give the order of launch.
  Where the trace has start times, they are kept; where it has none, as in traces that early versions of Chakra
  converted from PyTorch, durations are laid end to end, which is what a busy device does.
- *Buckets* are the all-reduces. One comes after another if it needs its data, or was launched after it on the
  same stream; their recorded durations are dropped, since here the network decides how long they take.
- The *backward pass* begins at the first node whose name says "backward". A bucket is ready when the compute
  that was launched before it is done; the pass ends when the last bucket is ready.
- What is computed after the last all-reduce was launched (gradients copied back, the optimizer) waits for it in
  truth, so it counts as Down, together with the forward pass.
- Broadcasts of buffers and barriers are left out, and the plan's note says how many bytes that is. Whatever
  else moves data is not data-parallel training: refused.

A trace has one rank and one iteration. That all workers do the same is assumed; how many there are is given.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import InputError
from workloads.traces.chakra import COMPUTE, RECEIVE, SEND, Node, read_trace
from workloads.training.plan import Bucket, JobPlan, data_parallel

LEFT_OUT = ("broadcast", "barrier")


@dataclass(frozen=True)
class Replay:
    """What a trace says of one iteration. Buckets are unscaled; `reading` says how the trace was read."""

    forward_s: float
    backward_s: float
    buckets: tuple[Bucket, ...]
    reading: str


def job_plan(
    path: Path,
    *,
    name: str,
    hosts: Sequence[str],
    fabric_ips: Sequence[str],
    dscp: int,
    iterations: int,
    congestion_control: str = "dctcp",
    scale: float = 1.0,
) -> JobPlan:
    """The job of the trace in `path` on `hosts` (rank order).

    Its bytes are divided by `scale`, its times unchanged. Raises InputError, with the byte offset where there is
    one, if the trace cannot be read or replayed.
    """
    if not scale > 0:
        raise InputError(f"job {name}, scale", f"{scale!r}", "give a number above 0")
    replayed = replay(path)
    buckets = tuple(
        Bucket(max(1, round(bucket.size_bytes / scale)), bucket.ready_s, bucket.after) for bucket in replayed.buckets
    )
    return data_parallel(
        name,
        hosts,
        fabric_ips,
        dscp,
        replayed.forward_s,
        replayed.backward_s,
        buckets,
        iterations,
        congestion_control,
        note=f"{replayed.reading} Bytes are divided by {scale:g}.",
    )


def replay(path: Path) -> Replay:
    """The iteration recorded in `path`, by the rules of this module. Raises InputError."""
    nodes = read_trace(path)
    reduces = _all_reduces(path, nodes)
    begin_id = next((node.id for node in nodes if "backward" in node.name.lower()), None)
    if begin_id is None:
        raise InputError(str(path), "no node's name says backward", "the trace must hold a whole training iteration")
    for reduce in reduces:
        if reduce.id < begin_id:
            raise _refused(path, reduce, "an all-reduce before the backward pass")
    ordered, after = _in_order(path, nodes, reduces)
    compute = _compute(path, nodes)
    stamped = any(node.start_us for node in compute)
    begins = _begins(compute, stamped)
    ends = {node.id: begins[node.id] + node.duration_us for node in compute}
    last_id = reduces[-1].id
    before = [node for node in compute if node.id < begin_id]
    backward = [node for node in compute if begin_id <= node.id < last_id]
    tail_us = sum(node.duration_us for node in compute if node.id > last_id)
    up_us = begins[backward[0].id] if backward else max((ends[node.id] for node in before), default=0)
    forward_us = up_us - begins[before[0].id] if before else 0
    ready_us = [
        max((ends[node.id] - up_us for node in backward if node.id < reduce.id), default=0) for reduce in ordered
    ]
    return Replay(
        forward_s=(forward_us + tail_us) / 1e6,
        backward_s=max(ready_us) / 1e6,
        buckets=tuple(
            Bucket(reduce.size_bytes or 0, ready / 1e6, others)
            for reduce, ready, others in zip(ordered, ready_us, after, strict=True)
        ),
        reading=_reading(path, nodes, reduces, len(compute), stamped),
    )


def _all_reduces(path: Path, nodes: Sequence[Node]) -> list[Node]:
    """The all-reduces in order of launch."""
    reduces = []
    moving = [node for node in nodes if node.collective is not None or node.kind in (SEND, RECEIVE)]
    # A CPU node may name the same collective that it launches on the device.
    for node in [node for node in moving if node.on_device] or moving:
        if node.kind in (SEND, RECEIVE):
            raise _refused(path, node, "a point-to-point transfer")
        if node.collective in LEFT_OUT:
            continue
        if node.collective != "all-reduce":
            raise _refused(path, node, f"a collective of the kind {node.collective}")
        if not node.size_bytes:
            raise _refused(path, node, "an all-reduce of no bytes")
        reduces.append(node)
    if not reduces:
        raise InputError(str(path), "holds no all-reduce", "only data-parallel jobs can be replayed")
    return reduces


def _in_order(path: Path, nodes: Sequence[Node], reduces: Sequence[Node]) -> tuple[list[Node], list[tuple[int, ...]]]:
    """The all-reduces, each after those it waits for, else as launched; and the indices of those."""
    by_id = {node.id: node for node in nodes}
    waits_for: dict[int, set[int]] = {}
    last_on_stream: dict[int, int] = {}
    for reduce in reduces:
        waits_for[reduce.id] = _reduces_behind(reduce, by_id, {other.id for other in reduces})
        if reduce.stream in last_on_stream:
            waits_for[reduce.id].add(last_on_stream[reduce.stream])
        last_on_stream[reduce.stream] = reduce.id
    place: dict[int, int] = {}
    free = sorted(key for key, others in waits_for.items() if not others)
    while free:
        done = heapq.heappop(free)
        place[done] = len(place)
        for key, others in waits_for.items():
            if done in others and all(other in place for other in others):
                heapq.heappush(free, key)
    for reduce in reduces:
        if reduce.id not in place:
            raise _refused(path, reduce, "an all-reduce that waits for itself")
    ordered = [by_id[key] for key in place]
    return ordered, [tuple(sorted(place[other] for other in waits_for[node.id])) for node in ordered]


def _reduces_behind(reduce: Node, by_id: dict[int, Node], wanted: set[int]) -> set[int]:
    """Ids of the all-reduces whose data `reduce` needs, not looking further behind each."""
    found: set[int] = set()
    seen: set[int] = set()
    to_see = list(reduce.data_deps)
    while to_see:
        key = to_see.pop()
        if key in seen:
            continue
        seen.add(key)
        if key in wanted:
            found.add(key)
        else:
            to_see += by_id[key].data_deps
    return found


def _compute(path: Path, nodes: Sequence[Node]) -> list[Node]:
    every = [node for node in nodes if node.kind == COMPUTE]
    if not every:
        raise InputError(str(path), "holds no compute", "the trace must hold a whole training iteration")
    return [node for node in every if node.on_device] or every


def _begins(compute: Sequence[Node], stamped: bool) -> dict[int, int]:
    """When each compute node begins, in µs, by its id."""
    begins, clock_us = {}, 0
    for node in compute:
        begins[node.id] = node.start_us if stamped else clock_us
        clock_us += node.duration_us
    return begins


def _reading(path: Path, nodes: Sequence[Node], reduces: Sequence[Node], kernels: int, stamped: bool) -> str:
    left_out = [node for node in nodes if node.collective in LEFT_OUT]
    total, aside = (sum(node.size_bytes or 0 for node in group) for group in (reduces, left_out))
    times = "their start times kept" if stamped else "laid end to end, since the trace has no start times"
    return (
        f"Chakra trace {path.name}: {len(reduces)} all-reduces of {total} B in all; {kernels} compute nodes,"
        f" {times}; {len(left_out)} broadcasts and barriers of {aside} B left out."
    )


def _refused(path: Path, node: Node, what: str) -> InputError:
    mend = "only data-parallel jobs can be replayed"
    return InputError(str(path), f"byte {node.offset}: node {node.id} is {what}", mend)
