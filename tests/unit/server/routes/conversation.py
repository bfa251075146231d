"""Short words for asking a site, for tests of its routes."""

import json
from typing import Any

from support.site import Site

from quivermq.server.http import Response


def told(response: Response, status: int = 200) -> Any:
    """The JSON of an answer that has to have this status."""
    assert response.status == status, response.body
    return json.loads(response.body)


def get(site: Site, path: str) -> Any:
    """What is there."""
    return told(site.ask("GET", path))


def refused(site: Site, method: str, path: str, body: object = b"") -> tuple[int, str, str]:
    """Status, code and words of an answer that has to be an error in the usual form."""
    response = site.ask(method, path, body)
    error = json.loads(response.body)["error"]
    assert isinstance(error["retryable"], bool)
    return response.status, error["code"], error["message"]


def status_and_code(site: Site, method: str, path: str, body: object = b"") -> tuple[int, str]:
    return refused(site, method, path, body)[:2]
