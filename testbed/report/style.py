"""How every plot looks, and files that are the same bytes every time.

Colours are told apart with the common colour deficiencies too (after Tol's "vibrant" scheme); jobs and arms have no
colour in common, and arms differ in their dashes as well. Nothing here touches matplotlib's global state.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK, FAINT, GRID = "#262626", "#7a7a7a", "#e4e4e4"
CONTENTION = "#cc3311"
CHARACTERS, LINE = 9.6, 0.2  # of a title, in an inch; and from line to line, in inches
JOBS = ("#0077bb", "#ee7733", "#33bbee", "#aa4499", "#ddaa33", "#44aa66", "#885522", "#7788cc")
ARM_COLOURS = {
    "together": "#cc3311",
    "random": "#8a5fbf",
    "priority": "#cc8800",
    "cassini": "#009988",
    "refined": "#004488",
    "alone": "#404040",
}
ARM_DASHES = {
    "together": "-",
    "random": (0, (5, 1.2)),
    "priority": (0, (3, 1, 1, 1)),
    "cassini": "-",
    "refined": (0, (8, 1, 1, 1)),
    "alone": (0, (1.2, 1.6)),
}
ARM_TITLES = {
    "together": "together: all jobs start at once",
    "random": "random: start offsets drawn by seed",
    "priority": "priority: offsets as random, one job before another at switches",
    "cassini": "cassini: time-shifts from measured profiles",
    "refined": "refined: time-shifts moved by the marks cassini left",
    "alone": "alone: each job by itself",
}
_RC = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9a9a9a",
    "axes.linewidth": 0.8,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlepad": 5,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": "#9a9a9a",
    "ytick.color": "#9a9a9a",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.6,
    "figure.titlesize": 11.5,
    "figure.titleweight": "bold",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "path.simplify": True,
    "svg.hashsalt": "orrery",
    "svg.fonttype": "path",
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save within this: matplotlib's settings are ours inside, and what they were afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


def figure(width: float, height: float, title: str, subtitle: str = "") -> Figure:
    """Return an empty figure, size in inches, with a bold title that says what one sees, and a fainter line below.

    A title that is wider than the figure takes more lines, and the figure is higher by those.
    """
    lines = textwrap.wrap(title, int(CHARACTERS * width))
    more = LINE * (len(lines) - 1)
    height += more
    head = (0.58 if subtitle else 0.39) + more
    layout = ConstrainedLayoutEngine(
        w_pad=0.08, h_pad=0.06, hspace=0.04, wspace=0.04, rect=(0, 0, 1, 1 - head / height)
    )
    made = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(made)
    made.text(0.10 / width, 1 - 0.12 / height, "\n".join(lines), va="top", fontsize=11.5, fontweight="bold")
    if subtitle:
        made.text(0.10 / width, 1 - (0.34 + more) / height, subtitle, va="top", fontsize=8.5, color=FAINT)
    return made


def stack(made: Figure, rows: int) -> list[Axes]:
    """Return axes below each other that share both axes."""
    return list(made.subplots(rows, 1, sharex=True, sharey=True, squeeze=False)[:, 0])


def tint(colour: str, share: float) -> tuple[float, float, float]:
    """Return a colour mixed with white, opaque: `share` of it is left."""
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def job_colours(jobs: Sequence[str]) -> dict[str, str]:
    """Return a colour for each job, by its place in the order given."""
    return {job: JOBS[index % len(JOBS)] for index, job in enumerate(jobs)}


def save(made: Figure, base: Path) -> list[Path]:
    """Write BASE.png and BASE.svg and return their paths: the same figure gives the same bytes at any time."""
    if (engine := made.get_layout_engine()) is not None:
        engine.execute(made)
    made.set_layout_engine("none")  # once for both files
    png, svg = base.with_suffix(".png"), base.with_suffix(".svg")
    made.savefig(png, dpi=160, metadata={"Software": None})
    words = dict(
        zip(("Title", "Description"), (text.get_text().replace("\n", " ") for text in made.texts), strict=False)
    )
    made.savefig(svg, metadata={"Date": None, "Creator": None} | words)  # what a screen reader says of it
    return [png, svg]
