import json

import pytest

from quivermq.cli.messages import STORED, message_as_json, message_from_json, message_line, shown
from quivermq.errors import InvalidRequest
from quivermq.model.messages import Message, StoredMessage


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
    assert message_from_json(document) == Message(
        b"v", b"k", {"a": b"1", "b": b"\xff"}, "low", 1.5, 0.002, None, "x", 5, 3
    )


def test_bytes_that_are_no_text_go_as_base64_both_ways() -> None:
    told = message_as_json(stored(b"\xff", b"\xfe", {"h": b"\xfd"}), STORED)
    assert (told["value_base64"], told["key_base64"], told["headers"]) == (
        "/w==",
        "/g==",
        {"h": {"base64": "/Q=="}},
    )
    back = message_from_json(told)
    assert (back.value, back.key, back.headers) == (b"\xff", b"\xfe", {"h": b"\xfd"})


def test_what_is_written_can_be_read() -> None:
    message = stored("grün\n".encode(), b"k", {"a": b"1"})
    back = message_line(json.dumps(message_as_json(message, STORED)).encode())
    assert back == Message(message.value, b"k", {"a": b"1"}, "high", timestamp=1, partition=0)


def test_what_was_delayed_says_so_and_is_another_message_when_it_is_put_again() -> None:
    told = message_as_json(stored(b"v")._replace(scheduled_id="a-1-0"), STORED)
    assert told["scheduled_id"] == "a-1-0"
    assert message_from_json(told) == Message(b"v", None, {}, "high", timestamp=1, partition=0)
    assert "scheduled_id" not in message_as_json(stored(b"v"), STORED)


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
        message_line(line)


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "-"), (b"tea", "tea"), (b"a\nb", "a\\nb"), (b"\xff", "�"), (b"x" * 100, "x" * 9 + "…")],
)
def test_bytes_fit_into_a_cell(content: bytes | None, text: str) -> None:
    assert shown(content, 10) == text
