"""Network namespaces entered from inside this process, and the settings (sysctls, offloads) that live in
them.

Entering costs one system call; starting a helper inside costs thousands. Whatever is opened or started
inside, a socket or a process, stays there.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import EnvironmentLacks, InputError

MACHINE_NETWORK = "ORRERY_MACHINE_NETNS"
"""Where testbed.engine.native says which namespace is the machine's own."""
_CLONE_NEWNET = 0x40000000
_SIOCETHTOOL = 0x8946
_PROC_SYS = Path("/proc/sys")
_libc = ctypes.CDLL(None, use_errno=True)
# ETHTOOL_G* and ETHTOOL_S* of each offload that would make one big packet of many.
_OFFLOADS = {"tso": (0x1E, 0x1F), "gso": (0x23, 0x24), "gro": (0x2B, 0x2C)}
OFFLOADS = tuple(_OFFLOADS)


class Namespace:
    """An open network namespace."""

    def __init__(self, file: int) -> None:
        self.file = file

    @classmethod
    def current(cls) -> Namespace:
        """The namespace of the calling thread."""
        return cls(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    @classmethod
    def new(cls) -> Namespace:
        """A fresh one, with a loopback device and nothing else."""
        before = cls.current()
        try:
            if _libc.unshare(_CLONE_NEWNET):
                raise EnvironmentLacks(
                    f"cannot make a network namespace: {os.strerror(ctypes.get_errno())}",
                    "run as root, or in the virtual engine",
                )
            try:
                return cls.current()
            finally:
                _enter(before.file)
        finally:
            before.close()

    @classmethod
    def of(cls, pid: int) -> Namespace:
        """The namespace of a process."""
        return cls(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    def close(self) -> None:
        """Lets go of it; it lives on while a process or a device uses it."""
        os.close(self.file)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Inside the block the calling thread is in this namespace, and so is every process it starts."""
        before = Namespace.current()
        try:
            _enter(self.file)
            try:
                yield
            finally:
                _enter(before.file)
        finally:
            before.close()


@contextlib.contextmanager
def machine() -> Iterator[None]:
    """Inside the block the calling thread is in the machine's own network namespace, where settings of the whole
    machine are; outside of the native engine it is there already."""
    path = os.environ.get(MACHINE_NETWORK)
    if path is None:
        yield
        return
    namespace = Namespace(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    try:
        with namespace.entered():
            yield
    finally:
        namespace.close()


def _enter(file: int) -> None:
    if _libc.setns(file, _CLONE_NEWNET):
        raise EnvironmentLacks(
            f"cannot enter a network namespace: {os.strerror(ctypes.get_errno())}",
            "run as root, or in the virtual engine",
        )


def read_sysctl(name: str) -> str:
    """The value of "net/ipv4/tcp_ecn" in the current namespace, words separated by single spaces."""
    return " ".join((_PROC_SYS / name).read_text().split())


def write_sysctl(name: str, value: str) -> None:
    """Sets it; raises InputError when the kernel does not take the value, EnvironmentLacks when it has no
    such setting."""
    path = _PROC_SYS / name
    if not path.exists():
        raise EnvironmentLacks(f"this kernel has no setting {name}", "use a kernel with IPv6 and namespaces")
    try:
        path.write_text(value)
    except OSError as problem:
        raise InputError(f"sysctl {name}", f"the kernel does not take {value!r}: {problem.strerror}") from problem


class Offloads:
    """Reads and sets the offloads of devices in the namespace that was current when it was opened."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def switch_off(self, interface: str) -> None:
        """No tso, gso or gro: every packet is counted, queued and marked by itself."""
        for name in OFFLOADS:
            self._ask(interface, _OFFLOADS[name][1], 0)

    def read(self, interface: str) -> dict[str, bool]:
        """Which of tso, gso and gro are on."""
        return {name: bool(self._ask(interface, get, 0)) for name, (get, _) in _OFFLOADS.items()}

    def _ask(self, interface: str, command: int, value: int) -> int:
        argument = ctypes.create_string_buffer(struct.pack("=II", command, value), 8)
        request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(argument))
        fcntl.ioctl(self._socket, _SIOCETHTOOL, request)
        (answer,) = struct.unpack_from("=I", argument, 4)
        return int(answer)
