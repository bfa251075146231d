"""The gate: who is let through to which call."""

from pathlib import Path

import pytest
from support.manual_clock import ManualClock

from quivermq.errors import Denied, RateLimited, Unauthenticated
from quivermq.server.access import Permission, Scope, Topics
from quivermq.server.gate import Gate, RateLimit
from quivermq.server.http import Request, Response, error_response
from quivermq.server.keys import KeyStore, NewKey, create_key, revoke_key
from quivermq.server.routing import Route


def route(scope: Scope, path: str = "/", *, topics: Topics = "all") -> Route:
    return Route("GET", path, lambda *_: Response(), "", "", permission=Permission(scope, topics))


def request(key: NewKey | None = None, *, topic: str | None = None, authorization: str = "") -> Request:
    if key is not None:
        authorization = f"Bearer {key.text}"
    made = Request("GET", "/", headers={"authorization": authorization}, client="192.0.2.1")
    made.params = {} if topic is None else {"topic": topic}
    return made


def test_without_keys_everybody_may_do_everything(tmp_path: Path) -> None:
    for keys in (None, KeyStore(tmp_path)):
        asked = request(topic="orders")
        Gate(keys, None)(asked, route("admin"))
        assert asked.key is None


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer qk_1_2", "Basic YTpi", "bearer  "])
def test_with_keys_nobody_without_one_may_do_anything_but_ask_for_health(
    tmp_path: Path, authorization: str
) -> None:
    create_key(tmp_path, "read")
    gate = Gate(KeyStore(tmp_path), None)
    gate(request(authorization=authorization), route("none"))
    with pytest.raises(Unauthenticated, match="Authorization: Bearer KEY") as caught:
        gate(request(authorization=authorization), route("read"))
    response = error_response(caught.value)
    assert (response.status, response.headers) == (401, {"WWW-Authenticate": "Bearer"})


def test_a_key_may_do_what_its_scope_says(tmp_path: Path) -> None:
    key = create_key(tmp_path, "write")
    gate = Gate(KeyStore(tmp_path), None)
    asked = request(key)
    gate(asked, route("write"))
    assert asked.key == key.key
    gate(request(authorization=f"bEARER {key.text}"), route("read"))
    with pytest.raises(Denied, match="scope admin"):
        gate(request(key), route("admin"))
    with pytest.raises(Unauthenticated):
        gate(request(authorization=f"Digest {key.text}"), route("read"))


def test_whoever_has_no_key_left_is_told_how_to_go_on(tmp_path: Path) -> None:
    key = create_key(tmp_path, "read")
    revoke_key(tmp_path, key.key.id)
    with pytest.raises(Unauthenticated, match="allow-anonymous"):
        Gate(KeyStore(tmp_path), None)(request(key), route("read"))


def test_a_key_may_use_its_topics_only(tmp_path: Path) -> None:
    key = create_key(tmp_path, "admin", ["orders.*"])
    gate = Gate(KeyStore(tmp_path), None)
    gate(request(key, topic="orders.tea"), route("read"))
    gate(request(key, topic="orders.*"), route("read"))
    for topic in ("tea", ">", "orders.>"):
        with pytest.raises(Denied, match="not for"):
            gate(request(key, topic=topic), route("read"))


def test_a_key_for_a_topic_is_for_its_dead_letters_whatever_they_are_called(tmp_path: Path) -> None:
    key = create_key(tmp_path, "read", ["orders"])
    gate = Gate(KeyStore(tmp_path), None, origin_of={"graves": "orders"}.get)
    gate(request(key, topic="graves"), route("read"))
    with pytest.raises(Denied, match="not for"):
        gate(request(key, topic="others"), route("read"))


def test_a_call_about_all_topics_needs_a_key_for_all_unless_it_checks_them(tmp_path: Path) -> None:
    some, every = create_key(tmp_path, "admin", ["orders.*"]), create_key(tmp_path, "admin")
    gate = Gate(KeyStore(tmp_path), None)
    gate(request(every), route("read"))
    gate(request(some), route("read", topics="each"))
    with pytest.raises(Denied, match="all topics"):
        gate(request(some), route("read"))


def test_a_web_page_is_looked_at_where_there_are_no_keys(tmp_path: Path) -> None:
    asked = request()
    asked.headers = {"host": "tea:7070", "origin": "http://evil.example"}
    gate = Gate(None, None, "tea")
    gate(asked, route("none"))
    with pytest.raises(Denied, match="evil"):
        gate(asked, route("read"))
    key = create_key(tmp_path, "read")
    asked.headers = {**asked.headers, "authorization": f"Bearer {key.text}"}
    Gate(KeyStore(tmp_path), None, "tea")(asked, route("read"))


def test_too_many_requests_are_refused_by_key_or_by_address(tmp_path: Path) -> None:
    one, other = create_key(tmp_path, "read"), create_key(tmp_path, "read")
    gate = Gate(KeyStore(tmp_path), RateLimit(2, ManualClock().monotonic))
    for key in (one, other):
        for _ in range(2):
            gate(request(key), route("read"))
        with pytest.raises(RateLimited):
            gate(request(key), route("read"))
        gate(request(key), route("none"))
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            gate(request(), route("read"))
    with pytest.raises(RateLimited):
        gate(request(), route("read"))
