"""The overview: figures that are right, plots that move, trouble in words."""

import re

from dashboard.visits import Visiting
from playwright.sync_api import Locator, Page, expect
from support.broker import Served

from quivermq.errors import FsyncFailed


def tile(page: Page, label: str) -> Locator:
    return page.locator(".tile", has=page.get_by_text(label, exact=True)).locator(".tile-value")


def test_the_figures_are_those_of_the_queue(broker: Served, visit: Visiting) -> None:
    orders = broker.engine.queue("orders", "billing")
    orders.put_many([b"x"] * 12)
    orders.put(b"later", delay=3600)
    orders.get_many(1, timeout=0)[0].reject("broken")
    orders.get_many(3, timeout=0)
    page = visit(broker).open()
    expect(tile(page, "Backlog")).to_have_text("12")
    expect(tile(page, "Lag")).to_have_text("8")
    expect(tile(page, "In flight")).to_have_text("3")
    expect(tile(page, "Delayed")).to_have_text("1")
    expect(tile(page, "Dead letters")).to_have_text("1")
    expect(tile(page, "Oldest unacked")).not_to_have_text("none")
    expect(tile(page, "Disk free")).to_contain_text("iB")
    expect(page.get_by_text("All is well")).to_be_visible()
    behind = page.locator("section", has=page.get_by_role("heading", name="Groups behind"))
    expect(behind.get_by_role("row").nth(1)).to_contain_text("billing of orders")


def published(page: Page) -> Locator:
    return page.locator("figure", has=page.get_by_role("heading", name="Messages")).locator("output").first


def test_the_plot_moves_when_messages_are_published(broker: Served, visit: Visiting) -> None:
    view = visit(broker)
    orders = broker.engine.queue("orders")
    orders.put(b"first")
    page = view.open()
    # Two looks at the counters make the first rate.
    expect(published(page)).to_have_text("0")
    line = page.locator("figure .line.c1").first
    before = line.get_attribute("d")
    orders.put_many([b"x"] * 500)
    # The axis makes room for them, however long the second was in which they came.
    expect(page.locator("figure .grid").first).to_contain_text(re.compile("[1-9],?[0-9]+0"))
    assert line.get_attribute("d") != before
    busiest = page.locator("section", has=page.get_by_role("heading", name="Busiest topics"))
    expect(busiest.get_by_role("row").nth(1)).to_contain_text("orders")
    page.locator("svg.plot").first.hover()
    expect(page.locator(".plot-moment").first).not_to_be_empty()
    view.shoot("overview")


def test_the_overview_in_the_dark(broker: Served, visit: Visiting) -> None:
    broker.engine.queue("orders", "billing").put_many([b"x"] * 50)
    broker.engine.queue("orders", "billing").get_many(10, timeout=0)
    view = visit(broker, dark=True)
    page = view.open()
    expect(tile(page, "Lag")).to_have_text("40")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 18, 23)"
    view.shoot("overview-dark")


def test_what_does_not_work_is_said(broker: Served, visit: Visiting) -> None:
    broker.engine.queue("orders").put(b"x")
    broker.app.broker.note(FsyncFailed("cannot sync: Input/output error", path=broker.engine.path))
    page = visit(broker).open()
    expect(page.get_by_role("alert")).to_contain_text("the disk failed to keep messages")
    expect(page.get_by_text("All is well")).to_have_count(0)
