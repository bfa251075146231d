"""The overview: figures that are right, plots that move, trouble in words."""

import re
from pathlib import Path

import pytest
from dashboard.visits import Visiting
from playwright.sync_api import Locator, Page, expect
from support.broker import Served, serving
from support.manual_clock import ManualClock

from quivermq.clock import SystemClock
from quivermq.engine import engine_of
from quivermq.errors import FsyncFailed
from quivermq.opening import open_directory
from quivermq.server import events, history
from quivermq.server.history import Recorder


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
    # What was given up waits for somebody, so not all is well.
    expect(page.get_by_text("All is well")).to_have_count(0)
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
    orders.put_many([b"x"] * 10_000)
    # The axis makes room for them, however long the second was in which they came.
    expect(page.locator("figure .grid").first).to_contain_text(re.compile("[1-9],?[0-9]+0|[1-9][0-9]* k"))
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
    broker.app.broker.note(
        FsyncFailed("cannot sync: Input/output error", path=engine_of(broker.engine).path)
    )
    page = visit(broker).open()
    expect(page.get_by_role("alert").first).to_contain_text("the disk failed to keep messages")
    expect(page.get_by_text("All is well")).to_have_count(0)


def test_all_is_well_where_nothing_is_wrong(broker: Served, visit: Visiting) -> None:
    broker.engine.queue("orders", "billing").put(b"x")
    expect(visit(broker).open().get_by_text("All is well")).to_be_visible()


def test_what_is_wrong_stands_first_the_worst_on_top_and_leads_there(
    tmp_path: Path, visit: Visiting
) -> None:
    clock = ManualClock(SystemClock().now_us() - 38 * 60_000_000)
    with open_directory(tmp_path / "data", clock=clock) as engine:
        queue = engine.queue("orders", "billing")
        queue.put_many([b"x"] * 5)
        for delivery in queue.get_many(2):
            delivery.reject("no such customer")
    with serving(tmp_path / "data") as served:
        view = visit(served)
        page = view.open()
        expect(page.get_by_text("2 alerts")).to_be_visible()
        expect(page.get_by_text("All is well")).to_have_count(0)
        first, second = page.get_by_role("alert").all()
        expect(first).to_contain_text(
            re.compile("billing has had a message of orders unfinished for (38|39) min")
        )
        expect(second).to_contain_text("2 dead letters of orders wait for a decision")
        behind = page.locator("section", has=page.get_by_role("heading", name="Groups behind"))
        expect(behind.get_by_role("row").nth(1)).to_contain_text("stalled")
        view.shoot("overview-alerts")
        first.get_by_role("link").click()
        expect(page).to_have_url(f"{served.url}/#/groups/orders/billing")
        expect(tile(page, "State")).to_have_text("stalled")
        page.go_back()
        page.get_by_role("link", name="2 dead letters of orders wait for a decision").click()
        expect(page).to_have_url(f"{served.url}/#/dead-letters/orders")


def test_a_page_that_is_opened_anew_has_the_last_hour(
    broker: Served, visit: Visiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "INTERVAL_S", 0.05)
    orders = broker.engine.queue("orders", "billing")
    orders.put_many([b"x"] * 100)
    orders.ack(orders.get_many(40))
    view = visit(broker)
    page = view.open("groups/orders/billing")
    lag = page.locator("figure", has=page.get_by_role("heading", name="Lag"))
    expect(lag.locator("output").first).to_have_text("60")
    kept = broker.app.broker.part(Recorder).history
    page.wait_for_function("() => document.querySelectorAll('figure .line').length === 4")
    view.until(lambda: len(kept.group("orders", "billing")["times"]) >= 20)
    # From now on the page itself hears of hardly anything: what it draws, the broker has kept.
    monkeypatch.setattr(events, "_INTERVAL_S", 10)
    page.reload()
    drawn = "document.querySelector('figure .line.c6')?.getAttribute('d') ?? ''"
    enough = f"() => ({drawn}).split('L').length > 15"
    page.wait_for_function(enough)
    page.get_by_label("How far back: Lag").select_option("1 h")
    expect(page.locator("figure .grid").first).to_contain_text("-60 min")
    expect(page.locator("figure .grid").nth(1)).to_contain_text("-60 min")
    view.shoot("group")
    page = view.open()
    expect(page.get_by_role("heading", name="Fsync")).to_be_visible()
    expect(page.locator("figure .grid").first).to_contain_text("-60 min")


def test_one_rate_is_one_number_on_a_page(broker: Served, visit: Visiting) -> None:
    orders = broker.engine.queue("orders", "billing")
    orders.put(b"x")
    orders.ack(orders.get_many(1))
    view = visit(broker)
    page = view.open("topics/orders")
    plotted = (
        page.locator("figure", has=page.get_by_role("heading", name="Messages")).locator("output").first
    )
    # The plot may have this from before; the tile has it once the page itself has heard of the topic twice.
    expect(tile(page, "Published/s")).to_have_text("0")
    expect(plotted).to_have_text("0")
    orders.put_many([b"x"] * 300)
    expect(plotted).not_to_have_text("0")
    # Whatever comes next, both say the same after it.
    shown = """async () => {
      const { live } = await import("/dashboard/live.js");
      const isMeant = (tile) => tile.textContent.startsWith('Published/s');
      const tile = [...document.querySelectorAll('.tile')].find(isMeant);
      const published = tile.querySelector('.tile-value');
      const found = [];
      while (found.length < 5) {
        await new Promise((resolve) => live.addEventListener("stats", resolve, { once: true }));
        found.push([published.textContent, document.querySelector('figure output').textContent]);
      }
      return found;
    }"""
    for tile_rate, plot_rate in page.evaluate(shown):
        assert tile_rate == plot_rate
