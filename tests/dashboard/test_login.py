"""Keys: the broker asks for one, a wrong one is told so, a weak one sees what it may not do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard.visits import Visit, Visiting
from playwright.sync_api import Page, expect
from support.broker import Served, serving

from quivermq.server import keys
from quivermq.server.keys import NewKey, create_key, revoke_key


@pytest.fixture
def admin(tmp_path: Path) -> NewKey:
    return create_key(tmp_path / "data", "admin")


@pytest.fixture
def reader(tmp_path: Path) -> NewKey:
    return create_key(tmp_path / "data", "read")


@pytest.fixture
def closed(tmp_path: Path, admin: NewKey, reader: NewKey) -> Iterator[Served]:
    """A broker that wants a key."""
    with serving(tmp_path / "data") as served:
        served.engine.queue("orders").put(b"x")
        yield served


def logged_in(view: Visit, route: str, key: NewKey) -> Page:
    """A page of the dashboard, opened with a key."""
    view.expect_status(401)
    page = view.open(route)
    page.get_by_label("API key").fill(key.text)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    return page


def test_a_key_opens_the_dashboard_and_a_wrong_one_does_not(
    closed: Served, visit: Visiting, admin: NewKey
) -> None:
    view = visit(closed)
    view.expect_status(401)
    page = view.open("topics")
    expect(page.get_by_label("API key")).to_be_focused()
    view.shoot("login")
    page.get_by_label("API key").fill(f"{admin.text[:-1]}?")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").filter(has_text="The broker does not know this key.")).to_be_visible()
    page.get_by_label("API key").fill(admin.text)
    page.keyboard.press("Enter")
    # Where one wanted to go in the first place.
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    expect(page.locator(".state")).to_have_text("Live")
    expect(page.locator(".identity .tag")).to_have_text("admin")
    page.reload()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("API key")).to_be_focused()
    page.reload()
    expect(page.get_by_label("API key")).to_be_visible()


def test_a_key_that_may_only_read_sees_why_it_may_not_more(
    closed: Served, visit: Visiting, reader: NewKey
) -> None:
    view = visit(closed)
    page = logged_in(view, "topics/orders", reader)
    expect(page.locator(".identity .tag")).to_have_text("read")
    delete = page.get_by_role("button", name="Delete")
    expect(delete).to_have_attribute("aria-disabled", "true")
    expect(delete).to_have_attribute("title", "This needs a key of scope admin, and yours is for read.")
    delete.click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_text("This needs a key of scope admin")).to_be_visible()
    view.shoot("read-only-key")


def test_who_comes_next_sees_nothing_of_who_was_there_before(
    closed: Served, visit: Visiting, admin: NewKey
) -> None:
    page = logged_in(visit(closed), "topics", admin)
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("API key")).to_be_focused()
    kept = "import('/dashboard/live.js').then(({ live }) => [live.latest, live.history.points.length])"
    assert page.evaluate(kept) == [None, 0]
    assert page.evaluate("Object.keys(sessionStorage)") == []
    assert admin.text not in page.content()


def test_a_key_that_was_revoked_leads_to_the_login(
    closed: Served, visit: Visiting, tmp_path: Path, admin: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_CHECK_INTERVAL_S", 0.0)
    page = logged_in(visit(closed), "topics/orders", admin)
    revoke_key(tmp_path / "data", admin.key.id)
    # No click: the event stream may have led to the login already, and then there is no link.
    page.evaluate("location.hash = '#/messages/orders'")
    expect(
        page.get_by_role("alert").filter(has_text="The broker does not know this key any more.")
    ).to_be_visible()
    expect(page.get_by_label("API key")).to_be_focused()
