"""The program: `python -m controllers.sdn.launcher --config FILE`. SIGTERM ends it, with every row on
disk."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import InputError, exit_code


def run(argv: Sequence[str]) -> None:
    """Serve until SIGTERM. Raises InputError or EnvironmentLacks when it cannot begin."""
    if len(argv) != 2 or argv[0] != "--config":
        raise InputError("arguments", " ".join(argv) or "(none)", "python -m controllers.sdn.launcher --config FILE")
    from controllers.sdn.config import Config

    config = Config.read(Path(argv[1]))  # before the framework, whose import takes most of a start
    from controllers.sdn import app, framework

    framework.run(app.Fabric, config, config.listen, config.port)


def main() -> int:
    """Run the program; the exit code is the error's."""
    return exit_code(lambda: run(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
