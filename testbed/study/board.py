"""How far a sweep is: points done, running and failed, and the time to go; as bars on a terminal, else as lines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

LEAST_SHARE = 0.02
"""Of all work; before so much is done no time to go is told."""


class Ending(Protocol):
    """What the board asks of a point that has ended (testbed.study.run.Ran)."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def valid(self) -> bool:
        """Whether its results may be believed."""

    @property
    def wall_s(self) -> float:
        """How long it took."""

    @property
    def error(self) -> str:
        """What went wrong."""


@dataclass
class Board:
    """The state of a sweep of `total` points, begun at `began_s` on a clock whose time is given as `now_s`."""

    total: int = 0
    kept: int = 0
    done: int = 0
    failed: int = 0
    began_s: float = 0.0
    running: dict[str, tuple[float, str]] = field(default_factory=dict)

    def hear(self, message: dict[str, Any]) -> None:
        """Take what a worker says of its point."""
        self.running[message["point"]] = (float(message["share"]), str(message["text"]))

    def end(self, name: str, valid: bool) -> None:
        """Take note that a point has ended."""
        self.running.pop(name, None)
        self.done += 1
        self.failed += not valid

    def lose(self, names: Sequence[str]) -> None:
        """Take note that points must begin anew elsewhere."""
        for name in names:
            self.running.pop(name, None)

    @property
    def share(self) -> float:
        """What share of the points that were to run is done, 0 to 1."""
        wanted = self.total - self.kept
        return (self.done + sum(share for share, _ in self.running.values())) / wanted if wanted else 1.0

    def to_go_s(self, now_s: float) -> float | None:
        """Return the time that the rest will take, if it takes as long as what is done did; None when little is."""
        if self.share < LEAST_SHARE:
            return None
        return max(0.0, (now_s - self.began_s) * (1 - self.share) / self.share)

    def line(self, now_s: float) -> str:
        """Return the whole state in a line."""
        parts = [f"{self.kept + self.done} of {self.total} points"]
        parts += [f"{self.kept} kept"] if self.kept else []
        parts += [f"{self.failed} failed"] if self.failed else []
        to_go_s = self.to_go_s(now_s)
        parts += [f"about {spell(to_go_s)} to go"] if to_go_s is not None and self.share < 1 else []
        return ", ".join(parts)


def spell(span_s: float) -> str:
    """Return a span of time in the two largest units, as in 3 min 20 s."""
    seconds = round(span_s)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


class Lines:
    """A line for every point that ends, and for every worker that is lost."""

    def __init__(self, console: Console) -> None:
        self._console, self._lock, self.board = console, Lock(), Board()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def begin(self, total: int, kept: int) -> None:
        """Say how many points there are, and how many of them were there already."""
        self.board = Board(total, kept, began_s=time.monotonic())
        self._print(f"{total} points, {kept} of them kept from before" if kept else f"{total} points")

    def hear(self, message: dict[str, Any]) -> None:
        """Take what a worker says of its point."""
        with self._lock:
            self.board.hear(message)

    def ended(self, ran: Ending) -> None:
        """Say what became of a point."""
        with self._lock:
            self.board.end(ran.name, ran.valid)
            said = f"{'valid' if ran.valid else ran.error or 'NOT VALID'}, {ran.wall_s:.1f} s"
            self._print(f"{ran.name}: {said} ({self.board.line(time.monotonic())})")

    def lost(self, worker: str, names: Sequence[str]) -> None:
        """Say that a worker is gone, and which points run elsewhere now."""
        with self._lock:
            self.board.lose(names)
            self._print(f"the worker at {worker} is lost; {', '.join(names) or 'nothing'} runs elsewhere")

    def stage(self, text: str) -> None:
        """Say what the sweep itself does."""
        self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class Bars(Lines):
    """The same lines above one bar of everything and one for each point that runs."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=2)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def _render(self) -> Group:
        board = self.board
        rows = Table.grid(padding=(0, 1))
        rows.add_row(Text("all", style="bold"), ProgressBar(1.0, board.share, width=30), board.line(time.monotonic()))
        for name, (share, text) in sorted(board.running.copy().items()):
            rows.add_row(Text(name), ProgressBar(1.0, share, width=30), Text(text, style="dim"))
        return Group(rows)


def board(console: Console) -> Lines:
    """Return what suits the console."""
    return Bars(console) if console.is_terminal else Lines(console)
