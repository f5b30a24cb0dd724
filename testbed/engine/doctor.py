"""What this machine has and lacks for each engine: one `Check` for each thing, with the command that mends it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.engine.host import cache_folder, memory_folder
from testbed.engine.kernel import Kernel, find
from testbed.engine.kernel.steps import missing_packages
from testbed.errors import EnvironmentLacks

Engine = Literal["any", "virtual", "native"]

GUEST_MEMORY_BYTES = 2 << 30
"""What a guest gets unless asked otherwise."""
ADMIN_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
OVS_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
SDN = "ryu" if sys.version_info < (3, 12) else "os_ken"
"""What the controller is built on; Ryu cannot be installed for Python 3.12 and later."""
MODULES = ("numpy", "scipy", "networkx", "matplotlib", "pydantic", "rich", "typer", "eventlet", SDN)
_DCTCP = "import socket; socket.socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'dctcp')"
NATIVE_PROBES = {
    "Open vSwitch": "genl ctrl get name ovs_datapath",
    "veth": "ip link add v0 type veth peer name v1",
    "netem": "tc qdisc add dev lo root netem delay 1ms",
    "tbf": "tc qdisc add dev lo root tbf rate 1mbit burst 10k limit 10k",
    "red": "tc qdisc add dev lo root red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 ecn",
    "DCTCP": f'{sys.executable} -ISc "{_DCTCP}"',
}
"""What an emulated network needs of the kernel, each with a script that shows whether it has it."""
TRACE_ME = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0)"
FILTER_ME = """
import ctypes, struct, sys
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000), 8)
ask = struct.pack("HxxxxxxQ", 1, ctypes.addressof(allow))
prctl = ctypes.CDLL(None).prctl
sys.exit(prctl(38, 1, 0, 0, 0) != 0 or prctl(22, 2, ask, 0, 0) != 0)
"""
"""PR_SET_NO_NEW_PRIVS, then PR_SET_SECCOMP with a filter that allows everything."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `mend` is the command that brings what is lacking, "" where none can.

    `engine` says which engine needs it. With `optional`, a run does without: more slowly, or with one feature less.
    """

    name: str
    ok: bool
    detail: str
    mend: str
    engine: Engine
    optional: bool = False


def checks(engine: Engine = "any") -> list[Check]:
    """Look at everything, or at what one engine needs, and return what was found. Prints nothing.

    It changes nothing, but that the kernel may load modules of its own that are asked for.
    """
    of_engine = {"virtual": _virtual, "native": _native}
    wanted = of_engine.values() if engine == "any" else [of_engine[engine]]
    return [*_common(), *(check for look in wanted for check in look())]


def usable(found: list[Check], engine: Engine) -> bool:
    """Return whether an engine can run: whatever it needs and is not optional is there."""
    return all(check.ok or check.optional for check in found if check.engine in ("any", engine))


def _check(name: str, ok: bool, detail: str, mend: str, engine: Engine, optional: bool = False) -> Check:
    return Check(name, ok, detail, "" if ok else mend, engine, optional)


def _common() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield _check("python", sys.version_info >= (3, 11), version, "apt-get install python3 python3-venv", "any")
    absent = [name for name in MODULES if importlib.util.find_spec(name) is None]
    detail = f"{', '.join(absent)} missing" if absent else f"{len(MODULES)} found"
    yield _check("python packages", not absent, detail, "make setup", "any")
    importable = importlib.util.find_spec("mininet") is not None
    if importable:
        yield _program("mininet", "mnexec", "mininet")
    else:
        python = f"not importable from {sys.executable}"
        yield _check("mininet", False, python, "apt-get install mininet && make setup", "any")
    yield _program("open vswitch", "ovs-vswitchd", "openvswitch-switch", OVS_SCHEMA)
    yield _program("ip and tc", "tc", "iproute2")
    yield _program("ethtool", "ethtool", "ethtool")
    yield _program("tcpdump", "tcpdump", "tcpdump")
    yield _program("tshark", "tshark", "tshark", optional=True)


def _virtual() -> Iterator[Check]:
    kernel = find()
    detail = f"Linux {kernel.version}" if kernel else "not built yet"
    yield _check("guest kernel", kernel is not None, detail, "python -m testbed kernel build", "virtual")
    packages = missing_packages()
    detail = f"{', '.join(packages)} missing" if packages else "all there"
    install = f"apt-get install --no-install-recommends {' '.join(packages)}"
    yield _check("kernel build tools", not packages, detail, install, "virtual", optional=kernel is not None)
    seccomp = kernel is not None and kernel.seccomp and _host_traps()
    yield _check("seccomp", seccomp, *_seccomp(kernel), "virtual", optional=True)
    traced = _succeeds(sys.executable, "-I", "-S", "-c", TRACE_ME)
    detail = "a process may trace its children" if traced else "forbidden here"
    mend = "sysctl kernel.yama.ptrace_scope=1, or in a container: --cap-add SYS_PTRACE"
    yield _check("ptrace", traced, detail, mend, "virtual", optional=seccomp)
    yield _memory()
    cpus = len(os.sched_getaffinity(0))
    yield _check("cpus", True, f"{cpus}: as many guests at full speed at once", "", "virtual")
    yield _cache()


def _native() -> Iterator[Check]:
    root = os.geteuid() == 0
    yield _check("root", root, "yes" if root else "no", "sudo python -m testbed …", "native")
    isolated = root and _succeeds("unshare", "--net", "true")
    mend = "run on a machine of your own, or in a container with --privileged"
    yield _check("network namespaces", isolated, "can be made" if isolated else "cannot be made", mend, "native")
    absent = [name for name, probe in NATIVE_PROBES.items() if not (isolated and _in_namespace(probe))]
    detail = f"{', '.join(absent)} missing" if absent else "all there"
    mend = "boot the distribution's own kernel: apt-get install linux-image-amd64" if isolated else "as root"
    yield _check("kernel features", not absent, detail, mend, "native")


def _program(name: str, program: str, package: str, also: Path | None = None, optional: bool = False) -> Check:
    path = _which(program)
    ok = path is not None and (also is None or also.exists())
    return _check(name, ok, path or f"no {program}", f"apt-get install {package}", "any", optional)


def _which(program: str) -> str | None:
    """Return where a program is, also where only root's PATH looks."""
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{ADMIN_PATH}")


def _seccomp(kernel: Kernel | None) -> tuple[str, str]:
    """Return (detail, mend) of the way in which a guest's programs are run."""
    if not _host_traps():
        return "this machine has none: ptrace instead, about half as fast", ""
    if kernel is None:
        return "known once the kernel is built", "python -m testbed kernel build"
    if not kernel.seccomp:
        return f"not in Linux {kernel.version}: ptrace instead, about half as fast", "python -m testbed kernel build"
    return "programs run at full speed", ""


def _host_traps(actions: Path = Path("/proc/sys/kernel/seccomp/actions_avail")) -> bool:
    """Return whether the kernel can trap system calls, and a process of ours may ask it to."""
    known = actions.is_file() and "trap" in actions.read_text().split()
    return known and _succeeds(sys.executable, "-I", "-S", "-c", FILTER_ME)


def _memory() -> Check:
    try:
        folder = memory_folder(GUEST_MEMORY_BYTES)
    except EnvironmentLacks as lack:
        return _check("guest memory", False, lack.what, lack.mend, "virtual")
    free_mb = shutil.disk_usage(folder).free >> 20
    mend = "mount -o remount,size=4G /dev/shm"
    return _check("guest memory", True, f"{free_mb} MB free in {folder}", mend, "virtual")


def _cache() -> Check:
    folder = cache_folder()
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    ok = os.access(nearest, os.W_OK | os.X_OK)
    detail = str(folder) if ok else f"{nearest} cannot be written"
    return _check("cache folder", ok, detail, "export ORRERY_CACHE=FOLDER", "virtual", optional=True)


def _in_namespace(script: str) -> bool:
    """Return whether a shell script succeeds in a network namespace of its own, which goes away with it."""
    return _succeeds("unshare", "--net", "sh", "-ec", f"PATH=$PATH:{ADMIN_PATH}; {script}")


def _succeeds(*argv: str) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
