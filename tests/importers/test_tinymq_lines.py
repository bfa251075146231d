"""Lines of TinyMQ logs, in every shape that the format allows, and in those that it does not."""

import json
from base64 import b64encode
from typing import Any
from zlib import crc32

import pytest
from support.tinymq_files import MOMENT, MOMENT_US, ack, message, put, summed, uuid

from quivermq.importers.files import Unreadable
from quivermq.importers.tinymq_log import (
    Glance,
    PutMessage,
    glance,
    message_of,
    parse_record,
)


def plain(record: Any) -> bytes:
    """A line without a checksum, as older ones are."""
    return json.dumps(record).encode()


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "PUT", "message": {**message(1), **fields}, "timestamp": MOMENT}


def test_a_put_and_an_ack_tell_of_which_message_they_are() -> None:
    assert glance(put(1)) == Glance(True, uuid(1).encode())
    assert glance(ack(2)) == Glance(False, uuid(2).encode())


def test_every_field_of_a_message_is_read() -> None:
    line = put(
        7,
        b"\x00\xff payload",
        topic="a/b",
        expires_at="2036-11-12T19:56:10.912976973Z",
        deliver_at="2026-11-15T20:56:10+01:00",
        retry_count=3,
        headers={"X-Mq-Html": '<a>&"q"\\', "kłucz": ""},
    )
    assert message_of(parse_record(line)) == PutMessage(
        id=uuid(7),
        topic="a/b",
        value=b"\x00\xff payload",
        headers={"X-Mq-Html": b'<a>&"q"\\', "kłucz": b""},
        timestamp_us=MOMENT_US,
        expires_at_us=2_110_132_570_912_976,
        deliver_at_us=1_794_772_570_000_000,
        retry_count=3,
        put_us=MOMENT_US,
    )


@pytest.mark.parametrize(
    "fields", [{"payload": None}, {"expires_at": None, "headers": None}, {"headers": {}}]
)
def test_what_is_null_is_not_there(fields: dict[str, Any]) -> None:
    told = {**message(1), **fields}
    found = message_of({"message": told, "timestamp": None})
    assert (found.expires_at_us, found.headers, found.put_us) == (None, None, MOMENT_US)
    assert found.value == (b"" if "payload" in fields else b"message 1")


@pytest.mark.parametrize("checksum", [None, 0])
def test_a_line_without_a_checksum_is_believed(checksum: int | None) -> None:
    told = {**record(), "checksum": checksum}
    assert glance(plain(told)) == Glance(True, uuid(1).encode())
    assert glance(plain(record())) == Glance(True, uuid(1).encode())


def test_the_checksum_is_that_of_the_raw_line_without_it() -> None:
    # With spaces, as somebody who writes by hand has them.
    text = plain(record(headers={"checksum": "7", "x": ',"checksum":5}'}))
    line = text[:-1] + b', "checksum" : %d }' % crc32(text)
    assert glance(line) == Glance(True, uuid(1).encode())
    with pytest.raises(Unreadable, match="does not match"):
        glance(line.replace(b"PUT", b"ACK"))


def test_a_header_called_checksum_is_not_the_checksum() -> None:
    line = summed(record(headers={"a": "b", "checksum": "7"}))
    assert glance(line) == Glance(True, uuid(1).encode())
    assert message_of(parse_record(line)).headers == {"a": b"b", "checksum": b"7"}


@pytest.mark.parametrize("checksum", [-1, 1.5, "7", True, 2**40, []])
def test_a_checksum_that_is_none_is_refused(checksum: Any) -> None:
    with pytest.raises(Unreadable):
        glance(plain({**record(), "checksum": checksum}))


def test_every_bit_of_a_summed_line_counts() -> None:
    for line in (put(1, headers={"a": "b"}), ack(1)):
        for position in range(len(line)):
            for bit in (0, 5):
                changed = bytearray(line)
                changed[position] ^= 1 << bit
                try:
                    found = glance(bytes(changed))
                except Unreadable:
                    continue
                # Only what takes the checksum away, or makes it 0, can be believed: its own name.
                assert position >= line.rindex(b"checksum"), (position, bit, found)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"nonsense", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"type":"PUT","x":NaN}', "NaN is not JSON"),
        (b'{"type":"PUT","x":' + b"9" * 5000 + b"}", "is not JSON"),
        (plain({"type": "DEL"}), "neither a PUT nor an ACK but 'DEL'"),
        (plain({}), "neither a PUT nor an ACK"),
        (plain({"type": "PUT"}), "a PUT without a message"),
        (plain({"type": "PUT", "message": 7}), "a PUT without a message"),
        (plain({"type": "ACK", "message_id": 7}), "message_id is not a text"),
        (plain(record(id=7)), "id is not a text"),
        (plain(record(topic=[])), "topic is not a text"),
        (plain(record(payload="a")), "not base64"),
        (plain(record(payload="!!!!")), "not base64"),
        (plain(record(payload=7)), "payload is not a text"),
        (plain(record(timestamp="yesterday")), "cannot be read"),
        (plain(record(timestamp="2026-11-15T19:56:10")), "no time zone"),
        (plain(record(timestamp=None)), "is not a moment"),
        (plain(record(expires_at=7)), "is not a moment"),
        (plain(record(deliver_at="2026-13-01T00:00:00Z")), "cannot be read"),
        (plain(record(retry_count="1")), "retry_count is not a number"),
        (plain(record(retry_count=True)), "retry_count is not a number"),
        (plain(record(headers=[])), "headers are not texts"),
        (plain(record(headers={"a": 1})), "headers are not texts"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused_in_words(line: bytes, problem: str) -> None:
    with pytest.raises(Unreadable, match=problem):
        glance(line)


def test_odd_numbers_are_brought_into_bounds() -> None:
    for given, expected in ((-5, 0), (2**70, 2**31 - 1)):
        assert message_of(record(retry_count=given)).retry_count == expected


def test_half_a_surrogate_pair_is_written_out() -> None:
    found = message_of(parse_record(plain(record(headers={"a\ud800": "\udfff"}))))
    assert found.headers == {"a\\ud800": b"\\udfff"}
    assert glance(plain({"type": "ACK", "message_id": "\ud800"})).is_put is False


def test_a_payload_may_be_large() -> None:
    value = bytes(range(256)) * 8192
    assert message_of(parse_record(put(1, value))).value == value
    assert b64encode(value) in put(1, value)
