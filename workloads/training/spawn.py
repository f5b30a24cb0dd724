"""Starts many agents at the price of one: a program that imports once and forks each agent into its host.

    python -m workloads.training.spawn --coordinator IP:PORT < AGENTS

AGENTS is a JSON list of [host, slot, pid], where the host is the network namespace that process `pid` lives
in; null stands for the namespace of the spawner. It leaves with 0 when all agents did, and with 1 otherwise.
In a guest an agent costs a few milliseconds this way, and more than a hundred when Python has to start for
each.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys

from workloads.training import agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

CLONE_NEWNET = 0x40000000
SETNS = ctypes.CDLL(None, use_errno=True).setns
"""os.setns exists only from Python 3.12 on."""


def enter(pid: int) -> None:
    """Move this process into the network namespace of process `pid`. Raises OSError."""
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if SETNS(namespace, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace of process {pid}")
    finally:
        os.close(namespace)


def run_agent(arguments: list[str], pid: int | None) -> NoReturn:
    """Be an agent in the namespace of process `pid` (None: stay in this one), and end this process."""
    code = 1
    try:
        if pid is not None:
            enter(pid)
        code = agent.main(arguments)
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        # Not sys.exit(): tidying up touches all memory, and every shared page would be copied for it.
        os._exit(code)


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code."""
    if len(arguments) != 2 or arguments[0] != "--coordinator":
        sys.stderr.write(f"{__doc__}\n")
        return 2
    # A collection of garbage in an agent would touch all objects, and each page of them be copied.
    gc.freeze()
    children = []
    for host, slot, pid in json.load(sys.stdin):
        child = os.fork()
        if child == 0:
            run_agent([*arguments, "--host", host, "--slot", str(slot)], pid)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
