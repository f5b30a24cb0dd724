"""ns-3 as a system under test: the same networks, paths and flows, in the simulator most papers use.

Debian's packages (libns3-dev) are built with logging and assertions. Nothing here is scaled for that.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

from benchmarks.cases import BUFFER_BYTES, MARK_AT_PACKETS, QUEUE_BYTES, Case
from benchmarks.guest import Moved
from controllers.sdn.paths import Routes
from testbed.engine.host import cache_folder
from testbed.errors import EnvironmentLacks, NotValid

SOURCE = Path(__file__).with_name("network.cc")
HEADER = Path("/usr/include/ns3/core-module.h")
MODULES = ("applications", "point-to-point", "traffic-control", "internet", "network", "core")
MEND = "apt-get install --no-install-recommends libns3-dev g++"


def describe(case: Case) -> str:
    """Return the case in the words of network.cc, with the paths that the controller takes."""
    topology, routes = case.topology, Routes(case.topology)
    number = {name: index for index, name in enumerate((*topology.hosts, *topology.switches))}
    pairs = [pair for flow in case.flows for pair in ((flow.source, flow.destination), (flow.destination, flow.source))]
    paths = {pair: [tuple(link.split("->")) for link in routes.route(*pair)] for pair in pairs}
    sizes = (topology.mtu_bytes, case.segment_bytes, BUFFER_BYTES, QUEUE_BYTES // topology.mtu_bytes, MARK_AT_PACKETS)
    # A channel of ns-3 has one delay for both directions: that of a way is spread over its links.
    way_s = max(link.a_to_b.delay_s for link in topology.links)
    delay_ns = round(1e9 * way_s / max(len(path) for path in paths.values()))
    rules = {
        (at, before, destination, after)
        for (_, destination), path in paths.items()
        for (before, at), (_, after) in itertools.pairwise(path)
    }
    lines = [f"network {len(topology.hosts)} {len(topology.switches)} {' '.join(map(str, sizes))}"]
    lines += [f"link {number[k.a]} {number[k.b]} {k.a_to_b.rate_bps} {delay_ns}" for k in topology.links]
    lines += [f"route {' '.join(str(number[name]) for name in rule)}" for rule in sorted(rules)]
    lines += [f"flow {number[f.source]} {number[f.destination]} {f.size_bytes or 0}" for f in case.flows]
    return "\n".join([*lines, f"end {case.lasts_s}", ""])


def program() -> Path:
    """Return the compiled program, from the cache where it is. Raises EnvironmentLacks without ns-3 or a compiler."""
    if not HEADER.is_file() or shutil.which("g++") is None:
        raise EnvironmentLacks("ns-3 is not installed", MEND)
    folder = cache_folder() / "bench"
    binary = folder / f"ns3-{sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    if binary.is_file():
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fresh = Path(scratch) / "network"
        command = ["g++", "-O3", "-std=c++17", "-DNDEBUG", "-o", str(fresh), str(SOURCE)]
        done = subprocess.run(
            [*command, *(f"-lns3-{module}" for module in MODULES)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise EnvironmentLacks(f"ns-3's headers do not compile: {done.stderr.strip()[-1000:]}", MEND)
        fresh.replace(binary)
    return binary


def run(case: Case, cpu: int) -> Moved:
    """Run a case, kept to one CPU. Raises EnvironmentLacks, and NotValid when the simulator fails."""
    command = ["taskset", "-c", str(cpu), str(program())]
    done = subprocess.run(command, input=describe(case), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotValid(f"ns-3 on {case.name}: {done.stderr.strip()[-1000:]}")
    said = json.loads(done.stdout)
    return Moved(said.pop("hops"), said.pop("wall_s"), said)
