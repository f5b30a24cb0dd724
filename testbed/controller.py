"""The controller of an arm as a program: started, asked, and, where events want it so, crashed and started again."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from controllers.sdn.config import Config
from controllers.sdn.control import Client
from testbed import programs

NAME = "the controller"


class Controller:
    """The controller that `config` describes; its file is written to `file`. A context, in which it is ready.

    A controller that was restarted goes on where the crashed one was: switches keep their rules and counters, files
    their rows (controllers.sdn.journal). Whoever asks it next waits until it has all switches again.
    """

    def __init__(self, config: Config, file: Path) -> None:
        self._config, self._file = config, file
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    def __enter__(self) -> Controller:
        self._start()
        self._connected()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._client is not None:
            self._client.close()
        if self._process is not None:
            programs.end(NAME, self._process, expected=kind is None)

    @property
    def running(self) -> bool:
        """Whether it has not been crashed."""
        return self._process is not None

    def set_epoch(self, epoch_s: float) -> None:
        """Let its rows begin, their times counting from there."""
        self._connected().set_epoch(epoch_s)
        self._config = replace(self._config, epoch=epoch_s)

    def snapshot(self) -> dict[str, Any]:
        """Fresh counters of all switches (controllers.sdn.control)."""
        return self._connected().snapshot()

    def crash(self) -> None:
        """Kill it, as a fault would: it tidies nothing up."""
        assert self._process is not None
        if self._client is not None:
            self._client.close()
        self._process.kill()
        self._process.wait()
        self._process = self._client = None

    def restart(self) -> None:
        """Start it again; returns at once."""
        self._config = replace(self._config, resume=True)
        self._start()

    def _start(self) -> None:
        self._config.control.unlink(missing_ok=True)  # or a client would meet the one that is gone
        self._config.write(self._file)
        self._process = programs.start(["-m", "controllers.sdn.launcher", "--config", str(self._file)])

    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(self._config.control)
            self._client.ready()
        return self._client
