"""`fingerprint`: are the bytes still the same?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.commands.common import console as make_console
from testbed.errors import EnvironmentLacks, NotValid

AGAIN = "python -m testbed fingerprint --renew"


def fingerprint(
    names: Annotated[list[str] | None, typer.Argument(help="Scenarios; those whose fingerprints are kept.")] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Keep what is found, and say what is new.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="All scenarios that come with the project.")] = False,
    file: Annotated[Path | None, typer.Option(help="Where they are kept (tests/fingerprints.json).")] = None,
) -> None:
    """Run scenarios shortened, and compare the hash of every capture and result file with those that are kept.

    Exit code 1 when a file changed; 3 when it did and the kept ones are of other versions, which are named.
    """
    from testbed import fingerprint as prints
    from testbed import progress
    from testbed.engine.commands import ready_kernel
    from testbed.versions import differences, versions

    console, place = make_console(), file or prints.FILE
    kept, kernel = prints.read(place), ready_kernel()
    wanted = prints.chosen(names or (), kept, everything)
    here = versions(kernel.key)
    others = differences(kept.versions, here) if kept.versions else []
    for line in others:
        console.print(f"kept fingerprints are of another version: {line}", highlight=False)
    found: dict[str, prints.Files] = {}
    changed = []
    with progress.watcher(console) as watcher:
        for name in wanted:
            found[name] = prints.taken(name, kernel, watcher)
            lines = prints.changes(kept.runs[name], found[name]) if name in kept.runs else ["not kept yet"]
            if lines:
                changed.append(name)
            console.print(f"{name}: {'changed' if lines else 'the same'}", *lines, sep="\n  ", highlight=False)
    if renew:
        same = not others
        prints.Kept(here, (kept.runs if same else {}) | found).save(place)
        dropped = [] if same else sorted(kept.runs.keys() - found.keys())
        for name in dropped:
            console.print(f"{name}: dropped, it was of other versions", highlight=False)
        console.print(f"written: {place}", highlight=False)
        return
    if changed and others:
        raise EnvironmentLacks(f"fingerprints of other versions: {'; '.join(others)}", f"install those, or {AGAIN}")
    if changed:
        raise NotValid(f"bytes changed: {', '.join(changed)}; if they should have: {AGAIN} {' '.join(changed)}")
