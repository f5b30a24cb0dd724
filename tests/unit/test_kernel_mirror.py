"""Which archive a machine's packages come from, out of sources files in all their forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.engine.kernel import mirror
from testbed.engine.kernel.apt import suite_stanza
from testbed.engine.kernel.mirror import (
    Archive,
    Entry,
    newer_suites,
    own_archives,
    parse_deb822,
    parse_one_line,
    read_entries,
    release,
)

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def test_one_line_forms() -> None:
    text = """\
# deb http://commented.example/debian bookworm main
deb http://plain.example/debian bookworm main contrib # a remark
deb [ arch=amd64,arm64 signed-by=/keys/a.gpg ] https://options.example/debian/ bookworm main
deb [signed-by=/keys/b.gpg,/keys/c.gpg trusted=no] tor+http://two.example/debian bookworm/updates main
deb-src http://source.example/debian bookworm main
  deb cdrom:[Debian GNU/Linux 12]/ bookworm main
deb http://flat.example/ ./
"""
    assert list(parse_one_line(text))[:3] == [
        Entry("http://plain.example/debian", "bookworm", ("main", "contrib"), None),
        Entry("https://options.example/debian/", "bookworm", ("main",), Path("/keys/a.gpg")),
        Entry("tor+http://two.example/debian", "bookworm/updates", ("main",), Path("/keys/b.gpg")),
    ]
    assert not any("source.example" in entry.uri or "commented" in entry.uri for entry in parse_one_line(text))


def test_deb822_forms() -> None:
    text = """\
# a remark before everything
Types: deb deb-src
URIs: http://one.example/debian
  http://two.example/debian
# a remark in between
Suites: bookworm
 bookworm-updates
Components: main non-free
signed-by: /keys/a.gpg

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main
\t
Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main


Types: deb
URIs: http://inline.example/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBGPL0BUBEADmW5NdOOHwPIJlgPu6JDcKw/NZJPR8lsD3K87ZM18gzyQZJD+w
 -----END PGP PUBLIC KEY BLOCK-----
"""
    assert list(parse_deb822(text)) == [
        Entry(f"http://{host}.example/debian", suite, ("main", "non-free"), Path("/keys/a.gpg"))
        for host in ("one", "two")
        for suite in ("bookworm", "bookworm-updates")
    ] + [Entry("http://inline.example/debian", "bookworm", ("main",), None)]


def test_reads_what_apt_reads(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text("deb http://a.example/debian bookworm main\n")
    (parts / "b.list").write_text("deb http://b.example/debian bookworm main\n")
    stanza = "Types: deb\nURIs: http://{}.example/debian\nSuites: bookworm\nComponents: main\n"
    (parts / "c.sources").write_text(stanza.format("c"))
    (parts / "d.sources.disabled").write_text(stanza.format("d"))
    (parts / "e.list.save").write_text("deb http://e.example/debian bookworm main\n")
    assert [entry.uri[7] for entry in read_entries(tmp_path)] == ["a", "b", "c"]
    assert read_entries(tmp_path / "absent") == []


def test_the_own_release_decides() -> None:
    entries = [
        Entry("http://vendor.example/apt", "bookworm", ("stable",), Path("/keys/vendor.gpg")),
        Entry("http://tools.example/apt", "bookworm", ("main",), Path("/keys/tools.gpg")),
        Entry("http://mirror.example/debian-security", "bookworm-security", ("main",), KEYRING),
        Entry("http://mirror.example/debian", "bookworm", ("main",), KEYRING),
        Entry("http://mirror.example/debian", "bookworm", ("contrib",), KEYRING),
        Entry("cdrom:[Debian]/", "bookworm", ("main",), KEYRING),
        Entry("http://old.example/debian", "bullseye", ("main",), KEYRING),
    ]
    assert own_archives(entries, "bookworm") == [
        Archive("http://mirror.example/debian", KEYRING),
        Archive("http://tools.example/apt", Path("/keys/tools.gpg")),
    ]


def test_a_release_named_by_its_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mirror, "DEBIAN_KEYRING", tmp_path / "none")
    entries = [Entry("http://mirror.example/debian", "stable", ("main",), None)]
    assert own_archives(entries, "bookworm") == [Archive("http://mirror.example/debian", None)]
    (tmp_path / "none").touch()
    assert own_archives(entries, "bookworm") == [Archive("http://mirror.example/debian", tmp_path / "none")]


@pytest.mark.parametrize(
    ("codename", "suites"),
    [
        ("bookworm", ["bookworm-backports", "trixie-backports", "testing"]),
        ("forky", ["forky-backports", "testing"]),
        ("", ["testing"]),
        ("unheard-of", ["unheard-of-backports", "testing"]),
    ],
)
def test_newer_suites(codename: str, suites: list[str]) -> None:
    assert newer_suites(codename) == suites


def test_release(tmp_path: Path) -> None:
    path = tmp_path / "os-release"
    path.write_text('NAME="Debian GNU/Linux"\nID=debian\nVERSION_CODENAME="bookworm"\n\n# end\n')
    assert release(path) == ("debian", "bookworm")
    path.write_text("ID=arch\n")
    assert release(path) == ("arch", "")


def test_the_private_source_reads_back() -> None:
    stanza = suite_stanza(Archive("http://mirror.example/debian", KEYRING), "trixie-backports")
    assert list(parse_deb822(stanza)) == [Entry("http://mirror.example/debian", "trixie-backports", ("main",), KEYRING)]
    assert "Signed-By" not in suite_stanza(Archive("http://mirror.example/debian", None), "testing")
