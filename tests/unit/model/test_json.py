"""Messages as JSON has them, both ways."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.errors import InvalidRequest
from quivermq.model.dead_letters import DeadLetter, dlq_headers
from quivermq.model.json import (
    STORED,
    dead_letter_json,
    dead_letter_of,
    listed_json,
    message_json,
    message_of,
    message_of_line,
    scheduled_json,
    scheduled_of,
    stored_message_json,
    stored_message_of,
)
from quivermq.model.lanes import Priority
from quivermq.model.messages import Message, Scheduled, StoredMessage


def stored(
    value: bytes, key: bytes | None = None, headers: dict[str, bytes] | None = None
) -> StoredMessage:
    return StoredMessage("t", 0, "high", 7, 1, key, value, headers or {}, None, None)


def test_every_field_is_understood() -> None:
    document = {
        "value": "v",
        "key": "k",
        "headers": {"a": "1", "b": {"base64": "/w=="}},
        "priority": "low",
        "ttl_ms": 1500,
        "delay_ms": 2,
        "dedup_id": "x",
        "timestamp": 5,
        "partition": 3,
    }
    assert message_of(document) == Message(
        b"v", b"k", {"a": b"1", "b": b"\xff"}, "low", 1.5, 0.002, None, "x", 5, 3
    )


def test_bytes_that_are_no_text_go_as_base64_both_ways() -> None:
    told = listed_json(stored(b"\xff", b"\xfe", {"h": b"\xfd"}), STORED)
    assert (told["value_base64"], told["key_base64"], told["headers"]) == (
        "/w==",
        "/g==",
        {"h": {"base64": "/Q=="}},
    )
    back = message_of(told)
    assert (back.value, back.key, back.headers) == (b"\xff", b"\xfe", {"h": b"\xfd"})


def test_what_is_written_can_be_read() -> None:
    message = stored("grün\n".encode(), b"k", {"a": b"1"})
    back = message_of_line(json.dumps(listed_json(message, STORED)).encode())
    assert back == Message(message.value, b"k", {"a": b"1"}, "high", timestamp=1, partition=0)


def test_what_was_delayed_says_so_and_is_another_message_when_it_is_put_again() -> None:
    told = listed_json(stored(b"v")._replace(scheduled_id="a-1-0"), STORED)
    assert told["scheduled_id"] == "a-1-0"
    assert message_of(told) == Message(b"v", None, {}, "high", timestamp=1, partition=0)
    assert "scheduled_id" not in listed_json(stored(b"v"), STORED)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "an object"),
        (b"{}", "has a value"),
        (b'{"value": 1}', "value is a text"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"value": "v", "value_base64": "dg=="}', "not both"),
        (b'{"value_base64": "?"}', "not base64"),
        (b'{"value_base64": 1}', "not base64"),
        (b'{"value": "v", "headers": []}', "headers"),
        (b'{"value": "v", "headers": {"a": 1}}', "header a is a text"),
        (b'{"value": "v", "ttl_ms": "1"}', "ttl_ms"),
        (b'{"value": "v", "colour": "red"}', "'colour'"),
    ],
)
def test_a_wrong_line_is_refused_with_its_reason(line: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        message_of_line(line)


def sent(document: object) -> Any:
    """A document as it arrives: whoever sends it leaves bytes that are no text to msgspec."""
    return json.loads(msgspec.json.encode(document))


contents = {
    "value": st.binary(max_size=20),
    "key": st.none() | st.binary(max_size=20),
    "headers": st.dictionaries(st.text(max_size=5), st.binary(max_size=20), max_size=3),
    "expires_at": st.none() | st.integers(0, 2**62),
    "dedup_id": st.none() | st.text(min_size=1, max_size=5),
}


@given(scheduled_id=st.none() | st.just("a-1-0"), **contents)
def test_a_stored_message_comes_back_the_same(**content: Any) -> None:
    message = StoredMessage("orders", 1, "high", 7, 5, **content)
    assert stored_message_of(sent(stored_message_json(message, "orders", 1, "high"))) == message


@given(**contents)
def test_a_delayed_message_comes_back_the_same(**content: Any) -> None:
    message = Scheduled("a-1-0", 9, 1, "low", timestamp=5, **content)
    assert scheduled_of(sent(scheduled_json(message, "orders"))) == message


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_dead_letter_comes_back_the_same(by_hand: bool) -> None:
    end: tuple[str, int, Priority, int, int, int, str, str, str, int]
    end = ("orders", 1, "high", 7, 5, 3, "bad", "no such\xa0thing", "billing", 9)
    headers = {"own": b"\xff"} | ({} if by_hand else dlq_headers(end))
    letter = DeadLetter("0-1-4", b"\xff", b"k", headers, *end, by_hand, "a-1-0")
    document = sent(dead_letter_json(letter, "orders.dlq"))
    assert (document["topic"], document["offset"], document["headers"]) == (
        "orders.dlq",
        4,
        {"own": {"base64": "/w=="}},
    )
    assert dead_letter_of(document) == letter


def test_a_message_to_put_comes_back_the_same() -> None:
    message = Message(
        b"\xff",
        b"k",
        {"a": b"1"},
        "low",
        ttl=1.5,
        delay=2.0,
        dedup_id="x",
        timestamp=1_700_000_000_000_000,
        partition=3,
        dedup_window=4.0,
    )
    assert message_of(message_json(message)) == message
    at = 1_700_000_000_000_000
    assert message_of(message_json(Message(b"", deliver_at=at))) == Message(b"", deliver_at=at)
