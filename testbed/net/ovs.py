"""Open vSwitch: all switches in one transaction, and what it made of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from testbed.errors import EnvironmentLacks
from testbed.net.topology import Topology

# Open vSwitch's shortest pause between two attempts to reach a controller.
_MAX_BACKOFF_MS = 1000
_PID_FILE = Path("/run/openvswitch/ovs-vswitchd.pid")


def create(topology: Topology, controller_port: int | None) -> list[str]:
    """The commands of one ovs-vsctl transaction: a bridge per switch, its ports under the topology's numbers,
    and the controller on `controller_port` of this machine if given. Without one nothing is forwarded
    (fail_mode secure)."""
    commands: list[str] = []
    for switch in topology.switches:
        commands += [
            "--",
            "add-br",
            switch,
            "--",
            "set",
            "Bridge",
            switch,
            "fail_mode=secure",
            "protocols=OpenFlow13",
        ]
        commands += [
            f"other-config:datapath-id={topology.dpid(switch):016x}",
            "other-config:disable-in-band=true",
        ]
        if controller_port is not None:
            commands += [f"controller=@{switch}", "--", f"--id=@{switch}", "create", "Controller"]
            commands += [f'target="{controller_target(controller_port)}"', "connection_mode=out-of-band"]
            # No probes: virtual time jumps, and a silent controller is an idle one.
            commands += ["inactivity_probe=0", f"max_backoff={_MAX_BACKOFF_MS}"]
    for a, b in topology.directed():
        if a in topology.switches:
            interface = topology.interface(a, b)
            commands += ["--", "add-port", a, interface]
            commands += ["--", "set", "Interface", interface, f"ofport_request={topology.port(a, b)}"]
    return commands


def delete(topology: Topology) -> list[str]:
    """The commands that take the switches away again."""
    return [word for switch in topology.switches for word in ("--", "--if-exists", "del-br", switch)]


def answer_misses_first() -> None:
    """Let the threads that make a flow for its first packet run before all else.

    Otherwise they wait for the thread that answers the controller, most of a millisecond of virtual time. What comes
    meanwhile at 50 Gbit/s, the first packets that were ever marked on a link, does not fit into their socket and is
    lost. Needs the switches to be there. On a machine that allows nobody a priority nothing changes.
    """
    for thread in handlers():
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))


def handlers() -> list[int]:
    """The threads of the switch daemon that make flows, none where it does not run."""
    if not _PID_FILE.exists():
        return []
    threads = Path(f"/proc/{int(_PID_FILE.read_text())}/task")
    return [int(comm.parent.name) for comm in threads.glob("*/comm") if comm.read_text().startswith("handler")]


def lost_packets() -> int:
    """How many packets found no flow and did not fit into the socket of those who make flows: a switch of hardware
    loses none this way. Raises EnvironmentLacks."""
    shown = _ask(["ovs-appctl", "dpctl/show"])
    return sum(int(count) for count in re.findall(r"\blost:(\d+)", shown))


def controller_target(port: int) -> str:
    """Where switches look for their controller."""
    return f"tcp:127.0.0.1:{port}"


def vsctl(commands: list[str]) -> str:
    """Runs one transaction and waits until the switch daemon has followed it; raises EnvironmentLacks."""
    return _ask(["ovs-vsctl", "--timeout=60", *commands])


def _ask(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as problem:
        raise EnvironmentLacks("Open vSwitch is not installed", "apt-get install openvswitch-switch") from problem
    if done.returncode or done.stderr:
        raise EnvironmentLacks(
            f"Open vSwitch did not do what it was told: {done.stderr.strip() or done.returncode}",
            "ovs-vsctl show; is ovs-vswitchd running?",
        )
    return done.stdout


def read() -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """What Open vSwitch has: per bridge datapath_id, fail_mode and controller targets; per device its port
    number."""
    listing = ["--format=json", "--columns=_uuid,target", "list", "Controller"]
    listing += ["--", "--columns=name,datapath_id,fail_mode,protocols,controller", "list", "Bridge"]
    listing += ["--", "--columns=name,ofport", "list", "Interface"]
    controllers, bridges, interfaces = (json.loads(line) for line in vsctl(listing).splitlines())
    targets = {uuid[1]: target for uuid, target in controllers["data"]}
    found: dict[str, dict[str, Any]] = {}
    for name, datapath_id, fail_mode, protocols, controller in bridges["data"]:
        found[name] = {
            "datapath_id": datapath_id,
            "fail_mode": fail_mode,
            "protocols": protocols,
            "controllers": sorted(targets[uuid] for uuid in _uuids(controller)),
        }
    return found, {name: ofport for name, ofport in interfaces["data"] if isinstance(ofport, int)}


def _uuids(value: list[Any]) -> list[str]:
    kind, content = value
    return [content] if kind == "uuid" else [uuid for _, uuid in content]
