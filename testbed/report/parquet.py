"""All results of a study in one Parquet file: a row for each figure of each point.

| column | meaning |
|---|---|
| `run` | the point's folder |
| one for each label | what is varied at the point, as numbers or text |
| `valid`, `error`, `wall-s` | what became of the point |
| `figure` | as in study.json (testbed.report.study), of which `metric`, `arm` and `part` are the parts |
| `value`, `low`, `high` | the figure and its 95 % interval, null where none is claimed |

A point that did not end has one row without a figure. Written by pyarrow, read by pandas, Polars, DuckDB and R.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FILE = "results.parquet"


def write(study: Mapping[str, Any], folder: Path) -> Path:
    """Write what study.json holds as results.parquet into `folder`, whole or not at all; return its path."""
    path, new = folder / FILE, folder / f".{FILE}.new"
    pq.write_table(table(study), new, compression="zstd")
    new.replace(path)
    return path


def table(study: Mapping[str, Any]) -> pa.Table:
    """Return what study.json holds as an Arrow table, as the top of this module has it."""
    labels = list(dict.fromkeys(label for point in study["points"] for label in point["at"]))
    rows = [row for point in study["points"] for row in _rows(point, labels)]
    columns: dict[str, pa.Array] = {"run": pa.array([row["run"] for row in rows], pa.string())}
    for label in labels:
        columns[label] = _labels([row[label] for row in rows])
    numbers = dict.fromkeys(("wall-s", "value", "low", "high"), pa.float64())
    kinds = numbers | {"valid": pa.bool_()}
    for name in ("valid", "error", "wall-s", "figure", "metric", "arm", "part", "value", "low", "high"):
        columns[name] = pa.array([row[name] for row in rows], kinds.get(name, pa.string()))
    about = {"study": str(study["name"]), "title": str(study["title"])}
    return pa.table(columns).replace_schema_metadata(about)


def _rows(point: Mapping[str, Any], labels: Sequence[str]) -> Iterator[dict[str, Any]]:
    same = {"run": point["folder"], "valid": point["valid"], "error": point["error"], "wall-s": point["wall_s"]}
    same |= {label: point["at"].get(label) for label in labels}
    for name, of in point["figures"].items():
        metric, arm, part = split(name)
        bounds = {key: None if of.get(key) is None else float(of[key]) for key in ("value", "low", "high")}
        yield same | {"figure": name, "metric": metric, "arm": arm, "part": part} | bounds
    if not point["figures"]:
        yield same | dict.fromkeys(("figure", "metric", "arm", "part", "value", "low", "high"))


def split(figure: str) -> tuple[str, str | None, str | None]:
    """Return metric, arm and part (a job, a model) of a figure's name, as in mean-ms.cassini.vgg16-a."""
    metric, _, rest = figure.partition(".")
    arm, _, part = rest.partition(".")
    return metric, arm or None, part or None


def _labels(values: Sequence[Any]) -> pa.Array:
    """Return a label's column: numbers where all its values are, else text."""
    known = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in known):
        return pa.array(values, pa.bool_())
    if any(isinstance(value, bool | str) for value in known):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    if all(isinstance(value, int) for value in known):
        return pa.array(values, pa.int64())
    return pa.array([None if value is None else float(value) for value in values], pa.float64())
