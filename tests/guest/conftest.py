"""test_fabric.py makes devices as root: it is collected inside a guest only, where test_exec.py runs it."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("ORRERY_GUEST") == "1" else ["test_fabric.py"]
