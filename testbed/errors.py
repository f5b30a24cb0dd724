"""What can go wrong, and what the user should do about it.

Nothing in the project prints an error: it raises one of these, and the command line says what is wrong, where, and
how to mend it, and leaves with the error's exit code.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable


class OrreryError(Exception):
    """Base of every error a user may meet. `exit_code` is what the command line leaves with."""

    exit_code = 1


class NotValid(OrreryError):
    """The run took place, but its results must not be believed (exit code 1)."""

    exit_code = 1


class InputError(OrreryError):
    """Something the user gave is wrong (exit code 2): `where` names file and key, `mend` says what would be right."""

    exit_code = 2

    def __init__(self, where: str, what: str, mend: str = "") -> None:
        super().__init__(f"{where}: {what}" + (f" ({mend})" if mend else ""))
        self.where, self.what, self.mend = where, what, mend


class EnvironmentLacks(OrreryError):
    """This machine lacks something (exit code 3): `mend` is the command that brings it."""

    exit_code = 3

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}\n  mend: {mend}")
        self.what, self.mend = what, mend


MENDS = {
    errno.ENOSPC: "make room, or choose another folder (--results, --write)",
    errno.EDQUOT: "make room, or choose another folder (--results, --write)",
    errno.EROFS: "choose another folder (--results, --write, ORRERY_CACHE)",
    errno.EACCES: "choose another folder (--results, --write, ORRERY_CACHE), or change its permissions",
    errno.EPERM: "python -m testbed doctor",
    errno.EMFILE: "ulimit -n 1024",
    errno.ENFILE: "end other programs, or raise fs.file-max",
    errno.ENOMEM: "end other programs, or give less with --mem",
    errno.EAGAIN: "end other programs, or raise ulimit -u",
}
"""What helps where the system refuses, by errno."""


def lacks(error: OSError) -> EnvironmentLacks:
    """Return what an error of the system's, met where nobody expected one, says of this machine."""
    where = f"{error.filename}: " if error.filename else ""
    what = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
    return EnvironmentLacks(f"{where}{what}", MENDS.get(error.errno or 0, "python -m testbed doctor"))


def shortened(text: str, most: int = 3000) -> str:
    """Return a text, or its beginning and its end: what is wrong may stand in either."""
    return text if len(text) <= most else f"{text[: most // 2]}\n…\n{text[-(most // 2) :]}"


def failure(who: str, said: list[bytes], code: int) -> NotValid:
    """Return the error of a program that ended with an exit code, having said this, or nothing."""
    words = shortened(b"".join(said).decode(errors="replace").strip())
    return NotValid(f"{who}: {words or f'its program ended without a word, with exit code {code}'}")


def exit_code(program: Callable[[], object]) -> int:
    """Run a program of ours to its end and return its exit code: 0, or that of the error it raised, which is said."""
    try:
        program()
    except OrreryError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
            raise  # a fault of ours: where it came about must be seen
        sys.stderr.write(f"{lacks(error)}\n")
        return EnvironmentLacks.exit_code
    return 0
