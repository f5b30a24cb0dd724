"""Starts all programs at the price of one: imports once, and forks each into the network of its site.

    python -m workloads.paramsync.spawn SOCKET < PROGRAMS

SOCKET is where the conductor listens. Every line of PROGRAMS is a JSON list of [role, node, descriptor], started at
once; the descriptor is an inherited one of a network namespace, null stands for this one. It leaves when no program is
left, with 0 when all did or were killed: of who may be, the conductor is the judge.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path

from workloads.paramsync import member, server, worker
from workloads.paramsync.control import SCHEDULER, SERVER, ConductorGoneError, Control
from workloads.paramsync.ledger import ProtocolError
from workloads.paramsync.plan import SyncPlan
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
    threading.excepthook = lambda it: _fell(control, it)
    try:
        plan = SyncPlan.from_dict(control.hear()["plan"])
        if role == SCHEDULER:
            from workloads.paramsync import planner  # whose strategies take long to import, and nobody else needs

            planner.serve(control, plan)
        elif role == SERVER:
            (member if plan.protocol else server).serve(control, node, plan)
        else:
            worker.serve(control, node, plan)
    except ConductorGoneError:
        return 1
    except (BrokenOffError, ProtocolError, OSError) as error:
        with contextlib.suppress(OSError):
            control.say("failed", why=str(error))
        return 1
    return 0


def _fell(control: Control, it: threading.ExceptHookArgs) -> None:
    """Tell the conductor of a thread that ended as none should: the run would wait for it until the watchdog."""
    with contextlib.suppress(OSError):
        control.say("failed", why="".join(traceback.format_exception(it.exc_type, it.exc_value, it.exc_traceback)))


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code."""
    if len(arguments) != 1:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    near, far = socket.socketpair()
    far.setblocking(False)
    signal.set_wakeup_fd(far.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    selector.register(near, selectors.EVENT_READ)
    children: set[int] = set()
    rest, failed, told = b"", False, True
    while children or told:
        for key, _ in selector.select():
            if key.fileobj is near:
                near.recv(1 << 10)
                continue
            data = os.read(sys.stdin.fileno(), 1 << 16)
            told = bool(data) and not children
            if not data:
                selector.unregister(sys.stdin.fileno())
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                children |= {_fork(Path(arguments[0]), *program) for program in json.loads(line)}
                told = False
        failed = _reap(children) or failed
    return 1 if failed else 0


def _fork(path: Path, role: str, node: int, namespace: int | None) -> int:
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        be(path, role, node, namespace)
    return child


def _reap(children: set[int]) -> bool:
    """Let go of those that have ended; whether one of them failed."""
    failed = False
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            break
        children.discard(child)
        failed = failed or (status != 0 and os.waitstatus_to_exitcode(status) != -signal.SIGKILL)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
