"""What the controller is told when it starts: one JSON file."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controllers.sdn.flows import check_jobs
from testbed.errors import InputError
from testbed.net.topology import Topology

MINIMUM_INTERVAL_S = 1e-3


@dataclass(frozen=True)
class Config:
    """Settings of one run of the controller.

    `jobs` maps a job to its DSCP. Statistics are read every `interval_s` virtual seconds and written into the
    folder `out`, with t_s = 0 at `epoch` (of `time.time()`; None = told later, nothing is written before).
    Switches connect to `listen`:`port`, the rest of the testbed to the unix socket `control`. Without
    `queues` no qdisc is read. With `resume` it goes on where one that crashed left off: the switches have its
    rules, `journal` tells the rest.

    Raises InputError when a value is out of range.
    """

    topology: Topology
    jobs: dict[str, int]
    out: Path
    control: Path
    interval_s: float = 0.1
    port: int = 6653
    listen: str = "127.0.0.1"
    epoch: float | None = None
    queues: bool = True
    resume: bool = False

    def __post_init__(self) -> None:
        check_jobs(self.jobs)
        if not self.interval_s >= MINIMUM_INTERVAL_S:
            raise InputError("interval_s", f"{self.interval_s} s", f"at least {MINIMUM_INTERVAL_S} s")
        if not 0 < self.port < 1 << 16:
            raise InputError("port", f"{self.port}", "1 to 65535")

    @property
    def journal(self) -> Path:
        """The file that outlives a crash (controllers.sdn.journal)."""
        return self.control.with_suffix(".journal")

    def write(self, path: Path) -> None:
        """Save as the JSON file that `read` takes."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values |= {"topology": self.topology.to_dict(), "out": str(self.out), "control": str(self.control)}
        path.write_text(json.dumps(values, indent=1))

    @classmethod
    def read(cls, path: Path) -> Config:
        """Load a JSON file. Raises InputError with file and key."""
        try:
            values: dict[str, Any] = json.loads(path.read_text())
            values |= {"topology": Topology.from_dict(values["topology"])}
            return cls(**values | {"out": Path(values["out"]), "control": Path(values["control"])})
        except OSError as error:
            raise InputError(str(path), f"cannot be read: {error.strerror}") from error
        except KeyError as error:
            raise InputError(str(path), f"lacks the key {error}") from error
        except (TypeError, ValueError) as error:
            raise InputError(str(path), f"is not a controller's configuration: {error}") from error
