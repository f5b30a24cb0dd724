"""Mininet's nodes, started at a fraction of Mininet's price.

They are Mininet's own classes and behave as such (`cmd`, `popen`, the command line). What is left out is what
takes Mininet 13 s for the 48-link fabric in a guest: closing a thousand file descriptors before every shell,
five programs per node where one does, and a shell for `ifconfig lo up` in every switch. Devices are made and
configured elsewhere.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import termios
from collections.abc import Sequence
from typing import IO, Any, cast

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Host, Node, OVSSwitch
from mininet.util import ensureRoot

from testbed.errors import EnvironmentLacks

# Mininet knows by this character that a command has ended.
_PROMPT = chr(127)


class Network(Mininet):  # type: ignore[misc]
    """Mininet's network without its changes to the machine's limits, which ours replace."""

    @classmethod
    def init(cls) -> None:
        """Only checks that we are root."""
        ensureRoot()


def _start_shell(node: Node, command: Sequence[str]) -> None:
    """A shell on a pseudo-terminal, as `Node.startShell` leaves it."""
    node.master, node.slave = pty.openpty()
    settings = termios.tcgetattr(node.slave)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(node.slave, termios.TCSANOW, settings)
    bash = ["bash", "--norc", "--noediting", "-is", f"mininet:{node.name}"]
    streams = {"stdin": node.slave, "stdout": node.slave, "stderr": node.slave}
    # Python's files are closed on exec one by one where needed: nothing is left to close.
    node.shell = subprocess.Popen([*command, *bash], env={**os.environ, "PS1": _PROMPT}, close_fds=False, **streams)
    node.stdin = node.stdout = os.fdopen(node.master, "r")
    node.pollOut = select.poll()
    node.pollOut.register(node.stdout)
    node.outToNode[node.master] = node.inToNode[node.master] = node
    node.execed, node.lastCmd, node.lastPid, node.readbuf = False, None, None, ""
    while not node.read(1024).endswith(_PROMPT):
        pass
    node.waiting = False
    node.cmd("unset HISTFILE; set +m")


class _Waking(Node):  # type: ignore[misc]
    """A node whose shell begins with its first command: most are never given one. `_by` is what begins it."""

    _by: Sequence[str] = ("mnexec", "-d")

    def _wake(self) -> None:
        if self.shell is None:
            _start_shell(self, self._by)

    def cmd(self, *args: Any, **options: Any) -> Any:
        """Runs a command in the node's shell."""
        self._wake()
        return super().cmd(*args, **options)

    def sendCmd(self, *args: Any, **options: Any) -> Any:  # noqa: N802
        """Begins a command in the node's shell."""
        self._wake()
        return super().sendCmd(*args, **options)


class FabricHost(_Waking, Host):  # type: ignore[misc]
    """A network namespace."""

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802, ARG002
        """Starts a process that holds a network and mount namespace of its own, and ends with this one."""
        command, pipe = ["mnexec", "-dn", "cat"], subprocess.PIPE
        self._holder = subprocess.Popen(command, close_fds=False, bufsize=0, stdin=pipe, stdout=pipe)
        self.pid = self._holder.pid
        self._by = ("mnexec", "-da", str(self.pid))
        there, back = cast(IO[bytes], self._holder.stdin), cast(IO[bytes], self._holder.stdout)
        there.write(b".")
        if back.read(1) != b".":  # it answers once it is where it should be
            raise EnvironmentLacks(f"{self.name} gets no network namespace of its own", "run as root")

    def terminate(self) -> None:
        """Ends the shell, and then what holds the namespaces."""
        super().terminate()
        self._holder.kill()
        self._holder.communicate()


class FabricSwitch(_Waking, OVSSwitch):  # type: ignore[misc]
    """A bridge of Open vSwitch, in the namespace of this process."""

    def __init__(self, name: str, **params: Any) -> None:
        # Mininet would start a shell here to switch `lo` on; for a switch "in a namespace" it does not.
        super().__init__(name, **{**params, "inNamespace": True})
        self.inNamespace = False
        self.controlIntf = FabricIntf("lo", self, port=0)

    @classmethod
    def setup(cls) -> None:
        """Nothing to ask: whether Open vSwitch works, its first transaction shows."""

    @classmethod
    def isOldOVS(cls) -> bool:  # noqa: N802
        """No: OpenFlow 1.3 is needed anyway."""
        return False

    @classmethod
    def batchShutdown(cls, switches: Sequence[Any], run: Any = None) -> Sequence[Any]:  # noqa: N802, ARG003
        """Mininet's own would hang up the processes behind `pid`, which may be ours."""
        for switch in switches:
            switch.stop()
        return switches

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802, ARG002
        """Waits: until there is a shell, commands started beside it run where this process runs."""
        self.pid = os.getpid()


class FabricIntf(Intf):  # type: ignore[misc]
    """A device that has been configured already."""

    def config(self, mac: str | None = None, ip: str | None = None, **_: Any) -> dict[str, Any]:
        """Notes the addresses."""
        if mac:
            self.mac = mac
        if ip:
            self.ip, self.prefixLen = ip.split("/")
        return {}


class FabricLink(Link):  # type: ignore[misc]
    """A veth pair that has been made already."""

    @classmethod
    def makeIntfPair(cls, *_: Any, **__: Any) -> None:  # noqa: N802
        """Nothing to make."""
