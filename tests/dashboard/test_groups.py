"""Groups: how far they have come, what they have in hand, seeking and deleting."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from dashboard.strange import IMAGE
from dashboard.visits import Visiting, local_time
from playwright.sync_api import Locator, Page, expect
from support.broker import Served

import quivermq
from quivermq.engine import engine_of


def section(page: Page, title: str) -> Locator:
    heading = page.get_by_role("heading", name=title, exact=True)
    return page.locator("section.section").filter(has=heading)


def put(broker: Served, count: int = 30) -> quivermq.Queue:
    broker.engine.create_topic("orders", partitions=2, lease_ms=60_000)
    queue = broker.engine.queue("orders", "billing")
    for number in range(count):
        queue.put(b"%d" % number, partition=number % 2, timestamp=1_700_000_000.0 + 60 * number)
    return queue


def positions(broker: Served) -> list[int]:
    cursors = engine_of(broker.engine).catalog.get("orders").groups["billing"].cursors
    return [cursor.lanes[1].next for cursor in cursors.values()]


@contextmanager
def members(broker: Served) -> Iterator[None]:
    """A group in stream mode with one member."""
    with (
        quivermq.connect(broker.url) as mq,
        mq.consumer("orders", "readers") as consumer,
    ):
        assert consumer.poll(timeout=10)
        yield


def test_who_has_what_and_for_how_long(broker: Served, visit: Visiting) -> None:
    queue = put(broker)
    with quivermq.connect(broker.url) as mq:
        worker = mq.queue("orders", "billing")
        first, second = worker.get(), worker.get()
        assert first is not None
        assert second is not None
        second.nack(delay=600, reason="later")
        # Anybody may call itself what it likes.
        receive = f"{broker.url}/v1/topics/orders/groups/billing/receive"
        urlopen(Request(receive, b"{}", {"User-Agent": IMAGE})).close()
        seen = visit(broker)
        page = seen.open("groups/orders/billing")
        held = section(page, "In flight and retrying").locator("tbody tr")
        expect(held).to_have_count(3)
        expect(held.filter(has_text=IMAGE)).to_have_count(1)
        assert page.locator("img[src=x]").count() == 0
        flying = held.filter(has_text="quivermq")
        expect(flying).to_contain_text(re.compile(r"quivermq \(.+:\d+\), 127.0.0.1"))
        expect(flying.get_by_role("cell").nth(4)).to_have_text("1")
        left = flying.locator("td.left")
        expect(left).to_have_text(re.compile(r"^\d+ s$|^1 min$"))
        before = left.inner_text()
        # It counts down by itself.
        expect(left).not_to_have_text(before)
        expect(held.filter(has_text="retrying").locator("td.left")).to_contain_text("min")
        lanes = section(page, "Partitions").locator("tbody tr")
        expect(lanes).to_have_count(2)
        expect(lanes.first).to_contain_text("15")
        expect(page.locator(".tile", has_text="Lag")).to_contain_text("27")
        first.ack()
        expect(held).to_have_count(2)
        held.first.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Messages of orders")
    assert queue.stats().retrying == 1


def test_members_and_what_they_read(broker: Served, visit: Visiting) -> None:
    put(broker)
    with members(broker):
        page = visit(broker).open("groups/orders/readers")
        row = section(page, "Members").locator("tbody tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("127.0.0.1")
        expect(row).to_contain_text("0, 1")
        expect(section(page, "Members")).to_contain_text("cooperative assignment")
        member = row.locator("td").first.inner_text()
        expect(section(page, "Partitions").locator("tbody tr").first).to_contain_text(member)


def test_seeking_with_the_present_values(broker: Served, visit: Visiting) -> None:
    queue = put(broker)
    queue.ack(queue.get_many(10))
    assert sum(positions(broker)) == 10
    seen = visit(broker)
    page = seen.open("groups/orders/billing")
    page.get_by_role("button", name="Seek").click()
    dialog = page.get_by_role("dialog")
    inputs = dialog.get_by_role("spinbutton")
    assert [inputs.nth(n).input_value() for n in (0, 1)] == [str(n) for n in positions(broker)]
    go = dialog.get_by_role("button", name="Seek")
    expect(go).to_be_disabled()
    inputs.nth(0).fill("99")
    expect(dialog).to_contain_text("give 0 to 15")
    expect(go).to_be_disabled()
    inputs.nth(0).fill("0")
    expect(dialog.locator("tbody tr").first).to_contain_text("come again")
    inputs.nth(1).fill("15")
    expect(dialog.locator("tbody tr").nth(1)).to_contain_text("passed over")
    seen.shoot("seek")
    go.click()
    expect(dialog).to_be_hidden()
    assert positions(broker) == [0, 15]

    page.get_by_role("button", name="Seek").click()
    dialog.get_by_text("From a time").click()
    dialog.get_by_label("Time", exact=True).fill(local_time(page, 1_700_000_600.0))
    expect(dialog.locator("tbody tr").first).to_contain_text("5 passed over")
    go.click()
    expect(dialog).to_be_hidden()
    assert positions(broker) == [5, 5]

    page.get_by_role("button", name="Seek").click()
    dialog.get_by_text("Only what comes from now on").click()
    dialog.get_by_label("Partition", exact=True).select_option("1")
    expect(dialog.locator("tbody tr").first).to_contain_text("stays")
    go.click()
    expect(dialog).to_be_hidden()
    assert positions(broker) == [5, 15]


def test_all_groups_and_deleting_one(broker: Served, visit: Visiting) -> None:
    queue = put(broker)
    held = queue.get_many(4)
    held[0].nack(delay=600)
    broker.engine.queue("mails", "sender").put(b"x")
    broker.engine.queue("mails", "sender").get()
    seen = visit(broker)
    seen.expect_status(404)
    page = seen.open("groups")
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(2)
    cells = rows.filter(has_text="billing").locator("td")
    for number, words in enumerate(("billing", "orders", "consuming", "26", "3", "1")):
        expect(cells.nth(number)).to_have_text(words)
    page.get_by_label("Filter groups").fill("send")
    expect(rows).to_have_count(1)
    page.get_by_label("Filter groups").fill("")
    page.get_by_role("link", name="billing").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("billing of orders")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    go = dialog.get_by_role("button", name="Delete the group")
    dialog.get_by_role("textbox").fill("bill")
    expect(go).to_be_disabled()
    dialog.get_by_role("textbox").fill("billing")
    go.click()
    expect(page.get_by_text("Deleted billing of orders.")).to_be_visible()
    assert "billing" not in engine_of(broker.engine).catalog.get("orders").groups
    # An old address of it says so, and goes on once it is there again.
    seen.open("groups/orders/billing")
    expect(page.get_by_role("alert").filter(has_text="orders has no group billing")).to_be_visible()
    queue.seek("earliest")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_topic_may_be_called_like_something_that_every_object_has(
    broker: Served, visit: Visiting
) -> None:
    broker.engine.create_topic("orders")
    view = visit(broker)
    view.expect_status(404)
    page = view.open("groups/constructor/valueOf")
    expect(page.get_by_role("alert").filter(has_text="constructor")).to_be_visible()
    expect(page.locator(".state")).to_have_text("Live")
    broker.engine.queue("constructor", "valueOf").put(b"x")
    assert broker.engine.queue("constructor", "valueOf").get() is not None
    # It is shown as soon as it is there.
    expect(page.locator(".tile", has_text="In flight")).to_contain_text("1")


def test_a_group_is_paused_resumed_and_retries_at_once(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders", "billing")
    queue.put_many([b"one", b"two"])
    queue.nack(queue.get_many(1), delay=3600)
    seen = visit(broker)
    page = seen.open("groups/orders/billing")
    page.get_by_role("button", name="Retry now").click()
    expect(page.get_by_text("1 message has its next attempt now.")).to_be_visible()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Let it go on").click()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pause the group").click()
    resume = page.get_by_role("button", name="Resume", exact=True)
    expect(resume).to_be_visible()
    expect(page.locator(".tile").filter(has_text="State").first).to_contain_text("paused")
    seen.shoot("group-paused")
    assert queue.get_many(2, timeout=0) == []
    resume.click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    assert len(queue.get_many(2, timeout=0)) == 2
