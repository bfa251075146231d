"""Topics over HTTP: create, list, look at, alter, delete."""

from collections.abc import Iterator

import pytest
from support.site import Site
from unit.server.routes.conversation import get, refused, status_and_code, told

from quivermq.engine import engine_of
from quivermq.errors import Denied
from quivermq.server.access import ApiKey
from quivermq.server.http import Request, answered
from quivermq.server.routes import topics

EMPTY: dict[str, object] = {
    "partitions": 1,
    "messages": 0,
    "bytes": 0,
    "delayed": 0,
    "dead_letters": 0,
    "dead_letters_of": None,
    "groups": {},
}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(topics.ROUTES) as site:
        yield site


def test_a_topic_is_created_with_its_settings(site: Site) -> None:
    settings = {"partitions": 3, "lease_ms": 5, "priority_weights": [3, 2, 1], "retention_bytes": "1MiB"}
    made = told(site.ask("POST", "/v1/topics", {"name": "orders", **settings}), 201)
    assert (made["name"], made["partitions"], made["messages"]) == ("orders", 3, 0)
    assert made["settings"] == site.engine.topic("orders").settings.to_json()
    assert made["settings"]["retention_bytes"] == 1024 * 1024
    assert site.engine.topic("orders").settings.lease_ms == 5


def test_a_topic_that_exists_is_not_created_again(site: Site) -> None:
    site.engine.create_topic("orders")
    assert status_and_code(site, "POST", "/v1/topics", {"name": "orders"}) == (409, "topic_exists")


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({}, "invalid_request", "needs a name"),
        ({"name": None}, "invalid_request", "needs a name"),
        ({"name": 5}, "invalid_name", "int"),
        ({"name": "a/b"}, "invalid_name", "a/b"),
        ({"name": "orders", "lease": 5}, "invalid_settings", "did you mean lease_ms"),
        ({"name": "orders", "self": 5}, "invalid_settings", "self"),
        ({"name": "orders", "lease_ms": "soon"}, "invalid_settings", "lease_ms"),
        ({"name": "orders", "partitions": 0}, "invalid_settings", "partitions"),
        ({"name": "orders", "partitions": 1.5}, "invalid_settings", "partitions"),
        ([], "invalid_request", "object"),
        (b"{", "invalid_request", "body"),
        (b"", "invalid_request", "body"),
        (b'{"name": ' + b"[" * 100_000, "invalid_request", "body"),
    ],
)
def test_a_wrong_topic_is_refused_and_leaves_nothing(
    site: Site, body: object, code: str, words: str
) -> None:
    status, found, message = refused(site, "POST", "/v1/topics", body)
    assert (status, found) == (400, code)
    assert words in message
    assert site.engine.topics() == []


def test_topics_are_listed_with_their_figures(site: Site) -> None:
    site.engine.queue("orders").put_many([b"1", b"2"])
    site.engine.queue("orders", "billing").get()
    site.engine.create_topic("events")
    events, orders = get(site, "/v1/topics")["topics"]
    assert events == {"name": "events", **EMPTY}
    assert (orders["name"], orders["messages"]) == ("orders", 2)
    assert orders["bytes"] > 0
    assert orders["groups"]["billing"] == site.engine.queue("orders", "billing").stats().as_dict()


def test_topics_are_listed_part_by_part(site: Site) -> None:
    for name in ("a", "b", "c", "d"):
        site.engine.create_topic(name)
    first = get(site, "/v1/topics?limit=3")
    assert [topic["name"] for topic in first["topics"]] == ["a", "b", "c"]
    rest = get(site, f"/v1/topics?limit=3&after={first['next']}")
    assert [topic["name"] for topic in rest["topics"]] == ["d"]
    assert "next" not in rest
    assert "next" not in get(site, "/v1/topics?limit=4")
    for query in ("limit=0", "limit=x", "after=a/b"):
        assert status_and_code(site, "GET", f"/v1/topics?{query}")[0] == 400


def test_a_key_sees_only_its_topics(site: Site) -> None:
    for name in ("orders", "orders.dlq", "events"):
        site.engine.create_topic(name)
    request = Request("GET", "/v1/topics")
    request.key = ApiKey("k", "read", ("orders",))
    answer = told(answered(site.run(topics.list_topics(site.broker, request))))
    assert [topic["name"] for topic in answer["topics"]] == ["orders", "orders.dlq"]


def test_a_key_gets_no_other_topic_by_having_its_dead_letters_there(site: Site) -> None:
    request = Request("POST", "/v1/topics")
    request.key = ApiKey("k", "admin", ("orders",))
    body = {"name": "orders", "dead_letter_suffix": "-secret"}
    with pytest.raises(Denied, match="not for orders-secret"):
        site.run(topics.create_topic(site.broker, request, body))
    assert site.engine.topics() == []
    request.key = ApiKey("k", "admin", ("orders", "orders-secret"))
    body = {"name": "orders", "dead_letter_suffix": "-secret"}
    assert site.run(topics.create_topic(site.broker, request, body)).status == 201


def test_the_settings_of_a_topic_can_be_sent_back_unchanged(site: Site) -> None:
    site.engine.create_topic("orders", partitions=2, priority_weights="strict", ttl_ms=5, codec="zstd")
    before = get(site, "/v1/topics/orders")
    assert before["settings"]["priority_weights"] == "strict"
    assert told(site.ask("PATCH", "/v1/topics/orders", before["settings"])) == before


def test_a_topic_tells_when_it_was_made_and_what_its_logs_hold(site: Site) -> None:
    site.engine.create_topic("orders", partitions=2, segment_messages=2)
    queue = site.engine.queue("orders")
    for value in (b"1", b"2", b"3"):
        queue.put(value, partition=0)
    queue.put(b"4", partition=1, priority="high")
    shown = get(site, "/v1/topics/orders")
    assert shown["created_at"] == engine_of(site.engine).catalog.created_us("orders")
    lanes = [
        [lane[name] for name in ("partition", "priority", "start", "sealed", "end")]
        for lane in shown["lanes"]
    ]
    assert lanes == [[0, "normal", 0, 2, 3], [1, "high", 0, 0, 1], [1, "normal", 0, 0, 0]]
    assert sum(lane["bytes"] for lane in shown["lanes"]) == shown["bytes"]


def test_a_topic_tells_what_survives_power_loss(site: Site) -> None:
    site.engine.create_topic("orders", durability="os", segment_messages=2)
    queue = site.engine.queue("orders")
    queue.put(b"1", durability="fsync")
    for value in (b"2", b"3"):
        queue.put(value)
    [lane] = get(site, "/v1/topics/orders")["lanes"]
    assert (lane["sealed"], lane["synced"], lane["end"]) == (2, 1, 3)


def test_some_settings_are_altered_and_the_others_stay(site: Site) -> None:
    site.engine.create_topic("orders", lease_ms=5)
    altered = told(site.ask("PATCH", "/v1/topics/orders", {"attempts_max": None}))
    assert altered["settings"]["attempts_max"] is None
    assert altered["settings"]["lease_ms"] == 5


def test_wrong_changes_are_refused(site: Site) -> None:
    site.engine.create_topic("orders", partitions=2)
    for body in ({"partitions": 1}, {"nonsense": 1}, {"name": "other"}, {"segments_max": 0}):
        [name] = body
        status, code, message = refused(site, "PATCH", "/v1/topics/orders", body)
        assert (status, code) == (400, "invalid_settings")
        assert name in message
    assert site.engine.topic("orders").settings.partitions == 2


def test_a_topic_is_deleted(site: Site) -> None:
    site.engine.create_topic("orders")
    response = site.ask("DELETE", "/v1/topics/orders")
    assert (response.status, response.body) == (204, b"")
    assert site.engine.topics() == []


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_what_is_not_there_cannot_be_used(site: Site, method: str) -> None:
    assert status_and_code(site, method, "/v1/topics/orders", {}) == (404, "topic_not_found")
    assert status_and_code(site, method, "/v1/topics/..", {}) == (400, "invalid_name")


def test_parameters_that_do_not_exist_are_named(site: Site) -> None:
    status, code, message = refused(site, "GET", "/v1/topics?page=2")
    assert (status, code) == (400, "invalid_request")
    assert "page" in message
