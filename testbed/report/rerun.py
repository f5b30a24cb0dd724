"""Draw a run again, from its own files alone."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.errors import InputError
from testbed.report.cluster.figures import draw_cluster
from testbed.report.draw import draw_all


def redraw(folder: Path) -> list[Path]:
    """Draw all plots of a run folder again; return their paths. Raises InputError when it is none."""
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        raise InputError(str(folder), "is not a run's folder: it has no manifest.json", "as in results/two-jobs")
    try:
        setting = json.loads(manifest.read_text(encoding="utf-8"))["report_setting"]
    except (ValueError, KeyError) as error:
        raise InputError(str(manifest), f"is not a run's manifest: {error}") from error
    return draw_cluster(folder, setting) if setting.get("kind") == "cluster" else draw_all(folder, setting)
