"""This machine's own kernel as a system under test: what it forwards on one core, with nothing emulated around it.

Few kernels at hand have Open vSwitch, RED or DCTCP, so its chain is a plain one: host - bridge - bridge - host, a token
bucket on every link that never holds anybody up, Reno, offloads off. It lives in network namespaces without names,
which end with the processes in them: nothing of it can be seen outside, and nothing has to be removed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.guest import Moved
from testbed.errors import EnvironmentLacks


def run(mtu_bytes: int, lasts_s: float, cpu: int) -> Moved:
    """Forward packets of one MTU for so many seconds on one CPU. Raises EnvironmentLacks without root or a qdisc."""
    if os.geteuid() != 0:
        raise EnvironmentLacks("this machine's own kernel makes network namespaces for root alone", "sudo make bench")
    # --net alone: no mount namespace, since /proc/sys/net already shows the namespace of whoever looks
    command = ["taskset", "-c", str(cpu), "unshare", "--net", sys.executable, "-m", "benchmarks.inside.chain"]
    done = subprocess.run([*command, str(mtu_bytes), str(lasts_s)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        what = f"this machine's own kernel cannot run the chain: {last}"
        raise EnvironmentLacks(what, "use a kernel with veth, bridge, sch_tbf")
    said = json.loads(done.stdout)
    return Moved(said.pop("hops"), said.pop("wall_s"), said)
