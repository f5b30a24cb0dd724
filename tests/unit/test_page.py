"""Pages: everything in one file, the numbers those of the run's files, links over time as they were counted."""

from __future__ import annotations

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import page_synthetic
import pytest

from testbed.errors import InputError
from testbed.page import content, figures, frames, maps, numbers, write
from testbed.telemetry import tables

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Reader(HTMLParser):
    """What a page holds: its open tags at the end, ids, and the (path, value, text) of its numbers."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.numbers: list[tuple[str, float, str]] = []
        self.addresses: list[str] = []
        self._data: dict[str, str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        if tag not in VOID:
            self.open.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        self.addresses += [found[key] for key in ("href", "src", "xlink:href") if key in found]
        if tag == "data":
            self._data = found | {"text": ""}

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pytest.fail(f"</{tag}> closes something else")
        if tag == "data" and self._data:
            self.numbers.append((self._data["data-path"], float(self._data["value"]), self._data["text"]))
            self._data = None

    def handle_data(self, data: str) -> None:
        if self._data is not None:
            self._data["text"] += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("runs") / "synthetic"
    return folder, page_synthetic.make(folder)


def same_numbers(page: Reader, summary: Any) -> int:
    """Compare every number of a page that says where it is from; return how many there are."""
    for path, value, text in page.numbers:
        raw = summary
        for key in path.split("|"):
            raw = raw[int(key)] if isinstance(raw, list) else raw[key]
        assert value == (raw["value"] if isinstance(raw, dict) else raw), path
        assert text.strip(), path
    return len(page.numbers)


def test_a_page_is_one_sound_file_with_the_numbers_of_the_summary(run: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = run
    path = write.write(folder)
    text = path.read_text()
    page = Reader(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert "http://" not in text.replace("http://www.w3.org/", "")  # names of XML, which nothing is fetched from
    assert "https://" not in text
    assert same_numbers(page, summary) > 60
    mean = summary["arms"]["cassini"]["iteration_s"]["mean"]["value"]
    assert ("arms|cassini|iteration_s|mean", mean, f"{1e3 * mean:.1f}") in page.numbers
    assert "4 of 4 fidelity checks hold" in text
    assert "Two &lt;made-up&gt; jobs" in text
    assert "12 &lt;counts&gt; &amp; more" in text
    for name in ("arms", "network", "decisions", "time", "predictions", "manifest"):
        assert f'<section id="{name}"' in text


def test_the_same_files_give_the_same_bytes(run: tuple[Path, dict[str, Any]]) -> None:
    path = write.write(run[0])
    first = path.read_bytes()
    assert write.write(run[0]).read_bytes() == first


def test_a_run_that_is_not_valid_says_so_first(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    shutil.copytree(run[0], tmp_path / "run")
    manifest = json.loads((run[0] / "manifest.json").read_text())
    checks = {arm: [*of, page_synthetic.FAULT] for arm, of in manifest["verdict"].items()}
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest | {"valid": False, "verdict": checks}))
    text = write.write(tmp_path / "run").read_text()
    assert text.index("Not valid") < text.index("no packet was dropped") < text.index("<main")
    assert "4 of 8 fidelity checks hold" in text


def test_every_plot_is_there_in_the_colours_of_the_page_and_read_out(run: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = run
    plots = figures.load(folder / "plots")
    assert [one.name for one in plots] == [
        "iteration-times", "ce-marks", "affinity", "circles", "phases", "utilisation", "queue",
    ]  # fmt: skip
    for one in plots:
        assert 'role="img" aria-label="' + html.escape(one.title) in one.svg
        assert len(one.title) > 10
        assert "var(--ink)" in one.svg
        assert "#262626" not in one.svg
        assert "#ffffff" not in one.svg
    assert len(plots[3].svg) < len((folder / "plots" / "circles.svg").read_text())


def test_frames_are_what_the_counters_grew_by(tmp_path: Path) -> None:
    arm = tmp_path / "arm"
    arm.mkdir()
    with tables.LINKS.writer(arm / "links.csv") as file:
        for t_s, sent, marked in ((0.0, 0, 0), (1.0, 125, 0), (2.0, 375, 2)):
            file.row(t_s, "s1->s2", sent // 25, sent, None, None, 0, 0, 0, 0, 0, marked, 0)
        for t_s, received in ((0.0, 0), (2.0, 250), (3.0, 250)):  # a host's egress, as its switch received it
            file.row(t_s, "h1->s1", None, None, received // 25, received, 0, 0, 0, 0, None, None, None)
        file.row(3.0, "s2->s1", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    rates = {"s1->s2": 2000.0, "h1->s1": 2000.0, "s2->s1": 2000.0}
    found = frames.of(arm, rates, (frames.Span("trial 0", 0.0, 3.0),))
    assert found is not None
    assert found.edges_s.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert found.used == {"s1->s2": [500, 1000, 0], "h1->s1": [0, 1000, 0]}
    assert found.marked == {"s1->s2": [0, 200, 0], "h1->s1": [0, 0, 0]}
    assert frames.of(tmp_path, rates, found.spans) is None
    assert frames.of(arm, rates, ()) is None


def test_many_readings_make_no_more_frames_than_can_be_told_apart(tmp_path: Path) -> None:
    with tables.LINKS.writer(tmp_path / "links.csv") as file:
        for at in range(2000):
            file.row(at / 10, "a->b", at, 100 * at, at, 100 * at, 0, 0, 0, 0, 0, 0, 0)
    found = frames.of(tmp_path, {"a->b": 8000.0}, (frames.Span("trial 0", 0.0, 200.0),))
    assert found is not None
    assert len(found.edges_s) <= frames.MOST + 1
    assert set(found.used["a->b"][:-1]) == {1000}


def test_a_fabric_is_drawn_with_two_lanes_for_every_link(run: tuple[Path, dict[str, Any]]) -> None:
    text = write.write(run[0]).read_text()
    lanes = re.findall(r'data-link="([^"]+)"', text)
    assert len(lanes) == len(set(lanes)) == 96
    assert 'aria-label="Map of cassini-48: 24 hosts, 13 switches' in text
    data = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', text, re.S)[0])
    assert [one["name"] for one in data["arms"]] == ["together", "random", "cassini", "alone"]
    for one in data["arms"]:
        assert set(one["used"]) == {"tor1-&gt;agg1", "agg1-&gt;tor1"} or set(one["used"]) == {
            "tor1->agg1",
            "agg1->tor1",
        }
        assert all(len(of) == len(one["edges"]) - 1 for of in one["used"].values())
    together, cassini = (sum(data["arms"][at]["marked"]["tor1->agg1"]) for at in (0, 2))
    assert together > cassini


@pytest.mark.parametrize("located", [True, False])
def test_a_wide_area_run_has_its_trees_on_the_map(tmp_path: Path, located: bool) -> None:
    summary = page_synthetic.make_wide(tmp_path / "wide", located=located)
    text = write.write(tmp_path / "wide").read_text()
    page = Reader(text)
    assert page.open == []
    assert same_numbers(page, summary) == 8  # four figures of two systems
    assert "Shortest mean round: chain, 3 s, 1.33× as fast as star." in text
    assert 'data-words="dc1 to dc2; dc2 to dc3"' in text
    assert text.count('class="tree"') == 2
    assert ("° N" in text) == located
    assert "1 of 1 predictions held" in text


def test_sites_stand_where_they_are_on_earth() -> None:
    sites = [{"name": "north", "latitude": 60, "longitude": 10}, {"name": "south", "latitude": 40, "longitude": 10},
             {"name": "east", "latitude": 50, "longitude": 30}]  # fmt: skip
    drawn = maps.wan({"name": "x", "sites": sites, "links": [{"a": "north", "b": "south"}]})
    at = {node.name: node for node in drawn.nodes}
    assert at["north"].y < at["east"].y < at["south"].y
    assert at["east"].x > at["north"].x == at["south"].x
    assert all(0 < node.x < drawn.width and 0 < node.y < drawn.height for node in drawn.nodes)


def test_a_study_links_to_the_pages_of_its_points(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "report.html").write_text("x")
    points = [{"name": name, "at": {"rate": 1}, "settings": ["x=1"], "valid": name == "a", "error": "", "folder": name,
               "figures": {"score": {"value": 0.5}}} for name in ("a", "b")]  # fmt: skip
    plots = [{"x": "rate", "y": ["score"]}]
    (tmp_path / "study.json").write_text(json.dumps({"name": "s", "title": "t", "plots": plots, "points": points}))
    text = write.write(tmp_path).read_text()
    assert Reader(text).open == []
    assert '<a href="a/report.html">a</a>' in text
    assert "b/report.html" not in text
    assert "1 of 2 points are valid" in text


def test_a_ratio_over_nothing_shows_both_counts() -> None:
    of = {"r": {"value": None, "low": None, "high": None, "above": 1596.4, "below": 0.0}}
    assert numbers.cell(of, "r", numbers.times) == numbers.Cell("1,596 : 0", None, "r")
    nothing = {"r": {"value": None, "above": 0.0, "below": 0.0}}
    assert numbers.cell(nothing, "r", numbers.times).text == "–"
    assert numbers.cell({}, "a|b", numbers.ms).text == "–"


def test_the_headline_compares_or_tells() -> None:
    mean = {"iteration_s": {"mean": {"value": 0.25}}}
    assert content.headline({"arms": {"alone": mean}, "ratios": {}}) == "Mean iteration time: alone 250.0 ms."


@pytest.mark.parametrize("broken", ["", "[]", '{"valid": true}', "null"])
def test_a_folder_of_something_else_is_refused(tmp_path: Path, broken: str) -> None:
    for name in ("manifest", "summary", "validation"):
        (tmp_path / f"{name}.json").write_text(broken)
    with pytest.raises(InputError):
        write.write(tmp_path)
    with pytest.raises(InputError, match=r"manifest\.json"):
        write.write(tmp_path / "nowhere")
