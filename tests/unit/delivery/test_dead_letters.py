"""What a dead letter says about its end."""

import pytest

from quivermq.delivery.dead_letters import Origin, Verdict, dead_letter, dead_letter_headers
from quivermq.model.dead_letters import is_dlq_header
from quivermq.model.messages import Record


def record(offset: int = 5, **rest: object) -> Record:
    fields = {
        "value": b"v",
        "key": b"k",
        "headers": {},
        "timestamp": 7,
        "expires_at": None,
        "dedup_id": None,
    }
    return Record(**{**fields, **rest, "offset": offset})  # type: ignore[arg-type]


ORIGIN = Origin("orders", 3, 0, "billing")


def headers(**verdict: object) -> dict[str, bytes]:
    given = Verdict(**{"attempts": 2, "reason": "broken", "error": "E", **verdict})  # type: ignore[arg-type]
    return dead_letter_headers(record(headers={"h": b"1"}), ORIGIN, given, 99)


def test_the_story_is_told_in_headers() -> None:
    assert headers() == {
        "h": b"1",
        "quiver-dlq-topic": b"orders",
        "quiver-dlq-partition": b"3",
        "quiver-dlq-priority": b"high",
        "quiver-dlq-offset": b"5",
        "quiver-dlq-timestamp": b"7",
        "quiver-dlq-attempts": b"2",
        "quiver-dlq-reason": b"broken",
        "quiver-dlq-error": b"E",
        "quiver-dlq-group": b"billing",
        "quiver-dlq-time": b"99",
    }


def test_a_dead_letter_is_read_from_its_headers() -> None:
    buried = record(0, headers=headers(), timestamp=99, origin_id="a-1-0")
    letter = dead_letter(buried, 1, 1, "orders", is_marked=True)
    assert letter._asdict() == {
        "id": "1-1-0",
        "value": b"v",
        "key": b"k",
        "headers": headers(),
        "topic": "orders",
        "partition": 3,
        "priority": "high",
        "offset": 5,
        "timestamp": 7,
        "attempts": 2,
        "reason": "broken",
        "error": "E",
        "group": "billing",
        "time": 99,
        "by_hand": False,
        "scheduled_id": "a-1-0",
    }
    assert letter.original_headers == {"h": b"1"}


def test_a_long_story_is_cut_short() -> None:
    told = headers(reason="r" * 1000, error="e" * 10_000)
    assert len(told["quiver-dlq-reason"]) == 256
    assert len(told["quiver-dlq-error"]) == 4096


def test_an_error_may_hold_anything() -> None:
    told = headers(error="\ud800 é \0")
    letter = dead_letter(record(headers=told), 0, 1, "orders", is_marked=True)
    assert letter.error == "\\ud800 é \0"


def test_a_message_that_somebody_put_there_has_less_to_tell() -> None:
    letter = dead_letter(record(8, headers={"h": b"1"}, timestamp=42), 2, 1, "orders", is_marked=False)
    assert (letter.topic, letter.partition, letter.priority, letter.offset) == ("orders", 2, "normal", 8)
    assert (letter.timestamp, letter.time, letter.attempts) == (42, 42, 0)
    assert (letter.reason, letter.error, letter.group) == ("", "", "")
    assert letter.original_headers == {"h": b"1"}


def test_a_forged_story_is_not_believed() -> None:
    forged = headers() | {"quiver-dlq-topic": b"secret"}
    letter = dead_letter(record(8, headers=forged, timestamp=42), 2, 1, "orders", is_marked=False)
    assert (letter.topic, letter.partition, letter.offset, letter.priority) == ("orders", 2, 8, "normal")
    assert (letter.attempts, letter.reason, letter.group, letter.time) == (0, "", "", 42)
    assert letter.by_hand
    assert letter.original_headers == forged


def test_the_topic_of_a_dead_letter_is_not_read_from_a_header() -> None:
    told = headers() | {"quiver-dlq-topic": b"secret"}
    assert dead_letter(record(headers=told), 0, 1, "orders", is_marked=True).topic == "orders"


@pytest.mark.parametrize("text", [b"", b"x", b"1e3", b"\xff", b"9" * 20, "٣".encode()])
def test_a_damaged_story_is_not_believed(text: bytes) -> None:
    forged = {f"quiver-dlq-{name}": text for name in ("partition", "offset", "attempts", "priority")}
    letter = dead_letter(record(8, headers=forged), 2, 1, "orders", is_marked=True)
    assert (letter.partition, letter.offset, letter.attempts, letter.priority) == (0, 8, 0, "normal")


def test_a_time_before_1970_is_a_time() -> None:
    told = dead_letter_headers(record(timestamp=-7), ORIGIN, Verdict(1, "broken"), 99)
    assert dead_letter(record(headers=told), 0, 1, "orders", is_marked=True).timestamp == -7


def test_only_our_own_headers_are_the_story() -> None:
    assert is_dlq_header("quiver-dlq-topic")
    assert not is_dlq_header("quiver-dlq-")
    assert not is_dlq_header("quiver-dlq-mine")
    assert not is_dlq_header("topic")
