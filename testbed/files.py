"""Reading a file that a user gives: whole, and never more of it than memory holds well."""

from __future__ import annotations

from pathlib import Path

from testbed.errors import InputError

TEXT_BYTES = 4_000_000
"""The largest scenario, table or network. What is read takes some fifty times as much memory."""


def read_bytes(path: Path, most_bytes: int = TEXT_BYTES) -> bytes:
    """Return what a file holds. Raises InputError when that is more than `most_bytes`, OSError as reading does.

    Whatever it is, also a device without an end, no more than that is read.
    """
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise InputError(str(path), f"is larger than {most_bytes / 1e6:g} MB", "give a smaller one, or a part of it")
    return content


def read_text(path: Path, most_bytes: int = TEXT_BYTES) -> str:
    """Return the text of a file in UTF-8, with line ends as `Path.read_text` has them.

    Raises InputError when it is too large, OSError or UnicodeDecodeError when it cannot be read.
    """
    return read_bytes(path, most_bytes).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
