"""Run folders of plausible data, whole enough for a page. Used by the tests of pages."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import report_synthetic as synthetic

from testbed.net import fabrics
from testbed.net.scale import Original, Scaling
from testbed.report.draw import decisions_of, draw_all
from testbed.report.summary import summarise
from testbed.report.validation import validate
from testbed.telemetry import tables

CHECK = {"what": "every account of every link agrees", "ok": True, "found": "12 <counts> & more"}
FAULT = {"what": "no packet was dropped", "ok": False, "found": "3 by tor1->agg1"}


def make(run_dir: Path) -> dict[str, Any]:
    """Write a run of two jobs with plots; return its summary."""
    synthetic.make(run_dir, iterations=6, trials=2)
    setting = synthetic.scenario()
    topology = fabrics.build("cassini-48", Scaling(Original()).settings).to_dict()
    for arm in ("alone", "together", "random", "cassini"):
        path = run_dir / arm / "plan.json"
        plan = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps(plan | {"topology": topology}))
        _links(run_dir / arm)
    summary = summarise(run_dir, setting)
    manifest = {
        "valid": True,
        "verdict": {arm: [CHECK] for arm in summary["arms"]},
        "scenario": {"name": "synthetic", "title": "Two <made-up> jobs", "job": [{"name": "vgg16-a", "late": None}]},
        "report_setting": setting,
        "seed": 1,
        "scaling": [{"key": "rate", "unit": "bit/s", "original": 5e10, "scaled": 1e9, "rule": "divided"}],
        "jobs": {"vgg16-a": "a note"},
        "kernel": {"version": "7", "key": "7-abc", "seccomp": True},
        "code": "0123",
    }
    written = {"manifest": manifest, "summary": summary}
    written["validation"] = validate(run_dir, setting, decisions_of(run_dir))
    for name, content in written.items():
        (run_dir / f"{name}.json").write_text(json.dumps(content))
    (run_dir / "scenario.toml").write_text('name = "synthetic"\n')
    draw_all(run_dir, setting)
    return summary


def _links(arm: Path) -> None:
    """Write links.csv out of queues.csv: a reading every 0.1 s, none where a counter stands still."""
    rows = tables.QUEUES.read(arm / tables.QUEUES.file)
    with tables.LINKS.writer(arm / tables.LINKS.file) as writer:
        for link in (synthetic.LINK, synthetic.BACK):
            own, next_s, before = rows.where(link=link), 0.0, -1.0
            columns = (own.numbers(name) for name in ("t_s", "tx_packets", "tx_bytes", "marked_packets"))
            for t_s, packets, sent, marked in zip(*columns, strict=True):
                if t_s >= next_s and sent != before:
                    next_s, before = (round(t_s / 0.1) + 1) * 0.1, sent
                    both = (int(packets), int(sent))
                    writer.row(round(t_s, 1), link, *both, *both, int(packets), int(sent), 0, 0, 0, int(marked), 0)


def make_wide(run_dir: Path, *, located: bool = True) -> dict[str, Any]:
    """Write a wide-area run of two systems; return its summary."""
    places = [(52.5, 13.4), (48.1, 11.6), (50.9, 6.9)] if located else [(None, None)] * 3
    sites = [{"name": f"dc{n}", "latitude": lat, "longitude": lon} for n, (lat, lon) in enumerate(places, 1)]
    way = {"rate_bps": 1_000_000, "delay_s": 0.0, "queue_bytes": 1, "jitter_s": 0.0, "loss": 0.0}
    links = [{"a": a, "b": b, "a_to_b": way, "b_to_a": way} for a, b in (("dc1", "dc2"), ("dc2", "dc3"))]
    systems = []
    for number, (name, root) in enumerate({"star": 0, "chain": 2}.items()):
        arm = run_dir / name
        arm.mkdir(parents=True)
        parents = [None if site == root else root if name == "star" else site + 1 for site in range(3)]
        ways = [{"push": {"root": root, "parents": parents}, "pull": {"root": root, "parents": parents}}]
        plan = {"sync": {"sites": [site["name"] for site in sites], "policy": {"ways": ways}}}
        (arm / "plan.json").write_text(json.dumps(plan))
        with (arm / "rounds.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["round", "site", "begin_s", "push_s", "end_s", "digest"])
            writer.writerows([0, site["name"], 1, 1.1, 5, "ab"] for site in sites)
        with tables.LINKS.writer(arm / "links.csv") as links_file:
            for t_s in range(8):
                sent = 50_000 * min(t_s, 5 - number)
                links_file.row(t_s, "s1->s2", sent // 1000, sent, sent // 1000, sent, 0, 0, 0, 0, 0, 0, t_s // 4)
        figures = {"rounds": 1, "mean_round_s": 4.0 - number, "speed_up": 4 / (4 - number), "wan_bytes": 250_000}
        systems.append({"system": name, "group": name, "roots": [sites[root]["name"]]} | figures)
    groups = {one["group"]: {"runs": 1, "mean_s": one["mean_round_s"], "speed_up": one["speed_up"]} for one in systems}
    summary = {"scenario": "wide", "baseline": "star", "groups": groups, "systems": systems}
    predicted = {"system": "star", "prediction": "chunks on shared links", "predicted_s": 3.9, "measured_s": 4.0,
                 "relative_error": -0.025, "within": True}  # fmt: skip
    check = {"what": "the links were used", "ok": True, "detail": "12 packets"}
    manifest = {
        "valid": True,
        "verdict": {"star": [check]},
        "scenario": {"name": "wide", "title": "Three sites"},
        "seed": 1,
        "wan": {"name": "three", "sites": sites, "links": links},
        "kernel": {"version": "7"},
    }
    for name, content in {
        "summary": summary,
        "validation": {"rounds": [predicted], "ranks": [{"predicted": "x", "spearman": 0.5}]},
        "manifest": manifest,
    }.items():
        (run_dir / f"{name}.json").write_text(json.dumps(content))
    (run_dir / "scenario.toml").write_text('name = "wide"\n')
    return summary
