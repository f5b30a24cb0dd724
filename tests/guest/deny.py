"""Run a command to which the kernel denies system calls, as a container's seccomp profile does:

    python tests/guest/deny.py ptrace,seccomp COMMAND [ARGUMENT…]

The calls answer EPERM. `seccomp` also denies its older form, prctl(PR_SET_SECCOMP). x86-64 only.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

NUMBERS = {"ptrace": (101,), "seccomp": (317,), "unshare": (272,), "io_uring": (425,)}
PRCTL, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER_MODE = 157, 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE_EPERM = 0x7FFF0000, 0x00050001
NUMBER_AT, FIRST_ARGUMENT_AT = 0, 16
"""Offsets in struct seccomp_data."""


def program(denied: list[str]) -> bytes:
    """Return the filter: sock_filter structures, each (code, jump if true, jump if false, operand)."""
    steps = [(LOAD, 0, 0, NUMBER_AT)]
    for number in (number for name in denied for number in NUMBERS[name]):
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE_EPERM)]
    if "seccomp" in denied:
        steps += [
            (EQUAL, 0, 3, PRCTL), (LOAD, 0, 0, FIRST_ARGUMENT_AT),
            (EQUAL, 0, 1, PR_SET_SECCOMP), (RETURN, 0, 0, REFUSE_EPERM),
        ]  # fmt: skip
    return b"".join(struct.pack("HBBI", *step) for step in (*steps, (RETURN, 0, 0, ALLOW)))


def main(denied: str, *command: str) -> None:
    """Deny, and become the command."""
    steps = program(denied.split(","))
    buffer = ctypes.create_string_buffer(steps, len(steps))
    description = struct.pack("HxxxxxxQ", len(steps) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, FILTER_MODE, description, 0, 0):
        sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
