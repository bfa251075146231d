"""Dead letters: by reason, looked at, mended, sent back, purged."""

from dashboard.strange import IMAGE, SCRIPT
from dashboard.visits import Visiting
from playwright.sync_api import Locator, Page, expect
from support.broker import Served

import quivermq


def rows(page: Page) -> Locator:
    return page.locator("main tbody tr")


def kill(broker: Served, *values: bytes, reason: str, topic: str = "orders", error: str = "") -> None:
    queue = broker.engine.queue(topic, "billing")
    queue.put_many([quivermq.Message(value, key=b"k", headers={"h": b"1"}) for value in values])
    queue.reject(queue.get_many(len(values)), reason, error=error)


def left(broker: Served) -> list[bytes]:
    return [letter.value for letter in broker.engine.queue("orders").dead_letters()]


def alive(broker: Served) -> list[bytes]:
    return [message.value for message in broker.engine.queue("orders", "billing").get_many(99)]


def test_by_topic_and_reason_and_then_one_of_them(broker: Served, visit: Visiting) -> None:
    kill(broker, b"a", b"b", reason="timeout")
    kill(broker, b"c", reason="out of stock")
    kill(broker, b"d", reason="timeout", topic="mails")
    # Its topic is gone, and its dead letters are not.
    kill(broker, b"e", reason="", topic="old")
    broker.engine.delete_topic("old")
    seen = visit(broker)
    page = seen.open("dead-letters")
    expect(rows(page)).to_have_count(4)
    expect(rows(page).first.locator("td")).to_have_text(["orders", "timeout", "billing", "2"])
    expect(rows(page).filter(has_text="old")).to_contain_text("rejected")
    page.get_by_role("link", name="out of stock").click()
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_role("link", name="out of stock 1")).to_have_attribute("aria-current", "true")
    page.get_by_role("link", name="All 3").click()
    expect(rows(page)).to_have_count(3)
    # What comes meanwhile is shown by itself.
    kill(broker, b"f", reason="timeout")
    expect(rows(page)).to_have_count(4)


def test_some_go_back_and_the_rest_is_purged(broker: Served, visit: Visiting) -> None:
    kill(broker, b"a", b"b", b"c", b"d", reason="timeout")
    page = visit(broker).open("dead-letters/orders")
    expect(rows(page)).to_have_count(4)
    for row in (0, 2):
        rows(page).nth(row).get_by_role("checkbox").check()
    page.get_by_role("button", name="Redrive 2 selected").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("every group of the topic gets them")
    dialog.get_by_role("button", name="Redrive 2").click()
    expect(page.get_by_text("Redriven 2 dead letters.")).to_be_visible()
    expect(rows(page)).to_have_count(2)
    assert (left(broker), alive(broker)) == ([b"b", b"d"], [b"a", b"c"])

    kill(broker, b"e", b"f", reason="out of stock")
    page.get_by_role("link", name="out of stock 2").click()
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Redrive all of this reason").click()
    dialog.get_by_role("button", name="Redrive 2").click()
    expect(page.get_by_text("No dead letters here.")).to_be_visible()
    assert (left(broker), alive(broker)) == ([b"b", b"d"], [b"e", b"f"])

    page.get_by_role("link", name="All 2").click()
    expect(rows(page)).to_have_count(2)
    rows(page).first.get_by_role("checkbox").check()
    page.get_by_role("button", name="Purge selected").click()
    go = dialog.get_by_role("button", name="Purge 1")
    expect(go).to_be_disabled()
    dialog.get_by_role("textbox").fill("orders")
    go.click()
    expect(rows(page)).to_have_count(1)
    assert left(broker) == [b"d"]
    page.get_by_role("button", name="Purge all").click()
    dialog.get_by_role("textbox").fill("orders")
    dialog.get_by_role("button", name="Purge 1").click()
    expect(page.get_by_text("No dead letters here.")).to_be_visible()
    assert left(broker) == []


def test_one_is_mended_and_sent_back(broker: Served, visit: Visiting) -> None:
    kill(broker, b'{"amount":"12,50"}', reason="bad amount", error="Traceback\nValueError: 12,50")
    seen = visit(broker)
    page = seen.open("dead-letters/orders")
    rows(page).first.get_by_role("button", name="bad amount").click()
    panel = page.locator("aside.drawer")
    expect(panel.get_by_label("Error")).to_have_text("Traceback\nValueError: 12,50")
    expect(panel).to_contain_text("orders, partition 0, normal, offset 0")
    panel.get_by_role("button", name="Edit and redrive").click()
    dialog = page.get_by_role("dialog")
    value = dialog.get_by_label("Value", exact=True)
    expect(value).to_have_value('{"amount":"12,50"}')
    dialog.get_by_role("button", name="Indent").click()
    expect(value).to_have_value('{\n  "amount": "12,50"\n}')
    value.fill('{"amount":12.50}')
    dialog.get_by_label("Key").fill("k2")
    dialog.get_by_label("Value of the header").fill("2")
    seen.shoot("dead-letter-edit")
    dialog.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("The edited message went back.")).to_be_visible()
    expect(page.get_by_text("No dead letters here.")).to_be_visible()
    message = broker.engine.queue("orders", "billing").get()
    assert message is not None
    assert (message.value, message.key, message.headers) == (b'{"amount":12.50}', b"k2", {"h": b"2"})


def test_what_cannot_go_back_says_why(broker: Served, visit: Visiting) -> None:
    broker.engine.create_topic("orders", message_bytes_max=100)
    kill(broker, b"a", reason="r")
    seen = visit(broker)
    seen.expect_status(404, 413)
    page = seen.open("dead-letters/orders")
    rows(page).first.get_by_role("button", name="r").click()
    page.get_by_role("button", name="Edit and redrive").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value", exact=True).fill("x" * 200)
    dialog.get_by_role("button", name="Redrive").click()
    expect(dialog.get_by_role("alert")).to_contain_text("100")
    assert left(broker) == [b"a"]
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Throw it away").click()
    broker.engine.delete_topic("orders")
    page.locator("aside").get_by_role("button", name="Redrive", exact=True).click()
    dialog.get_by_role("button", name="Redrive 1").click()
    expect(page.locator(".toast.bad")).to_contain_text("there is no topic orders")
    assert left(broker) == [b"a"]


def test_nothing_in_a_dead_letter_becomes_markup(broker: Served, visit: Visiting) -> None:
    kill(broker, IMAGE.encode(), reason=IMAGE, error=f"Error: {SCRIPT}\n{IMAGE}")
    page = visit(broker).open("dead-letters")
    page.get_by_role("link", name=IMAGE).click()
    expect(rows(page)).to_have_count(1)
    rows(page).first.get_by_role("button").first.click()
    panel = page.locator("aside.drawer")
    expect(panel.get_by_role("heading", name=IMAGE)).to_be_visible()
    expect(panel.get_by_label("Error")).to_contain_text(SCRIPT)
    assert page.locator("img[src=x], main script, aside script").count() == 0
    assert "hacked" not in page.title()


def test_no_more_is_purged_than_was_asked_about(broker: Served, visit: Visiting) -> None:
    kill(broker, b"a", b"b", reason="timeout")
    page = visit(broker).open("dead-letters/orders")
    page.get_by_role("button", name="Purge all").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("orders")
    # Meanwhile another one is given up, which nobody has seen.
    kill(broker, b"c", reason="timeout")
    dialog.get_by_role("button", name="Purge 2").click()
    expect(page.get_by_text("Purged 2 dead letters.")).to_be_visible()
    assert left(broker) == [b"c"]


def test_many_go_back_in_steps_also_where_some_are_gone(broker: Served, visit: Visiting) -> None:
    page = visit(broker).open()
    script = """async () => {
        const { redriveAll } = await import("/dashboard/pages/dead_letters_calls.js");
        const asked = [];
        const api = { post: async (_, { body }) => {
            asked.push(body.ids.length);
            return { moved: body.ids.length - 1 };
        } };
        const ids = Array.from({ length: 4500 }, (_, offset) => `0-1-${offset}`);
        return { moved: await redriveAll(api, "orders", { ids }, ids.length, () => {}), asked };
    }"""
    assert page.evaluate(script) == {"moved": 4497, "asked": [2000, 2000, 500]}


def test_of_a_large_one_the_key_is_mended_and_the_value_kept(broker: Served, visit: Visiting) -> None:
    large = b"x" * (1024 * 1024 + 1)
    kill(broker, large, reason="timeout")
    page = visit(broker).open("dead-letters/orders")
    page.get_by_role("button", name="timeout").click()
    page.get_by_role("button", name="Edit and redrive").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Its value has 1 MiB, more than can be edited here")
    dialog.get_by_label("Key").fill("other")
    dialog.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("The edited message went back.")).to_be_visible()
    (message,) = broker.engine.queue("orders", "billing").get_many(9)
    assert (message.key, message.value == large, message.headers) == (b"other", True, {"h": b"1"})


def test_a_dead_letter_has_an_address(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders", "billing")
    queue.put_many([b"number %d" % number for number in range(130)])
    queue.reject(queue.get_many(130), "broken")
    seen = visit(broker)
    page = seen.open("dead-letters/orders?letter=0-1-125")
    panel = page.locator("aside.drawer")
    expect(panel.locator("pre").last).to_have_text("number 125")
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{broker.url}/#/dead-letters/orders")
    page.locator("main tbody tr").first.locator("button.linklike").click()
    expect(page).to_have_url(f"{broker.url}/#/dead-letters/orders?letter=0-1-0")
    page.reload()
    expect(panel.locator("pre").last).to_have_text("number 0")
    seen.open("dead-letters/orders?letter=0-1-999")
    expect(page.get_by_text("This dead letter is not there any more")).to_be_visible()
