"""Keys: the broker asks for one, a wrong one is told so, a weak one sees what it may not do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard.visits import Visiting
from playwright.sync_api import expect
from support.broker import Served, serving

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
    expect(page.get_by_role("alert")).to_have_text("The broker does not know this key.")
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
    view.expect_status(401)
    page = view.open("topics/orders")
    page.get_by_label("API key").fill(reader.text)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".identity .tag")).to_have_text("read")
    delete = page.get_by_role("button", name="Delete")
    expect(delete).to_have_attribute("aria-disabled", "true")
    expect(delete).to_have_attribute("title", "This needs a key of scope admin, and yours is for read.")
    delete.click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_text("This needs a key of scope admin")).to_be_visible()
    view.shoot("read-only-key")


def test_a_key_that_was_revoked_leads_to_the_login(
    closed: Served, visit: Visiting, tmp_path: Path, admin: NewKey
) -> None:
    view = visit(closed)
    view.expect_status(401)
    page = view.open("topics/orders")
    page.get_by_label("API key").fill(admin.text)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    revoke_key(tmp_path / "data", admin.key.id)
    # The page asks for the topic again and again, and is refused once the broker has noticed.
    expect(page.get_by_role("alert")).to_have_text("The broker does not know this key any more.")
    expect(page.get_by_label("API key")).to_be_focused()
