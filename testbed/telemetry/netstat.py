"""A host's own account of what it received: the counters of its network namespace.

`InCEPkts` counts the packets that arrived with CE set, whoever marked them: the third source for the last
hop, where no switch looks at the packet again (Linux, net/ipv4/ip_input.c). A process may read another
namespace's counters through any process that lives there, without entering it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from testbed.errors import NotValid


class HostCounters(NamedTuple):
    """Packets since the namespace was made. `retransmitted` and `timeouts` belong to TCP, the others to
    IP."""

    ce: int
    ect0: int
    ect1: int
    not_ect: int
    retransmitted: int
    timeouts: int


def parse(text: str) -> dict[str, int]:
    """`/proc/net/netstat` or `/proc/net/snmp`: pairs of lines, names over values; keys are "IpExt.InCEPkts"
    etc.

    Raises NotValid when names and values do not pair up.
    """
    counters: dict[str, int] = {}
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        (group, *keys), (again, *numbers) = names.split(), values.split()
        if group != again or len(keys) != len(numbers):
            raise NotValid(f"the kernel's counters do not pair up: {group} over {again}")
        counters.update(
            (f"{group}{key}".replace(":", "."), int(value)) for key, value in zip(keys, numbers, strict=True)
        )
    return counters


def read(pid: int | None = None) -> HostCounters:
    """The counters of the namespace that process `pid` lives in; None = this process."""
    folder = Path("/proc") / ("self" if pid is None else str(pid)) / "net"
    extended, basic = (parse((folder / name).read_text()) for name in ("netstat", "snmp"))
    return HostCounters(
        ce=extended["IpExt.InCEPkts"],
        ect0=extended["IpExt.InECT0Pkts"],
        ect1=extended["IpExt.InECT1Pkts"],
        not_ect=extended["IpExt.InNoECTPkts"],
        retransmitted=basic["Tcp.RetransSegs"],
        timeouts=extended["TcpExt.TCPTimeouts"],
    )
