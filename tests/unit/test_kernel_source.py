"""Sources are asked for in the stated order, each only when those before it did not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kernel_fakes import fake_recipe, fake_tarball, fake_tree

from testbed.engine.kernel import build, source
from testbed.engine.kernel.apt import Apt, Offer
from testbed.engine.kernel.cache import kernels_folder
from testbed.engine.kernel.source import sources
from testbed.engine.kernel.steps import StepError
from testbed.errors import EnvironmentLacks

OWN, ANEW = "machine", "anew"


def offer(version: str) -> Offer:
    return Offer(f"linux-source-{version}", f"{version}.1-1", 1 << 20)


class FakeApt:
    """Stands for apt: what each place offers, in which order the places are asked, and which do not answer."""

    places: dict[str, list[str]]
    silent: set[str]
    asked: list[str]

    def __init__(self, folder: Path, stanza: str = "", own_lists: bool = False) -> None:
        fields = dict(line.split(": ", 1) for line in stanza.splitlines())
        self.place = fields.get("Suites", ANEW if own_lists else OWN)
        self.uri = fields.get("URIs", "")
        self.log = folder / "apt.log"

    def update(self) -> None:
        self.asked.append(self.place)
        if self.place in self.silent:
            raise StepError(("apt-get",), 100, [f"E: {self.place} has no Release file"])

    def offers(self) -> list[Offer]:
        return [offer(version) for version in self.places.get(self.place, [])]


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[FakeApt]]:
    monkeypatch.delenv("KERNEL_SOURCE", raising=False)
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(source, "Apt", FakeApt)
    FakeApt.places, FakeApt.silent, FakeApt.asked = {}, set(), []
    yield FakeApt


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    (folder / "apt").mkdir(parents=True)
    (folder / "os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    (folder / "apt" / "sources.list").write_text("deb http://mirror.example/debian bookworm main\n")
    return folder


def versions(etc: Path, tmp_path: Path, tried: list[str] | None = None) -> Iterator[str]:
    for found in sources(tmp_path, lambda *_: None, tried if tried is not None else [], etc):
        yield found.version.removesuffix(".1-1")


def test_the_machines_own_offer_comes_first(apt: type[FakeApt], etc: Path, tmp_path: Path) -> None:
    apt.places = {OWN: ["7.2", "6.16", "6.12"], "trixie-backports": ["7.3"]}
    found = versions(etc, tmp_path)
    assert [next(found), next(found)] == ["7.2", "6.16"]
    assert apt.asked == []
    assert next(found) == "7.3"


def test_newer_suites_one_after_the_other(apt: type[FakeApt], etc: Path, tmp_path: Path) -> None:
    apt.places = {OWN: ["6.12", "6.1"], "trixie-backports": ["7.3", "7.2", "6.12"], "testing": ["7.1"]}
    found = versions(etc, tmp_path)
    assert next(found) == "7.3"
    assert apt.asked == ["bookworm-backports", "trixie-backports"]
    assert [next(found), next(found), next(found)] == ["7.2", "7.1", "6.12"]


def test_an_older_kernel_when_nothing_newer_can_be_had(apt: type[FakeApt], etc: Path, tmp_path: Path) -> None:
    apt.places = {OWN: ["6.12", "6.1"], "testing": ["7.1"]}
    apt.silent = {"bookworm-backports", "trixie-backports", "testing"}
    heard: list[str] = []
    tried: list[str] = []
    found = sources(tmp_path, lambda _, text: heard.append(text), tried, etc)
    assert next(found).version == "6.12.1-1"
    assert any("half as fast" in text for text in heard)
    assert len(tried) == 3
    assert "testing has no Release file" in tried[2]


def test_lists_are_fetched_anew_where_there_are_none(apt: type[FakeApt], etc: Path, tmp_path: Path) -> None:
    apt.places = {ANEW: ["6.12", "6.1"]}
    assert next(versions(etc, tmp_path)) == "6.12"


def test_nothing_at_all_is_said_with_all_that_was_tried(apt: type[FakeApt], etc: Path, tmp_path: Path) -> None:
    apt.places, apt.silent = {OWN: ["6.1"], ANEW: ["6.1"]}, {"testing"}
    with pytest.raises(EnvironmentLacks, match="testing has no Release file") as caught:
        list(versions(etc, tmp_path))
    assert "KERNEL_SOURCE=" in caught.value.mend


def test_another_distribution_has_no_debian_suites(apt: type[FakeApt], etc: Path, tmp_path: Path) -> None:
    (etc / "os-release").write_text("ID=ubuntu\nVERSION_CODENAME=noble\n")
    apt.places = {OWN: ["6.14.0"], "testing": ["7.1"]}
    assert next(versions(etc, tmp_path)) == "6.14.0"
    assert apt.asked == []


def test_the_next_source_is_built_when_one_does_not_fit(
    apt: type[FakeApt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = fake_tree(tmp_path / "odd" / "linux", version=(7, 3, 1))
    (odd / "code.c").write_text("rewritten\n")
    trees = {"7.3": fake_tarball(odd), "7.2": fake_tarball(fake_tree(tmp_path / "fit" / "linux"))}

    def fetch(self: source.AptSource, _work: Path, _progress: object) -> Path:
        number = self.offer.package.removeprefix("linux-source-")
        if number not in trees:
            raise StepError(("apt-get",), 100, ["404"])
        return trees[number]

    monkeypatch.setattr(source.AptSource, "fetch", fetch)
    apt.places = {OWN: ["7.4", "7.3", "7.2"]}
    kernel = build(lambda *_: None, fake_recipe(tmp_path / "recipe"))
    assert kernel.version == "7.2.1-1"
    assert kernel.info["source"] == "linux-source-7.2 from this machine's apt"
    assert [path.name for path in kernels_folder().glob("*/linux")] == ["linux"]


def test_what_apt_shows_becomes_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {
        "search": "linux-source-6.9 - Linux kernel source\nlinux-source-6.12 - Linux kernel source\n",
        "show": (
            "Package: linux-source-6.9\nVersion: 6.9.7-1\nSize: 140\nDescription-en: source\n Size: is a word\n\n"
            "Package: linux-source-6.12\nVersion: 6.12.117-1~deb12u1\nSize: 153476148\n\n"
        ),
    }
    monkeypatch.setattr(Apt, "_read", lambda _self, verb, *_: shown[verb])
    assert Apt(tmp_path).offers() == [
        Offer("linux-source-6.12", "6.12.117-1~deb12u1", 153476148),
        Offer("linux-source-6.9", "6.9.7-1", 140),
    ]


def test_a_private_apt_has_its_own_places(tmp_path: Path) -> None:
    apt = Apt(tmp_path / "private apt", "Types: deb\nURIs: http://mirror.example/debian\n")
    settings = apt.config.read_text()
    for name in ("Dir::State::Lists", "Dir::Cache", "Dir::Etc::SourceParts"):
        assert f'{name} "{tmp_path}/private apt/' in settings
    assert 'Dir::Etc::SourceList "/dev/null"' in settings
    assert "Dir::Etc" not in Apt(tmp_path / "b").config.read_text()
    assert "Dir::State::Lists" not in Apt(tmp_path / "b").config.read_text()
    assert "Dir::State::Lists" in Apt(tmp_path / "c", own_lists=True).config.read_text()


def test_without_apt_there_is_nothing_on_offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Apt(tmp_path / "apt").offers() == []
    with pytest.raises(StepError):
        Apt(tmp_path / "apt").update()
