"""The frame around the pages: navigation, keyboard, themes, and a broker that is slow or away."""

import pytest
from dashboard.visits import Visiting
from playwright.sync_api import Dialog, Route, expect
from support.broker import Served, serving

from quivermq.queue.connection import Connection

PAGES = ("overview", "topics", "messages", "groups", "dead-letters", "delayed")


def fill(engine: Connection) -> None:
    """A little of everything."""
    engine.create_topic("orders", partitions=2)
    orders = engine.queue("orders", "billing")
    orders.put_many([b"one", b"two", b"three"])
    orders.put(b"later", delay=3600)
    for delivery in orders.get_many(1, timeout=0):
        delivery.reject("no such customer")
    engine.queue("orders", "a-group-with-a-name-that-is-long-for-a-phone").get()
    engine.queue("events.eu-central.clicks.of-a-name-that-is-long-as-well").put(b"x" * 100)


def test_the_dashboard_is_there_and_live(broker: Served, visit: Visiting) -> None:
    page = visit(broker).open("")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.locator(".state")).to_have_text("Live")
    expect(page.get_by_role("link", name="Overview")).to_have_attribute("aria-current", "page")
    expect(page).to_have_title("Overview · Quiver")


def test_pages_are_reached_by_the_keyboard_alone(broker: Served, visit: Visiting) -> None:
    fill(broker.engine)
    page = visit(broker).open()
    expect(page.locator(".state")).to_have_text("Live")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    expect(page.get_by_label("Filter topics")).to_be_visible()
    page.keyboard.press("f")
    expect(page.get_by_label("Filter topics")).to_be_focused()
    # Letters typed into a field are no commands.
    page.keyboard.type("go")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")


def test_search_finds_topics_groups_and_pages(broker: Served, visit: Visiting) -> None:
    fill(broker.engine)
    view = visit(broker)
    page = view.open()
    expect(page.locator(".state")).to_have_text("Live")
    page.keyboard.press("/")
    page.keyboard.type("ord")
    expect(page.get_by_role("dialog").get_by_role("option").first).to_contain_text("orders")
    view.shoot("search")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("billing")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{broker.url}/#/groups/orders/billing")
    page.keyboard.press("Control+k")
    page.keyboard.type("nothing is called so")
    expect(page.get_by_text("Nothing is called that.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_keys_are_shown_and_the_focus_goes_back(broker: Served, visit: Visiting) -> None:
    view = visit(broker)
    page = view.open("topics")
    new = page.get_by_role("button", name="New topic")
    new.focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Search topics, groups and pages")
    view.shoot("keys")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(new).to_be_focused()


def test_the_theme_follows_the_system_or_what_was_chosen(broker: Served, visit: Visiting) -> None:
    page = visit(broker, dark=True, is_alone=True).open()
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Theme: auto").click()
    expect(root).to_have_attribute("data-theme", "light")
    page.reload()
    expect(root).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Theme: light").click()
    expect(root).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Theme: dark").click()
    page.emulate_media(color_scheme="light")
    expect(root).to_have_attribute("data-theme", "light")


def test_every_page_fits_a_phone(broker: Served, visit: Visiting) -> None:
    fill(broker.engine)
    view = visit(broker, phone=True)
    for route in (*PAGES, "topics/orders", "messages/orders", "groups/orders/billing"):
        view.drawn(route)
        assert not view.has_sideways_scroll(), f"{route} is wider than a phone"
        view.shoot(f"phone-{route.replace('/', '-')}")


NAMELESS = """
() => [...document.querySelectorAll("button, a[href], input, select, textarea")]
  .filter((element) => element.checkVisibility())
  .filter((element) => {
    const labels = [...(element.labels || [])].map((label) => label.textContent).join("");
    return !(element.getAttribute("aria-label") || labels || element.textContent).trim();
  })
  .map((element) => element.outerHTML)
"""


def test_everything_that_can_be_used_has_a_name(broker: Served, visit: Visiting) -> None:
    fill(broker.engine)
    view = visit(broker)
    for route in (*PAGES, "topics/orders"):
        page = view.drawn(route)
        assert page.evaluate(NAMELESS) == []
        assert (page.locator("h1").count(), page.locator("main").count()) == (1, 1)


def test_an_address_that_is_not_there_says_so(broker: Served, visit: Visiting) -> None:
    view = visit(broker)
    page = view.open("nowhere")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
    page.get_by_role("link", name="Go to the overview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    view.expect_status(404)
    page = view.open("topics/nobody")
    expect(page.get_by_role("alert").filter(has_text="There is no topic nobody")).to_be_visible()


def never(_: Route) -> None:
    """Let a request wait for ever."""


def test_a_slow_broker_is_told_in_words_and_blocks_nothing(broker: Served, visit: Visiting) -> None:
    fill(broker.engine)
    view = visit(broker, is_alone=True)
    view.page.clock.install()
    view.page.route("**/v1/**", never)
    # Once both are asked for, their time runs.
    with view.page.expect_request("**/v1/events*"), view.page.expect_request("**/v1/topics/orders"):
        page = view.open("topics/orders")
    # Meanwhile the page can be used: it says that it waits, and others can be gone to.
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    expect(page.locator(".state")).to_have_text("Connecting")
    page.clock.fast_forward(11_000)
    expect(page.get_by_text("did not answer within 10 s")).to_be_visible()
    expect(page.locator(".state")).to_have_text("Reconnecting")
    view.shoot("slow-broker")
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.get_by_role("alert").filter(has_text="No connection.")).to_be_visible()
    view.page.unroute("**/v1/**")
    page.clock.fast_forward(20_000)
    expect(page.locator(".state")).to_have_text("Live")
    expect(page.get_by_role("link", name="1 dead letter of orders waits for a decision")).to_be_visible()


def test_a_broker_that_was_away_is_found_again(
    tmp_path_factory: pytest.TempPathFactory, visit: Visiting
) -> None:
    path = tmp_path_factory.mktemp("away") / "data"
    with serving(path) as first:
        first.engine.queue("orders").put(b"x")
        view = visit(first, is_alone=True)
        view.page.clock.install()
        view.expect_words("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE")
        page = view.open("topics")
        expect(page.get_by_role("link", name="orders")).to_be_visible()
        port = first.port
    expect(page.locator(".state")).to_have_text("Reconnecting")
    expect(page.get_by_role("alert").filter(has_text="No connection.")).to_be_visible()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    with serving(path, port=port):
        page.clock.fast_forward(20_000)
        expect(page.locator(".state")).to_have_text("Live")


def test_going_elsewhere_closes_what_is_open(broker: Served, visit: Visiting) -> None:
    page = visit(broker).open("topics")
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    page.get_by_role("link", name="Topics", exact=True).click()
    page.get_by_role("button", name="New topic").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.get_by_role("dialog")).to_have_count(0)


HIDE = """
(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""


def test_a_tab_that_nobody_looks_at_gives_its_connection_back(broker: Served, visit: Visiting) -> None:
    view = visit(broker, is_alone=True)
    view.page.clock.install()
    page = view.open()
    expect(page.locator(".state")).to_have_text("Live")
    page.evaluate(HIDE, True)
    page.clock.fast_forward(61_000)
    expect(page.locator(".state")).to_have_text("Paused")
    page.evaluate(HIDE, False)
    expect(page.locator(".state")).to_have_text("Live")


def test_no_way_out_of_a_filled_form_is_taken_unasked(broker: Served, visit: Visiting) -> None:
    view = visit(broker)
    page = view.open("overview")
    page.get_by_role("link", name="Topics", exact=True).click()
    form = page.get_by_role("dialog", name="New topic")
    asked = page.get_by_role("dialog", name="Throw away what you filled in?")
    heading = page.get_by_role("heading", level=1)
    page.get_by_role("button", name="New topic").click()
    form.get_by_label("Name").fill("orders")
    # Back, forward to nowhere, and an address that somebody types.
    page.go_back()
    expect(asked).to_contain_text("Nothing of “New topic” was sent yet.")
    asked.get_by_role("button", name="Go on editing").click()
    expect(page).to_have_url(f"{broker.url}/#/topics")
    page.evaluate("location.hash = '#/delayed'")
    expect(asked).to_be_visible()
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{broker.url}/#/topics")
    expect(heading).to_have_text("Topics")
    expect(form.get_by_label("Name")).to_have_value("orders")
    # Who goes twice is asked once, and comes back to where the form is.
    page.evaluate("history.back(); location.hash = '#/groups'")
    asked.get_by_role("button", name="Go on editing").click()
    expect(asked).to_have_count(0)
    expect(page).to_have_url(f"{broker.url}/#/topics")
    # Loading anew is asked about by the browser.
    asked_by_browser: list[str] = []

    def stay(question: Dialog) -> None:
        asked_by_browser.append(question.type)
        question.dismiss()

    page.once("dialog", stay)
    page.evaluate("location.reload()")
    expect(form.get_by_label("Name")).to_have_value("orders")
    assert asked_by_browser == ["beforeunload"]
    page.go_back()
    asked.get_by_role("button", name="Throw it away").click()
    expect(heading).to_have_text("Overview")
    expect(page.get_by_role("dialog")).to_have_count(0)
    # What was sent is not in the way of anything.
    page.go_forward()
    page.get_by_role("button", name="New topic").click()
    form.get_by_label("Name").fill("orders")
    form.get_by_role("button", name="Create").click()
    expect(heading).to_have_text("orders")
    page.go_back()
    expect(heading).to_have_text("Topics")
