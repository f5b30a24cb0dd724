"""Ask apt for kernel sources without touching the machine's own apt.

apt does what it is good at: it knows the proxy, speaks to the mirror and checks every signature. But its
lists, its cache and its settings are in a private folder here, so this works for an ordinary user and changes
nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.engine.kernel.cache import numbers
from testbed.engine.kernel.mirror import Archive
from testbed.engine.kernel.steps import StepError, run

PACKAGE = re.compile("linux-source-[0-9]+[.][0-9.]+")  # apt reads it too, so no \d

POLL_S = 0.5


@dataclass(frozen=True)
class Offer:
    """A kernel source package that apt can fetch; `size_bytes` is that of the package file."""

    package: str
    version: str
    size_bytes: int

    @property
    def kernel(self) -> tuple[int, ...]:
        """The kernel's version as the package's name says it: (7, 2)."""
        return numbers(self.package)


class Apt:
    """apt with a private state in `folder`: over the machine's own lists, or over lists of its own.

    `stanza` is a deb822 source to use instead of the machine's; `own_lists` says to fetch the lists anew.
    """

    def __init__(self, folder: Path, stanza: str = "", own_lists: bool = False) -> None:
        self.folder, self.log = folder, folder / "apt.log"
        cache, lists, parts = folder / "cache", folder / "lists", folder / "sources"
        for needed in (cache / "archives" / "partial", lists / "partial", parts):
            needed.mkdir(parents=True, exist_ok=True)
        settings = [
            "#clear APT::Update;",  # the machine's hooks after an update are about the machine's own lists
            f'Dir::Cache "{cache}";',
            'APT::Sandbox::User "root";',  # the sandbox's user could not write here
            'Acquire::Languages "none";',
            'Acquire::Retries "2";',
        ]
        if own_lists or stanza:
            settings.append(f'Dir::State::Lists "{lists}";')
        if stanza:
            (parts / "kernel.sources").write_text(stanza)
            settings += [
                'Dir::Etc::SourceList "/dev/null";', f'Dir::Etc::SourceParts "{parts}";',
                'Dir::Etc::Preferences "/dev/null";', 'Dir::Etc::PreferencesParts "/dev/null";',
            ]  # fmt: skip
        self.config = folder / "apt.conf"
        self.config.write_text("\n".join(settings) + "\n")

    def update(self) -> None:
        """Fetch the lists. Raises StepError when an archive does not answer or its signature is invalid."""
        self._run(("apt-get", "-c", str(self.config), "-q", "--error-on=any", "update"))

    def offers(self) -> list[Offer]:
        """Return the kernel sources on offer, the newest first; none where apt or its lists are missing."""
        names = self._read("search", "--names-only", f"^{PACKAGE.pattern}$")
        packages = [line.split()[0] for line in names.splitlines() if PACKAGE.match(line)]
        if not packages:
            return []
        found = []
        for stanza in self._read("show", "--no-all-versions", *packages).split("\n\n"):
            fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")
            if {"Package", "Version", "Size"} <= fields.keys():
                found.append(Offer(fields["Package"], fields["Version"], int(fields["Size"])))
        return sorted(found, key=lambda offer: offer.kernel, reverse=True)

    def download(self, offer: Offer, into: Path, on_bytes: Callable[[int], None]) -> Path:
        """Fetch a package file into `into` and return its path; `on_bytes` hears how much has come.

        A whole file that is there already is checked and kept. Raises StepError.
        """
        done = threading.Event()

        def watch() -> None:
            while not done.wait(POLL_S):
                on_bytes(_bytes_in((into, self.folder / "cache" / "archives" / "partial"), offer.package))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            argv = ("apt-get", "-c", str(self.config), "-q", "download", f"{offer.package}={offer.version}")
            self._run(argv, cwd=into)
        finally:
            done.set()
            watcher.join()
        return next(into.glob(f"{offer.package}_{offer.version.replace(':', '%3a')}_*.deb"))

    def _run(self, argv: Sequence[str], cwd: Path | None = None) -> None:
        try:
            run(argv, self.log, cwd=cwd, env=os.environ | {"LC_ALL": "C"})
        except FileNotFoundError as error:
            raise StepError(argv, 127, ["there is no apt-get here"]) from error

    def _read(self, *arguments: str) -> str:
        argv = ("apt-cache", "-c", str(self.config), *arguments)
        try:
            return subprocess.run(
                argv, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"}
            ).stdout
        except FileNotFoundError:
            return ""


def suite_stanza(archive: Archive, suite: str) -> str:
    """Return the deb822 source for one suite of an archive, for its package lists alone."""
    lines = [
        "Types: deb", f"URIs: {archive.uri}", f"Suites: {suite}", "Components: main", "Targets: Packages",
        *([f"Signed-By: {archive.keyring}"] if archive.keyring else []),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _bytes_in(folders: Sequence[Path], package: str) -> int:
    total = 0
    for folder in folders:
        for path in folder.glob(f"{package}*"):
            with suppress(FileNotFoundError):  # apt renames a file when it is whole
                total += path.stat().st_size
    return total
