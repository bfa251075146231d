"""What a test sees of the dashboard.

A test fails when its page says anything on the console, throws, breaks the content security policy, or asks
another host for something: nobody has to look for that.
"""

import os
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Error, Page, Request, expect
from support.broker import Served

# Pictures are for people, and cost much of a small test: QUIVER_SCREENSHOTS=1 for who wants them.
SCREENSHOTS = (
    Path(__file__).parents[2] / "build" / "screenshots" if "QUIVER_SCREENSHOTS" in os.environ else None
)

# Long enough for a busy machine; nothing that works takes a tenth of it.
PATIENCE_MS = 20_000


# Ends what the page does by itself. One with an open dialog would ask whether to throw away what is in it.
REST = """() => {
  if (!location.protocol.startsWith("http") || document.querySelector("dialog[open]")) return false;
  sessionStorage.clear();
  window.dispatchEvent(new Event("pagehide"));
  location.hash = "#/nowhere";
  return true;
}"""


class Visit:
    """A page of the dashboard as one user sees it, and what it should not have done."""

    def __init__(self, page: Page, served: Served, *, left: tuple[str, ...] = ()) -> None:
        self.url = served.url
        # Brokers that the tab was at before: what its last page still asks them is nothing to this one.
        self._left = left
        self.complaints: list[str] = []
        # Answers that a test provokes: the console complains of each, and rightly so.
        self.expected: list[str] = []
        self.page = page
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", self._on_error)
        self.page.on("request", self._on_request)

    def open(self, route: str = "overview") -> Page:
        """Go to a page of the dashboard."""
        self.page.goto(f"{self.url}/#/{route}")
        return self.page

    def expect_status(self, *statuses: int) -> None:
        """Let answers of these statuses be no complaint: the browser notes every one of 400 and above."""
        self.expected += [f"status of {status}" for status in statuses]

    def expect_words(self, *words: str) -> None:
        """Let complaints with these words be none."""
        self.expected += words

    def shoot(self, name: str) -> None:
        """Keep a picture of what is seen, if somebody wants to look at it."""
        if SCREENSHOTS is not None:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def has_sideways_scroll(self) -> bool:
        """Whether something is wider than the window."""
        script = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        return bool(self.page.evaluate(script))

    def drawn(self, route: str) -> Page:
        """Go to a page, and return once everything is on it."""
        self.open(route)
        expect(self.page.locator("main .page:not([aria-busy])")).to_have_attribute(
            "data-route", f"#/{route}"
        )
        expect(self.page.locator(".state")).to_have_text("Live")
        expect(self.page.locator(".loading:visible")).to_have_count(0)
        return self.page

    def until(self, is_so: Callable[[], bool]) -> None:
        """Return once something is so that no element tells. pytest's timeout ends what never is."""
        while not is_so():
            self.page.wait_for_timeout(20)

    def end(self) -> bool:
        """Stop listening. Returns whether the tab can be used again: quiet, and remembering nothing."""
        if self.page.is_closed():
            return False
        self.page.remove_listener("console", self._on_console)
        self.page.remove_listener("pageerror", self._on_error)
        self.page.remove_listener("request", self._on_request)
        self.page.unroute_all(behavior="ignoreErrors")
        return bool(self.page.evaluate(REST))

    def check(self) -> None:
        """Fail for everything that nobody expected."""
        unexpected = [
            complaint
            for complaint in self.complaints
            if not any(word in complaint for word in self.expected)
        ]
        assert not unexpected, f"the page complained: {unexpected}"

    def _on_console(self, message: ConsoleMessage) -> None:
        # Broken rules of the content security policy are among these.
        if message.location["url"].startswith(self._left):
            return
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _on_error(self, error: Error) -> None:
        self.complaints.append(f"thrown: {error}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:", "blob:", *self._left)):
            self.complaints.append(f"asked another host: {request.url}")


Visiting = Callable[..., Visit]


def local_time(page: Page, unix_s: float) -> str:
    """A moment as a field for days and times takes it, in the time zone of the browser."""
    script = "ms => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19)"
    return str(page.evaluate(script, unix_s * 1000))
