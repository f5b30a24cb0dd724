"""The first process of a native run's namespaces: make them habitable, run the job, report its exit code.

    python -m testbed.engine.native.inside STATUS NETWORK

STATUS is the descriptor to which JSON lines go, NETWORK that of the machine's own network namespace. The job is a line
of standard input, which stays open: when it ends, the launcher is gone, and so is everything here, since the kernel
ends all processes of a namespace with its first one.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from testbed.engine.guest import init

MS_BIND = 4096
COVERED = (*init.COVERED, "/dev/shm")
"""The machine's own are out of sight: sockets and logs of its Open vSwitch, and what its programs have in there."""
MACHINE_NETWORK = "ORRERY_MACHINE_NETNS"
"""As in testbed.net.namespaces, a room that this one does not look into."""


def die_with_launcher() -> None:
    """Wait until standard input ends, and end everything."""
    while os.read(0, 1):
        pass
    os._exit(1)


def bind(folder: int, target: str) -> None:
    """Show an open folder at a path."""
    Path(target).mkdir(parents=True, exist_ok=True)
    source = f"/proc/self/fd/{folder}".encode()
    if init.LIBC.mount(source, target.encode(), None, ctypes.c_ulong(MS_BIND), None):
        number = ctypes.get_errno()
        raise OSError(number, f"bind mount on {target}: {os.strerror(number)}")


def make_file_systems(job: dict[str, Any]) -> None:
    """Cover what belongs to the machine's own programs, and show the job's folders."""
    folders = [*job["mounts"], *([job["write"]] if job["write"] else [])]
    with ExitStack() as stack:
        opened = []
        for host, guest in folders:  # before that is covered in which they may lie
            descriptor = os.open(host, os.O_PATH | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            opened.append((descriptor, guest))
        init.mount("proc", "/proc")
        init.mount("sysfs", "/sys")
        for folder in COVERED:
            if Path(folder).is_dir() and not Path(folder).is_symlink():
                init.mount("tmpfs", folder, init.MS_NOSUID | init.MS_NODEV)
        for folder in ("/run/netns", "/run/home", "/run/lock", "/run/openvswitch"):
            Path(folder).mkdir(parents=True, exist_ok=True)
        for descriptor, guest in opened:
            bind(descriptor, guest)


def run(job: dict[str, Any], status: int, network: int) -> int:
    """Run the job to its end and return its exit code."""
    make_file_systems(job)
    init.make_loopback()
    if job["open_vswitch"]:
        init.start_open_vswitch()
    os.write(status, b'{"stage": "guest up"}\n')
    machine = {MACHINE_NETWORK: f"/proc/self/fd/{network}", "ORRERY_STATUS": f"/proc/self/fd/{status}"}
    process = subprocess.Popen(
        job["argv"], cwd=job["cwd"], env=init.ENVIRONMENT | machine | job["env"],
        stdin=subprocess.DEVNULL, pass_fds=(status, network), start_new_session=True,
    )  # fmt: skip
    return init.wait_for(process)


def main(arguments: list[str]) -> int:
    """Run the program; returns the job's exit code."""
    status, network = map(int, arguments)
    with open(0, "rb", buffering=0, closefd=False) as source:  # not a byte more than the line
        line = source.readline()
    if not line:
        return 1  # the launcher died at once
    threading.Thread(target=die_with_launcher, daemon=True).start()
    try:
        code = run(json.loads(line), status, network)
    except (OSError, subprocess.SubprocessError) as error:
        os.write(status, json.dumps({"died": str(error)}).encode() + b"\n")
        return 1
    os.write(status, b'{"exit": %d}\n' % code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
