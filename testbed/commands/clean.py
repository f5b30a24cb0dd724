"""`clean`: what a native run that was killed has left."""

from __future__ import annotations

import typer


def clean() -> None:
    """Put back the settings of this machine that a killed native run has left; all else went with it."""
    from testbed.engine.native import ledger

    mended = [f"put back: {name}" for name in ledger.clean()]
    typer.echo("\n".join(mended) or "nothing was left")
