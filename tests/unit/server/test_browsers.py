"""Web pages: which requests of a browser a broker without keys takes."""

import pytest

from quivermq.errors import Denied
from quivermq.server.gate import check_page
from quivermq.server.http import Request


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost"},
        {"host": "LOCALHOST:7070"},
        {"host": "localhost.:7070"},
        {"host": "queue.localhost:7070"},
        {"host": "127.0.0.1:7070"},
        {"host": "[::1]:7070"},
        {"host": "192.0.2.7"},
        {"host": "tea:7070"},
        {"host": "127.0.0.1:7070", "origin": "http://127.0.0.1:7070"},
        {"host": "Localhost:7070", "origin": "http://localhost:7070"},
        {"host": "localhost:7070", "origin": "http://LOCALHOST:7070"},
        {"host": "localhost:7070", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"},
        {"host": "localhost:7070", "sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
        {"host": "localhost:7070", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ],
)
def test_programs_and_pages_of_its_own_are_let_in(headers: dict[str, str]) -> None:
    check_page(Request("POST", "/", headers=headers), "Tea")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:7070", "origin": "https://evil.example"},
        {"host": "127.0.0.1:7070", "origin": "http://127.0.0.1:3000"},
        {"host": "127.0.0.1:7070", "origin": "null"},
        {"host": "127.0.0.1:7070", "origin": ""},
        {"host": "127.0.0.1:7070", "origin": "http://localhost:7070"},
        {"origin": "https://evil.example"},
        {"host": "evil.example"},
        {"host": "evil.example:7070", "origin": "http://evil.example:7070"},
        {"host": "localhost.evil.example"},
        {"host": "notlocalhost"},
        {"host": "127.0.0.1.evil.example:7070"},
        {"host": "[evil]:7070"},
        {"host": "localhost:7070", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"host": "localhost:7070", "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
        {"host": "localhost:7070", "sec-fetch-site": "cross-site"},
    ],
)
def test_pages_of_others_are_not(headers: dict[str, str]) -> None:
    with pytest.raises(Denied, match="quiver key create"):
        check_page(Request("POST", "/", headers=headers), "tea")
