"""How messages go over the wire: raw, as JSON, or as a frame, and which of them may be sent again."""

import json
from typing import Any, ClassVar

import pytest
from unit.client.flows import Script, answer, error

from quivermq.client.core.call import Broken
from quivermq.client.core.publishing import Publishing
from quivermq.client.core.retry import Retry
from quivermq.client.core.topics import TopicCalls
from quivermq.errors import InvalidRequest, Unreachable
from quivermq.frame import Codec, Frame
from quivermq.model.json import FRAME, JSON, OCTETS
from quivermq.model.messages import Message
from quivermq.topic.routing import Router

PUT = {"topic": "orders", "partition": 1, "priority": "normal", "offset": 5, "duplicate": False,
       "scheduled_id": None}  # fmt: skip


def publishing() -> Publishing:
    return Publishing(TopicCalls(Retry(0)), "orders")


def topic(**settings: Any) -> Any:
    return answer(
        {"name": "orders", "groups": {}, "dead_letters_of": None, "settings": {"partitions": 2, **settings}}
    )


def test_a_lone_value_goes_as_it_is() -> None:
    script = Script(answer(PUT))
    put = script.run(publishing().put(Message(b"\xff", ttl=1.5, delay=0.0001, dedup_id="ü"), "os"))
    assert (put.partition, put.offset) == (1, 5)
    (call,) = script.calls
    assert (call.method, call.path, call.body) == ("POST", "/v1/topics/orders/messages", b"\xff")
    assert call.content_type == OCTETS
    assert call.query == {"ttl_ms": "1500", "delay_ms": "1", "dedup_id": "ü", "durability": "os"}
    assert call.is_repeatable


def test_keys_and_headers_go_as_json() -> None:
    script = Script(answer(PUT))
    script.run(publishing().put(Message(b"v", key=b"k", headers={"a": b"1"}, priority="low"), None))
    (call,) = script.calls
    assert call.content_type == JSON
    assert json.loads(call.body) == {
        "value_base64": "dg==",
        "key_base64": "aw==",
        "headers": {"a": {"base64": "MQ=="}},
        "priority": "low",
    }
    assert not call.is_repeatable


def test_an_empty_value_is_not_mistaken_for_no_body() -> None:
    script = Script(answer(PUT))
    script.run(publishing().put(Message(b""), None))
    assert json.loads(script.calls[0].body) == {"value_base64": ""}


def test_plain_values_go_as_one_frame() -> None:
    script = Script(topic(codec="gzip"), answer({**PUT, "count": 3}))
    puts = script.run(publishing().put_many([b"a" * 100, b"b" * 100, b"c" * 100], "fsync"))
    call = script.calls[1]
    assert (call.content_type, call.query) == (FRAME, {"durability": "fsync"})
    frame = Frame.parse(call.body)
    assert frame.values() == [b"a" * 100, b"b" * 100, b"c" * 100]
    assert frame.header.codec == Codec.GZIP
    assert [(put.partition, put.offset) for put in puts] == [(1, 5), (1, 6), (1, 7)]


def test_a_frame_creates_a_topic_that_is_new() -> None:
    script = Script(error("topic_not_found", 404), answer({**PUT, "count": 1}))
    script.run(publishing().put_many([b"a"], None))
    assert script.calls[1].content_type == FRAME


@pytest.mark.parametrize("messages", [[b"a", Message(b"b", headers={})], [bytearray(b"a"), b"b"]])
def test_values_may_come_in_any_form(messages: list[Any]) -> None:
    script = Script(topic(), answer({**PUT, "count": 2}))
    script.run(publishing().put_many(messages, None))
    assert Frame.parse(script.calls[1].body).values() == [b"a", b"b"]


REAL = Message(b"v", key=b"k", headers={"a": b"1"}, timestamp=1_700_000_000_000_000)


def test_keys_headers_and_timestamps_go_as_a_frame() -> None:
    script = Script(topic(partitions=1), answer({**PUT, "partition": 0, "count": 3}))
    puts = script.run(publishing().put_many([REAL, b"w", REAL], "os"))
    call = script.calls[1]
    assert (call.content_type, call.query) == (
        FRAME, {"partition": "0", "durability": "os", "partitions": "1"},
    )  # fmt: skip
    frame = Frame.parse(call.body)
    assert frame.values() == [b"v", b"w", b"v"]
    assert list(frame.keys()) == [b"k", None, b"k"]
    assert list(frame.headers()) == [{"a": b"1"}, {}, {"a": b"1"}]
    assert list(frame.timestamps())[::2] == [REAL.timestamp] * 2
    assert [put.offset for put in puts] == [5, 6, 7]


def test_without_a_key_the_broker_chooses_the_partition() -> None:
    script = Script(topic(), answer({**PUT, "count": 1}))
    (put,) = script.run(publishing().put_many([Message(b"v", headers={"a": b"1"})], None))
    assert (script.calls[1].content_type, script.calls[1].query) == (FRAME, {})
    assert put.partition == 1


def test_what_is_of_one_lane_goes_there() -> None:
    script = Script(topic(), answer({**PUT, "partition": 1, "priority": "low", "count": 2}))
    puts = script.run(
        publishing().put_many([Message(b"v", partition=1, priority="low", key=b"k")] * 2, None)
    )
    assert (script.calls[1].content_type, script.calls[1].query) == (
        FRAME, {"partition": "1", "priority": "low", "partitions": "2"},
    )  # fmt: skip
    assert [(put.partition, put.priority, put.offset) for put in puts] == [(1, "low", 5), (1, "low", 6)]


def by_json(call: Any) -> Any:
    assert call.content_type == JSON
    return answer({"results": [PUT] * len(json.loads(call.body)["messages"])})


TWO_LANES: list[bytes | Message] = [Message(bytes(100), partition=i % 2) for i in range(40)]


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        ({}, TWO_LANES),
        ({}, [Message(b"x", key=b"%d" % i) for i in range(40)]),
        ({}, [Message(b"x", priority="high"), b"y"]),
        ({"ttl_ms": 5}, [REAL]),
    ],
    ids=["partitions", "keys", "priorities", "ttl"],
)
def test_what_may_be_refused_in_part_goes_in_one_call(
    settings: dict[str, Any], messages: list[Any]
) -> None:
    script = Script(topic(**settings), by_json)
    assert len(script.run(publishing().put_many(messages, None))) == len(messages)


def test_where_keys_go_in_a_new_topic_the_broker_decides() -> None:
    script = Script(error("topic_not_found", 404), by_json)
    script.run(publishing().put_many([REAL], None))
    assert len(script.calls) == 2


def test_a_frame_that_is_refused_goes_as_json() -> None:
    """Because the topic is another one by now, or the broker takes only smaller frames."""
    script = Script(topic(), error("invalid_request", 400), by_json)
    assert len(script.run(publishing().put_many([b"a"] * 3, None))) == 3


def test_a_frame_is_not_sent_again_when_nobody_knows_whether_it_was_stored() -> None:
    retrying = Publishing(TopicCalls(Retry(3, first_s=0)), "orders")
    script = Script(topic(), Broken("cut", was_sent=True))
    with pytest.raises(Unreachable):
        script.run(retrying.put_many([REAL], None))
    assert len(script.calls) == 2


@pytest.mark.parametrize(
    "messages",
    [
        [Message(b"a", delay=5)],
        [b"a", Message(b"b", deliver_at=4_000_000_000.0)],
        [REAL, Message(b"a", dedup_id="x")],
        [Message(b"a", dedup_id="x", dedup_window=5)],
        [REAL, Message(b"a", ttl=5)],
        [b"a"] * 10_001,
        [REAL] * 10_001,
        [Message(bytes(1024 * 1024), key=b"k")] * 5,
    ],
)
def test_what_a_frame_cannot_say_goes_as_json(messages: list[Any]) -> None:
    script = Script(lambda call: answer({"results": [PUT] * len(json.loads(call.body)["messages"])}))
    puts = script.run(publishing().put_many(messages, None))
    assert len(puts) == len(messages)
    assert script.calls[0].content_type == JSON


def test_what_expires_by_the_topic_is_left_to_the_clock_of_the_broker() -> None:
    script = Script(topic(ttl_ms=5), answer({"results": [PUT]}))
    script.run(publishing().put_many([b"a"], None))
    assert script.calls[1].content_type == JSON


def test_very_much_goes_in_parts() -> None:
    messages: list[bytes | Message] = [Message(bytes(1024 * 1024), key=b"k") for _ in range(20)]
    script = Script(*[lambda call: answer({"results": [PUT] * len(json.loads(call.body)["messages"])})] * 3)
    assert len(script.run(publishing().put_many(messages, None))) == 20
    assert len(script.calls) == 3


def test_everything_is_checked_before_anything_is_sent() -> None:
    with pytest.raises(InvalidRequest):
        Script().run(publishing().put_many([Message(b"a", key=b"k"), Message("text")], None))  # type: ignore[arg-type]


@pytest.mark.parametrize(("ids", "calls"), [(["x", "y"], 2), (["x", None], 1)])
def test_many_are_sent_again_only_when_all_are_recognised(ids: list[str | None], calls: int) -> None:
    retrying = Publishing(TopicCalls(Retry(1, first_s=0)), "orders")
    script = Script(*[Broken("cut", was_sent=True)] * 2)
    with pytest.raises(Unreachable):
        script.run(retrying.put_many([Message(b"a", dedup_id=each) for each in ids], None))
    assert len(script.calls) == calls


def test_each_thread_routes_by_the_partitions_that_it_has_seen() -> None:
    class Shared(Publishing):
        """Used by another thread, too, which has not heard of new partitions: it routes by two."""

        routers: ClassVar = [Router(7), Router(2)]
        _router: Any = property(lambda self: self.routers.pop(0), lambda *_: None)

    key = next(key for key in map(b"%d".__mod__, range(99)) if Router(7).partition_of(key) > 1)
    script = Script(topic(partitions=7), answer({**PUT, "count": 2}))
    script.run(Shared(TopicCalls(Retry(0)), "orders").put_many([Message(b"v", key=key)] * 2, None))
    assert script.calls[1].query == {"partition": str(Router(7).partition_of(key)), "partitions": "7"}
