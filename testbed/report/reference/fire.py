"""What systems under fire went through: every seed of a study whose sites are killed and whose tunnels are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.report.study import FILE, load

COLUMNS = (
    ("kills", "kills"), ("cuts", "cuts"), ("changes_of_links", "changes of links"),
    ("rounds_begun_again", "rounds begun again"), ("policies", "policies"), ("control_messages", "control messages"),
    ("chunks_sent", "chunks sent"), ("chunks_relayed", "relayed"), ("chunks_lost", "lost, and sent again"),
)  # fmt: skip


def section(results: Path, names: Sequence[str]) -> Iterator[str]:
    """Yield a table of every study of these whose systems were struck, a line for each of its points."""
    for name in names:
        points = load(results / name)["points"] if (results / name / FILE).is_file() else []
        found = {point["name"]: _struck(results / name / point["folder"]) for point in points}
        if not any(found.values()):
            continue
        valid = sum(point["valid"] for point in points)
        yield from (f"## Under fire: `{name}`", "")
        yield (
            f"{valid} of {len(points)} seeds valid: every site held the direct sum in every round, no contribution "
            "counted twice, no chunk went in a circle, nothing stood still."
        )
        yield from (
            "",
            f"| seed | {' | '.join(title for _, title in COLUMNS)} | |",
            f"|---|{'---:|' * len(COLUMNS)}---|",
        )
        for point in points:
            counts = found[point["name"]]
            cells = [str(counts[key]) if counts else "–" for key, _ in COLUMNS]
            first = str(point["error"]).partition("\n")[0]
            yield f"| {point['name']} | {' | '.join(cells)} | {first} |"
        sums = (sum(counts[key] for counts in found.values() if counts) for key, _ in COLUMNS)
        yield from (f"| all | {' | '.join(map(str, sums))} | |", "")


def _struck(folder: Path) -> Mapping[str, Any] | None:
    """Return what the first system of a run went through; None where nothing struck it or it did not end."""
    if not (folder / "summary.json").is_file():
        return None
    systems = json.loads((folder / "summary.json").read_text(encoding="utf-8")).get("systems") or [{}]
    counts: Mapping[str, Any] | None = systems[0].get("protocol")
    return counts if counts and counts["kills"] + counts["cuts"] else None
