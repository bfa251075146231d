"""The page at /docs: every call, tried from the page itself."""

import json
import re
from pathlib import Path

import pytest
from dashboard.visits import Visit, Visiting
from playwright.sync_api import Locator, Page, expect
from support.broker import Served, serving

from quivermq.server.keys import NewKey, create_key
from quivermq.server.routes import all_routes


def opened(view: Visit, operation: str = "") -> Page:
    view.page.goto(f"{view.url}/docs{operation and '#' + operation}")
    expect(view.page.locator(".docs-call")).to_have_count(len(all_routes()))
    return view.page


def call(page: Page, operation: str) -> Locator:
    return page.locator(f"#{operation}")


def test_a_call_is_tried_and_copied(broker: Served, visit: Visiting) -> None:
    broker.engine.create_topic("orders")
    view = visit(broker)
    page = opened(view, "publish")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    publish = call(page, "publish")
    publish.get_by_role("button", name="Send").click()
    expect(publish.get_by_role("alert")).to_have_text("Give topic: it is a part of the address.")
    publish.get_by_label("topic", exact=True).fill("orders")
    publish.get_by_label("Body", exact=True).fill("{")
    publish.get_by_role("button", name="Send").click()
    expect(publish.get_by_role("alert")).to_contain_text("The body is not JSON")
    publish.get_by_label("Body", exact=True).fill('{"value": "it\'s"}')
    publish.get_by_role("button", name="Copy as curl").click()
    expect(page.get_by_text("Copied a command")).to_be_visible()
    command = page.evaluate("navigator.clipboard.readText()")
    assert command.startswith(f"curl -X POST '{broker.url}/v1/topics/orders/messages'")
    assert "it'\\''s" in command
    publish.get_by_role("button", name="Send").click()
    expect(publish.locator(".docs-status")).to_contain_text(re.compile(r"200 OK \d+ ms"))
    # The status comes first, and then the body.
    shown = publish.get_by_label("Body of the answer")
    expect(shown).to_contain_text("}")
    answer = json.loads(shown.inner_text())
    assert (answer["partition"], answer["offset"]) == (0, 0)
    view.shoot("docs")
    [message] = broker.engine.queue("orders").read(0)
    assert message.value == b"it's"
    page.get_by_label("Filter calls").fill("nowhere to be found")
    expect(page.locator(".docs-call:visible")).to_have_count(0)
    page.get_by_label("Filter calls").fill("/v1/topics/{topic}/scheduled/timeline")
    expect(page.locator(".docs-call:visible")).to_have_count(1)


def test_a_stream_is_shown_as_it_comes_and_stopped(broker: Served, visit: Visiting) -> None:
    page = opened(visit(broker), "listen")
    events = call(page, "listen")
    events.get_by_role("button", name="Send").click()
    expect(events.get_by_label("Body of the answer")).to_contain_text("event: stats")
    events.get_by_role("button", name="Stop").click()
    expect(events.get_by_role("button", name="Send")).to_be_enabled()


def test_calls_are_sent_with_the_key_in_hand(tmp_path: Path, visit: Visiting) -> None:
    made = create_key(tmp_path / "data", "admin")
    with serving(tmp_path / "data") as served:
        served.engine.create_topic("orders")
        view = visit(served)
        try_with_key(view, made)
        view.page.close()


def try_with_key(view: Visit, made: NewKey) -> None:
    view.expect_status(401)
    page = opened(view, "list_topics")
    listing = call(page, "list_topics")
    listing.get_by_role("button", name="Send").click()
    expect(listing.locator(".docs-status")).to_contain_text("401")
    page.get_by_label("API key").fill(made.text)
    page.get_by_label("API key").press("Tab")
    expect(page.get_by_text("for admin")).to_be_visible()
    listing.get_by_role("button", name="Send").click()
    expect(listing.get_by_label("Body of the answer")).to_contain_text("orders")


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone(broker: Served, visit: Visiting, dark: bool) -> None:
    view = visit(broker, phone=True, dark=dark)
    page = opened(view, "publish")
    assert not view.has_sideways_scroll()
    call(page, "publish").get_by_text("What the body may hold").click()
    assert not view.has_sideways_scroll()
    view.shoot(f"docs-phone{'-dark' if dark else ''}")
