"""A run's progress: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 10.0


class Bars:
    """A bar for every arm: iterations done of all, virtual time, packets on the shared links, time to go."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]:<44}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._stage: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def arm(self, arm: str, iterations: int) -> None:
        """Show an arm that has begun."""
        self._tasks[arm] = self._progress.add_task(arm, total=iterations, state="boots")

    def message(self, arm: str, message: dict[str, Any]) -> None:
        """Show what the arm's guest says."""
        if "stage" in message:
            self._progress.update(self._tasks[arm], state=message["stage"])
        else:
            self._progress.update(self._tasks[arm], advance=1, state=_state(message))

    def stage(self, text: str) -> None:
        """Show what the launcher does itself."""
        self._progress.console.print(f"[dim]{text}[/dim]")


class Lines:
    """A line when an arm begins, one now and then while it goes on, one when it is done."""

    def __init__(self, console: Console) -> None:
        self._console, self._lock = console, Lock()
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}
        self._next_s = time.monotonic() + LINE_EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def arm(self, arm: str, iterations: int) -> None:
        """Say that an arm has begun."""
        self._done[arm], self._total[arm] = 0, iterations
        self._console.print(f"{arm}: begins, {iterations} iterations", highlight=False)

    def message(self, arm: str, message: dict[str, Any]) -> None:
        """Say how far the arm is, if nothing was said for a while."""
        if message.get("stage") == "files":
            self._console.print(f"{arm}: done", highlight=False)
        if "iteration" not in message:
            return
        with self._lock:
            self._done[arm] += 1
            if time.monotonic() < self._next_s:
                return
            self._next_s = time.monotonic() + LINE_EVERY_S
        self._console.print(f"{arm}: {self._done[arm]} of {self._total[arm]}, {_state(message)}", highlight=False)

    def stage(self, text: str) -> None:
        """Say what the launcher does itself."""
        self._console.print(text, highlight=False)


def watcher(console: Console) -> Bars | Lines:
    """Return what suits the console."""
    return Bars(console) if console.is_terminal else Lines(console)


def _state(message: dict[str, Any]) -> str:
    return f"{message['progress']:.1f} s virtual, {message['packets']} packets on shared links"


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[float, str], None]]:
    """Yield what is told a fraction (0 to 1) and what is being done: a bar on a terminal, lines elsewhere."""
    if not console.is_terminal:
        said: set[tuple[str, int]] = set()

        def line(fraction: float, text: str) -> None:
            step = text.partition(":")[0], int(10 * fraction)
            if step not in said:
                said.add(step)
                console.print(f"{text} ({100 * fraction:.0f} %)", highlight=False)

        yield line
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda fraction, text: bar.update(task, completed=fraction, description=text)
