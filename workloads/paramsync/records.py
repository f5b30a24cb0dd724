"""What a synchronisation leaves: a row per node and round, and a row per chunk sent, received, merged or forwarded."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.telemetry.tables import Column, Table

SENT, RECEIVED, MERGED, FORWARDED = "sent", "received", "merged", "forwarded"
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
        "event": Column("name", "sent or received (all bytes), merged (added up), forwarded (handed to a send queue)"),
        "kind": Column("name", "push or pull"),
        "peer": Column("name", "the other site; empty for the site's own worker"),
        "round": Column("count", "round, from 0"),
        "chunk": Column("count", "chunk, from 0"),
        "bytes": Column("B", "size of the chunk"),
        "begin_s": Column("s", "the sender began to send it, the server began to merge it; otherwise as t_s"),
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
    are time.time()."""

    t_s: float
    node: int
    event: str
    kind: str
    peer: int | None
    round: int
    chunk: int
    size_bytes: int
    begin_s: float
