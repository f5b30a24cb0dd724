"""The parts that the pages of all kinds of runs have in common: verdict, arms, ratios, predictions, manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.page.numbers import Cell, Show, cell, count, ms, percent, plain, seconds, size, times
from testbed.report.compare import flat

RUN_FIGURES: tuple[tuple[str, str, Show], ...] = (
    ("mean iteration (ms)", "iteration_s|mean", ms),
    ("median iteration (ms)", "iteration_s|p50", ms),
    ("99th percentile (ms)", "iteration_s|p99", ms),
    ("worst iteration (ms)", "iteration_s|worst", ms),
    ("CE packets per iteration", "ce_packets_per_iteration", count),
    ("marks by queues per iteration", "marked_packets_per_iteration", count),
    ("shared links in use (%)", "utilisation", percent),
    ("iterations", "iterations", count),
    ("trials", "trials", count),
)
CLUSTER_FIGURES: tuple[tuple[str, str, Show], ...] = (
    *RUN_FIGURES[:6],
    ("iteration time over that alone", "relative|mean", times),
    ("job completion (s)", "completion_s|mean", seconds),
    ("completion over that alone", "slowdown|mean", times),
    ("rho, mean", "rho|mean", times),
    ("rho, worst", "rho|worst", times),
    ("last job done (s)", "makespan_s", seconds),
    ("rounds of scheduling", "rounds", count),
    ("running jobs that had to move", "moves", count),
    ("iterations", "iterations", count),
    ("traces played", "trials", count),
)
RATIOS: tuple[tuple[str, str], ...] = (
    ("mean", "mean"),
    ("median", "p50"),
    ("99th percentile", "p99"),
    ("worst", "worst"),
    ("completion", "completion_s"),
    ("CE packets", "ce_packets_per_iteration"),
    ("marks", "marked_packets_per_iteration"),
)


@dataclass(frozen=True)
class Table:
    """A table: its caption, the heads of its columns, and rows whose first cell is their head."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]


@dataclass(frozen=True)
class Line:
    """An arm on the chart of iteration times: mean, interval and the trials' means, each from 0 to 1 of the axis."""

    arm: str
    mean: float
    low: float
    high: float
    trials: Sequence[float]
    cell: Cell


def arms_table(summary: Mapping[str, Any], figures: Sequence[tuple[str, str, Show]]) -> Table:
    """Return the arms side by side, a column each, and a row per figure that any arm has."""
    arms = list(summary["arms"])
    rows = [(label, [cell(summary, f"arms|{arm}|{path}", show) for arm in arms]) for label, path, show in figures]
    known = [(label, cells) for label, cells in rows if any(one.value is not None for one in cells)]
    return Table("Figures of each arm", arms, known)


def parts_table(summary: Mapping[str, Any], part: str) -> Table:
    """Return mean iteration time and CE packets of each job (`part` "jobs") or model ("models"), arm by arm."""
    arms = [arm for arm, of in summary["arms"].items() if of.get(part)]
    names = list(dict.fromkeys(name for arm in arms for name in summary["arms"][arm][part]))
    kinds = (("mean (ms)", "iteration_s|mean", ms), ("CE packets", "ce_packets_per_iteration", count))
    rows = [
        (f"{name}: {label}", [cell(summary, f"arms|{arm}|{part}|{name}|{path}", show) for arm in arms])
        for name in names
        for label, path, show in kinds
    ]
    return Table(f"By {part.removesuffix('s')}, per iteration", arms, rows)


def waits_table(summary: Mapping[str, Any]) -> Table | None:
    """Return what jobs waited to keep their time-shifts; None where nobody did."""
    rows = [
        (
            f"{arm}: {job}",
            [
                cell(summary, f"arms|{arm}|jobs|{job}|padding_s", lambda value: f"{1e3 * value:.2f}"),
                cell(summary, f"arms|{arm}|jobs|{job}|lost_s", lambda value: f"{1e3 * value:.2f}"),
                cell(summary, f"arms|{arm}|jobs|{job}|adjustments", count),
            ],
        )
        for arm, of in summary["arms"].items()
        for job, own in of["jobs"].items()
        if own.get("padding_s") or own.get("adjustments")
    ]
    heads = ("padding per iteration (ms)", "lost to drift per iteration (ms)", "adjustments")
    return Table("What jobs waited to keep their time-shifts", heads, rows) if rows else None


def links_table(summary: Mapping[str, Any]) -> Table | None:
    """Return the shared links, arm by arm; None where there are none."""
    kinds: tuple[tuple[str, Show], ...] = (
        ("utilisation", percent),
        ("marked_packets_per_iteration", count),
        ("peak_backlog_bytes", size),
        ("dropped_packets", count),
    )
    rows = [
        (f"{link}: {arm}", [cell(summary, f"arms|{arm}|links|{link}|{key}", show) for key, show in kinds])
        for link in summary.get("shared_links", ())
        for arm, of in summary["arms"].items()
        if link in of.get("links", {})
    ]
    heads = ("in use (%)", "marks per iteration", "highest queue", "dropped packets")
    return Table("Links that jobs share, while all jobs were there", heads, rows) if rows else None


def ratios_table(summary: Mapping[str, Any]) -> Table | None:
    """Return how many times more one arm took, or marked, than another; None without two arms to compare."""
    pairs = list(summary["ratios"])
    columns = [(head, key) for head, key in RATIOS if any(key in summary["ratios"][pair] for pair in pairs)]
    rows = [
        (pair.replace("/", " / "), [cell(summary, f"ratios|{pair}|{key}", times) for _, key in columns])
        for pair in pairs
    ]
    return Table("Ratios between arms", [head for head, _ in columns], rows) if rows else None


def chart(summary: Mapping[str, Any]) -> tuple[list[Line], float]:
    """Return the arms on the chart of iteration times, whose axis begins at 0, and where it ends in s."""
    means = {arm: of["iteration_s"]["mean"] for arm, of in summary["arms"].items()}
    trials = {arm: of.get("trial_mean_s", []) for arm, of in summary["arms"].items()}
    highest = max(max([of["value"], of.get("high") or 0.0, *trials[arm]]) for arm, of in means.items())
    end_s = 1.04 * highest
    lines = []
    for arm, of in means.items():
        low, high = (of.get(key) or of["value"] for key in ("low", "high"))
        shown = cell(summary, f"arms|{arm}|iteration_s|mean", ms)
        scaled = [value / end_s for value in (of["value"], low, high)]
        lines.append(Line(arm, scaled[0], scaled[1], scaled[2], [one / end_s for one in trials[arm]], shown))
    return lines, end_s


def headline(summary: Mapping[str, Any]) -> str:
    """Return the comparison in one sentence: the arms with time-shifts against those without, or what there is."""
    said = []
    for pair, of in summary["ratios"].items():
        above, _, below = pair.partition("/")
        if "cassini" in below and "cassini" not in above and of["mean"]["value"] is not None:
            interval = cell(summary, f"ratios|{pair}|mean", times).interval
            said.append(f"{above} takes {times(of['mean']['value'])}× as long as {below} {interval}".strip())
    if said:
        return "Per iteration, in the mean: " + "; ".join(said) + "."
    means = [f"{arm} {ms(of['iteration_s']['mean']['value'])} ms" for arm, of in summary["arms"].items()]
    return f"Mean iteration time: {', '.join(means)}."


def predictions(validation: Mapping[str, Any]) -> Table | None:
    """Return the predictions beside what was measured; None where nothing was predicted."""
    if "rounds" in validation:
        return _wide_predictions(validation["rounds"])
    found = validation["predictions"]
    rows = [
        (
            f"{one['what']}, {one['arm']}, {one['job'] or one['link']}",
            [
                _quantity(one["predicted"], one["unit"]),
                _quantity(one["measured"], one["unit"]),
                _quantity(one["tolerance"], one["unit"]),
                Cell(one["verdict"]),
            ],
        )
        for one in found
    ]
    heads = ("predicted", "measured", "tolerance", "verdict")
    return Table(validation["verdict"], heads, rows) if rows else None


def _wide_predictions(found: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return the predictions of a wide-area run: how long a round takes, by model; None for none."""
    if not found:
        return None
    rows = [
        (
            f"{one['prediction']}, {one['system']}",
            [
                Cell(seconds(one["predicted_s"]) + " s", one["predicted_s"]),
                Cell(seconds(one["measured_s"]) + " s", one["measured_s"]),
                Cell(f"{100 * one['relative_error']:+.1f} %", one["relative_error"]),
                Cell("held" if one["within"] else "did not hold"),
            ],
        )
        for one in found
    ]
    held = sum(bool(one["within"]) for one in found)
    heads = ("predicted", "measured", "predicted over measured", "verdict")
    return Table(f"{held} of {len(found)} predictions held", heads, rows)


def _quantity(value: float | None, unit: str) -> Cell:
    shows: dict[str, Show] = {"s": lambda one: f"{1e3 * one:.1f} ms", "B": size}
    if value is None:
        return Cell("–")
    show: Show = shows.get(unit) or "{:.3f}".format
    return Cell(f"-{size(-value)}" if unit == "B" and value < 0 else show(value))


def plain_table(caption: str, found: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return rows of a file as they are, one column per key; None for none."""
    if not found:
        return None
    keys = list(dict.fromkeys(key for one in found for key in one))
    rows = [(plain(one.get(keys[0])), [Cell(plain(one.get(key))) for key in keys[1:]]) for one in found]
    return Table(caption, [key.replace("_", " ") for key in keys], rows)


@dataclass(frozen=True)
class Verdict:
    """Whether the run may be believed: its checks by arm, and those that fail."""

    valid: bool
    checks: Mapping[str, Sequence[tuple[str, bool, str]]]

    @property
    def total(self) -> int:
        """How many checks there are."""
        return sum(len(of) for of in self.checks.values())

    @property
    def faults(self) -> list[tuple[str, str, str]]:
        """Arm, check and finding of those that fail."""
        return [(arm, what, found) for arm, of in self.checks.items() for what, ok, found in of if not ok]


def verdict(manifest: Mapping[str, Any]) -> Verdict:
    """Return the verdict of a manifest."""
    checks = {
        arm: [(one["what"], bool(one["ok"]), str(one.get("found", one.get("detail", "")))) for one in of]
        for arm, of in manifest["verdict"].items()
    }
    return Verdict(bool(manifest["valid"]), checks)


def manifest_tables(manifest: Mapping[str, Any]) -> Iterator[Table]:
    """Yield what the run was made of: versions, scaling, notes on jobs, and every key of the scenario."""
    kernel = manifest.get("kernel") or {}
    about = {f"kernel {key}": value for key, value in kernel.items()}
    about |= {key: manifest[key] for key in ("code", "seed", "scenario_sha256") if key in manifest}
    about |= dict(manifest.get("versions", {}))
    yield Table("Versions and seed", ("", "value"), [(key, [Cell(plain(value))]) for key, value in about.items()])
    if scaling := plain_table("Scaling", manifest.get("scaling", [])):
        yield scaling
    if notes := manifest.get("jobs"):
        yield Table("Notes on jobs", ("job", "note"), [(job, [Cell(plain(note))]) for job, note in notes.items()])
    keys = [(key, [Cell(plain(value))]) for key, value in flat(manifest["scenario"]).items()]
    yield Table("Every key of the scenario", ("key", "value"), keys)


def decided_table(decisions: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return what decision.json decided, a row per link and job; None for no decision."""
    rows = [
        (
            f"{one['link']}: {job['job']}",
            [
                Cell(ms(job["period_s"])),
                Cell(ms(job["quantised_s"])),
                Cell(plain(job["turns"])),
                Cell(ms(job["time_shift_s"])),
                Cell(plain(round(job["rotation_deg"], 1))),
                Cell(f"{ms(job['iteration_unshifted_s'])} → {ms(job['iteration_s'])}"),
                Cell(f"{one['score_unshifted']:.3f} → {one['score']:.3f}"),
            ],
        )
        for one in decisions
        for job in one["jobs"]
    ]
    heads = ("iteration alone (ms)", "on the circle (ms)", "turns", "time-shift (ms)", "rotation (°)",
             "iteration expected, unshifted → shifted (ms)", "score, unshifted → shifted")  # fmt: skip
    return Table("Decisions, before and after the shift", heads, rows) if rows else None
