"""Pages that were opened while the broker was away come by themselves once it is back."""

from pathlib import Path

import pytest
from dashboard.visits import Visiting
from playwright.sync_api import Route, expect
from support.broker import Served, serving

AWAY = (
    "ERR_CONNECTION_REFUSED",
    "ERR_INCOMPLETE_CHUNKED_ENCODING",
    "ERR_EMPTY_RESPONSE",
    "ERR_FAILED",
    "ERR_CONNECTION_RESET",
)


def cut(route: Route) -> None:
    route.abort()


PAGES = (
    "topics/orders",
    "messages/orders",
    "groups/orders/billing",
    "delayed/orders",
    "dead-letters/orders",
)


def test_pages_that_were_opened_while_the_broker_was_away_recover(broker: Served, visit: Visiting) -> None:
    orders = broker.engine.queue("orders", "billing")
    orders.put_many([b"tea", b"coffee"])
    orders.get_many(1)
    orders.put(b"later", delay=3600)
    view = visit(broker, is_alone=True)
    view.expect_words(*AWAY)
    page = view.open("overview")
    expect(page.locator(".state")).to_have_text("Live")
    page.clock.install()
    for name in PAGES:
        page.route("**/v1/**", cut)
        page.evaluate(f"() => {{ location.hash = '#/{name}'; }}")
        expect(page.locator(f"main .page[data-route='#/{name}']")).to_contain_text(
            "The broker cannot be reached"
        )
        page.unroute("**/v1/**")
        page.clock.fast_forward(40_000)
        expect(page.get_by_text("The broker cannot be reached")).to_have_count(0)
        expect(page.locator(".loading:visible")).to_have_count(0)
        expect(page.locator(f"main .page[data-route='#/{name}']:not([aria-busy])")).to_be_visible()


def test_a_module_that_did_not_load_is_loaded_when_the_broker_is_back(
    broker: Served, visit: Visiting
) -> None:
    broker.engine.queue("orders").put(b"x")
    view = visit(broker)
    view.expect_words(*AWAY)
    view.page.route("**/dashboard/pages/topics.js", cut)
    page = view.open("topics")
    expect(page.get_by_role("alert").filter(has_text="could not be loaded")).to_be_visible()
    view.page.unroute("**/dashboard/pages/topics.js")
    expect(page.get_by_role("link", name="orders")).to_be_visible()


def test_a_page_whose_frame_did_not_load_waits_for_the_broker(broker: Served, visit: Visiting) -> None:
    broker.engine.queue("orders").put(b"x")
    view = visit(broker)
    view.expect_words(*AWAY)
    view.page.route("**/dashboard/live.js", cut)
    page = view.open("topics")
    expect(page.get_by_text("Loading the dashboard")).to_be_visible()
    view.page.unroute("**/dashboard/live.js")
    expect(page.get_by_role("link", name="orders")).to_be_visible()


def test_a_topic_that_is_not_there_is_said_with_a_way_back(broker: Served, visit: Visiting) -> None:
    view = visit(broker)
    view.expect_status(404)
    for kind in ("topics", "messages", "delayed", "groups"):
        name = f"no-{kind}"
        page = view.open(f"{kind}/{name}/billing" if kind == "groups" else f"{kind}/{name}")
        expect(page.get_by_role("alert").filter(has_text=f"There is no topic {name}")).to_be_visible()
        expect(page.locator(".loading:visible")).to_have_count(0)
        expect(page.get_by_text("Loading…")).to_have_count(0)
        view.shoot(f"absent-{kind}")
        # When it comes to be, it is shown.
        expect(page.locator(".state")).to_have_text("Live")
        broker.engine.queue(name, "billing").put(b"x")
        broker.engine.queue(name, "billing").get()
        expect(page.get_by_text(f"There is no topic {name}")).to_have_count(0)


def test_a_group_that_is_not_there_is_said_with_a_way_back(broker: Served, visit: Visiting) -> None:
    broker.engine.queue("orders").put(b"x")
    view = visit(broker)
    view.expect_status(404)
    page = view.open("groups/orders/nobody")
    expect(page.get_by_role("alert").filter(has_text="orders has no group nobody")).to_be_visible()
    expect(page.get_by_role("link", name="Topic orders")).to_be_visible()
    expect(page.locator(".state")).to_have_text("Live")
    broker.engine.queue("orders", "nobody").get()
    expect(page.get_by_role("heading", name="Partitions")).to_be_visible()
    page.get_by_role("link", name="Groups").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Groups")


def test_a_broker_that_is_started_again_is_found_by_a_page_opened_meanwhile(
    tmp_path_factory: pytest.TempPathFactory, visit: Visiting
) -> None:
    path: Path = tmp_path_factory.mktemp("again") / "data"
    with serving(path) as first:
        first.engine.queue("orders").put(b"tea")
        view = visit(first, is_alone=True)
        view.expect_words(*AWAY)
        page = view.open("topics")
        expect(page.get_by_role("link", name="orders")).to_be_visible()
        # Pages are loaded ahead, one after the other: this one has to be there before the broker goes.
        page.evaluate("import('/dashboard/pages/messages.js').then(() => undefined)")
        port = first.port
        page.clock.install()
    page.evaluate("() => { location.hash = '#/messages/orders'; }")
    expect(page.get_by_text("cannot be reached").first).to_be_visible()
    with serving(path, port=port):
        page.clock.fast_forward(40_000)
        expect(page.locator(".state")).to_have_text("Live")
        expect(page.get_by_text("tea").first).to_be_visible()
