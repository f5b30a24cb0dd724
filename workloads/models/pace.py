"""Demand below line rate: the same bytes, spread over a longer time.

The paper's communication times are longer than the bytes take at 50 Gbit/s, so its jobs cannot have sent at line
rate throughout; what held them back is not said. Here a bucket is cut into pieces, and a piece may leave only when
its turn has come: the turns are as far apart as the published time requires. On an empty network the pieces then
leave evenly, at an average below line rate; on a busy one, those that are late follow at line rate.

A gradient cannot leave before it exists. So the phase begins as early as evenly paced bytes never overtake their
gradients; what is computed of the backward pass until then is computed without traffic, and counts as Down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from testbed.errors import InputError
from workloads.models.buckets import ring_s
from workloads.training.plan import Bucket

CHUNK_BYTES = 4 << 20
"""What a worker sends at once, at most: 0.7 ms at 50 Gbit/s, several within 5° of a circle, yet many packets."""


def paced_for(
    buckets: Sequence[Bucket], up_s: float, workers: int, goodput_bps: float, step_latency_s: float, scale: float = 1.0
) -> tuple[float, tuple[Bucket, ...]]:
    """(seconds of the backward pass before the first piece, the pieces), so that on an empty network Up lasts `up_s`.

    `buckets` are ready counted from the beginning of the backward pass, pieces from the beginning of Up. `goodput_bps`
    and the sizes are those of the network at `scale`. Raises InputError if the bytes take longer at line rate.
    """
    pieces = [(size, bucket.ready_s) for bucket in buckets for size in _cut(bucket.size_bytes, workers, scale)]
    lasts_s = [ring_s(size, workers, goodput_bps, step_latency_s) for size, _ in pieces]
    if not sum(lasts_s) <= up_s < math.inf:
        mend = f"the bytes alone take {1e3 * sum(lasts_s):.3f} ms at line rate with {workers} workers"
        raise InputError("communication time", f"{1e3 * up_s:g} ms cannot be reached", mend)
    # Each turn is longer than the piece takes by the same factor; the last piece ends with the phase.
    others_s = list(accumulate(lasts_s[:-1], initial=0.0))
    stretch = (up_s - lasts_s[-1]) / others_s[-1] if others_s[-1] else 0.0
    turns_s = [turn_s * stretch for turn_s in others_s]
    before_s = max(ready_s - turn_s for (_, ready_s), turn_s in zip(pieces, turns_s, strict=True))
    paced = tuple(
        Bucket(size, turn_s, (index - 1,) if index else ())
        for index, ((size, _), turn_s) in enumerate(zip(pieces, turns_s, strict=True))
    )
    return before_s, paced


def _cut(size_bytes: int, workers: int, scale: float) -> list[int]:
    """`size_bytes` as the fewest pieces of at most a chunk per worker, equal to a byte."""
    count = max(1, -(-size_bytes // max(1, int(workers * CHUNK_BYTES / scale))))
    return [(index + 1) * size_bytes // count - index * size_bytes // count for index in range(count)]
