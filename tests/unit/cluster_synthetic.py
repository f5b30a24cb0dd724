"""The files of a run with a cluster, written by hand: two jobs, one of which is moved, in two arms and alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed.telemetry.tables import COUNTERS, ITERATIONS, Table

LINK = "tor1->agg1"
SERVERS = {f"h{number}": 1 for number in range(1, 7)}
SETTING: dict[str, Any] = {
    "kind": "cluster", "name": "coming", "shortened": 20.0, "rate_bps": 1e9, "links": [LINK], "servers": SERVERS,
    "arms": ["themis", "themis+cassini", "ideal"],
}  # fmt: skip
ALONE_S = {"vgg": 0.2, "dlrm": 0.3}
TRIALS = 2


def jobs() -> list[dict[str, Any]]:
    """jobs.json: a vgg job from the beginning, a dlrm job at 1 s, ten iterations each, in two trials."""
    return [
        {
            "trial": str(trial), "job": f"0{at}-{model}", "model": model, "arrival_s": arrival_s, "workers": 2,
            "iterations": 10, "ideal_s": ALONE_S[model], "measured_as": f"{model}-w2.rack",
        }
        for trial in range(TRIALS)
        for at, (model, arrival_s) in enumerate((("vgg", 0.0), ("dlrm", 1.0)), 1)
    ]  # fmt: skip


def _rows(path: Path, table: Table, rows: list[dict[str, Any]]) -> None:
    with table.writer(path / table.file) as writer:
        for row in rows:
            writer.row(*(row.get(column, 0) for column in table.columns))


def write_run(folder: Path, slower: float = 1.5, ce_packets: int = 12) -> Path:
    """Write a run whose arm themis takes `slower` times as long as alone, and marks; themis+cassini does neither."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs()))
    for arm, factor, marked in (("themis", slower, ce_packets), ("themis+cassini", 1.0, 0)):
        write_arm(folder / arm, factor, marked)
    alone = folder / "alone"
    alone.mkdir()
    _rows(alone, ITERATIONS, [
        {
            "trial": str(number), "job": f"{model}-w2.rack", "rank": rank, "host": f"h{rank + 1}",
            "iteration": iteration, "begin_s": iteration * time_s, "end_s": (iteration + 1) * time_s,
        }
        for number, (model, time_s) in enumerate(ALONE_S.items()) for rank in (0, 1) for iteration in range(4)
    ])  # fmt: skip
    return folder


def write_arm(folder: Path, factor: float, ce_packets: int) -> None:
    """Write an arm whose iterations take `factor` times as long as alone; in trial 1 the first job is moved."""
    folder.mkdir()
    events: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for trial in range(TRIALS):
        zero_s = 100.0 * (trial + 1)
        events.append({"t_s": zero_s, "event": "trial", "trial": str(trial), "seed": trial})
        moved = ["01-vgg"] if trial == 1 else []
        events.append({"t_s": zero_s, "event": "round", "trial": str(trial), "moved": []})
        events.append({"t_s": zero_s + 1, "event": "round", "trial": str(trial), "moved": moved})
        for job in jobs()[:2]:
            one_s = ALONE_S[job["model"]] * factor
            stays = [(0, 4, ["h1", "h2"]), (4, 6, ["h3", "h4"])] if job["job"] in moved else [(0, 10, ["h1", "h3"])]
            stays = [(0, 10, ["h5", "h6"])] if job["model"] == "dlrm" else stays
            at_s = zero_s + job["arrival_s"] + 0.05
            for first, count, hosts in stays:
                common = {"trial": str(trial), "job": job["job"]}
                events.append({
                    "t_s": at_s, "event": "start", **common, "placement": hosts, "first_iteration": first,
                    "iterations": 10 - first, "dscp": 1, "beat": None,
                })  # fmt: skip
                rows += [
                    {
                        **common, "rank": rank, "host": host, "iteration": first + done, "begin_s": at_s + done * one_s,
                        "end_s": at_s + (done + 1) * one_s - 0.01, "ce_packets": ce_packets, "held_s": 0.01,
                    }
                    for rank, host in enumerate(hosts) for done in range(count)
                ]  # fmt: skip
                at_s += count * one_s
                events.append({
                    "t_s": at_s - 0.01, "event": "left", **common, "iterations": count,
                    "complete": first + count == 10, "contention": 1.5 if first + count == 10 else None,
                })  # fmt: skip
                at_s += 0.5
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    _rows(folder, ITERATIONS, rows)
    _rows(folder, COUNTERS, [
        {"trial": str(trial), "label": label, "link": link, "marked_packets": marked}
        for trial in range(TRIALS)
        for label, marked in (("begin", 1000), ("end", 1000 + 20 * ce_packets))
        for link in (LINK, "h1->tor1")
    ])  # fmt: skip
