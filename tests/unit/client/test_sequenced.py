"""Puts that may be repeated: as frames with a producer and a sequence, each lane with its own."""

from typing import Any

import pytest
from unit.client.flows import Script, answer, error

from quivermq.client.core.call import Broken, Call
from quivermq.client.core.retry import Retry
from quivermq.client.core.sequenced import SequencedPublishing
from quivermq.client.core.topics import TopicCalls
from quivermq.errors import Conflict, InvalidRequest, MessageTooLarge, Unreachable
from quivermq.frame import Frame, parse_header
from quivermq.model.json import FRAME, OCTETS
from quivermq.model.messages import Message

CUT = Broken("cut", was_sent=True)


def publishing(retries: int = 0) -> SequencedPublishing:
    return SequencedPublishing(TopicCalls(Retry(retries, 0.001, 0.001)), "orders")


def topic(**settings: Any) -> Any:
    return answer(
        {"name": "orders", "groups": {}, "dead_letters_of": None, "settings": {"partitions": 1, **settings}}
    )


def stored(call: Call, duplicate: bool = False) -> Any:
    place = {"topic": "orders", "partition": int(call.query["partition"]), "offset": 5}
    priority = call.query.get("priority", "normal")
    return answer({**place, "priority": priority, "duplicate": duplicate, "scheduled_id": None})


def sender(call: Call) -> tuple[int, int, int]:
    header = parse_header(call.body)
    return header.producer_id, header.producer_epoch, header.base_sequence


def test_a_put_goes_on_in_the_sequence_of_its_lane() -> None:
    script, puts = Script(topic(), stored, stored, stored), publishing()
    script.run(puts.put(Message(b"a"), None))
    script.run(puts.put_many([b"b", b"c"], None))
    script.run(puts.put(Message(b"d", key=b"k"), None))
    calls = script.calls[1:]
    assert all(call.content_type == FRAME and call.is_repeatable for call in calls)
    [producer] = {sender(call)[0] for call in calls}
    assert producer
    assert [sender(call)[1:] for call in calls] == [(0, 0), (0, 1), (0, 3)]


def test_what_is_sent_again_is_the_same_and_no_duplicate_to_its_caller() -> None:
    script, puts = Script(topic(), CUT, lambda call: stored(call, duplicate=True)), publishing(retries=1)
    put = script.run(puts.put(Message(b"a"), None))
    assert (put.offset, put.duplicate) == (5, False)
    assert script.calls[1] == script.calls[2]


def test_after_one_whose_fate_nobody_knows_a_later_epoch_goes_on() -> None:
    script, puts = Script(topic(), CUT, stored), publishing()
    with pytest.raises(Unreachable):
        script.run(puts.put(Message(b"a"), None))
    script.run(puts.put(Message(b"b"), None))
    first, second = map(sender, script.calls[1:])
    assert (first[0], first[1:], second[1:]) == (second[0], (0, 0), (1, 0))


def test_many_are_a_frame_for_each_lane_and_come_in_their_order() -> None:
    script, puts = Script(topic(partitions=4), *[stored] * 4), publishing()
    messages: list[bytes | Message] = [Message(b"%d" % n, partition=n % 4) for n in range(10)]
    found = script.run(puts.put_many(messages, None))
    assert [(put.partition, put.offset) for put in found] == [(n % 4, 5 + n // 4) for n in range(10)]
    assert {call.query["partitions"] for call in script.calls[1:]} == {"4"}
    assert [len(Frame.parse(call.body)) for call in script.calls[1:]] == [3, 3, 2, 2]


def test_a_topic_that_has_changed_is_looked_at_again_and_routed_anew() -> None:
    refused = error("invalid_request", 400)
    script, puts = Script(topic(partitions=2), refused, topic(partitions=3), stored), publishing()
    script.run(puts.put(Message(b"a", key=b"k"), None))
    assert script.calls[-1].query["partitions"] == "3"
    script = Script(refused, topic(partitions=3), refused)
    with pytest.raises(InvalidRequest):
        script.run(puts.put(Message(b"a", key=b"k"), None))


def test_one_that_changes_between_two_frames_says_what_is_stored() -> None:
    script, puts = Script(topic(partitions=2), stored, error("invalid_request", 400)), publishing()
    with pytest.raises(Conflict, match="2 of 3 are stored"):
        script.run(puts.put_many([Message(b"x", partition=n) for n in (0, 1, 0)], None))


def test_a_new_topic_is_made_before_it_is_routed_to() -> None:
    state = answer({"epoch": 3, "batches": [], "known_since_us": 0})
    script, puts = Script(error("topic_not_found", 404), state, topic(), stored), publishing()
    script.run(puts.put(Message(b"a"), None))
    assert "/producers/" in script.calls[1].path
    assert sender(script.calls[-1])[1:] == (3, 0)


def test_all_are_checked_before_the_first_is_sent() -> None:
    script, puts = Script(topic(partitions=2, message_bytes_max=10)), publishing()
    with pytest.raises(MessageTooLarge):
        script.run(puts.put_many([b"a", b"x" * 11], None))
    with pytest.raises(InvalidRequest, match="no partition 2"):
        script.run(puts.put_many([Message(b"a", partition=0), Message(b"b", partition=2)], None))
    assert len(script.calls) == 1


def test_what_the_shard_has_to_look_at_goes_as_to_any_broker() -> None:
    put = {"topic": "orders", "partition": 0, "priority": "normal", "offset": 5, "duplicate": False}
    script, puts = Script(*[answer({**put, "scheduled_id": None})] * 2), publishing()
    script.run(puts.put(Message(b"a", dedup_id="x"), None))
    script.run(puts.put(Message(b"a", delay=5), None))
    assert [(call.content_type, call.is_repeatable) for call in script.calls] == [
        (OCTETS, True),
        (OCTETS, False),
    ]
