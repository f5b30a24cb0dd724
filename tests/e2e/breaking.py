"""An arm that somebody interferes with while it is measured. Runs in a guest, as `testbed.arm` does:

    python tests/e2e/breaking.py HOW FOLDER

HOW is `rate` (the shared link gives 90 % of its rate), `red` (its queue marks no more), `room` (its queue holds a few
packets only), `counter` (a switch no longer counts marked packets that come in), `forwarding` (nor those that go on) or
`nothing`. Links are put back as they were before the last reading, so that reading the settings back finds nothing:
the files alone must tell. With `left` a wrong rate is left as it is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.arm import SCRATCH, Arm
from testbed.controller import Controller
from testbed.errors import exit_code
from testbed.net import tc
from testbed.net.topology import Direction
from testbed.programs import Status
from testbed.telemetry.tables import Value

LINK = "s1->s2"
TABLES = {"counter": 0, "forwarding": 1}


class BrokenArm(Arm):
    """Interferes between the first settled count and the last."""

    def __init__(self, how: str, plan: dict[str, Any], out: Path) -> None:
        super().__init__(plan, out, Status(None))
        self._how, self._counted = how, False

    def _count(self, controller: Controller) -> list[tuple[Value, ...]]:
        if self._counted:
            self._mend()
            return super()._count(controller)
        self._counted = True
        counts = super()._count(controller)
        self._interfere()
        return counts

    def _interfere(self) -> None:
        direction = self.topology.direction(*LINK.split("->"))
        if self._how in ("rate", "left"):
            self._shape(replace(direction, rate_bps=direction.rate_bps // 80 * 72))
        elif self._how == "red":
            self._shape(replace(direction, aqm=None))
        elif self._how == "room":
            self._shape(replace(direction, aqm=None, queue_bytes=5 * direction.burst_bytes))
        elif self._how in TABLES:
            rules = f"table={TABLES[self._how]},ip,nw_ecn=3"
            command = ("ovs-ofctl", "-O", "OpenFlow13", "del-flows", LINK.split("->")[1], rules)
            subprocess.run(command, check=True)

    def _mend(self) -> None:
        if self._how in ("rate", "red", "room"):
            self._shape(self.topology.direction(*LINK.split("->")))

    def _shape(self, direction: Direction) -> None:
        interface = self.net.interfaces[LINK]
        # a discipline can be changed in its place, but another one needs an empty place
        subprocess.run(("tc", "qdisc", "del", "dev", interface.name, "root"), check=True)
        self.net.place(interface.node).kernel.do(tc.requests(interface.ifindex, interface.name, direction))


def main(how: str, folder: str) -> int:
    """Run the arm of the folder and interfere with it."""
    out = Path(folder)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    return exit_code(BrokenArm(how, json.loads((out / "plan.json").read_text()), out).run)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
