"""The site of the docs: built without the network, it asks nobody but its own server for anything."""

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from support.pages import PAGES, ROOT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Nothing that Chromium does for itself may look like something that a page does.
QUIET = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
# What is loaded as soon as a page is shown; a link that somebody may follow is not.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}

# mkdocs, in a process in which every connection is an error.
BUILD = """\
import socket, sys

def refuse(*_):
    raise OSError("the site has to be built without the network")

socket.socket.connect = refuse
socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli(["build", "--strict", "--site-dir", sys.argv[1]])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` makes it."""
    directory = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, directory],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return directory


class Assets(HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADED.get(tag, ""))
        if address:
            self.found.append(address)


def test_every_page_is_on_the_site(site: Path) -> None:
    docs = ROOT / "docs"
    missing = [
        page
        for page in PAGES
        if page.is_relative_to(docs) and not (site / page.relative_to(docs).with_suffix(".html")).exists()
    ]
    assert not missing


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded: dict[str, set[str]] = {}
    for page in site.rglob("*.html"):
        assets = Assets()
        assets.feed(page.read_text(encoding="utf-8"))
        loaded[str(page.relative_to(site))] = set(assets.found)
    assert loaded["index.html"], "a page loads its style and its scripts"
    assert not {
        page: outside for page, found in loaded.items() if (outside := {*filter(_is_outside, found)})
    }


def test_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    addresses = re.findall(r"""(?:url\(|@import )\s*["']?([^"')\s]+)""", styles)
    assert addresses
    assert not [*filter(_is_outside, addresses)]


def _is_outside(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def test_the_guarantees_are_those_of_the_readme() -> None:
    promised = re.search(r"^## What is promised\n(.*?)^How this is tested", _read("README.md"), re.M | re.S)
    told = re.search(r"^## What is promised\n(.*?)^## ", _read("docs/concepts/guarantees.md"), re.M | re.S)
    assert promised is not None
    assert told is not None
    assert told[1].strip() == promised[1].strip().replace("](docs/", "](../")


def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


class Silent(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_: object) -> None:
        """Nobody wants to know."""


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Page]:
    """A page of a browser that lets nothing out."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET) as browser,
        browser.new_context(color_scheme="light") as context,
    ):
        asked: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        yield context.new_page()
        assert asked
        assert not [url for url in asked if not url.startswith((address, "data:", "blob:"))]


def test_the_search_finds_what_is_looked_for(page: Page, address: str) -> None:
    # The address holds what is looked for: what is typed before the script of the page listens is lost.
    page.goto(f"{address}?q=redrive")
    results = page.locator(".md-search-result__item h1, .md-search-result__item h2")
    expect(results.filter(has_text=re.compile("dead letters", re.IGNORECASE)).first).to_be_visible(
        timeout=60_000
    )


def test_a_picture_has_the_colours_of_the_page(page: Page, address: str) -> None:
    page.goto(f"{address}internals/architecture.html")
    text = page.locator("#architecture text").first
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.reload()
        colours.append(text.evaluate("element => getComputedStyle(element).fill"))
    assert colours == ["rgb(28, 35, 64)", "rgb(230, 233, 245)"]


def test_nothing_is_wider_than_a_phone(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for name in ("index.html", "reference/calls.html", "reference/names.html", "coming-from/kafka.html"):
        page.goto(f"{address}{name}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name


class Cells(HTMLParser):
    """Collects the text of the cells of tables."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._is_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("td", "th"):
            self._is_cell = True
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._is_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.found[-1] += data


def test_a_bar_in_a_table_is_shown_as_a_bar(site: Path) -> None:
    found: list[str] = []
    for page in site.rglob("*.html"):
        cells = Cells()
        cells.feed(page.read_text())
        found += cells.found
    assert not [cell for cell in found if "\\|" in cell]
    # As it is in the reference of the Python names.
    assert any("Delivery | None" in cell for cell in found)
