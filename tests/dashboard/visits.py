"""What a test sees of the dashboard.

A test fails when its page says anything on the console, throws, breaks the content security policy, or asks
another host for something: nobody has to look for that.
"""

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request
from support.broker import Served

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"

# Long enough for a busy machine; nothing that works takes a tenth of it.
PATIENCE_MS = 20_000


class Visit:
    """A page of the dashboard as one user sees it, and what it should not have done."""

    def __init__(self, context: BrowserContext, served: Served) -> None:
        self.url = served.url
        self.complaints: list[str] = []
        # Answers that a test provokes: the console complains of each, and rightly so.
        self.expected: list[str] = []
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"thrown: {error}"))
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
        """Keep a picture of what is seen."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def has_sideways_scroll(self) -> bool:
        """Whether something is wider than the window."""
        script = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        return bool(self.page.evaluate(script))

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
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:", "blob:")):
            self.complaints.append(f"asked another host: {request.url}")


Visiting = Callable[..., Visit]


def local_time(page: Page, unix_s: float) -> str:
    """A moment as a field for days and times takes it, in the time zone of the browser."""
    script = "ms => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19)"
    return str(page.evaluate(script, unix_s * 1000))
