"""Schedulers of the user's: a Python file that is named on the command line, and run, by nobody but the user.

    python -m testbed run my-cluster.toml --plugin my_scheduler.py

A scenario names its arms `own-NAME`, or `own-NAME+cassini`; the file has a class with that `name` and a method
`propose`, as `controllers.placement.state.Scheduler` has it. No scenario can bring a file to be run by itself.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, cast

from controllers.placement.state import Scheduler
from testbed.errors import InputError

OWN = "own-"
FILE = "scheduler.py"
"""What the file is called in the folder of an arm, where the guest reads it and a copy of it stays."""


def own_name(arm: str) -> str:
    """Return the name of the user's scheduler that an arm has; "" for an arm of ours."""
    return arm.partition("+")[0].removeprefix(OWN) if arm.startswith(OWN) else ""


def schedulers(path: Path) -> dict[str, type[Any]]:
    """Run a file and return its schedulers by name. Raises InputError where it cannot be run."""
    spec = importlib.util.spec_from_file_location("orrery_plugin", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(str(path), "is no Python file", "as in --plugin my_scheduler.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(str(path), f"cannot be run: {type(error).__name__}: {error}") from error
    classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == spec.name]
    named = {getattr(one, "name", None): one for one in classes if hasattr(one, "propose")}
    return {name: one for name, one in named.items() if isinstance(name, str)}


def scheduler(path: Path, arm: str) -> Scheduler:
    """Return the user's scheduler of an arm. Raises InputError where the file has none of that name."""
    found, name = schedulers(path), own_name(arm)
    if name not in found:
        there = f"there are {', '.join(found)}" if found else "give a class a `name` and a method `propose`"
        raise InputError(str(path), f"has no scheduler named {name!r}, which the arm {arm} asks for", there)
    try:
        return cast(Scheduler, found[name]())
    except Exception as error:
        raise InputError(str(path), f"{name} cannot be made: {type(error).__name__}: {error}") from error
