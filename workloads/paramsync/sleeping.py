"""Sleeping until a moment, as exactly as the kernel can."""

from __future__ import annotations

import time


def sleep_until(due_s: float) -> None:
    """Sleep until time.time() is at least `due_s`."""
    while (left_s := due_s - time.time()) > 0:
        time.sleep(left_s)
