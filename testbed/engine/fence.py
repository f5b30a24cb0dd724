"""What a guest's kernel, a process of the host, may do there: a Landlock rule set, which the host's kernel enforces.

It reads no file in the user's home folder but what it was shown, writes nothing but its results and its memory, opens
no TCP port and connects to none, and signals nobody outside. Landlock needs no right; it is in Linux since 5.13, and
complete enough for this since 5.19. Where it is missing, guests run with the fences of their own kernel alone.

Numbers and structures: include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
CREATE_VERSION, RULE_PATH_BENEATH = 1, 1
PR_SET_NO_NEW_PRIVS = 38
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REFER, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 13, 1 << 14
MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/sbin", "/sys", "/usr")
"""Where accounts of the system may have their "home": no guest runs without."""
LEAST_VERSION = 2
"""The first that lets a file be moved from folder to folder."""
TCP_BIND_AND_CONNECT, ABSTRACT_SOCKETS_AND_SIGNALS = 3, 3
LIBC = ctypes.CDLL(None, use_errno=True)
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE


def homes() -> tuple[Path, ...]:
    """Return the user's home folders, by the user database and by $HOME, but for those that no guest runs without."""
    named = [os.environ.get("HOME", "")]
    with suppress(KeyError):
        named.append(pwd.getpwuid(os.getuid()).pw_dir)
    found = dict.fromkeys(Path(name).resolve() for name in named if name.startswith("/"))
    return tuple(
        path
        for path in found
        if path.is_dir() and path != Path("/") and not any(path.is_relative_to(folder) for folder in SYSTEM)
    )


def version() -> int:
    """Return the version of the host's Landlock, 0 where there is none."""
    found: int = LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), CREATE_VERSION)
    return max(0, found)


@contextmanager
def fence(hidden: Iterable[Path], reads: Iterable[int], writes: Iterable[int]) -> Iterator[int | None]:
    """Yield the descriptor of a rule set, for `restrict`; None where the host has no Landlock that would do.

    No file below `hidden` can be read, but below those folders (or those files) whose descriptors are in `reads`;
    files can be written below `writes` alone.
    """
    found = version()
    if found < LEAST_VERSION:
        yield None
        return
    everything = EXECUTE | WRITE_FILE | READ_FILE | READ_DIR | MAKE_AND_REMOVE | REFER | (TRUNCATE if found > 2 else 0)
    attributes = struct.pack(
        "=QQQ", everything, TCP_BIND_AND_CONNECT if found > 3 else 0, ABSTRACT_SOCKETS_AND_SIGNALS if found > 5 else 0
    )
    size = ctypes.c_size_t(24 if found > 5 else 16 if found > 3 else 8)
    ruleset = LIBC.syscall(CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        yield None
        return
    try:
        _allow_path(ruleset, Path("/"), READ_DIR)  # names, without which nobody would find anything
        for path in _all_but(Path("/"), tuple(hidden)):
            _allow_path(ruleset, path, (EXECUTE | READ_FILE) & everything)
        for descriptor in reads:
            _allow(ruleset, descriptor, (EXECUTE | READ_FILE | READ_DIR) & everything)
        for descriptor in writes:
            _allow(ruleset, descriptor, everything)
        _allow_path(ruleset, Path(os.devnull), (READ_FILE | WRITE_FILE | TRUNCATE) & everything)
        yield ruleset
    finally:
        os.close(ruleset)


def restrict(ruleset: int) -> None:
    """Put this process, and whatever it starts, behind the fence; between fork and exec."""
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or LIBC.syscall(RESTRICT_SELF, ruleset, 0):
        raise OSError(ctypes.get_errno(), "landlock")


def _all_but(folder: Path, hidden: tuple[Path, ...]) -> Iterator[Path]:
    """Yield what covers all of a folder but for what lies below `hidden`."""
    if folder in hidden:
        return
    if not any(path.is_relative_to(folder) for path in hidden):
        yield folder
        return
    with suppress(OSError):
        for entry in sorted(folder.iterdir()):
            if not entry.is_symlink():
                yield from _all_but(entry, hidden)


def _allow_path(ruleset: int, path: Path, access: int) -> None:
    with suppress(OSError):  # gone meanwhile, or not for this user
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            _allow(ruleset, descriptor, access)
        finally:
            os.close(descriptor)


def _allow(ruleset: int, descriptor: int, access: int) -> None:
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        access &= OF_FILES
    rule = struct.pack("=Qi", access, descriptor)
    if LIBC.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
