"""The page at `/` and its files, as the broker answers with them."""

from collections.abc import Iterator

import pytest
from support.site import Site
from unit.server.routes.conversation import status_and_code

from quivermq.server.dashboard.routes import ROUTES


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(ROUTES) as site:
        yield site


def test_the_page_is_there(site: Site) -> None:
    response = site.ask("GET", "/")
    assert response.status == 200
    assert response.content_type == "text/html; charset=utf-8"
    assert b'"dashboard/app.js"' in response.body


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_names_nothing_from_the_root_or_from_elsewhere(site: Site, path: str) -> None:
    """So it works below a path of a proxy, and needs nobody but its broker."""
    page = site.ask("GET", path).body
    assert (b'="/' in page, b"//" in page) == (False, False)


@pytest.mark.parametrize("path", ["/", "/docs", "/dashboard/app.js", "/dashboard/pages/overview.js"])
def test_it_may_do_nothing_but_talk_to_its_broker(site: Site, path: str) -> None:
    headers = site.ask("GET", path).headers
    assert headers is not None
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert headers["Referrer-Policy"] == "no-referrer"


def test_what_a_browser_has_is_not_sent_again(site: Site) -> None:
    first = site.ask("GET", "/dashboard/app.js")
    assert first.headers is not None
    assert first.headers["Cache-Control"] == "no-cache"
    tag = first.headers["ETag"]
    again = site.ask("GET", "/dashboard/app.js", headers={"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    other = site.ask("GET", "/dashboard/app.js", headers={"If-None-Match": '"another"'})
    assert (other.status, other.body) == (200, first.body)


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard/nothing.js",
        "/dashboard/..%2ffiles.py",
        "/dashboard/%2e%2e",
        "/dashboard/pages/..%2fapp.js",
        "/dashboard/pages",
    ],
)
def test_what_is_no_file_of_it_is_not_found(site: Site, path: str) -> None:
    assert status_and_code(site, "GET", path) == (404, "not_found")
