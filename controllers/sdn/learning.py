"""Mininet's default controller, played by our framework: every switch learns addresses by itself.

    controller [-v] ptcp:PORT

The guest has this program as `controller` on its PATH, so that `mn --switch ovsk` finds what it looks for. A
switch that connects gets one rule, "forward as a plain learning switch does" (OFPP_NORMAL).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from controllers.sdn import framework, openflow
from controllers.sdn.flows import COUNT_TABLE, Difference, Match, Output, Rule
from testbed.errors import InputError, exit_code

NORMAL = 0xFFFFFFFA
LEARN = Rule(COUNT_TABLE, 0, Match(), 0, Output(NORMAL))


class Learning(framework.Application):  # type: ignore[misc]  # its base is known only when it runs
    """Gives every switch that connects the one rule."""

    OFP_VERSIONS = framework.OPENFLOW_VERSIONS

    def __init__(self, _settings: object) -> None:
        super().__init__()

    @framework.handles("StateChange", framework.CONNECTED)
    def on_switch(self, event: Any) -> None:
        """Empty the switch and let it learn."""
        event.datapath.send(openflow.delete_everything() + openflow.change(Difference(remove=(), add=(LEARN,))))

    def finish(self) -> None:
        """Nothing is kept."""


def port_of(arguments: Sequence[str]) -> int:
    """Return the port to listen on. Raises InputError when there is no ptcp:PORT among the arguments."""
    for argument in arguments:
        kind, _, port = argument.partition(":")
        if kind == "ptcp" and port.isdigit():
            return int(port)
    raise InputError("controller", " ".join(arguments) or "no arguments", "controller ptcp:6653")


def main() -> int:
    """Serve until SIGTERM; the exit code is the error's."""
    return exit_code(lambda: framework.run(Learning, None, "127.0.0.1", port_of(sys.argv[1:])))


if __name__ == "__main__":
    sys.exit(main())
