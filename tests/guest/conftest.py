"""Files that make devices as root: collected inside a guest only, where test_exec.py runs them."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("ORRERY_GUEST") == "1" else ["test_fabric.py", "test_overlay.py"]
