"""What a synchronisation leaves: a row per node and round, and a row per chunk sent, received, merged or forwarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.telemetry.tables import Column, Table

SENT, RECEIVED, MERGED, FORWARDED, RELAYED = "sent", "received", "merged", "forwarded", "relayed"
SCHEDULER_RECORD = "scheduler.jsonl"
"""What a scheduler writes down: lines of [t_s, kind, values...], of these kinds."""
BELIEF, POLICY, STAGE, HEARD = "belief", "policy", "stage", "heard"
_T = Column("s", "virtual time since the arm's epoch")

ROUNDS = Table(
    "rounds.csv",
    {
        "round": Column("count", "round, from 0"),
        "site": Column("name", "data centre"),
        "begin_s": Column("s", "the worker began to compute; " + _T.meaning),
        "push_s": Column("s", "it began to push"),
        "end_s": Column("s", "it had every sum"),
        "digest": Column("name", "of all sums it had"),
    },
)
CHUNKS = Table(
    "chunks.csv",
    {
        "t_s": _T,
        "site": Column("name", "data centre whose server this is of"),
        "event": Column(
            "name",
            "sent or received (all bytes), merged (added up), forwarded (handed to a send queue); under a scheduler "
            "also relayed (received for somebody else, and handed on)",
        ),
        "kind": Column("name", "push or pull"),
        "peer": Column("name", "the other end of the chunk's edge of the tree; empty for the site's own worker"),
        "round": Column("count", "round, from 0"),
        "chunk": Column("count", "chunk, from 0"),
        "bytes": Column("B", "size of the chunk"),
        "begin_s": Column("s", "the sender began to send it, the server began to merge it; otherwise as t_s"),
        "attempt": Column("count", "at the round, from 0: under a scheduler a round may be begun again"),
        "source": Column("name", "the site whose chunk it is: under a scheduler others may only pass it on"),
        "life": Column("count", "how often the site had been started"),
        "via": Column("name", "the site at the other end of the tunnel it was sent over; empty without a scheduler"),
        "path": Column("name", "sites still to come, joined by >, when it was sent; empty without a scheduler"),
    },
)


TRAINING = Table(
    "training.csv",
    {
        "round": Column("count", "round, from 0"),
        "t_s": Column("s", "virtual time since the first round began, when the last site had every sum"),
        "error": Column("share", "largest error of an element of the sums, of the sum of its parts' magnitudes"),
        "loss": Column(
            "nat", "mean loss on examples that nobody learns from, after the round; empty if none is trained"
        ),
        "accuracy": Column("share", "of these examples that are classed rightly, likewise"),
    },
)


@dataclass(frozen=True)
class RoundRecord:
    """One round as one worker saw it, in time.time(): it computed from `begin_s` to `push_s`, and had every sum at
    `end_s`. `digest` is that of the sums."""

    node: int
    round: int
    begin_s: float
    push_s: float
    end_s: float
    digest: str


@dataclass(frozen=True)
class ChunkEvent:
    """One thing that happened to a chunk at the server of `node`; `peer` None stands for the node's own worker. Times
    are time.time(). `attempt`, `source`, `life` and `path` say more where there is a scheduler (CHUNKS)."""

    t_s: float
    node: int
    event: str
    kind: str
    peer: int | None
    round: int
    chunk: int
    size_bytes: int
    begin_s: float
    attempt: int = 0
    source: int | None = None
    life: int = 1
    via: int | None = None
    path: Sequence[int] = ()
