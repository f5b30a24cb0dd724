"""How the documentation is built: `make docs`. The reference pages are made of the code itself."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generate  # noqa: E402

project = "Orrery"
copyright = "the authors of Orrery, Apache-2.0"
extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns: list[str] = []
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Orrery"
html_copy_source = False
html_show_sphinx = False

generate.write(HERE / "reference")
