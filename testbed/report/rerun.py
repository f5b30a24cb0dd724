"""Draw a run or a study again, from its own files alone."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.errors import InputError
from testbed.report import study
from testbed.report.cluster.figures import draw_cluster
from testbed.report.draw import draw_all


def redraw(folder: Path) -> list[Path]:
    """Draw all plots of the folder of a run or of a study again; return their paths. Raises InputError for another one.

    A run on a wide-area network has no plots of this kind.
    """
    if (folder / study.FILE).is_file():
        return study.draw(folder)
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        raise InputError(str(folder), "is not a run's folder: it has no manifest.json", "as in results/two-jobs")
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        if "wan" in found:
            return []
        setting = found["report_setting"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(manifest), f"is not a run's manifest: {error}") from error
    return draw_cluster(folder, setting) if setting.get("kind") == "cluster" else draw_all(folder, setting)
