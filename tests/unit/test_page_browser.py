"""Pages as a reader uses them, in headless Chromium: the slider moves, links change colour, nothing complains."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import page_synthetic
import pytest

from testbed.page import write

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (requirements-dev.txt)")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; apt-get install chromium")
# It runs as root in containers, and is to look for nothing in the network.
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync")  # fmt: skip
LONGEST_MS = 600_000
"""What takes longer hangs; no test says how long a page should take."""
COLOUR = "([link]) => getComputedStyle(document.querySelector(`[data-link='${link}']`)).stroke"
LINK = "tor1->agg1"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    page_synthetic.make(folder / "run")
    page_synthetic.make_wide(folder / "wide")
    return {name: write.write(folder / name) for name in ("run", "wide")}


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        yield started
        started.close()


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def page(browser: playwright.Browser, complaints: list[str]) -> Iterator[playwright.Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    opened = context.new_page()
    opened.set_default_timeout(LONGEST_MS)
    opened.on("console", lambda said: complaints.append(said.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("requestfailed", lambda request: complaints.append(request.url))
    yield opened
    assert complaints == []
    context.close()


def test_the_slider_moves_and_links_change_colour(pages: dict[str, Path], page: playwright.Page) -> None:
    page.goto(pages["run"].as_uri())
    slider = page.get_by_role("slider")
    busiest = page.evaluate(COLOUR, [LINK])
    assert int(slider.input_value()) > 0  # it begins where the network is busiest
    page.locator("h1").click()
    slider.focus()
    page.keyboard.press("Home")
    assert slider.input_value() == "0"
    page.wait_for_function(f"before => ({COLOUR})(['{LINK}']) !== before", arg=busiest)
    said = page.locator(".said").inner_text()
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == "1"
    assert page.locator(".said").inner_text() != said
    assert slider.get_attribute("aria-valuetext") == page.locator(".said").inner_text()


def test_arm_and_measure_are_chosen_and_the_table_tells_the_same(pages: dict[str, Path], page: playwright.Page) -> None:
    page.goto(pages["run"].as_uri())
    page.get_by_label("share of packets marked CE").check()
    page.locator("select[name='arm']").select_option("together")
    marked = page.locator(".busiest tbody tr").first.locator("td").nth(1).inner_text()
    assert marked != "0 %"
    title = page.locator(f"[data-link='{page.locator('.busiest tbody th').first.inner_text()}'] title")
    assert title.text_content().endswith(marked)
    page.locator("select[name='arm']").select_option("alone")
    page.wait_for_function("() => document.querySelector('.busiest tbody td:nth-of-type(2)').textContent === '0 %'")


def test_play_goes_on_to_the_end_and_stops(pages: dict[str, Path], page: playwright.Page) -> None:
    page.goto(pages["run"].as_uri())
    last = int(page.get_by_role("slider").get_attribute("max"))
    page.evaluate("last => { document.querySelector('#moment').value = last - 2; }", last)
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").wait_for()
    page.get_by_role("button", name="Play").wait_for()
    assert page.get_by_role("slider").input_value() == str(last)


def test_the_numbers_shown_are_those_of_the_files(pages: dict[str, Path], page: playwright.Page) -> None:
    page.goto(pages["run"].as_uri())
    found = page.evaluate(
        "() => [...document.querySelectorAll('[data-path]')].map(one => [one.dataset.path, one.value])"
    )
    summary = write.read(pages["run"].parent / "summary.json")
    assert len(found) > 60
    for path, value in found:
        raw = summary
        for key in path.split("|"):
            raw = raw[key]
        assert float(value) == (raw["value"] if isinstance(raw, dict) else raw)


def test_trees_of_a_system_are_shown_one_by_one(pages: dict[str, Path], page: playwright.Page) -> None:
    page.goto(pages["wide"].as_uri())
    assert page.locator(".tree:not([hidden])").get_attribute("data-arm") == "star"
    page.locator("select[name='arm']").select_option("chain")
    assert page.locator(".tree:not([hidden])").get_attribute("data-words") == "dc1 to dc2; dc2 to dc3"
    page.locator("select[name='tree']").select_option("")
    assert page.locator(".tree:not([hidden])").count() == 0


@pytest.mark.parametrize("name", ["run", "wide"])
def test_everything_has_a_name_and_can_be_reached_by_keyboard(
    pages: dict[str, Path], page: playwright.Page, name: str
) -> None:
    page.goto(pages[name].as_uri())
    unnamed = page.evaluate("""() => [...document.querySelectorAll('svg[role=img], input, select, button')]
        .filter(one => !(one.getAttribute('aria-label') || one.labels?.length || one.textContent.trim()))
        .map(one => one.outerHTML.slice(0, 80))""")
    assert unnamed == []
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    levels = page.evaluate("() => [...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_it_is_light_or_dark_as_the_reader_likes_and_prints_all(pages: dict[str, Path], page: playwright.Page) -> None:
    page.goto(pages["run"].as_uri())
    grounds = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.append(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
