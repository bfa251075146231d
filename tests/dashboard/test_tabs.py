"""Many tabs share one event stream, and go on when the one that listens is closed."""

from pathlib import Path

from dashboard.visits import Visit, Visiting
from playwright.sync_api import expect
from support.broker import Served, serving

from quivermq.server.events import Events
from quivermq.server.keys import create_key

LEADS = "() => import('/dashboard/live.js').then(({ live }) => live.isLeader)"
# More than a browser has connections to one host.
MANY = 8


def leaders(views: list[Visit]) -> list[bool]:
    return [view.page.evaluate(LEADS) for view in views]


def listeners(broker: Served) -> int:
    return len(broker.app.broker.part(Events)._listeners)


LAG = "main tbody tr:has-text('billing') td:nth-child(4)"


def test_more_tabs_than_connections_are_all_live_and_one_leads(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders", "billing")
    queue.put_many([b"x"] * 3)
    queue.seek("earliest")
    views = [visit(broker) for _ in range(MANY)]
    for view in views:
        page = view.open("groups")
        expect(page.locator(".state")).to_have_text("Live")
        expect(page.locator(LAG)).to_have_text("3")
    # A tab that got no answer in time leads beside the other, until they hear of each other.
    view.until(lambda: leaders(views).count(True) == 1 and listeners(broker) == 1)
    # What happens is seen in all of them, and each can still ask for something.
    queue.put(b"y")
    for view in views:
        expect(view.page.locator(LAG)).to_have_text("4")
    views[-1].drawn("topics/orders")


def test_another_tab_takes_over_when_the_one_that_leads_is_closed(broker: Served, visit: Visiting) -> None:
    queue = broker.engine.queue("orders", "billing")
    queue.put(b"x")
    queue.seek("earliest")
    views = [visit(broker) for _ in range(3)]
    for view in views:
        expect(view.open("groups").locator(".state")).to_have_text("Live")
    views[0].until(lambda: leaders(views).count(True) == 1)
    [leader] = [view for view, leads in zip(views, leaders(views), strict=True) if leads]
    views.remove(leader)
    leader.page.close()
    queue.put(b"y")
    for view in views:
        expect(view.page.locator(LAG)).to_have_text("2")
        expect(view.page.locator(".state")).to_have_text("Live")
    views[0].until(lambda: leaders(views).count(True) == 1)


def test_tabs_with_other_keys_listen_for_themselves(tmp_path: Path, visit: Visiting) -> None:
    with serving(tmp_path / "data") as served:
        served.engine.create_topic("orders")
        served.engine.create_topic("secret")
    made = [create_key(tmp_path / "data", "read", topics) for topics in ((">",), ("orders",))]
    with serving(tmp_path / "data") as served:
        views = [visit(served), visit(served)]
        for view, key in zip(views, made, strict=True):
            view.expect_status(401)
            page = view.open("topics")
            page.get_by_label("API key").fill(key.text)
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("link", name="orders")).to_be_visible()
        expect(views[0].page.get_by_role("link", name="secret")).to_be_visible()
        expect(views[1].page.get_by_role("link", name="secret")).to_have_count(0)
        assert leaders(views) == [True, True]
