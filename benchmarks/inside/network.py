"""A network of the product's own, under the product's own controller, as every arm has it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controllers.sdn.config import Config
from controllers.sdn.control import Client
from testbed import programs
from testbed.net.emulation import Emulation
from testbed.net.topology import Topology
from testbed.net.transport import Transport

CONTROLLER_PORT = 6653
ASKED, ANSWER, MARK = "asked.json", "answer.json", ".mark"
SCRATCH = Path("/run/orrery/bench")


@dataclass(frozen=True)
class Folder:
    """The host's folder, with what the host asks for, and where it finds the answer."""

    path: Path

    def asked(self) -> dict[str, Any]:
        """Return the program's arguments."""
        asked: dict[str, Any] = json.loads((self.path / ASKED).read_text())
        return asked

    def mark(self, stage: str) -> None:
        """Have the host note its time."""
        os.close(os.open(self.path / f"{stage}{MARK}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    def answer(self, figures: dict[str, Any]) -> None:
        """Hand figures to the host."""
        (self.path / ANSWER).write_text(json.dumps(figures))


@contextmanager
def controlled(
    folder: Folder, topology: Topology, transport: Transport, interval_s: float
) -> Iterator[tuple[Emulation, Client]]:
    """Yield a network that is shaped and programmed, and its controller, which polls every `interval_s`.

    Marks "network", "controller" and "read back" as each is done. Nothing is taken down: the guest's end does that.
    """
    SCRATCH.mkdir(parents=True)
    net = Emulation(topology, transport, CONTROLLER_PORT)
    net.start()
    folder.mark("network")
    config = Config(topology, {}, SCRATCH, SCRATCH / "sdn.sock", interval_s=interval_s, port=CONTROLLER_PORT)
    config.write(SCRATCH / "sdn.json")
    controller = programs.start(["-m", "controllers.sdn.launcher", "--config", str(SCRATCH / "sdn.json")])
    try:
        with Client(config.control) as client:
            client.ready()
            folder.mark("controller")
            net.read_back()
            folder.mark("read back")
            yield net, client
    finally:
        controller.kill()
