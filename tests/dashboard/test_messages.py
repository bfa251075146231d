"""Messages: looking at the log, finding, following, publishing."""

import json
import re
from typing import Any

from dashboard.strange import IMAGE, SCRIPT
from dashboard.visits import Visiting, local_time
from playwright.sync_api import Locator, Page, expect
from support.broker import Served

import quivermq

START_S = 1_700_000_000.0


def rows(page: Page) -> Locator:
    return page.locator("main tbody tr")


def put(broker: Served, count: int, **settings: Any) -> quivermq.Queue:
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
    expect(page.get_by_role("alert").filter(has_text="Give the offset")).to_be_visible()
    assert queue.stats().pending == 120


def test_a_message_in_full_and_copied(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders")
    large = '{"id":123456789012345678901,"a":[1,{}],"t":"it\'s"}'
    headers = {"trace": b"t-1", "raw": b"\xff"}
    late = quivermq.Message(large.encode(), b"k", headers, "high", ttl=3600, delay=3600, dedup_id="d-1")
    [put] = queue.put_many([late])
    assert put.scheduled_id
    assert queue.deliver_now(put.scheduled_id)
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
    for words in ("Headers (2)", "trace", "t-1", "d-1", "Expires", f"Was delayed as{put.scheduled_id}"):
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
    topic = page.get_by_role("combobox", name="Topic")
    topic.fill("ord")
    expect(page.locator(".names [role=option]")).to_have_text(["orders"])
    topic.press("Enter")
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
    expect(page.get_by_role("alert").filter(has_text="cannot be reached")).to_be_visible()
    expect(page.locator("main .empty")).to_have_text("Loading…")
    page.unroute("**/partitions/0/messages?*")
    button(page, "Try again").click()
    expect(rows(page)).to_have_count(3)
    expect(page.get_by_role("alert")).to_have_count(0)
    seen.open("messages/nowhere")
    expect(page.get_by_role("alert").filter(has_text="There is no topic nowhere")).to_be_visible()


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


FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"


def test_joiners_are_text_where_people_write_them_and_seen_where_they_deceive(
    broker: Served, visit: Visiting
) -> None:
    queue = broker.engine.queue("orders")
    for text in (FAMILY, PERSIAN, "pay\u200dpal", "a\u202eb", "\x00\x01\x02\x03"):
        queue.put(text.encode(), key=text.encode(), headers={"h": text.encode()})
    page = visit(broker).open("messages/orders")
    expect(rows(page)).to_have_count(5)
    shown = [row.locator(".preview").nth(1).inner_text() for row in rows(page).all()]
    assert shown == ["00 01 02 03", "a\\u202eb", "pay\\u200dpal", PERSIAN, FAMILY]
    panel = opened(page, 4)
    expect(panel.locator("pre")).to_have_text(FAMILY)
    expect(panel.locator(".headers")).to_contain_text(FAMILY)
    panel.get_by_role("button", name="Previous message").click()
    expect(panel.locator("pre")).to_have_text(PERSIAN)
    assert panel.locator("pre").evaluate("pre => getComputedStyle(pre).direction") == "rtl"


def test_a_long_header_is_folded_shown_and_copied(broker: Served, visit: Visiting) -> None:
    long = "x" * 5000 + "\N{GRINNING FACE} end"
    broker.engine.queue("orders").put(b"v", headers={"trace": long.encode(), "raw": b"\xff" * 400})
    seen = visit(broker)
    page = seen.open("messages/orders")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel = opened(page)
    headers = panel.locator(".headers")
    expect(headers).not_to_contain_text("end")
    panel.get_by_role("button", name="All of trace").click()
    expect(headers).to_contain_text(long)
    panel.get_by_role("button", name="All of trace").click()
    expect(headers).not_to_contain_text("end")
    panel.get_by_role("button", name="All of raw").click()
    expect(headers).to_contain_text("ff " * 399 + "ff")
    seen.shoot("headers")
    panel.get_by_role("button", name="Copy header trace").click()
    expect(page.get_by_text("Copied header trace")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == long
    panel.get_by_role("button", name="Copy headers").click()
    expect(page.get_by_text("Copied the headers")).to_be_visible()
    assert json.loads(page.evaluate("navigator.clipboard.readText()"))["trace"] == long


def test_every_message_has_an_address_and_a_file(broker: Served, visit: Visiting) -> None:
    put(broker, 200)
    broker.engine.queue("orders").put(b"\x00\xff", priority="high")
    seen = visit(broker)
    page = seen.open("messages/orders")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(rows(page)).to_have_count(50)
    page.get_by_label("Show", exact=True).select_option("find")
    page.get_by_label("Contains", exact=True).fill('"order":7')
    button(page, "Show").click()
    expect(rows(page)).to_have_count(11)
    panel = opened(page, 10)
    expect(page).to_have_url(re.compile(r"#/messages/orders/0/normal/7\?text="))
    panel.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Copied a link")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == f"{broker.url}/#/messages/orders/0/normal/7"
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile(r"#/messages/orders\?text="))
    page.goto(link)
    expect(panel.get_by_role("heading", level=2)).to_have_text("Offset 7")
    expect(panel.locator("pre")).to_contain_text('"order": 7')
    expect(rows(page)).to_have_count(50)
    expect(page).to_have_url(link)
    seen.open("messages/orders/0/high/0")
    expect(panel.locator("pre")).to_contain_text("00 ff")
    with page.expect_download() as download:
        panel.get_by_role("button", name="Download value").click()
    assert download.value.suggested_filename == "orders-0-high-0.bin"
    assert download.value.path().read_bytes() == b"\x00\xff"
    seen.expect_status(416, 400, 404)
    seen.open("messages/orders/0/normal/999")
    expect(
        page.get_by_role("alert").filter(has_text="There is no offset 999 of partition 0, normal")
    ).to_be_visible()


def test_a_text_is_found_within_a_time_the_newest_first(broker: Served, visit: Visiting) -> None:
    broker.engine.create_topic("orders", partitions=2, durability="os")
    queue = broker.engine.queue("orders")
    queue.put_many(
        [
            quivermq.Message(
                b"%s %d;" % (b"odd" if n % 2 else b"even", n),
                partition=n % 3 % 2,
                timestamp=START_S + 60 * n,
            )
            for n in range(3000)
        ]
    )
    page = visit(broker).open("messages/orders")
    page.get_by_label("Show", exact=True).select_option("find")
    page.get_by_label("Contains", exact=True).fill("odd")
    button(page, "Show").click()
    expect(page.locator("main [role=status]")).to_contain_text("Found 50 so far, newest first")

    def shown() -> list[int]:
        return [int(re.findall(r"odd (\d+);", text)[0]) for text in rows(page).all_inner_texts()]

    assert shown() == list(range(2999, 2899, -2))
    button(page, "Find more").click()
    expect(rows(page)).to_have_count(100)
    assert shown() == list(range(2999, 2799, -2))
    page.get_by_label("From", exact=True).fill(local_time(page, START_S + 60 * 100))
    page.get_by_label("Until", exact=True).fill(local_time(page, START_S + 60 * 121))
    button(page, "Show").click()
    expect(rows(page)).to_have_count(10)
    assert shown() == list(range(119, 99, -2))
    page.reload()
    expect(rows(page)).to_have_count(10)
    page.get_by_label("Until", exact=True).fill(local_time(page, START_S))
    button(page, "Show").click()
    expect(page.get_by_role("alert").filter(has_text="begins after it ends")).to_be_visible()


def test_a_filled_form_is_not_thrown_away_unasked(broker: Served, visit: Visiting) -> None:
    put(broker, 1)
    seen = visit(broker)
    page = seen.open("messages/orders")
    form = page.get_by_role("dialog", name="Publish to orders")
    asked = page.get_by_role("dialog", name="Throw away what you filled in?")
    button(page, "Publish").click()
    page.keyboard.press("Escape")
    expect(form).to_have_count(0)
    button(page, "Publish").click()
    form.get_by_label("Value", exact=True).fill("long work")
    for _ in range(3):
        page.keyboard.press("Escape")
        expect(asked).to_be_visible()
        page.keyboard.press("Escape")
        expect(asked).to_have_count(0)
        expect(form).to_be_visible()
    page.mouse.click(3, 3)
    expect(asked).to_be_visible()
    seen.shoot("throw-away")
    expect(asked.get_by_role("button", name="Go on editing")).to_be_focused()
    page.keyboard.press("Enter")
    expect(form.get_by_label("Value", exact=True)).to_have_value("long work")
    form.get_by_role("button", name="Close").click()
    asked.get_by_role("button", name="Throw it away").click()
    expect(form).to_have_count(0)
    assert broker.engine.queue("orders").stats().pending == 1


def test_one_of_thousands_of_topics_is_picked(broker: Served, visit: Visiting) -> None:
    put(broker, 1)
    for number in range(120):
        broker.engine.create_topic(f"events.region-{number}")
    seen = visit(broker)
    page = seen.open("messages/orders")
    expect(page.locator(".state")).to_have_text("Live")
    opened(page).get_by_role("button", name="Publish again").click()
    dialog = page.get_by_role("dialog")
    topic = dialog.get_by_role("combobox", name="Topic")
    topic.click()
    expect(dialog.get_by_text("71 more: type to find them.")).to_be_visible()
    seen.shoot("picker")
    topic.fill("region 77")
    expect(dialog.locator(".names [role=option]")).to_have_text(["events.region-77"])
    # Escape closes the list, and nothing else.
    page.keyboard.press("Escape")
    expect(topic).to_have_value("orders")
    expect(dialog).to_have_count(1)
    topic.fill("region-7")
    topic.press("ArrowDown")
    topic.press("Enter")
    expect(dialog.get_by_role("heading")).to_have_text("Publish to events.region-70")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text("at offset 0.")).to_be_visible()
    [message] = broker.engine.queue("events.region-70").read(0)
    assert message.value == b'{"order":0}'
