"""Topics: create, look, sort, filter, change with a diff, add partitions, delete by typing the name."""

import re

import pytest
from dashboard.visits import Visiting
from playwright.sync_api import Page, expect
from support.broker import Served

from quivermq.errors import TopicNotFound


def first_column(page: Page) -> list[str]:
    return page.locator("tbody tr td:first-child a").all_inner_texts()


def test_a_topic_is_created(broker: Served, visit: Visiting) -> None:
    view = visit(broker)
    view.expect_status(409)
    page = view.open("topics")
    expect(page.get_by_text("No topics yet.")).to_be_visible()
    page.get_by_role("button", name="New topic").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Name")).to_be_focused()
    dialog.get_by_label("Name").fill("orders")
    dialog.get_by_label("Partitions").fill("3")
    dialog.get_by_text("Settings", exact=True).click()
    dialog.get_by_label("lease_ms").fill("2 min")
    view.shoot("create-topic")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    expect(page.get_by_text("Created orders.")).to_be_visible()
    settings = broker.engine.topic("orders").settings
    assert (settings.partitions, settings.lease_ms) == (3, 120_000)

    page = view.open("topics")
    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name").fill("orders")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog")).to_contain_text("the topic orders exists already")


def test_the_list_sorts_and_filters(broker: Served, visit: Visiting) -> None:
    for name, count in (("alpha", 5), ("beta", 70), ("gamma", 9)):
        broker.engine.queue(name, "workers").put_many([b"x"] * count)
        broker.engine.queue(name, "workers").get()
    delivery = broker.engine.queue("gamma", "workers").get()
    assert delivery is not None
    delivery.reject("broken")
    view = visit(broker)
    page = view.open("topics")
    expect(page.get_by_role("row", name=re.compile("beta"))).to_contain_text("workers69")
    # What is busy or behind comes first, as long as nobody says otherwise.
    assert first_column(page) == ["beta", "gamma", "alpha"]
    page.get_by_role("columnheader", name="Topic", exact=True).get_by_role("button").click()
    assert first_column(page) == ["alpha", "beta", "gamma"]
    header = page.get_by_role("columnheader", name="Messages")
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "descending")
    assert first_column(page) == ["beta", "gamma", "alpha"]
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    assert first_column(page) == ["alpha", "gamma", "beta"]
    expect(page).to_have_url(re.compile(r"#/topics\?sort=messages$"))
    page.get_by_label("Dead-letter topics (1)").check()
    expect(page.get_by_role("link", name="gamma.dlq")).to_be_visible()
    page.get_by_label("Filter topics").fill("gam")
    assert first_column(page) == ["gamma.dlq", "gamma"]
    # The address has it all: who gets it sees the same.
    page.reload()
    expect(page.get_by_label("Filter topics")).to_have_value("gam")
    expect(page.get_by_role("link", name="gamma.dlq")).to_be_visible()
    assert first_column(page) == ["gamma.dlq", "gamma"]
    page.get_by_label("Filter topics").fill("nobody")
    expect(page.get_by_text("Nothing matches the filter.")).to_be_visible()
    page.get_by_label("Filter topics").fill("")
    page.get_by_role("link", name="beta", exact=True).focus()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("link", name="gamma", exact=True)).to_be_focused()
    view.shoot("topics")
    # The figures of a second later do not take the focus away.
    broker.engine.queue("beta").put_many([b"x"] * 30)
    expect(page.get_by_role("row", name=re.compile("beta"))).to_contain_text("100")
    expect(page.get_by_role("link", name="gamma", exact=True)).to_be_focused()


def test_settings_are_changed_after_a_look_at_what_changes(broker: Served, visit: Visiting) -> None:
    broker.engine.create_topic("orders")
    view = visit(broker)
    page = view.open("topics/orders")
    page.get_by_role("button", name="Change settings").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("How long a consumer has a message to itself")
    dialog.get_by_role("button", name="Review changes").click()
    expect(dialog).to_contain_text("Nothing was changed.")
    dialog.get_by_label("lease_ms").fill("abc")
    dialog.get_by_role("button", name="Review changes").click()
    expect(dialog.get_by_label("lease_ms")).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("lease_ms").fill("45 s")
    dialog.get_by_label("ordering").select_option("key")
    expect(dialog).to_contain_text("2 changes")
    view.shoot("change-settings")
    dialog.get_by_role("button", name="Review changes").click()
    expect(dialog.get_by_role("row", name=re.compile("lease_ms"))).to_contain_text("30 s→45 s")
    view.shoot("review-settings")
    dialog.get_by_role("button", name="Back").click()
    expect(dialog.get_by_label("lease_ms")).to_have_value("45000")
    dialog.get_by_label("ordering").select_option("none")
    dialog.get_by_role("button", name="Review changes").click()
    expect(dialog.get_by_role("row")).to_have_count(2)
    assert broker.engine.topic("orders").settings.lease_ms == 30_000
    dialog.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Changed 1 setting of orders.")).to_be_visible()
    assert broker.engine.topic("orders").settings.lease_ms == 45_000
    expect(page.locator(".settings-list")).to_contain_text("45 s")


def test_settings_that_do_not_go_together_are_refused_in_words(broker: Served, visit: Visiting) -> None:
    broker.engine.create_topic("orders")
    view = visit(broker)
    view.expect_status(400)
    page = view.open("topics/orders")
    page.get_by_role("button", name="Change settings").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("backoff_ms_max").fill("10")
    dialog.get_by_role("button", name="Review changes").click()
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog.get_by_role("alert")).to_contain_text("backoff_ms_max is 10 and must be at least 1000")


def test_partitions_are_added(broker: Served, visit: Visiting) -> None:
    broker.engine.create_topic("orders")
    page = visit(broker).open("topics/orders")
    expect(page.locator(".settings-list")).to_be_visible()
    page.get_by_role("button", name="Add partitions").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Partitions in all")).to_have_value("2")
    dialog.get_by_label("Partitions in all").fill("4")
    dialog.get_by_role("button", name="Add partitions").click()
    expect(page.get_by_text("orders has 4 partitions now.")).to_be_visible()
    expect(page.get_by_role("table", name="Partitions of orders").get_by_role("row")).to_have_count(5)
    assert broker.engine.topic("orders").partitions == 4


def test_a_topic_is_deleted_by_typing_its_name(broker: Served, visit: Visiting) -> None:
    broker.engine.queue("orders", "billing").put_many([b"x"] * 3)
    broker.engine.queue("orders", "billing").get()
    view = visit(broker)
    page = view.open("topics/orders")
    expect(page.locator(".settings-list")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 messages and what 1 group knows of it")
    delete = dialog.get_by_role("button", name="Delete this topic")
    expect(delete).to_be_disabled()
    dialog.get_by_label("Type orders to confirm").fill("order")
    expect(delete).to_be_disabled()
    dialog.get_by_label("Type orders to confirm").fill("orders")
    view.shoot("delete-topic")
    delete.click()
    expect(page.get_by_text("Deleted orders with 3 messages.")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    expect(page.get_by_role("link", name="orders")).to_have_count(0)
    with pytest.raises(TopicNotFound):
        broker.engine.topic("orders")


def test_a_topic_shows_its_lanes_segments_groups_and_settings(broker: Served, visit: Visiting) -> None:
    broker.engine.create_topic("orders", partitions=2, segment_messages=2, retention_ms=604_800_000)
    orders = broker.engine.queue("orders", "billing")
    for _ in range(5):
        orders.put(b"x", partition=0)
    orders.put(b"urgent", partition=1, priority="high")
    orders.get_many(2, timeout=0)
    view = visit(broker)
    page = view.open("topics/orders")
    lanes = page.get_by_role("table", name="Partitions of orders")
    expect(lanes.get_by_role("row").nth(1)).to_contain_text("normal5")
    expect(lanes.get_by_role("link", name="high")).to_have_attribute(
        "href", "#/messages/orders?partition=1&priority=high"
    )
    groups = page.get_by_role("table", name="Groups of orders")
    expect(groups.get_by_role("link", name="billing")).to_have_attribute("href", "#/groups/orders/billing")
    page.get_by_text("Segments: the files of the logs").click()
    segments = page.get_by_role("table", name="Segments of orders")
    expect(segments.get_by_role("row")).to_have_count(1 + 3 + 1)
    expect(page.locator(".settings-list")).to_contain_text("7 d")
    view.shoot("topic")


def test_a_topic_is_purged_by_typing_its_name(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders", "billing")
    queue.put_many([b"one", b"two"])
    queue.put(b"later", delay=3600)
    page = visit(broker).open("topics/orders")
    page.get_by_role("button", name="Purge", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The topic stays")
    go = dialog.get_by_role("button", name="Purge this topic")
    expect(go).to_be_disabled()
    dialog.get_by_role("textbox").fill("orders")
    go.click()
    expect(page.get_by_text(re.compile(r"Purged \d messages of orders"))).to_be_visible()
    assert (queue.get_many(5, timeout=0), list(queue.scheduled())) == ([], [])
    assert "orders" in broker.engine.topics()
