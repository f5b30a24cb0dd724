"""A host's own account of what it received: the counters of its network namespace.

`InCEPkts` counts the packets that arrived with CE set, whoever marked them: the third source for the last
hop, where no switch looks at the packet again (Linux, net/ipv4/ip_input.c). A process may read another
namespace's counters through any process that lives there, without entering it.

Agents import this, and each of them pays for what it loads: so it does without `typing` and `pathlib`.
"""

from __future__ import annotations

from collections import namedtuple

from testbed.errors import NotValid


class HostCounters(namedtuple("HostCounters", ("ce", "ect0", "ect1", "not_ect", "retransmitted", "timeouts"))):
    """Packets since the namespace was made. `retransmitted` and `timeouts` belong to TCP, the others to
    IP."""

    __slots__ = ()


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


def _content(path: str) -> str:
    with open(path) as file:  # noqa: PTH123 - without pathlib
        return file.read()


def read(pid: int | None = None) -> HostCounters:
    """The counters of the namespace that process `pid` lives in; None = this process."""
    whose = "self" if pid is None else str(pid)
    extended, basic = (parse(_content(f"/proc/{whose}/net/{name}")) for name in ("netstat", "snmp"))
    return HostCounters(
        ce=extended["IpExt.InCEPkts"],
        ect0=extended["IpExt.InECT0Pkts"],
        ect1=extended["IpExt.InECT1Pkts"],
        not_ect=extended["IpExt.InNoECTPkts"],
        retransmitted=basic["Tcp.RetransSegs"],
        timeouts=extended["TcpExt.TCPTimeouts"],
    )
