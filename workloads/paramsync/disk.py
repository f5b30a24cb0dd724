"""What a site has on disk, which outlives its programs: how often it was started, which round it has completed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Disk:
    """The file `path`, changed at once or not at all. `complete` counts rounds, and stands for the model after them."""

    path: Path
    life: int = 0
    complete: int = 0

    def start(self) -> None:
        """Read what an earlier life has left, and count this one."""
        if self.path.exists():
            self.life, self.complete = json.loads(self.path.read_text())
        self.life += 1
        self._write()

    def completed(self, rounds: int) -> None:
        """Keep the number of rounds that are complete."""
        self.complete = rounds
        self._write()

    def _write(self) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps([self.life, self.complete]))
        fresh.replace(self.path)
