"""The paper's four pictures of traffic, drawn and counted from the counters of ports (section 2)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.report.figures.traffic import ports, sent_bps, trial_of
from testbed.report.load import Arm, Floats, Setting

LEAST_SHARE = 0.04
"""Up is where a port carries more than so much of the link's rate: 2 of 50 Gbit/s."""
APART_S = 0.004
"""Downs that are shorter part nothing: compute between two all-reduces of a layer."""
SHORT_SHARE = 0.02
"""An Up of so little of the iteration is no phase: an iteration's last packets, the embeddings' all-reduce."""


@dataclass(frozen=True)
class Picture:
    """A scenario, and what the paper's picture of the same job shows."""

    scenario: str
    title: str
    published: str


PICTURES = (
    Picture("traffic-gpt1-data", "GPT-1, data parallel on 4 servers", "one Up phase, about 200 ms"),
    Picture("traffic-gpt2-pipeline", "GPT-2, 2 stages", "3 small peaks, then a heavy all-reduce, about 200 ms"),
    Picture(
        "traffic-gpt3-tensor", "GPT-3, 2 tensor-parallel", "about 25 Gbit/s, near zero while data are loaded, 0.5 s"
    ),
    Picture("traffic-gpt3-hybrid", "GPT-3, 2 x 2 x 2", "6 phases of Up and Down, about 3 s"),
)


def up_phases(rate_bps: Floats, bin_s: float, line_bps: float) -> list[tuple[float, float]]:
    """Return (mean bit/s, length in s) of each Up phase in the rates of one iteration, in the order of their begins.

    rate_bps: shape (n,), bins of `bin_s`; the first follows on the last. What is parted by less than APART_S is one
    phase, and what lasts less than SHORT_SHARE of the whole is none.
    """
    up = rate_bps > LEAST_SHARE * line_bps
    if up.all() or not up.any():
        return [(float(rate_bps.mean()), len(up) * bin_s)] if up.all() else []
    bins = np.flatnonzero(up)
    downs = np.diff(bins, append=bins[0] + len(up))  # from each bin that is Up to the next one
    turned = np.roll(np.arange(len(up)), -int(bins[(int(downs.argmax()) + 1) % len(bins)]))
    edges = np.flatnonzero(np.diff(np.concatenate(([0], up[turned].astype(int), [0]))))
    spans: list[tuple[int, int]] = []
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        if spans and (first - spans[-1][1]) * bin_s < APART_S:
            spans[-1] = (spans[-1][0], int(last))
        else:
            spans.append((int(first), int(last)))
    long = [(first, last) for first, last in spans if last - first >= SHORT_SHARE * len(up)]
    long.sort(key=lambda span: int(turned[span[0]]))
    return [(float(rate_bps[turned[first:last]].mean()), (last - first) * bin_s) for first, last in long]


@dataclass(frozen=True)
class Measured:
    """What a worker's port carried over one iteration alone, unscaled."""

    iteration_s: float
    phases: tuple[tuple[float, float], ...]
    mean_bps: float
    least_bps: float
    peak_bps: float


def measured(run_dir: Path) -> Measured:
    """Return what the port of the first worker carried in the second iteration of a run of the arm alone.

    The first worker of a pipeline has the first stage. Raises InputError for a folder without the files of a run.
    """
    manifest = json.loads((run_dir / "manifest.json").read_text(encoding="utf-8"))
    setting, arm = Setting.of(manifest["report_setting"]), Arm(run_dir / "alone")
    [job] = setting.jobs
    run = trial_of(arm, job).jobs[job]
    begin_s, end_s = float(run.begin_s[1]), float(run.end_s[1])
    edges, rates = sent_bps(arm, ports(setting, job)[0], begin_s, end_s)
    rates = rates * setting.scale
    phases = up_phases(rates, float(edges[1] - edges[0]), setting.rate_bps * setting.scale)
    return Measured(end_s - begin_s, tuple(phases), *(float(of(rates)) for of in (np.mean, np.min, np.max)))


def section(place: Path, results: Path) -> Iterator[str]:
    """Yield the lines of the page's section on the pictures, and copy those there are to `place`."""
    yield from ("## The four pictures of traffic", "")
    yield (
        "What the first worker's port carried over an iteration, alone, unscaled. Compute is fitted to the published "
        "iteration time, so the length is no prediction; the phases are."
    )
    yield from (
        "",
        "| job | paper | iteration | Up phases (Gbit/s × ms) | mean, least, peak | scenario |",
        "|---|---|--:|---|---|---|",
    )
    for picture in PICTURES:
        run = results / picture.scenario
        if not (run / "manifest.json").is_file():
            yield f"| {picture.title} | {picture.published} | not run | – | – | `{picture.scenario}` |"
            continue
        seen = measured(run)
        phases = ", ".join(f"{rate / 1e9:.0f} × {1e3 * length:.0f}" for rate, length in seen.phases)
        rates = ", ".join(f"{rate / 1e9:.1f}" for rate in (seen.mean_bps, seen.least_bps, seen.peak_bps))
        yield (
            f"| {picture.title} | {picture.published} | {1e3 * seen.iteration_s:.0f} ms | {len(seen.phases)}: {phases} "
            f"| {rates} Gbit/s | `{picture.scenario}` |"
        )
    yield ""
    for picture in PICTURES:
        for drawn in sorted((results / picture.scenario / "plots").glob("traffic-*.png")):
            shutil.copyfile(drawn, place / f"{picture.scenario}.png")
            yield f"![{picture.title}]({picture.scenario}.png)"
    yield ""
