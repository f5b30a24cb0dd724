"""One case in the guest: the network, its connections, and the packets every directed link has sent meanwhile.

    python -m benchmarks.inside.traffic FOLDER

FOLDER holds the case. Marks "begin" when everything stands ready and "sent" at the end; answers what was moved.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

from benchmarks.cases import BUFFER_BYTES, Case, Flow
from benchmarks.inside import flows
from benchmarks.inside.network import Folder, controlled
from testbed.net.emulation import Emulation
from testbed.net.transport import Transport

PORT = 5001
NO_POLLS_S = 1e6
"""What the controller's polls cost is measured for itself."""
REST_S = 1.0
"""Virtual time for the handshakes' last timers to pass."""
LEAD_S = 0.001


def connect(net: Emulation, flow: Flow) -> tuple[socket.socket, socket.socket]:
    """Return the (sending, receiving) ends of a flow's connection, each in its host."""
    ip = net.topology.ip(flow.destination)
    with net.inside(flow.destination):
        listener = socket.create_server((ip, PORT))
    with net.inside(flow.source), listener:
        return socket.create_connection((ip, PORT)), listener.accept()[0]


def count(net: Emulation) -> dict[str, int]:
    """Return the packets sent onto links, and those that queues have marked and dropped, since the network began."""
    totals = {"hops": 0, "marks": 0, "drops": 0}
    for interface in net.interfaces.values():
        qdiscs = net.place(interface.node).qdiscs
        bucket, queue = (qdiscs.read(interface.ifindex, handle) for handle in ("2:", "3:"))
        totals["hops"] += bucket.packets
        totals["marks"] += queue.marked
        totals["drops"] += bucket.drops
    return totals


def run(net: Emulation, case: Case, folder: Folder) -> None:
    """Send, and answer what was sent."""
    connections = [connect(net, flow) for flow in case.flows]
    file = None if case.copied else flows.memory_file()
    start_s = time.time() + REST_S
    receivers = []
    for flow, (out, inward) in zip(case.flows, connections, strict=True):
        threading.Thread(target=flows.send, args=(out, flow.size_bytes, start_s, file), daemon=True).start()
        receivers.append(
            threading.Thread(target=flows.receive, args=(inward, flow.size_bytes, case.copied), daemon=True)
        )
        receivers[-1].start()
    time.sleep(start_s - LEAD_S - time.time())
    before = count(net)
    folder.mark("begin")
    for receiver in receivers:
        receiver.join(start_s + case.lasts_s - time.time())
    ended_s = time.time()
    folder.mark("sent")
    moved = {name: number - before[name] for name, number in count(net).items()}
    folder.answer({"virtual_s": round(ended_s - start_s, 6), **moved})


def main(arguments: list[str]) -> None:
    """Run the case of the folder named."""
    folder = Folder(Path(arguments[0]))
    case = Case.from_dict(folder.asked())
    transport = Transport("dctcp", ecn=True, rto_min_s=0.2, socket_buffer_bytes=BUFFER_BYTES)
    with controlled(folder, case.topology, transport, NO_POLLS_S) as (net, _):
        run(net, case, folder)
    os._exit(0)  # the flows without end go with it


if __name__ == "__main__":
    main(sys.argv[1:])
