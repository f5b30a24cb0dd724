"""The native engine as root on a stock kernel: run by test_native.py in a wall-clock guest, which is one.

    python tests/guest/stock_kernel.py FOLDER

FOLDER receives the results, and `seen.json`: what each command said, and what the machine had before and after it.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# As from a checkout: the copy of our code that guests are shown has no scenarios.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from testbed import cli, progress, show  # noqa: F401 - all that a run needs, once
from testbed.study import board, work  # noqa: F401

ONE_ARM = ("run", "smoke", "--engine", "native", "--set", 'measure.arms=["together"]')
SLOW = ("--set", "fabric.scale=1000", "--set", "measure.iterations=4")
TOO_FAST = ("--set", "fabric.scale=10", "--set", "measure.iterations=2")
PATIENCE_S = 60.0
DECOYS = (  # of the machine's own, under the very names that the run has for its devices, bridges and files
    "ip link add mgmt type bridge",
    "ip link add h1-eth0 type dummy",
    "ip link add s1-eth1 type veth peer name mgmt-h1",
    "ip netns add h1",
    "ovs-vsctl add-br s1 -- add-port s1 s1-eth1",
    "touch /run/openvswitch/decoy /tmp/decoy",
    "echo reno cubic > /proc/sys/net/ipv4/tcp_allowed_congestion_control",  # as a machine has it, unlike a guest
)
BACKLOG = Path("/proc/sys/net/core/netdev_max_backlog")
STATE = (
    "ip -br link; ip netns; ovs-vsctl show; ls /run /run/openvswitch /tmp;"
    "cat /proc/sys/net/core/netdev_max_backlog /proc/sys/net/ipv4/tcp_allowed_congestion_control"
)


def start(*arguments: str, out: Path = Path(os.devnull)) -> int:
    """Start our command line in a process of its own, which need not import everything again; its id."""
    pid = os.fork()
    if pid == 0:
        with out.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.argv = ["testbed", *arguments]
        try:
            cli.main()
        except SystemExit as ended:
            sys.stdout.flush()
            os._exit(ended.code if isinstance(ended.code, int) else 0)  # tidying up would copy every shared page
        os._exit(99)
    return pid


def call(*arguments: str) -> dict[str, Any]:
    """The exit code of our command line, and what it said."""
    began, out = time.monotonic(), Path("/run/said")
    _, status = os.waitpid(start(*arguments, out=out), 0)
    code = os.waitstatus_to_exitcode(status)
    sys.stdout.write(f"{shlex.join(arguments)}: {code} in {time.monotonic() - began:.1f} s\n")
    sys.stdout.flush()
    return {"code": code, "said": out.read_text()}


def state() -> str:
    """What the machine has that a run could touch; the lock of native runs, and what is said here, are ours."""
    said = subprocess.run(STATE, shell=True, capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in said.splitlines() if line not in ("orrery-native", "said"))


def switches() -> list[int]:
    """The processes that are a switch daemon."""
    return [int(comm.parent.name) for comm in Path("/proc").glob("[0-9]*/comm") if _is_switch(comm)]


def _is_switch(comm: Path) -> bool:
    try:
        return comm.read_text().strip() == "ovs-vswitchd"
    except OSError:
        return False


def wait_for_switches(count: int) -> bool:
    """Wait until there are so many switch daemons; whether there are."""
    return wait_until(lambda: len(switches()) == count)


def wait_until(seen: Callable[[], bool]) -> bool:
    """Wait until something is so; whether it is."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not seen() and time.monotonic() < give_up_s:
        time.sleep(0.1)
    return seen()


def killed(*arguments: str) -> dict[str, Any]:
    """Kill a run once it has a switch daemon of its own and has changed the machine's settings.

    Whether it came so far, and whether its daemon went by itself.
    """
    backlog = BACKLOG.read_text()
    launcher = start(*arguments)
    came = wait_for_switches(2) and wait_until(lambda: BACKLOG.read_text() != backlog)
    os.kill(launcher, signal.SIGKILL)
    os.waitpid(launcher, 0)
    return {"came": came, "went": wait_for_switches(1)}


def main(folder: str) -> None:
    """Everything, one after the other."""
    for decoy in DECOYS:
        subprocess.run(decoy, shell=True, check=True)
    seen: dict[str, Any] = {"before": state(), "switches": switches()}
    to = ("--results", folder)
    seen["slow"] = call(*ONE_ARM, *SLOW, *to)
    seen["after slow"] = state()
    seen["too fast"] = call(*ONE_ARM, *TOO_FAST, "--set", "name=too-fast", *to)
    seen["killed"] = killed(*ONE_ARM, *SLOW, *to)
    seen["after killed"] = state()
    seen["clean"] = call("clean")
    seen["after clean"] = state()
    seen["clean again"] = call("clean")
    seen["switches at the end"] = switches()
    Path(folder, "seen.json").write_text(json.dumps(seen, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
