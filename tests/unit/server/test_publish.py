"""Publishing over HTTP: JSON, raw bytes, frames, and what is refused."""

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.queues import START_US
from support.site import Site

import quivermq
from quivermq.engine import engine_of
from quivermq.frame import encode
from quivermq.model.lanes import priority_of
from quivermq.server.routes import publish
from quivermq.settings import Durability

MESSAGES = "/v1/topics/orders/messages"
FRAME = {"Content-Type": "application/vnd.quiver.frame"}
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(publish.ROUTES) as site:
        yield site


def stored(site: Site, priority: str = "normal", partition: int = 0) -> list[quivermq.StoredMessage]:
    return site.engine.queue("orders").read(partition, priority=priority_of(priority))


def test_a_message_in_json(site: Site) -> None:
    message = {
        "value": "grüße",
        "key": "k",
        "headers": {"a": "1", "b": {"base64": "/w=="}},
        "priority": "high",
        "ttl_ms": 5000,
        "dedup_id": "x",
    }
    put = {"topic": "orders", "partition": 0, "priority": "high", "offset": 0, "scheduled_id": None}
    assert site.post(MESSAGES, message) == {**put, "duplicate": False}
    assert site.post(MESSAGES, message) == {**put, "duplicate": True}
    [record] = stored(site, "high")
    assert (record.value, record.key) == ("grüße".encode(), b"k")
    assert record.headers == {"a": b"1", "b": b"\xff"}
    assert record.expires_at == START_US + 5_000_000
    assert record.dedup_id == "x"


def test_what_is_null_is_not_there(site: Site) -> None:
    names = ("headers", "ttl_ms", "delay_ms", "deliver_at", "dedup_id", "partition", "timestamp")
    site.post(MESSAGES, {"value": "x", "key": None, **dict.fromkeys(names)})
    [record] = stored(site)
    assert (record.key, record.headers, record.expires_at) == (None, {}, None)


def test_bytes_in_json(site: Site) -> None:
    encoded = base64.b64encode(bytes(range(256))).decode()
    site.post(MESSAGES, {"value_base64": encoded, "key_base64": "AAE="})
    [record] = stored(site)
    assert (record.value, record.key) == (bytes(range(256)), b"\0\1")


def test_a_delayed_message_can_be_cancelled_by_its_id(site: Site) -> None:
    put = site.post(MESSAGES, {"value": "later", "delay_ms": 1500})
    assert put["offset"] is None
    [waiting] = site.engine.queue("orders").scheduled()
    assert (waiting.id, waiting.deliver_at) == (put["scheduled_id"], START_US + 1_500_000)
    site.post(MESSAGES, {"value": "at", "deliver_at": START_US + 1_000_000})
    assert site.engine.queue("orders").scheduled()[0].value == b"at"


def test_many_messages_in_json(site: Site) -> None:
    site.engine.create_topic("orders", partitions=2)
    answer = site.post(MESSAGES, {"messages": [{"value": str(n), "partition": n % 2} for n in range(4)]})
    assert [(put["partition"], put["offset"]) for put in answer["results"]] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
    ]


def test_the_body_as_it_is(site: Site) -> None:
    assert site.post(MESSAGES, b"\0\xff")["offset"] == 0
    query = "?key=k%20%C3%BC&priority=low&ttl_ms=1000&dedup_id=x&partition=0&timestamp=1600000000000000"
    headers = {**OCTETS, "Quiver-Header-Trace": "abc", "X-Other": "no"}
    assert site.post(MESSAGES + query, b"raw", headers)["priority"] == "low"
    assert stored(site)[0].value == b"\0\xff"
    [record] = stored(site, "low")
    assert (record.key, record.headers) == ("k ü".encode(), {"trace": b"abc"})
    assert (record.timestamp, record.dedup_id) == (1_600_000_000_000_000, "x")


def test_an_empty_body_is_a_message(site: Site) -> None:
    site.post(MESSAGES, b"", OCTETS)
    assert [record.value for record in stored(site)] == [b""]


def test_a_frame_is_appended_as_it_is(site: Site) -> None:
    frame = encode([b"a", b"b"], timestamp=START_US, producer=quivermq.Producer(7, 0, 0))
    site.engine.create_topic("orders", partitions=2)
    first = site.post(MESSAGES + "?partition=1&priority=high", bytes(frame), FRAME)
    assert (first["partition"], first["priority"], first["offset"], first["count"]) == (1, "high", 0, 2)
    again = site.post(MESSAGES + "?partition=1&priority=high", bytes(frame), FRAME)
    assert (again["offset"], again["duplicate"]) == (0, True)
    log = engine_of(site.engine).catalog.get("orders").topic.partitions[1].log(0)
    [kept] = log.frames()
    assert bytes(kept.stored) == bytes(frame.stored)


def test_a_frame_that_was_routed_for_other_partitions_is_refused(site: Site) -> None:
    site.engine.create_topic("orders", partitions=2)
    frame = bytes(encode([b"a"], timestamp=START_US, keys=[b"k"]))
    for partitions in (1, 3):
        address = MESSAGES + f"?partition=1&partitions={partitions}"
        assert site.refusal(address, frame, FRAME) == (400, "invalid_request")
    assert site.engine.queue("orders").read(1) == []
    assert site.post(MESSAGES + "?partition=1&partitions=2", frame, FRAME)["partition"] == 1


@pytest.mark.parametrize("durability", ["fsync", "os", "buffered"])
def test_messages_that_arrive_together_are_one_frame(site: Site, durability: Durability) -> None:
    site.engine.create_topic("orders", durability=durability)

    async def arrive() -> list[int]:
        answers = await asyncio.gather(*(site.answer("POST", MESSAGES, b"%d" % n) for n in range(50)))
        return [json.loads(answer.body)["offset"] for answer in answers]

    assert site.run(arrive()) == list(range(50))
    log = engine_of(site.engine).catalog.get("orders").topic.partitions[0].log(1)
    log.flush()
    # The first one may have begun alone, and the others come with the next.
    assert len(list(log.frames())) <= 2


def test_one_that_has_no_room_does_not_take_others_with_it(site: Site) -> None:
    site.engine.create_topic("orders", backlog_messages_max=3)

    async def arrive() -> list[int]:
        answers = await asyncio.gather(*(site.answer("POST", MESSAGES, b"%d" % n) for n in range(5)))
        return [answer.status for answer in answers]

    assert site.run(arrive()) == [200, 200, 200, 429, 429]
    assert len(stored(site)) == 3


def test_an_overloaded_topic_says_when_to_come_back(site: Site) -> None:
    site.engine.create_topic("orders", backlog_messages_max=1)
    site.post(MESSAGES, b"a")
    response = site.ask("POST", MESSAGES, b"b")
    assert response.status == 429
    assert response.headers == {"Retry-After": "1"}
    assert json.loads(response.body)["error"]["setting"] == "backlog_messages_max"


@pytest.mark.parametrize(
    ("query", "body", "headers", "status", "code"),
    [
        ("", {"valeu": "x"}, {}, 400, "invalid_request"),
        ("", {"key": "no value"}, {}, 400, "invalid_request"),
        ("", {"value": "x", "value_base64": "eA=="}, {}, 400, "invalid_request"),
        ("", {"value": "x", "messages": [{"value": "y"}]}, {}, 400, "invalid_request"),
        ("", {"messages": []}, {}, 400, "invalid_request"),
        (
            "",
            {"messages": [{"value": "x"}, {"value": "y", "priority": "urgent"}]},
            {},
            400,
            "invalid_request",
        ),
        ("", {"value": "x", "partition": 9}, {}, 400, "invalid_request"),
        ("", {"value": "x", "delay_ms": -1}, {}, 400, "invalid_request"),
        ("", b"{", {"Content-Type": "application/json"}, 400, "invalid_request"),
        ("?durability=never", b"x", {}, 400, "invalid_request"),
        ("?partition=two", b"x", {}, 400, "invalid_request"),
        ("?colour=red", b"x", {}, 400, "invalid_request"),
        ("?key=a&key=b", b"x", {}, 400, "invalid_request"),
        ("?partitions=1", b"routed by the broker", {}, 400, "invalid_request"),
        ("?ttl_ms=1", b"no frame", FRAME, 400, "invalid_request"),
        ("", b"no frame", FRAME, 400, "invalid_frame"),
        ("", b"x" * (2 * 1024 * 1024 + 1), {}, 413, "message_too_large"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(
    site: Site, query: str, body: Any, headers: dict[str, str], status: int, code: str
) -> None:
    assert site.refusal(MESSAGES + query, body, headers) == (status, code)
    assert site.engine.topics() == []


@pytest.mark.parametrize("name", ["a%20b", "a%2Fb", "events.*", "..", "x" * 250])
def test_no_topic_has_such_a_name(site: Site, name: str) -> None:
    for body in (b"raw", {"value": "x"}):
        assert site.refusal(f"/v1/topics/{name}/messages", body)[0] == 400
    assert site.engine.topics() == []


def test_an_unknown_field_is_named(site: Site) -> None:
    response = site.ask("POST", MESSAGES, {"value": "x", "prioritiy": "high"})
    assert "prioritiy" in json.loads(response.body)["error"]["message"]


def test_a_disk_that_fails_is_an_error_of_the_server(site: Site) -> None:
    site.engine.create_topic("orders")
    site.post(MESSAGES, b"a")
    site.disk.fail_sync("*/orders/p0/*")
    assert site.refusal(MESSAGES, b"b") == (500, "fsync_failed")


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_queue_that_was_closed_says_so(site: Site, durability: Durability) -> None:
    site.engine.create_topic("orders", durability=durability)
    site.engine.close()
    assert site.refusal(MESSAGES, b"b") == (503, "closing")
