"""A real Chromium in front of a real broker."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard.visits import PATIENCE_MS, Visit, Visiting
from dashboard.windows import Windows
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
def windows(browser: Browser) -> Windows:
    return Windows(browser)


@pytest.fixture
def visit(windows: Windows) -> Iterator[Visiting]:
    """Open the dashboard of a broker: `visit(served, phone=True, dark=True)` gives a Visit.

    With `is_alone` it has a window of its own: whoever sets the clock sets it for the whole window.
    """
    visits: list[Visit] = []
    alone: list[BrowserContext] = []

    def begin(served: Served, *, phone: bool = False, dark: bool = False, is_alone: bool = False) -> Visit:
        context = windows.new(phone, dark) if is_alone else windows.shared(phone, dark)
        if is_alone:
            alone.append(context)
        visits.append(windows.begin(served, context))
        return visits[-1]

    yield begin
    for context in alone:
        context.close()
    for each in visits:
        windows.end(each)
    for each in visits:
        each.check()
