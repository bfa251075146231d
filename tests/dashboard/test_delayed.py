"""Delayed messages: when they are due, and calling them off."""

import re

from dashboard.strange import IMAGE
from dashboard.visits import Visiting
from playwright.sync_api import Locator, Page, expect
from support.broker import Served

import quivermq

HOUR = 3600


def rows(page: Page) -> Locator:
    return page.locator("main tbody tr")


def test_a_timeline_and_a_list(broker: Served, visit: Visiting) -> None:
    delays = [60, 120, HOUR + 60, 20 * HOUR, 40 * 24 * HOUR]
    queue = broker.engine.queue("orders")
    queue.put_many([quivermq.Message(b"in %d" % delay, delay=delay) for delay in delays])
    broker.engine.queue("mails").put(b"x", delay=30 * HOUR)
    page = visit(broker).open("delayed")
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("orders")
    chart = page.locator("figure")
    expect(chart).to_contain_text("6 messages")
    page.get_by_label("How far the timeline reaches").select_option("Next 24 hours")
    expect(chart).to_contain_text("4 messages here, 2 later")
    page.get_by_role("link", name="orders").click()
    expect(rows(page)).to_have_count(5)
    expect(rows(page).first).to_contain_text("in 60")
    expect(rows(page).first).to_contain_text(re.compile(r"in \d+ s|in 1 min"))
    page.get_by_label("How far the timeline reaches").select_option("Next hour")
    expect(chart).to_contain_text("2 messages here, 3 later")
    # With the keyboard: to the last span of the hour, and on from there.
    bars = page.get_by_role("slider")
    bars.focus()
    bars.press("End")
    expect(chart).to_contain_text("0 messages")
    bars.press("Enter")
    expect(rows(page)).to_have_count(3)
    expect(rows(page).first).to_contain_text("in 3660")
    page.get_by_role("button", name="Back to the next one").click()
    expect(rows(page)).to_have_count(5)


def test_one_is_cancelled(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders")
    queue.put(b"first", delay=HOUR)
    queue.put(IMAGE.encode(), key=IMAGE.encode(), delay=2 * HOUR)
    late = queue.put(b"third", delay=3 * HOUR)
    seen = visit(broker)
    seen.expect_status(404)
    page = seen.open("delayed/orders")
    expect(rows(page)).to_have_count(3)
    rows(page).first.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    rows(page).first.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the message").click()
    expect(page.get_by_text("Cancelled.")).to_be_visible()
    expect(rows(page)).to_have_count(2)
    rows(page).first.locator("button.linklike").click()
    panel = page.locator("aside.drawer")
    expect(panel.locator("pre")).to_have_text(IMAGE)
    assert page.locator("img[src=x]").count() == 0
    panel.get_by_role("button", name="Cancel this message").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the message").click()
    expect(rows(page)).to_have_count(1)
    assert [waiting.value for waiting in queue.scheduled()] == [b"third"]
    rows(page).first.get_by_role("button", name="Cancel").click()
    assert late.scheduled_id is not None
    assert queue.cancel(late.scheduled_id)
    page.get_by_role("dialog").get_by_role("button", name="Cancel the message").click()
    expect(page.get_by_text("does not wait any more")).to_be_visible()
    expect(page.get_by_text("No delayed messages here.")).to_be_visible()


def test_some_are_cancelled_together_and_others_come_at_once(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders")
    puts = [queue.put(b"number %d" % number, delay=HOUR + number) for number in range(5)]
    seen = visit(broker)
    seen.expect_status(404)
    page = seen.open("delayed/orders")
    for number in (0, 2, 3):
        page.get_by_label(f"Select {puts[number].scheduled_id}").check()
    seen.shoot("delayed-selected")
    page.get_by_role("button", name="Cancel 3 selected").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Keep them").click()
    assert len(queue.scheduled()) == 5
    page.get_by_role("button", name="Cancel 3 selected").click()
    # One of them was faster.
    assert queue.cancel(str(puts[0].scheduled_id))
    dialog.get_by_role("button", name="Cancel 3 messages").click()
    expect(page.get_by_text("Cancelled 2 messages; 1 did not wait any more.")).to_be_visible()
    expect(rows(page)).to_have_count(2)
    rows(page).first.locator("button.linklike").click()
    page.locator("aside.drawer").get_by_role("button", name="Deliver now").click()
    expect(page.get_by_text("1 message can be received now.")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    [delivery] = queue.get_many(10)
    assert delivery.value == b"number 1"
    assert [waiting.value for waiting in queue.scheduled()] == [b"number 4"]


def test_large_ones_come_a_few_at_a_time(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders")
    queue.put_many([quivermq.Message(b"x" * 2_000_000, delay=HOUR + number) for number in range(6)])
    page = visit(broker).open("delayed/orders")
    expect(page.get_by_text("5 of 6 delayed")).to_be_visible()
    page.get_by_role("button", name="Load more").click()
    expect(rows(page)).to_have_count(6)
    expect(page.get_by_role("button", name="Load more")).to_be_hidden()


def test_a_delayed_message_has_an_address(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders")
    queue.put_many([quivermq.Message(b"number %d" % number, delay=HOUR + number) for number in range(120)])
    wanted = queue.put(b"the last one", delay=2 * HOUR)
    seen = visit(broker)
    page = seen.open(f"delayed/orders?message={wanted.scheduled_id}")
    panel = page.locator("aside.drawer")
    expect(panel.locator("pre")).to_have_text("the last one")
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{broker.url}/#/delayed/orders")
    rows(page).first.locator("button.linklike").click()
    expect(page).to_have_url(re.compile(r"#/delayed/orders\?message="))
    assert queue.cancel(str(wanted.scheduled_id))
    seen.open("overview")
    seen.open(f"delayed/orders?message={wanted.scheduled_id}")
    expect(page.get_by_text("does not wait any more")).to_be_visible()
