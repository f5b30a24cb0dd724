"""A network by its name: `netstorm-9`, `topohub:NAME`, or a file (.graphml, .csv, .toml)."""

from __future__ import annotations

from pathlib import Path

from testbed.errors import InputError
from testbed.net.wan import graphml, hub, netstorm, pairwise, toml
from testbed.net.wan.build import Defaults
from testbed.net.wan.model import Wan

_READERS = {".graphml": graphml.read, ".csv": pairwise.read, ".toml": toml.read}
_HUB = "topohub:"


def load(name: str, folders: list[Path], seed: int, defaults: Defaults) -> Wan:
    """The network of that name; files are looked for in `folders`, in order. Raises InputError."""
    if name == netstorm.NAME:
        return netstorm.build(seed, defaults)
    if name.startswith(_HUB):
        return hub.read(name.removeprefix(_HUB), defaults)
    for folder in folders:
        path = folder / name
        if path.is_file():
            if path.suffix not in _READERS:
                raise InputError(name, "is no kind of file that is known", f"one of {', '.join(_READERS)}")
            return _READERS[path.suffix](path, defaults)
    raise InputError(name, "there is no such network", f"{netstorm.NAME}, {_HUB}NAME, or a file {', '.join(_READERS)}")
