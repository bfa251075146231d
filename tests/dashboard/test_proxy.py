"""The dashboard below a path of a proxy, as behind nginx at /quiver/, which takes the path away."""

import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from dashboard.visits import Visiting
from playwright.sync_api import expect
from support.broker import Served

PREFIX = "/quiver"
HOP = {"connection", "transfer-encoding", "keep-alive"}


class Proxy(BaseHTTPRequestHandler):
    """Passes on what is asked for below the prefix, and answers 404 to everything else."""

    port = 0

    def do_GET(self) -> None:
        if not self.path.startswith(f"{PREFIX}/"):
            self.send_error(404)
            return
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection.request(self.command, self.path.removeprefix(PREFIX), body, dict(self.headers))
        answer = connection.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.end_headers()
        try:
            while part := answer.read1(65536):
                self.wfile.write(part)
        except OSError:
            self.close_connection = True
        finally:
            connection.close()

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def below(broker: Served) -> Iterator[str]:
    """The address of the broker behind a proxy."""
    handler = type("ProxyOfOne", (Proxy,), {"port": broker.port})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        # Event streams end when the page is closed, which is after this.
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{PREFIX}"
        server.shutdown()


def test_every_page_works_below_a_path(broker: Served, below: str, visit: Visiting) -> None:
    broker.engine.queue("orders", "billing").put(b"first")
    view = visit(broker)
    view.url = below
    page = view.open("topics")
    expect(page.locator(".state")).to_have_text("Live")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    page.wait_for_function("() => document.querySelector('.brand img').naturalWidth > 0")
    for route in ("overview", "messages/orders", "groups", "dead-letters", "delayed", "topics/orders"):
        view.drawn(route)
        expect(page.locator("main [role=alert]:visible")).to_have_count(0)
    view.open("messages/orders/0/normal/0")
    expect(page.locator("aside.drawer pre")).to_have_text("first")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Publish", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value", exact=True).fill("second")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text("at offset 1.")).to_be_visible()
    page.goto(f"{below}/docs#list_topics")
    page.locator("#list_topics").get_by_role("button", name="Send").click()
    expect(page.get_by_label("Body of the answer")).to_contain_text("orders")
