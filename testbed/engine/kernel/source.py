"""Where the kernel's source comes from: the user's own, or apt's signed channels, the newest first."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from testbed.engine.kernel.apt import Apt, Offer, suite_stanza
from testbed.engine.kernel.cache import SOURCE_VARIABLE, Progress, given_source, kernels_folder, numbers
from testbed.engine.kernel.mirror import newer_suites, own_archives, read_entries, release
from testbed.engine.kernel.steps import StepError, run
from testbed.errors import EnvironmentLacks, InputError

WITH_SECCOMP = (6, 16)
"""The first kernel whose User-Mode Linux runs programs under seccomp."""
OLDEST = (6, 12)
"""The oldest kernel that the patches are made for."""


class Source(Protocol):
    """A kernel source. `reusable`: the same version is the same source, so a kernel built from it stands."""

    @property
    def version(self) -> str: ...

    @property
    def origin(self) -> str: ...

    @property
    def reusable(self) -> bool: ...

    def fetch(self, work: Path, progress: Progress, /) -> Path:
        """Return the path of a source tree or a tarball of one. Raises StepError."""


@dataclass(frozen=True)
class GivenSource:
    """A tree or a tarball of the user's. A tree may have been edited since, so it is always built."""

    path: Path
    version: str

    @property
    def origin(self) -> str:
        return str(self.path)

    @property
    def reusable(self) -> bool:
        return self.path.is_file()

    def fetch(self, _work: Path, _progress: Progress, /) -> Path:
        return self.path


@dataclass(frozen=True)
class AptSource:
    """A source package on offer, to be fetched by the apt that offers it."""

    apt: Apt
    offer: Offer
    origin: str
    reusable: bool = True

    @property
    def version(self) -> str:
        return self.offer.version

    def fetch(self, work: Path, progress: Progress, /) -> Path:
        downloads = kernels_folder() / "downloads"  # kept until a kernel is built, so that a second try need not fetch
        downloads.mkdir(parents=True, exist_ok=True)
        total = self.offer.size_bytes

        def on_bytes(count: int) -> None:
            progress(min(1.0, count / total), f"fetching {self.offer.package}: {count >> 20} of {total >> 20} MB")

        package = self.apt.download(self.offer, downloads, on_bytes)
        unpacked = work / "package"
        run(("dpkg-deb", "-x", str(package), str(unpacked)), self.apt.log)
        tarballs = sorted(unpacked.glob(f"usr/src/**/{self.offer.package}.tar.*"))
        if not tarballs:
            raise StepError(("dpkg-deb", str(package)), 0, [f"{package.name} holds no source tarball"])
        return tarballs[0]


def sources(work: Path, progress: Progress, tried: list[str], etc: Path = Path("/etc")) -> Iterator[Source]:
    """Yield kernel sources in the order of preference; each is looked for only when those before it did not do.

    `KERNEL_SOURCE`; what the machine's apt offers from 6.16 on; the same from newer suites of the machine's
    own archive; older ones, with which a guest is slower. What was in vain is added to `tried`, here and by
    the caller. Raises InputError for a KERNEL_SOURCE that is none, and EnvironmentLacks after the last one.
    """
    if given := given_source():
        yield GivenSource(given, given_version(given))
        return
    machine = Apt(work / "apt-machine")
    offers = machine.offers()
    yield from _apt_sources(machine, offers, "this machine's apt", lambda kernel: kernel >= WITH_SECCOMP)
    yield from _newer(work, etc, progress, tried)
    progress(0.0, "no kernel from 6.16 on can be had; an older one works, but its guests are about half as fast")
    yield from _apt_sources(machine, offers, "this machine's apt", lambda kernel: OLDEST <= kernel < WITH_SECCOMP)
    refreshed = Apt(work / "apt-refreshed", own_lists=True)
    if _updated(refreshed, "this machine's apt, lists fetched anew", progress, tried):
        yield from _apt_sources(refreshed, refreshed.offers(), "this machine's apt", lambda kernel: kernel >= OLDEST)
    raise EnvironmentLacks(
        "no kernel source that can be built: " + ("; ".join(tried) or "apt offers none"),
        f"apt-get update, or give one: {SOURCE_VARIABLE}=TREE-OR-TARBALL",
    )


def _newer(work: Path, etc: Path, progress: Progress, tried: list[str]) -> Iterator[Source]:
    """Yield what newer suites of the machine's own Debian archive offer, suite by suite."""
    os_release = etc / "os-release"
    distribution, codename = release(os_release) if os_release.is_file() else ("", "")
    if distribution != "debian":
        return
    for number, archive in enumerate(own_archives(read_entries(etc / "apt"), codename)):
        for suite in newer_suites(codename):
            apt = Apt(work / f"apt-{number}-{suite}", suite_stanza(archive, suite))
            if _updated(apt, f"{suite} of this machine's mirror", progress, tried):
                yield from _apt_sources(apt, apt.offers(), suite, lambda kernel: kernel >= WITH_SECCOMP)


def _apt_sources(
    apt: Apt, offers: list[Offer], origin: str, wanted: Callable[[tuple[int, ...]], bool]
) -> Iterator[Source]:
    for offer in offers:
        if wanted(offer.kernel):
            yield AptSource(apt, offer, f"{offer.package} from {origin}")


def _updated(apt: Apt, name: str, progress: Progress, tried: list[str]) -> bool:
    progress(0.0, f"asking {name}")
    try:
        apt.update()
    except StepError as failure:
        tried.append(f"{name}: {failure.tail.splitlines()[-1] if failure.tail else failure}")
        return False
    return True


def given_version(path: Path) -> str:
    """Return the version of a tree or tarball, with 8 digits of the tarball's own digest or of the tree's path.

    Raises InputError when it is not a kernel's source.
    """
    if path.is_dir():
        makefile, mark = path / "Makefile", hashlib.sha256(bytes(path)).hexdigest()
        text = makefile.read_text(errors="replace") if makefile.is_file() else ""
    elif path.is_file():
        with path.open("rb") as tarball:
            mark = hashlib.file_digest(tarball, "sha256").hexdigest()
        text = _makefile_in(path)
    else:
        raise InputError(SOURCE_VARIABLE, f"{path} does not exist", "name a kernel tree or a tarball of one")
    fields = dict(line.replace(" ", "").split("=", 1) for line in text.splitlines()[:12] if "=" in line)
    version = ".".join(fields.get(name, "") for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))
    if len(numbers(version)) < 2:
        raise InputError(
            SOURCE_VARIABLE, f"{path} is not the source of a Linux kernel", "its top Makefile says no version"
        )
    if numbers(version) < OLDEST:
        raise InputError(SOURCE_VARIABLE, f"{path} is Linux {version}", "the patches are made for 6.12 and newer")
    return f"{version}-{mark[:8]}"


def _makefile_in(tarball: Path) -> str:
    """Return the top Makefile of a source tarball, "" where there is none."""
    argv = (
        "tar",
        "-xaOf",
        str(tarball),
        "--occurrence=1",
        "--wildcards",
        "--no-wildcards-match-slash",
        "*/Makefile",
    )
    return subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False).stdout
