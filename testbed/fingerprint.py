"""Fingerprints: the hash of every file of a shortened run, kept, so that a byte that changes is seen and named.

A shortened run is the first point of a scenario with one arm, two iterations (one round of the last system) and, of
jobs that come and go, two jobs; what its shared links carry is captured. Not compared: wall-clock times, plots (they
depend on the machine's fonts), and the run's own manifest and page, which name the code.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from testbed import scenario_file
from testbed.engine.kernel import Kernel
from testbed.errors import InputError
from testbed.live import Watcher
from testbed.page import write as page
from testbed.scenario import Scenario
from testbed.study import points, work
from testbed.study.points import Point

FILE = Path(__file__).resolve().parents[1] / "tests" / "fingerprints.json"
LEFT_OUT = ("wall.json", "manifest.json", page.FILE, work.FILE)
"""Files of a run's own folder that tell its wall time and code; those of its arms are compared."""
PLOTS = "plots"
CAPTURE = ('telemetry.capture.links="shared"', "telemetry.capture.packets=100000")

Files = dict[str, str]
"""The hash of every file, by its path in the run's folder."""


@dataclass(frozen=True)
class Kept:
    """The file of fingerprints: `versions` they were made with, and `runs`, the files of each scenario."""

    versions: dict[str, str] = field(default_factory=dict)
    runs: dict[str, Files] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file."""
        text = json.dumps({"versions": self.versions, "runs": dict(sorted(self.runs.items()))}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")


def read(path: Path) -> Kept:
    """Read the file of fingerprints; one that is not there has none. Raises InputError when it is something else."""
    if not path.exists():
        return Kept()
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return Kept(dict(said["versions"]), {name: dict(files) for name, files in said["runs"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(str(path), f"is no file of fingerprints: {error!r}", "make it again with --renew") from error


def shortened(name: str) -> Point:
    """Return the first point of a scenario in its short form. Raises InputError when there is no such scenario."""
    made = points.load(name).points[0].scenario
    if not isinstance(made, Scenario):
        wide = points.load(name, ("sync.shortened=10000",)).points[0]
        measure = made.measure.model_copy(update={"baseline": None})
        alone = wide.scenario.model_copy(update={"system": made.system[-1:], "measure": measure})
        return replace(wide, scenario=alone)
    if made.cluster is not None:
        settings: tuple[str, ...] = (f'cluster.arms=["{made.cluster.arms[0]}"]', "cluster.profile_iterations=3")
        settings += CAPTURE
        settings += ("cluster.jobs=2",) if made.cluster.arrivals == "poisson" else ()
        settings += (f"cluster.shortened={min(10_000.0, made.cluster.shortened * 10)}",)
    else:
        arm = "together" if len(made.job) > 1 else "alone"
        settings = (f'measure.arms=["{arm}"]', "measure.iterations=2", f"measure.trials.{arm}=1", *CAPTURE)
    return points.load(name, settings).points[0]


def taken(name: str, kernel: Kernel, watcher: Watcher, memory_bytes: int = 2 << 30) -> Files:
    """Run a scenario in its short form, and return its files. Raises what a run raises that does not come to its end.

    Whether its verdict is that so short a run may be believed does not matter here.
    """
    with tempfile.TemporaryDirectory(prefix="orrery-fingerprint-") as folder:
        return hashes(work.alone(shortened(name), kernel, Path(folder), watcher, memory_bytes).folder)


def hashes(folder: Path) -> Files:
    """Return the hashes of a run's files, but for those that are left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and str(inside) not in LEFT_OUT and PLOTS not in inside.parts:
            found[str(inside)] = sha256(path.read_bytes()).hexdigest()
    return found


def changes(kept: Files, found: Files) -> list[str]:
    """Return a line for every file that is another one, is new, or is gone."""
    return [
        f"{path}: {'changed' if path in kept and path in found else 'new' if path in found else 'gone'}"
        for path in sorted(kept.keys() | found.keys())
        if kept.get(path) != found.get(path)
    ]


def chosen(names: Sequence[str], kept: Kept, everything: bool) -> list[str]:
    """Return what is to be run: the scenarios named, else all there are, or all whose fingerprints are kept."""
    known = scenario_file.names()
    for name in names:
        if name not in known:
            raise InputError(name, "no such scenario", f"scenarios: {', '.join(known)}")
    if names or everything:
        return list(names or known)
    if not kept.runs:
        raise InputError(str(FILE), "has no fingerprints yet", "as in fingerprint --renew smoke two-jobs")
    return sorted(kept.runs)
