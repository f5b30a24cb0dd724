"""Starts all programs at the price of one: imports once, and forks each into the network of its site.

    python -m workloads.paramsync.spawn SOCKET < PROGRAMS

SOCKET is where the conductor listens. PROGRAMS is a JSON list of [role, node, descriptor]; the descriptor is an
inherited one of a network namespace, null stands for this one. It leaves with 0 when all programs did.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from pathlib import Path

from workloads.paramsync import server, worker
from workloads.paramsync.control import SERVER, ConductorGoneError, Control
from workloads.paramsync.ledger import ProtocolError
from workloads.paramsync.wire import BrokenOffError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_CLONE_NEWNET = 0x40000000


def be(path: Path, role: str, node: int, namespace: int | None) -> NoReturn:
    """Be that program, and end this process."""
    code = 1
    try:
        if namespace is not None and ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network of node {node}")
        # A timer may otherwise ring up to 50 µs late, which is an eternity where the CPU costs no time.
        with contextlib.suppress(OSError):
            Path("/proc/self/timerslack_ns").write_text("1")
        control = Control(path, role, node)
        code = run(control, role, node)
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        # Not sys.exit(): tidying up touches all memory, and every shared page would be copied for it.
        os._exit(code)


def run(control: Control, role: str, node: int) -> int:
    """Serve in that role, and tell the conductor what goes wrong; the exit code."""
    try:
        (server if role == SERVER else worker).serve(control, node)
    except ConductorGoneError:
        return 1
    except (BrokenOffError, ProtocolError, OSError) as error:
        with contextlib.suppress(OSError):
            control.say("failed", why=str(error))
        return 1
    return 0


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code."""
    if len(arguments) != 1:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    children = []
    for role, node, namespace in json.load(sys.stdin):
        child = os.fork()
        if child == 0:
            be(Path(arguments[0]), role, node, namespace)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
