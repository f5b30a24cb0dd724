"""Which archive this machine takes its own packages from, read from apt's sources.

A newer kernel source comes from the same archive as the rest of the machine. So no host is named anywhere:
the URI and the keyring are those of the entry that serves the machine's own release.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
RELEASES = ("bookworm", "trixie", "forky")
"""Debian's releases in order: the backports of the one after the machine's have newer kernels."""


@dataclass(frozen=True)
class Entry:
    """One archive and suite of an enabled source. `signed_by` is None where its key is not named as a file."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: Path | None


@dataclass(frozen=True)
class Archive:
    """An archive, and the keyring that its signatures are checked against (None: apt's own trusted keys)."""

    uri: str
    keyring: Path | None


def read_entries(etc_apt: Path) -> list[Entry]:
    """Return the entries of `sources.list` and of the files in `sources.list.d` that apt itself reads."""
    one_line = [etc_apt / "sources.list", *sorted((etc_apt / "sources.list.d").glob("*.list"))]
    entries = [entry for path in one_line if path.is_file() for entry in parse_one_line(path.read_text())]
    for path in sorted((etc_apt / "sources.list.d").glob("*.sources")):
        entries += parse_deb822(path.read_text())
    return entries


def parse_one_line(text: str) -> Iterator[Entry]:
    """Yield the entries of the old format: `deb [signed-by=FILE arch=…] URI SUITE COMPONENT…`."""
    pattern = re.compile(r"\s*deb\s+(?:\[(?P<options>[^]]*)\]\s*)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>[^#]*)")
    for line in text.splitlines():
        if not (match := pattern.match(line)):
            continue
        options = dict(word.split("=", 1) for word in (match["options"] or "").split() if "=" in word)
        yield Entry(
            match["uri"],
            match["suite"],
            tuple(match["components"].split()),
            _keyring(options.get("signed-by", "")),
        )


def parse_deb822(text: str) -> Iterator[Entry]:
    """Yield the entries of the new format: stanzas of fields, each URI with each suite."""
    for stanza in re.split(r"\n(?:[ \t]*\n)+", text):
        fields = _fields(stanza)
        if "deb" not in fields.get("types", "").split():
            continue
        if fields.get("enabled", "yes").lower() in ("no", "false", "without", "off", "disable"):
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield Entry(
                    uri,
                    suite,
                    tuple(fields.get("components", "").split()),
                    _keyring(fields.get("signed-by", "")),
                )


def own_archives(entries: list[Entry], codename: str) -> list[Archive]:
    """Return the archives that serve the machine's own release, Debian's own first.

    Security and updates are other suites, and third parties' repositories rarely have a `main` under the
    release's name; where one has, it comes last, has no newer suites to offer, and is checked against its own
    keyring only.
    """
    names = (
        (codename,) if any(entry.suite == codename for entry in entries) else ("stable", "testing", "unstable", "sid")
    )
    found = {
        Archive(entry.uri, entry.signed_by or (DEBIAN_KEYRING if DEBIAN_KEYRING.is_file() else None)): None
        for entry in entries
        if entry.suite in names and "main" in entry.components and not entry.uri.startswith("cdrom:")
    }
    return sorted(
        found,
        key=lambda archive: archive.keyring is not None and "debian-archive" not in archive.keyring.name,
    )


def newer_suites(codename: str) -> list[str]:
    """Return the suites that may have a newer kernel than the release `codename`, the most settled first."""
    following = RELEASES[RELEASES.index(codename) + 1 :][:1] if codename in RELEASES else ()
    return [*(f"{name}-backports" for name in (codename, *following) if name), "testing"]


def release(os_release: Path) -> tuple[str, str]:
    """Return (distribution, codename) from an os-release file, each "" where it is not said."""
    pairs = dict(line.split("=", 1) for line in os_release.read_text().splitlines() if "=" in line)
    distribution, codename = ("".join(shlex.split(pairs.get(name, ""))) for name in ("ID", "VERSION_CODENAME"))
    return distribution, codename


def _fields(stanza: str) -> dict[str, str]:
    """Return a stanza's fields, names in lower case; a continuation line belongs to the field above it."""
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t"):
            fields[name] = fields.get(name, "") + "\n" + line.strip()
        elif ":" in line:
            name, value = (part.strip() for part in line.split(":", 1))
            name = name.lower()
            fields[name] = value
    return fields


def _keyring(signed_by: str) -> Path | None:
    """Return the first keyring file of a Signed-By value; fingerprints and keys in place give None."""
    words = re.split(r"[\s,]+", signed_by.strip())
    return next((Path(word) for word in words if word.startswith("/")), None)
