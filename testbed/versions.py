"""What the bytes of a result depend on beside the scenario, its seed and our own code: versions, by name."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("ryu", "os-ken", "eventlet", "numpy", "scipy", "networkx", "pyroute2")


def packages() -> dict[str, str]:
    """Return the versions of the Python packages that move or count packets, of those that are there."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def versions(kernel_key: str | None = None) -> dict[str, str]:
    """Return all versions: machine, C library, Python and its packages; of a run with packets also those of the guest's
    kernel (its source and our options and patches) and of Open vSwitch."""
    name, _, number = (os.confstr("CS_GNU_LIBC_VERSION") or "libc unknown").partition(" ")
    found = {"machine": platform.machine(), "python": platform.python_version(), name: number} | packages()
    return found if kernel_key is None else {"guest kernel": kernel_key, "open vswitch": _open_vswitch()} | found


def _open_vswitch() -> str:
    try:
        said = subprocess.run(("ovs-vswitchd", "--version"), capture_output=True, text=True, check=False).stdout
    except OSError:
        return "not found"
    return said.partition("\n")[0].rpartition(" ")[2]


def differences(kept: dict[str, str], here: dict[str, str]) -> list[str]:
    """Return a line for every version that is another one here, or is known on one side only."""
    return [
        f"{name} {kept.get(name, 'not there')}, here {here.get(name, 'not there')}"
        for name in dict.fromkeys((*kept, *here))
        if kept.get(name) != here.get(name)
    ]
