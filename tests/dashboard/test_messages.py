"""Messages: looking at the log, finding, following, publishing."""

import json
import re

from dashboard.strange import IMAGE, SCRIPT
from dashboard.visits import Visiting, local_time
from playwright.sync_api import Locator, Page, expect
from support.broker import Served

import quivermq

START_S = 1_700_000_000.0


def rows(page: Page) -> Locator:
    return page.locator("main tbody tr")


def put(broker: Served, count: int, **settings: object) -> quivermq.Queue:
    broker.engine.create_topic("orders", **settings)
    queue = broker.engine.queue("orders")
    messages = [
        quivermq.Message(b'{"order":%d}' % number, key=b"k%d" % (number % 7), headers={"n": b"%d" % number})
        for number in range(count)
    ]
    queue.put_many(messages)
    return queue


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def opened(page: Page, row: int = 0) -> Locator:
    """The panel with one of the messages."""
    rows(page).nth(row).get_by_role("button").first.click()
    panel = page.locator("aside.drawer")
    expect(panel).to_be_visible()
    return panel


def test_all_lanes_come_together_in_the_order_of_time(broker: Served, visit: Visiting) -> None:
    broker.engine.create_topic("orders", partitions=2)
    queue = broker.engine.queue("orders")
    for number in range(90):
        queue.put(
            b"number %d" % number,
            partition=number % 2,
            priority=("high", "normal", "low")[number % 3],
            timestamp=1_700_000_000.0 + number,
        )
    page = visit(broker).open("messages/orders")
    expect(rows(page)).to_have_count(50)
    shown = [re.findall(r"number (\d+)", text)[0] for text in rows(page).all_inner_texts()]
    assert shown == [str(number) for number in range(89, 39, -1)]
    page.get_by_role("button", name="Older", exact=True).click()
    expect(rows(page)).to_have_count(40)
    expect(rows(page).last).to_contain_text("number 0")
    page.get_by_label("Partition", exact=True).select_option("1")
    expect(rows(page)).to_have_count(45)
    page.get_by_label("Priority", exact=True).select_option("high")
    expect(rows(page)).to_have_count(15)
    assert "partition=1&priority=high" in page.url


def test_finding_by_key_and_by_text(broker: Served, visit: Visiting) -> None:
    put(broker, 500, partitions=3)
    page = visit(broker).open("messages/orders")
    page.get_by_label("Show", exact=True).select_option("find")
    page.get_by_label("Key is", exact=True).fill("k3")
    page.get_by_label("Contains", exact=True).fill('"order":4')
    page.get_by_label("Contains", exact=True).press("Enter")
    expected = [n for n in range(500) if n % 7 == 3 and str(n).startswith("4")]
    expect(rows(page)).to_have_count(len(expected))
    expect(page.locator("main [role=status]")).to_contain_text("Searched 500 of 500 messages")
    page.get_by_label("Key is", exact=True).fill("")
    page.get_by_label("Contains", exact=True).fill("order")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(rows(page)).to_have_count(50)
    page.get_by_role("button", name="Find more").click()
    expect(rows(page)).to_have_count(100)
    page.get_by_label("Contains", exact=True).fill("nowhere")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("main [role=status]")).to_contain_text("Found nothing")


def test_publishing_with_everything(broker: Served, visit: Visiting) -> None:
    broker.engine.create_topic("orders", partitions=2)
    seen = visit(broker)
    page = seen.open("messages/orders")
    page.get_by_role("button", name="Publish", exact=True).click()
    dialog = page.get_by_role("dialog")
    value = dialog.get_by_label("Value", exact=True)
    expect(value).to_be_focused()
    dialog.get_by_label("The value is given as", exact=True).select_option("json")
    value.fill('{"a": ')
    expect(dialog.get_by_role("status")).to_contain_text("Not JSON")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Not JSON")
    value.fill('{"a": 1}')
    expect(dialog.get_by_role("status")).to_contain_text("Valid JSON, 8 B")
    dialog.get_by_label("Key", exact=True).fill("k1")
    for name, content in (("trace", "t-1"), ("gone", "x"), ("b", "2")):
        dialog.get_by_role("button", name="Add header").click()
        page.keyboard.type(name)
        page.keyboard.press("Tab")
        page.keyboard.type(content)
    dialog.get_by_role("button", name="Remove this header").nth(1).click()
    dialog.get_by_label("Priority", exact=True).select_option("high")
    dialog.get_by_label("Partition", exact=True).select_option("1")
    dialog.get_by_label("Expires after", exact=True).fill("2")
    dialog.get_by_label("Expires after: unit", exact=True).select_option("3600000")
    dialog.get_by_label("Deduplication id", exact=True).fill("once")
    seen.shoot("publish")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text("Published to partition 1 at offset 0.")).to_be_visible()
    expect(rows(page)).to_contain_text('{"a": 1}')
    [message] = broker.engine.queue("orders").read(1, priority="high")
    assert (message.key, message.headers, message.dedup_id) == (b"k1", {"trace": b"t-1", "b": b"2"}, "once")
    assert message.expires_at is not None
    assert round((message.expires_at - message.timestamp) / 60_000_000) == 120


def test_publishing_bytes_later_and_what_the_broker_refuses(broker: Served, visit: Visiting) -> None:
    broker.engine.create_topic("orders", message_bytes_max=100)
    seen = visit(broker)
    seen.expect_status(413)
    page = seen.open("messages/orders")
    page.get_by_role("button", name="Publish", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value", exact=True).fill("x" * 101)
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("100")
    dialog.get_by_label("The value is given as", exact=True).select_option("base64")
    dialog.get_by_label("Value", exact=True).fill("not base64!")
    expect(dialog.get_by_role("status")).to_contain_text("This is not base64")
    dialog.get_by_label("Value", exact=True).fill("/wA=")
    dialog.get_by_label("Deliver after", exact=True).fill("-1")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("a number above zero")
    dialog.get_by_label("Deliver after", exact=True).fill("1.5")
    dialog.get_by_label("Deliver after: unit", exact=True).select_option("60000")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text("waits among the delayed messages")).to_be_visible()
    [waiting] = broker.engine.queue("orders").scheduled()
    assert waiting.value == b"\xff\x00"
    assert round((waiting.deliver_at - waiting.timestamp) / 10_000_000) == 9


def test_pages_in_both_directions_and_jumps(broker: Served, visit: Visiting) -> None:
    queue = put(broker, 0, durability="os")
    for number in range(120):
        queue.put(b"number %d;" % number, timestamp=START_S + 60 * number)
    page = visit(broker).open("messages/orders")
    expect(rows(page)).to_have_count(50)
    expect(rows(page).first).to_contain_text("number 119;")
    expect(button(page, "Newer")).to_be_disabled()
    button(page, "Older").click()
    expect(rows(page).first).to_contain_text("number 69;")
    button(page, "Older").click()
    expect(rows(page)).to_have_count(20)
    expect(rows(page).last).to_contain_text("number 0;")
    expect(button(page, "Older")).to_be_disabled()
    button(page, "Newer").click()
    expect(rows(page)).to_have_count(50)
    expect(rows(page).last).to_contain_text("number 20;")

    page.get_by_label("Show", exact=True).select_option("offset")
    page.get_by_label("Offset", exact=True).fill("117")
    button(page, "Show").click()
    expect(rows(page)).to_have_count(3)
    expect(rows(page).first).to_contain_text("number 117;")
    assert page.url.endswith("messages/orders?offset=117")
    page.get_by_label("Show", exact=True).select_option("time")
    page.get_by_label("Time", exact=True).fill(local_time(page, START_S + 60 * 114))
    button(page, "Show").click()
    expect(rows(page)).to_have_count(6)
    expect(rows(page).first).to_contain_text("number 114;")
    page.get_by_label("Show", exact=True).select_option("offset")
    page.get_by_label("Offset", exact=True).fill("")
    button(page, "Show").click()
    expect(page.get_by_role("alert")).to_contain_text("Give the offset")
    assert queue.stats().pending == 120


def test_a_message_in_full_and_copied(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders")
    large = '{"id":123456789012345678901,"a":[1,{}],"t":"it\'s"}'
    headers = {"trace": b"t-1", "raw": b"\xff"}
    queue.put(large.encode(), key=b"k", headers=headers, ttl=3600, dedup_id="d-1", priority="high")
    queue.put(b"\x00\xff\x10")
    queue.put("a\u202ecba and more".encode())
    page = visit(broker).open("messages/orders")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    # What nobody sees, or turns the text around, is shown.
    expect(rows(page).filter(has_text="a\\u202ecba and more")).to_have_count(1)
    panel = opened(page, 2)
    raw = panel.locator("pre")
    expect(raw).to_have_text(
        '{\n  "id": 123456789012345678901,\n  "a": [\n    1,\n    {}\n  ],\n  "t": "it\'s"\n}'
    )
    panel.get_by_text("Text", exact=True).click()
    expect(raw).to_have_text(large)
    panel.get_by_text("Hex", exact=True).click()
    expect(raw).to_contain_text("000000  7b 22 69 64")
    for words in ("Headers (2)", "trace", "t-1", "d-1", "Expires"):
        expect(panel).to_contain_text(words)

    def copied(name: str, what: str) -> str:
        panel.get_by_role("button", name=name).click()
        expect(page.get_by_text(f"Copied {what}").last).to_be_visible()
        text: str = page.evaluate("navigator.clipboard.readText()")
        return text

    assert copied("Copy value", "the value") == large
    assert copied("Copy key", "the key") == "k"
    command = copied("Copy as curl", "a command")
    assert f"curl '{broker.url}/v1/topics/orders/messages'" in command
    body = json.loads(command.split("--data-binary ")[1][1:-1].replace("'\\''", "'"))
    assert (body["value"], body["key"], body["priority"]) == (large, "k", "high")
    assert body["headers"] == {"trace": "t-1", "raw": {"base64": "/w=="}}

    panel.get_by_role("button", name="Previous message").click()
    expect(raw).to_contain_text("00 ff 10")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(rows(page).nth(1).get_by_role("button").first).to_be_focused()


def test_no_content_becomes_markup(broker: Served, visit: Visiting) -> None:
    broker.engine.queue("orders").put(IMAGE.encode(), key=SCRIPT.encode(), headers={SCRIPT: IMAGE.encode()})
    page = visit(broker).open("messages/orders")
    expect(rows(page)).to_contain_text(IMAGE)
    expect(rows(page)).to_contain_text(SCRIPT)
    panel = opened(page)
    expect(panel.locator("pre")).to_have_text(IMAGE)
    expect(panel.locator(".headers")).to_contain_text(SCRIPT + IMAGE)
    panel.get_by_role("button", name="Publish again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Value", exact=True)).to_have_value(IMAGE)
    expect(dialog.get_by_label("Name of the header", exact=True)).to_have_value(SCRIPT)
    assert page.locator("img[src=x], main script, aside script, dialog script").count() == 0
    assert "hacked" not in page.title()


def test_a_topic_is_chosen_and_followed(broker: Served, visit: Visiting) -> None:
    queue = put(broker, 3)
    broker.engine.queue("mails").put(b"x")
    page = visit(broker).open("messages")
    page.get_by_role("link", name="mails").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Messages of mails")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Topic", exact=True).select_option("orders")
    expect(rows(page)).to_have_count(3)
    follow = button(page, "Live tail")
    # The first look only learns where the end is: nothing may be put before it has.
    with page.expect_response(re.compile("/v1/topics/orders$")):
        follow.click()
    expect(follow).to_have_attribute("aria-pressed", "true")
    queue.put(b"new one")
    expect(rows(page)).to_have_count(1)
    queue.put(b"newer one")
    expect(rows(page).first).to_contain_text("newer one")
    follow.click()
    expect(rows(page)).to_have_count(5)


def test_trouble_is_said_in_words_and_tried_again(broker: Served, visit: Visiting) -> None:
    put(broker, 3)
    seen = visit(broker)
    seen.expect_words("net::ERR_FAILED")
    seen.expect_status(404)
    seen.page.route("**/partitions/0/messages?*", lambda route: route.abort())
    page = seen.open("messages/orders")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    expect(page.locator("main .empty")).to_have_text("Loading…")
    page.unroute("**/partitions/0/messages?*")
    button(page, "Try again").click()
    expect(rows(page)).to_have_count(3)
    expect(page.get_by_role("alert")).to_have_count(0)
    seen.open("messages/nowhere")
    expect(page.get_by_role("alert")).to_contain_text("there is no topic nowhere")


def test_what_is_nested_deeply_and_has_very_many_headers_is_shown_too(
    broker: Served, visit: Visiting
) -> None:
    headers = {f"h{number}": b"v" for number in range(1000)}
    broker.engine.queue("orders").put(b"[" * 50_000 + b"]" * 50_000, headers=headers)
    page = visit(broker).open("messages/orders")
    page.get_by_role("button", name="Open offset 0").click()
    panel = page.locator(".drawer")
    expect(panel.get_by_label("Value", exact=True)).to_have_text(re.compile(r"^\[\s+\[\s+\["))
    expect(panel).to_contain_text("Only the beginning is shown.")
    expect(panel).to_contain_text("Headers (1000)")
    expect(panel).to_contain_text("Only the first 200 are shown.")
    panel.get_by_role("button", name="Publish again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("800 headers more than can be shown")
    dialog.get_by_label("Name of the header").first.fill("other")
    dialog.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("at offset 1.")).to_be_visible()
    _, again = broker.engine.queue("orders").read(0, 0)
    assert set(again.headers) == set(headers) - {"h0"} | {"other"}
