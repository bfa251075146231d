"""Delayed messages and dead letters over HTTP."""

from collections.abc import Iterator

import pytest
from support.queues import SECOND, START_US
from support.site import Site
from unit.server.routes.conversation import get, refused, status_and_code, told

from quivermq.engine import engine_of
from quivermq.server import answers
from quivermq.server.access import ApiKey
from quivermq.server.app import App
from quivermq.server.http import Request
from quivermq.server.routes import dead_letters
from quivermq.server.routing import Route

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
        "by_hand": False,
    }
    assert get(site, "/v1/topics/orders.dlq/dead-letters")["messages"] == [letter]


def test_dead_letters_are_listed_up_to_a_limit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(site, f"{ORDERS}/dead-letters") == {"messages": [], "next": None}
    for value in (b"1", b"2", b"3"):
        give_up(site, value, "r")
    assert len(get(site, f"{ORDERS}/dead-letters?limit=2")["messages"]) == 2
    monkeypatch.setattr(dead_letters, "ANSWER_BYTES", 10)
    page = get(site, f"{ORDERS}/dead-letters")
    assert (len(page["messages"]), page["next"]) == (1, page["messages"][0]["id"])


def test_dead_letters_go_back(site: Site) -> None:
    give_up(site, b"1", "r")
    assert told(site.ask("POST", f"{ORDERS}/redrive")) == {"moved": 1}
    assert get(site, f"{ORDERS}/dead-letters") == {"messages": [], "next": None}
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
    [
        ("GET", "scheduled"),
        ("GET", "scheduled/timeline"),
        ("GET", "dead-letters"),
        ("GET", "dead-letters/reasons"),
        ("POST", "redrive"),
        ("POST", "discard"),
    ],
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


def test_dead_letters_are_listed_by_reason_and_group(site: Site) -> None:
    give_up(site, b"1", "odd")
    give_up(site, b"2", "even")
    give_up(site, b"3", "odd", group="billing")

    def found(query: str) -> list[str]:
        return [letter["value"] for letter in get(site, f"{ORDERS}/dead-letters?{query}")["messages"]]

    assert found("reason=odd") == ["1", "3"]
    assert found("reason=odd&group=billing") == ["3"]
    assert found("group=default") == ["1", "2"]
    assert found("reason=") == []
    assert get(site, f"{ORDERS}/dead-letters/reasons") == {
        "reasons": [
            {"reason": "odd", "topic": "orders", "group": "default", "messages": 1},
            {"reason": "even", "topic": "orders", "group": "default", "messages": 1},
            {"reason": "odd", "topic": "orders", "group": "billing", "messages": 1},
        ],
        "next": None,
    }


def test_a_list_that_was_cut_short_says_where_it_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        give_up(site, b"%d" % number, f"reason {number}")
    monkeypatch.setattr(answers, "_SEARCHED_BYTES", 1)
    page = get(site, f"{ORDERS}/dead-letters?reason=reason+2")
    assert page == {"messages": [], "next": "0-1-0"}
    page = get(site, f"{ORDERS}/dead-letters?reason=reason+2&after=0-1-1")
    assert ([letter["value"] for letter in page["messages"]], page["next"]) == (["2"], "0-1-2")
    assert get(site, f"{ORDERS}/dead-letters?after=0-1-2") == {"messages": [], "next": None}
    counted = get(site, f"{ORDERS}/dead-letters/reasons?after=0-1-0")
    assert [reason["reason"] for reason in counted["reasons"]] == ["reason 1"]
    assert counted["next"] == "0-1-1"


def test_a_dead_letter_goes_back_edited(site: Site) -> None:
    give_up(site, b"1", "r")
    give_up(site, b"2", "r")
    edit = {"value_base64": "/w==", "key": "k2", "headers": {"b": {"base64": "/w=="}}}
    assert site.post(f"{ORDERS}/redrive", {"edits": {"0-1-0": edit}}) == {"moved": 1}
    message = site.engine.queue("orders").get()
    assert message is not None
    assert (message.value, message.key, message.headers) == (b"\xff", b"k2", {"b": b"\xff"})
    assert [letter["value"] for letter in get(site, f"{ORDERS}/dead-letters")["messages"]] == ["2"]


@pytest.mark.parametrize(
    "edit",
    [{}, {"value": "a", "value_base64": "YQ=="}, {"value": "a", "delay_ms": 5}, {"value": 5}, "text"],
)
def test_a_wrong_edit_moves_nothing(site: Site, edit: object) -> None:
    give_up(site, b"1", "r")
    body = {"edits": {"0-1-0": edit}}
    assert refused(site, "POST", f"{ORDERS}/redrive", body)[:2] == (400, "invalid_request")
    assert len(get(site, f"{ORDERS}/dead-letters")["messages"]) == 1


def test_a_timeline_counts_what_is_due_when(site: Site) -> None:
    queue = site.engine.queue("orders")
    for delay in (5, 15, 15, 500):
        queue.put(b"x", delay=delay)
    until = START_US + 30 * SECOND
    shown = get(site, f"{ORDERS}/scheduled/timeline?until={until}&bins=3")
    assert shown == {"start": START_US, "end": until, "counts": [1, 2, 0], "later": 1}
    assert sum(get(site, f"{ORDERS}/scheduled/timeline")["counts"]) == 4
    for query in ("bins=0", "bins=1001", "until=5", "until=1700000000", "until=x"):
        path = f"{ORDERS}/scheduled/timeline?{query}"
        assert status_and_code(site, "GET", path) == (400, "invalid_request")


@pytest.mark.parametrize("call", ["redrive", "discard"])
def test_a_key_for_dead_letters_alone_does_not_move_them(site: Site, call: str) -> None:
    give_up(site, b"tea", "spilled")
    graves = engine_of(site.engine).catalog.dead_letter_topic_of("orders")
    assert graves is not None
    for topic, moved in ((graves.name, 0), ("orders", 1)):

        def gate(request: Request, _: Route, topic: str = topic) -> None:
            request.key = ApiKey("k", "write", (topic,))

        site.app = App(site.broker, site.app.router.routes, gate)
        assert list(site.post(f"/v1/topics/{graves.name}/{call}").values()) == [moved]
