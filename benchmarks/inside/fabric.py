"""The whole fabric in the guest: up, shaped, programmed, read back, with an agent on every host; then idle.

    python -m benchmarks.inside.fabric FOLDER

Marks each stage when it is reached, and "idle begins" and "idle ends" round a stretch of virtual time in which nothing
happens but the controller's polls.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.inside.network import Folder, controlled
from testbed.net.emulation import MANAGEMENT_IP, Emulation
from testbed.net.topology import Topology
from testbed.net.transport import Transport
from workloads.training.coordinator import Coordinator, Slot, start_agents
from workloads.training.plan import Bucket, JobPlan, data_parallel
from workloads.training.records import SocketTerms

COORDINATOR_PORT = 7000
DSCP = 1


def job_of_all(topology: Topology) -> JobPlan:
    """Return a job with a worker on every host, in one ring. What it would send does not matter here."""
    ips = tuple(topology.ip(host) for host in topology.hosts)
    return data_parallel("all", topology.hosts, ips, DSCP, 0.1, 0.1, (Bucket(1_000_000, 0.05),), 1, "dctcp")


def gather(net: Emulation, job: JobPlan) -> Coordinator:
    """Return the coordinator of agents that have joined their ring and wait."""
    slots = [Slot(host, 0) for host in job.hosts]
    coordinator = Coordinator((MANAGEMENT_IP, COORDINATOR_PORT), slots, lambda *_: None, SocketTerms())
    places = [(slot.host, slot.index, net.pid(slot.host)) for slot in slots]
    start_agents((MANAGEMENT_IP, COORDINATOR_PORT), places)
    coordinator.gather([job])
    return coordinator


def main(arguments: list[str]) -> None:
    """Run the stages; the folder's arguments are `topology`, `interval_s` and `idle_s`."""
    folder = Folder(Path(arguments[0]))
    asked = folder.asked()
    topology = Topology.from_dict(asked["topology"])
    with controlled(folder, topology, Transport(), asked["interval_s"]) as (net, controller):
        gather(net, job_of_all(topology))
        folder.mark("agents")
        controller.set_epoch(time.time())
        folder.mark("idle begins")
        time.sleep(asked["idle_s"])
        folder.mark("idle ends")
    os._exit(0)  # the guest's end sends the agents home


if __name__ == "__main__":
    main(sys.argv[1:])
