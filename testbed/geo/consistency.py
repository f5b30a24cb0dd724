"""The verdict on an arm whose sites ask a scheduler: no chunk lost or counted twice, none in a circle, whatever struck.

That every site holds the direct sum in every round already says that nothing was lost or counted twice in the end. Here
it is said of every attempt, those that came to nothing included.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from testbed.geo.records import BELIEFS, CONTROL, POLICIES, STAGES
from testbed.telemetry.events import read_events
from testbed.telemetry.tables import Records
from workloads.paramsync.records import CHUNKS, MERGED, RECEIVED, RELAYED, SENT


def counts(folder: Path) -> dict[str, Any]:
    """What an arm went through."""
    chunks, stages = CHUNKS.read(folder / CHUNKS.file), STAGES.read(folder / STAGES.file)
    found = Counter(chunks.text("event"))
    events = Counter(str(event["event"]) for event in read_events(folder / "events.jsonl"))
    return {
        "policies": len(set(POLICIES.read(folder / POLICIES.file).counts("version"))),
        "rounds_begun_again": sum(1 for attempt in stages.counts("attempt") if attempt),
        "reports": len(BELIEFS.read(folder / BELIEFS.file)),
        "control_messages": len(CONTROL.read(folder / CONTROL.file)),
        "chunks_sent": found[SENT],
        "chunks_relayed": found[RELAYED],
        "chunks_lost": found[SENT] - found[RECEIVED] - found[RELAYED],
        "kills": events["site killed"],
        "cuts": events["tunnel cut"],
        "changes_of_links": events["links changed"],
    }


def check(folder: Path) -> list[dict[str, Any]]:
    """The checks of an arm, from its files."""
    chunks, stages = CHUNKS.read(folder / CHUNKS.file), STAGES.read(folder / STAGES.file)
    twice, circles = list(_twice(chunks)), list(_circles(chunks))
    order = list(zip(stages.counts("round"), stages.counts("attempt"), strict=True))
    later = all((a or 0, b or 0) < (c or 0, d or 0) for (a, b), (c, d) in pairwise(order))
    merged = sum(1 for event in chunks.text("event") if event == MERGED)
    return [
        {"what": "no contribution counts twice", "ok": not twice, "detail": _some(twice, f"{merged} contributions")},
        {"what": "no chunk goes in a circle", "ok": not circles, "detail": _some(circles, "no path, no hop twice")},
        {"what": "rounds and attempts go forward", "ok": later, "detail": f"{len(order)} attempts"},
    ]  # fmt: skip


def _some(faults: list[str], fine: str) -> str:
    return "; ".join(faults[:3]) or fine


def _rows(chunks: Records, event: str) -> Iterator[tuple[str, ...]]:
    columns = [chunks.text(name) for name in ("event", "site", "life", "peer", "kind", "round", "attempt", "chunk")]
    columns += [chunks.text(name) for name in ("source", "via", "path")]
    return (row[1:] for row in zip(*columns, strict=True) if row[0] == event)


def _twice(chunks: Records) -> Iterator[str]:
    seen = Counter(row[:7] for row in _rows(chunks, MERGED))
    for (site, life, peer, _, round_, attempt, chunk), times in seen.items():
        if times > 1:
            of = peer or "its worker"
            yield f"{site} (life {life}) added chunk {chunk} of {of} {times} times in {round_}.{attempt}"


def _circles(chunks: Records) -> Iterator[str]:
    """Paths that come to a site twice, and chunks that a site sends to the same target more than once in an attempt:
    once for each life of whoever it is from."""
    lives: dict[str, int] = defaultdict(int)
    sent: Counter[tuple[str, ...]] = Counter()
    for site, life, target, kind, round_, attempt, chunk, source, _, path in _rows(chunks, SENT):
        lives[site] = max(lives[site], int(life))
        hops = [site, *path.split(">")]
        if len(set(hops)) < len(hops) or (source in hops[1:] and target != source):
            yield f"chunk {chunk} of {source} in {round_}.{attempt} goes {'>'.join(hops)}"
        sent[site, life, target, kind, round_, attempt, chunk, source] += 1
    for (site, _, target, kind, round_, attempt, chunk, source), times in sent.items():
        if times > lives[source]:
            yield f"{site} sent chunk {chunk} of {source} to {target} {times} times ({kind}, {round_}.{attempt})"
