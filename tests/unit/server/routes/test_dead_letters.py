"""Delayed messages and dead letters over HTTP."""

from collections.abc import Iterator

import pytest
from support.queues import SECOND, START_US
from support.site import Site
from unit.server.routes.conversation import get, refused, status_and_code, told

from quivermq.server import answers
from quivermq.server.routes import dead_letters

ORDERS = "/v1/topics/orders"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(dead_letters.ROUTES) as site:
        site.engine.create_topic("orders")
        yield site


def give_up(site: Site, value: bytes, reason: str, group: str = "default") -> None:
    queue = site.engine.queue("orders", group)
    queue.put(value, key=b"k", headers={"a": b"1"})
    while (message := queue.get()) is not None:
        if message.value == value:
            message.reject(reason, error="Traceback")
        else:
            message.ack()


def test_delayed_messages_are_listed_the_next_one_first(site: Site) -> None:
    queue = site.engine.queue("orders")
    queue.put(b"\xff", delay=20, priority="low", ttl=5, dedup_id="x")
    first = queue.put(b"soon", key=b"k", delay=10)
    soon, late = get(site, f"{ORDERS}/scheduled")["scheduled"]
    assert soon == {
        "id": first.scheduled_id,
        "deliver_at": START_US + 10 * SECOND,
        "topic": "orders",
        "partition": 0,
        "priority": "normal",
        "timestamp": START_US,
        "headers": {},
        "value": "soon",
        "key": "k",
    }
    assert (late["value_base64"], late["priority"], late["dedup_id"]) == ("/w==", "low", "x")
    assert late["expires_at"] == START_US + 25 * SECOND
    assert [message["value"] for message in get(site, f"{ORDERS}/scheduled?limit=1")["scheduled"]] == [
        "soon"
    ]
    site.clock.advance(10)
    assert len(get(site, f"{ORDERS}/scheduled")["scheduled"]) == 1


def test_a_delayed_message_is_cancelled_once(site: Site) -> None:
    put = site.engine.queue("orders").put(b"later", delay=10)
    path = f"{ORDERS}/scheduled/{put.scheduled_id}"
    assert site.ask("DELETE", path).status == 204
    assert get(site, f"{ORDERS}/scheduled") == {"scheduled": []}
    assert status_and_code(site, "DELETE", path) == (404, "not_found")
    assert status_and_code(site, "DELETE", f"{ORDERS}/scheduled/nonsense") == (404, "not_found")
    assert status_and_code(site, "DELETE", "/v1/topics/none/scheduled/1-1-1") == (404, "topic_not_found")


def test_a_dead_letter_tells_where_it_was_and_why_it_is_here(site: Site) -> None:
    site.clock.advance(5)
    give_up(site, b"bad", "out of stock", group="billing")
    [letter] = get(site, f"{ORDERS}/dead-letters")["messages"]
    assert letter == {
        "id": letter["id"],
        "topic": "orders.dlq",
        "partition": 0,
        "priority": "normal",
        "offset": 0,
        "timestamp": START_US + 5 * SECOND,
        "value": "bad",
        "key": "k",
        "headers": {"a": "1"},
        "reason": "out of stock",
        "error": "Traceback",
        "attempts": 1,
        "group": "billing",
        "origin": {"topic": "orders", "partition": 0, "priority": "normal", "offset": 0},
        "died_at": START_US + 5 * SECOND,
    }
    assert get(site, "/v1/topics/orders.dlq/dead-letters")["messages"] == [letter]


def test_dead_letters_are_listed_up_to_a_limit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(site, f"{ORDERS}/dead-letters") == {"messages": []}
    for value in (b"1", b"2", b"3"):
        give_up(site, value, "r")
    assert len(get(site, f"{ORDERS}/dead-letters?limit=2")["messages"]) == 2
    monkeypatch.setattr(answers, "ANSWER_BYTES", 10)
    assert len(get(site, f"{ORDERS}/dead-letters")["messages"]) == 1


def test_dead_letters_go_back(site: Site) -> None:
    give_up(site, b"1", "r")
    assert told(site.ask("POST", f"{ORDERS}/redrive")) == {"moved": 1}
    assert get(site, f"{ORDERS}/dead-letters") == {"messages": []}
    message = site.engine.queue("orders").get()
    assert message is not None
    assert (message.value, message.headers) == (b"1", {"a": b"1"})
    assert told(site.ask("POST", f"{ORDERS}/redrive", {})) == {"moved": 0}


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({}, []),
        ({"limit": 1}, ["2", "3"]),
        ({"limit": 0}, ["1", "2", "3"]),
        ({"reason": "odd"}, ["2"]),
        ({"reason": "odd", "limit": 1}, ["2", "3"]),
        ({"reason": "none such"}, ["1", "2", "3"]),
        ({"group": "billing"}, ["1", "2"]),
        ({"ids": ["0-1-1", "0-1-9"]}, ["1", "3"]),
        ({"ids": []}, ["1", "2", "3"]),
        ({"ids": ["0-1-1"], "reason": "odd"}, ["1", "2", "3"]),
    ],
)
@pytest.mark.parametrize(("call", "word"), [("redrive", "moved"), ("discard", "discarded")])
def test_a_filter_chooses_among_dead_letters(
    site: Site, call: str, word: str, body: object, left: list[str]
) -> None:
    give_up(site, b"1", "odd")
    give_up(site, b"2", "even")
    give_up(site, b"3", "odd", group="billing")
    assert told(site.ask("POST", f"{ORDERS}/{call}", body)) == {word: 3 - len(left)}
    there = get(site, f"{ORDERS}/dead-letters")["messages"]
    assert [letter["value"] for letter in there] == left


@pytest.mark.parametrize("body", [{"filter": "x"}, {"limit": -1}, {"ids": "0-1-1"}, {"reason": 5}, b"x"])
@pytest.mark.parametrize("call", ["redrive", "discard"])
def test_a_wrong_filter_moves_nothing(site: Site, call: str, body: object) -> None:
    give_up(site, b"1", "r")
    assert refused(site, "POST", f"{ORDERS}/{call}", body)[:2] == (400, "invalid_request")
    assert len(get(site, f"{ORDERS}/dead-letters")["messages"]) == 1


@pytest.mark.parametrize(
    ("method", "call"),
    [("GET", "scheduled"), ("GET", "dead-letters"), ("POST", "redrive"), ("POST", "discard")],
)
def test_topics_that_are_not_there(site: Site, method: str, call: str) -> None:
    for name in ("none", "none.dlq"):
        assert status_and_code(site, method, f"/v1/topics/{name}/{call}") == (404, "topic_not_found")
    assert status_and_code(site, method, f"/v1/topics/a%2Fb/{call}") == (400, "invalid_name")


@pytest.mark.parametrize("limit", ["0", "1001", "x", ""])
def test_a_limit_is_a_number_in_its_range(site: Site, limit: str) -> None:
    for call in ("scheduled", "dead-letters"):
        assert refused(site, "GET", f"{ORDERS}/{call}?limit={limit}")[:2] == (400, "invalid_request")


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_list_of_delayed_messages_goes_on_after_an_id(site: Site, limit: int) -> None:
    queue = site.engine.queue("orders")
    for delay in (30, 10, 20, 10):
        queue.put(b"%d" % delay, delay=delay)
    found: list[str] = []
    path = f"{ORDERS}/scheduled?limit={limit}"
    while page := get(site, path)["scheduled"]:
        found += [message["value"] for message in page]
        path = f"{ORDERS}/scheduled?limit={limit}&after={page[-1]['id']}"
    assert found == ["10", "10", "20", "30"]
    # Also when that one does not wait any more.
    first = get(site, f"{ORDERS}/scheduled")["scheduled"][0]["id"]
    assert queue.cancel(first)
    assert len(get(site, f"{ORDERS}/scheduled?after={first}")["scheduled"]) == 3


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_list_of_dead_letters_goes_on_after_an_id(site: Site, limit: int) -> None:
    for number in range(5):
        give_up(site, b"%d" % number, "never")
    found: list[str] = []
    path = f"{ORDERS}/dead-letters?limit={limit}"
    while page := get(site, path)["messages"]:
        found += [message["value"] for message in page]
        path = f"{ORDERS}/dead-letters?limit={limit}&after={page[-1]['id']}"
    assert found == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("path", ["scheduled", "dead-letters"])
@pytest.mark.parametrize("after", ["", "x", "0-9", "1--1", "0-1-x", "9" * 50])
def test_a_list_after_nothing_is_refused(site: Site, path: str, after: str) -> None:
    assert status_and_code(site, "GET", f"{ORDERS}/{path}?after={after}") == (400, "invalid_request")
