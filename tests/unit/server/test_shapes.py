"""Messages from JSON and to JSON."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quivermq
from quivermq.model.checks import seconds_us
from quivermq.model.dead_letters import DeadLetter
from quivermq.model.deliveries import Delivery, Detached, Lease
from quivermq.model.json import dead_letter_json, delivery_json, scheduled_json, stored_message_json
from quivermq.model.messages import Record, Scheduled
from quivermq.server.routes.dead_letters import DeadLetterOut, ScheduledOut
from quivermq.server.shapes import MessageIn, MessageOut, message_from


def decoded(document: object) -> quivermq.Message:
    return message_from(msgspec.json.decode(msgspec.json.encode(document), type=MessageIn))


def test_a_message_may_be_just_a_value() -> None:
    assert decoded({"value": "grüße"}) == quivermq.Message("grüße".encode())


def test_every_field_has_its_place() -> None:
    document = {
        "value_base64": "AP8=",
        "key": "k",
        "headers": {"text": "1", "bytes": {"base64": "/w=="}},
        "priority": "low",
        "ttl_ms": 1,
        "delay_ms": 1500,
        "dedup_id": "x",
        "partition": 3,
        "timestamp": -5,
    }
    assert decoded(document) == quivermq.Message(
        b"\0\xff",
        key=b"k",
        headers={"text": b"1", "bytes": b"\xff"},
        priority="low",
        ttl=0.001,
        delay=1.5,
        dedup_id="x",
        timestamp=-5,
        partition=3,
    )
    at = 1_700_000_000_000_000
    assert decoded({"value": "", "key_base64": "", "deliver_at": at}) == quivermq.Message(
        b"", key=b"", deliver_at=at
    )


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"key": "k"},
        {"value": "a", "value_base64": "YQ=="},
        {"value": "a", "key": "k", "key_base64": ""},
    ],
)
def test_a_message_has_one_value_and_at_most_one_key(document: object) -> None:
    with pytest.raises(quivermq.InvalidRequest):
        decoded(document)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("values", "x"),
        ("value", 5),
        ("value", None),
        ("value_base64", "?"),
        ("value_base64", "YQ"),
        ("headers", {"a": 1}),
        ("headers", {"a": {"base64": "YQ==", "b": 1}}),
        ("priority", "urgent"),
        ("ttl_ms", 0),
        ("ttl_ms", 1.5),
        ("ttl_ms", True),
        ("delay_ms", -1),
        ("delay_ms", 2**63),
        ("deliver_at", 1_700_000_000),
        ("dedup_id", ""),
        ("partition", -1),
        ("partition", "0"),
        ("timestamp", "today"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(field: str, wrong: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        decoded({"value": "x", field: wrong})


@given(st.integers(min_value=0, max_value=140 * 365 * 24 * 3600 * 1000))
def test_milliseconds_are_exact(milliseconds: int) -> None:
    delay = decoded({"value": "", "delay_ms": milliseconds}).delay
    assert seconds_us("delay", delay, lowest=0) == milliseconds * 1000


@given(
    value=st.binary(max_size=20),
    key=st.none() | st.binary(max_size=20),
    headers=st.dictionaries(st.text(max_size=5), st.binary(max_size=20), max_size=3),
)
def test_whatever_goes_out_comes_back_the_same(
    value: bytes, key: bytes | None, headers: dict[str, bytes]
) -> None:
    record = Record(7, 5, key, value, headers, None, None)
    out = msgspec.json.decode(msgspec.json.encode(stored_message_json(record, "orders", 1, "high")))
    assert (out.pop("topic"), out.pop("partition"), out.pop("offset"), out.pop("timestamp")) == (
        "orders",
        1,
        7,
        5,
    )
    back = decoded(out)
    assert (back.value, back.key, dict(back.headers or {})) == (value, key, headers)
    assert back.priority == "high"


def test_bytes_that_are_no_text_go_as_base64() -> None:
    record = Record(0, 0, b"\xfe", b"\xff", {"a": b"\xfd"}, 9, "x", "a-1-0")
    out = msgspec.json.decode(
        msgspec.json.encode(stored_message_json(record, "t", 0, "low")), type=MessageOut
    )
    assert (out.value_base64, out.key_base64) == (b"\xff", b"\xfe")
    assert msgspec.to_builtins(out.headers) == {"a": {"base64": base64.b64encode(b"\xfd").decode()}}
    assert (out.expires_at, out.dedup_id, out.scheduled_id) == (9, "x", "a-1-0")
    # Where the queue says it alone, nobody else may.
    with pytest.raises(msgspec.ValidationError, match="scheduled_id"):
        msgspec.convert({"value": "v", "scheduled_id": "a-1-0"}, MessageIn)


def test_what_is_null_is_not_given() -> None:
    assert decoded({"value": "v", "key": None, "key_base64": "aw=="}).key == b"k"
    assert decoded({"value": "v", "key": "k", "key_base64": None}).key == b"k"
    assert decoded({"value": "v", "key": None, "key_base64": None}).key is None


def test_a_message_on_its_way_out_has_the_fields_of_its_shape_in_their_order() -> None:
    record = Record(7, 5, b"k", b"v", {"a": b"1"}, 9, "x", "a-1-0")
    delivery = Delivery(record, Lease(1, 9, 17), Detached("orders", 1, "default"), 0)
    scheduled = Scheduled("a-1-0", 9, 1, "low", b"k", b"v", {}, 5, 9, "x")
    letter = DeadLetter(
        "0-1-4", b"v", b"k", {}, "orders", 1, "high", 7, 5, 3, "bad", "no", "g", 9, False, "i"
    )
    for document, shape in (
        (delivery_json(delivery), MessageOut),
        (scheduled_json(scheduled, "orders"), ScheduledOut),
        (dead_letter_json(letter, "orders.dlq"), DeadLetterOut),
    ):
        # What the shape says goes over the wire, and nothing else.
        assert msgspec.json.encode(msgspec.convert(document, shape)) == msgspec.json.encode(document)
