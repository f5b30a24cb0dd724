"""What can go wrong, and what the user should do about it.

Nothing in the project prints an error: it raises one of these, and the command line says what is wrong, where, and
how to mend it, and leaves with the error's exit code.
"""

from __future__ import annotations

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


def exit_code(program: Callable[[], object]) -> int:
    """Run a program of ours to its end and return its exit code: 0, or that of the error it raised, which is said."""
    try:
        program()
    except OrreryError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0
