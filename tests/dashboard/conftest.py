"""A real Chromium in front of a real broker."""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from dashboard.visits import PATIENCE_MS, Visit, Visiting
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright
from support.broker import Served, serving

from quivermq.server import events

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu",
]
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let these tests be the last: the browser's event loop stays in this thread, and bears no other."""
    items.sort(key=lambda item: HERE in item.path.parents)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.fail(
            "the dashboard is tested in a real browser, and there is none: install one with"
            " `apt-get install chromium`, or put chromium or google-chrome on the PATH"
        )
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def figures_come_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is nothing to a person, and much to a hundred tests."""
    monkeypatch.setattr(events, "_INTERVAL_S", 0.2)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    """A broker without keys, and nothing in it yet."""
    with serving(tmp_path / "data") as served:
        yield served


@pytest.fixture(scope="session")
def context_for(browser: Browser) -> Callable[[bool, bool], BrowserContext]:
    """A browser with a window of a phone or not, dark or not.

    One serves for all tests, because making one takes longer than most of them: what a page keeps, it keeps
    for its tab, or for its broker, and each test has brokers and tabs of its own.
    """

    @cache
    def made(phone: bool, dark: bool) -> BrowserContext:
        return browser.new_context(
            viewport=PHONE if phone else DESKTOP,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            has_touch=phone,
        )

    return made


@pytest.fixture
def visit(context_for: Callable[[bool, bool], BrowserContext]) -> Iterator[Visiting]:
    """Open the dashboard of a broker: `visit(served, phone=True, dark=True)` gives a Visit."""
    visits: list[Visit] = []

    def begin(served: Served, *, phone: bool = False, dark: bool = False) -> Visit:
        visits.append(Visit(context_for(phone, dark), served))
        return visits[-1]

    yield begin
    for each in visits:
        each.page.close()
    for each in visits:
        each.check()
