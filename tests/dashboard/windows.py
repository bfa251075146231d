"""The windows and tabs of the browser, shared by the tests."""

from functools import cache

from dashboard.visits import Visit
from playwright.sync_api import Browser, BrowserContext, Page
from support.broker import Served

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


class Windows:
    """Windows of a phone or not, dark or not, with a tab each that the tests use one after the other.

    To make a window or a tab costs more than most tests do. What a page keeps, it keeps for its tab, which
    forgets it in between, or for its broker, and each test has brokers of its own.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._tabs: dict[BrowserContext, Page] = {}
        self._left: dict[Page, tuple[str, ...]] = {}
        self.shared = cache(self.new)

    def new(self, phone: bool, dark: bool) -> BrowserContext:
        return self._browser.new_context(
            viewport=PHONE if phone else DESKTOP,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            has_touch=phone,
        )

    def begin(self, served: Served, context: BrowserContext) -> Visit:
        page = self._tabs.pop(context, None) or context.new_page()
        return Visit(page, served, left=self._left.get(page, ()))

    def end(self, visit: Visit) -> None:
        page = visit.page
        if visit.end() and page.context not in self._tabs:
            self._tabs[page.context] = page
            self._left[page] = (*self._left.get(page, ()), f"{visit.url}/")
        else:
            page.close()
            self._left.pop(page, None)
