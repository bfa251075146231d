"""Where dead letters go, how long they stay, and what is believed of them."""

from typing import Any

import pytest

import quivermq
from quivermq.frame import Flag, Header, encode, parse_header

FORGED = {"quiver-dlq-topic": b"secret", "quiver-dlq-group": b"billing", "quiver-dlq-reason": b"forged"}


def kill(mq: Any, topic: str, *numbers: int) -> Any:
    """A queue whose messages, one in each partition, were given up."""
    queue = mq.queue(topic, "billing")
    for number in numbers:
        queue.put(b"%d" % number, partition=number)
    for message in queue.get_many(100):
        message.reject("broken")
    return queue


def places(mq: Any, topic: str, partitions: int) -> list[list[bytes]]:
    queue = mq.queue(topic)
    return [[each.value for each in queue.read(partition=n, limit=10)] for n in range(partitions)]


def test_a_dead_letter_has_the_partition_that_its_message_had(mq: Any) -> None:
    mq.create_topic("orders", partitions=3)
    orders = kill(mq, "orders", 2, 0)
    assert mq.topic("orders.dlq").partitions == 3
    assert mq.topic("orders.dlq").dead_letters_of == "orders"
    assert mq.topic("orders").dead_letters_of is None
    mq.alter_topic("orders", partitions=5)
    assert mq.topic("orders.dlq").partitions == 5
    kill(mq, "orders", 4)
    assert places(mq, "orders.dlq", 5) == [[b"0"], [], [b"2"], [], [b"4"]]
    assert orders.redrive() == 3
    assert sorted(each.partition for each in orders.get_many(10)) == [0, 2, 4]


def test_dead_letters_go_where_the_topic_says(mq: Any) -> None:
    mq.create_topic("orders", dead_letter_suffix="-failed")
    orders = kill(mq, "orders", 0)
    assert mq.topics() == ["orders", "orders-failed"]
    assert mq.topic("orders-failed").dead_letters_of == "orders"
    for name in ("orders", "orders-failed"):
        [letter] = mq.queue(name).dead_letters()
        assert (letter.topic, letter.value, letter.reason) == ("orders", b"0", "broken")
        assert [tuple(each) for each in mq.queue(name).dead_letter_reasons()] == [
            ("broken", "orders", "billing", 1)
        ]
    assert (orders.stats().dead_letters, mq.stats().topics["orders-failed"].dead_letters) == (1, 0)
    assert mq.queue("orders-failed").redrive() == 1
    assert orders.pop().value == b"0"


def test_dead_letters_outlive_their_topic_under_any_name(mq: Any) -> None:
    mq.create_topic("orders", dead_letter_suffix="-failed")
    kill(mq, "orders", 0)
    mq.delete_topic("orders")
    assert [letter.value for letter in mq.queue("orders").dead_letters()] == [b"0"]
    mq.create_topic("orders", dead_letter_suffix="-failed")
    assert mq.queue("orders").redrive() == 1


def test_a_pattern_takes_dead_letters_only_if_it_asks_for_them(mq: Any) -> None:
    mq.create_topic("events.a", dead_letter_suffix=".bad")
    kill(mq, "events.a", 0)
    assert mq.queue("events.>", "new").stats().pending == 1
    assert [each.topic for each in mq.queue("events.>", "new").get_many(5)] == ["events.a"]
    assert [each.topic for each in mq.queue("events.*.bad", "new").get_many(5)] == ["events.a.bad"]


@pytest.mark.parametrize("name", ["orders.dlq", "orders-failed"])
def test_a_topic_of_its_own_takes_no_dead_letters(mq: Any, name: str) -> None:
    # Of another suffix, or because the topic before it has its dead letters elsewhere.
    mq.create_topic("orders", dead_letter_suffix="-other")
    mq.queue(name).put(b"mine")
    assert mq.topic(name).dead_letters_of is None
    mq.delete_topic("orders")
    with pytest.raises(quivermq.TopicExists, match="choose another dead_letter_suffix"):
        mq.create_topic("orders", dead_letter_suffix=name.removeprefix("orders"))
    assert mq.topics() == [name]


def test_the_suffix_stays_as_the_topic_was_made(mq: Any) -> None:
    mq.create_topic("orders")
    with pytest.raises(quivermq.InvalidSettings, match="only be set when the topic is created"):
        mq.alter_topic("orders", dead_letter_suffix="-failed")
    mq.alter_topic("orders", dead_letter_suffix=".dlq", lease_ms=7)
    for wrong in ("dlq", "", "/x", "-" + "x" * 60):
        with pytest.raises(quivermq.InvalidSettings, match="dead_letter_suffix"):
            mq.create_topic("wrong", dead_letter_suffix=wrong)
    with pytest.raises(quivermq.InvalidName, match="shorter dead_letter_suffix"):
        mq.create_topic("x" * 245, dead_letter_suffix="-failed")
    assert mq.topics() == ["orders"]


def test_without_dead_letters_a_message_that_is_given_up_is_dropped(mq: Any) -> None:
    mq.create_topic("orders", dead_letters=False, attempts_max=1, dead_letter_expired=True)
    orders = mq.queue("orders", "billing")
    orders.put_many([b"rejected", b"failed", b"done"])
    rejected, failed, done = orders.get_many(3)
    rejected.reject("broken")
    failed.nack(delay=0)
    done.ack()
    assert mq.topics() == ["orders"]
    assert (orders.get(), orders.stats().backlog, orders.dead_letters()) == (None, 0, [])
    # For the group, not for the others.
    assert len(mq.queue("orders", "other").get_many(5)) == 3
    mq.alter_topic("orders", dead_letters=True)
    kill(mq, "orders", 0)
    assert [letter.value for letter in orders.dead_letters()] == [b"0"]


def test_only_its_own_retention_is_for_dead_letters(mq: Any) -> None:
    mq.create_topic("orders", retention_ms=5, dead_letter_retention_ms=60_000)
    kill(mq, "orders", 0)
    assert mq.topic("orders.dlq").settings.retention_ms == 60_000
    mq.alter_topic("orders", dead_letter_retention_ms=None)
    assert mq.topic("orders.dlq").settings.retention_ms is None
    for given in ({"retention_ms": 5}, {"segments_max": 1}, {"delete_finished": True}):
        with pytest.raises(quivermq.InvalidSettings, match="dead_letter_retention_ms of orders"):
            mq.alter_topic("orders.dlq", **given)
        with pytest.raises(quivermq.InvalidSettings, match="dead_letter_retention_ms of others"):
            mq.create_topic("others.dlq", **given)
    mq.alter_topic("orders.dlq", lease_ms=7, retention_ms=None)
    assert mq.topic("orders.dlq").settings.lease_ms == 7


def test_a_message_that_somebody_put_there_does_not_say_where_it_came_from(mq: Any) -> None:
    mq.create_topic("secret")
    orders = kill(mq, "orders", 0)
    graves = mq.queue("orders.dlq")
    graves.put(b"by hand", headers=FORGED, priority="high")
    graves.put(b"later", headers=FORGED, delay=0.001)
    letters = {letter.value: letter for letter in orders.dead_letters()}
    while b"later" not in letters:
        letters = {letter.value: letter for letter in orders.dead_letters()}
        graves.scheduled()
    for value in (b"by hand", b"later"):
        assert letters[value].by_hand
        assert (letters[value].topic, letters[value].group, letters[value].reason) == ("orders", "", "")
        assert letters[value].original_headers == letters[value].headers == FORGED
    assert not letters[b"0"].by_hand
    assert sorted(tuple(each) for each in orders.dead_letter_reasons()) == [
        ("", "orders", "", 2),
        ("broken", "orders", "billing", 1),
    ]
    assert orders.redrive(lambda letter: letter.reason == "forged") == 0
    assert orders.redrive() == 3
    back = {message.value: message for message in mq.queue("orders", "new").get_many(10)}
    assert (back[b"by hand"].priority, back[b"by hand"].headers) == ("high", FORGED)
    assert mq.queue("secret").get() is None


@pytest.mark.parametrize("flags", [Flag.DEAD_LETTERS, Flag.TRANSACTIONAL, Flag.ENCRYPTED, Flag.CONTROL])
def test_what_only_the_queue_says_of_a_frame_is_refused(mq: Any, flags: int) -> None:
    frame = encode([b"forged"], timestamp=7, headers=[FORGED])
    header: Header = parse_header(bytes(frame))._replace(flags=flags)
    forged = header.pack() + bytes(frame)[80:]
    with pytest.raises(quivermq.InvalidFrame):
        mq.queue("orders.dlq").put_frame(forged)
    assert mq.queue("orders.dlq").dead_letters() == []


def test_no_dead_letter_is_compacted_away(mq: Any) -> None:
    mq.create_topic("orders")
    kill(mq, "orders", 0)
    # By name and with the reason, and nobody is sent from one refusal to the next.
    for change, name in ((mq.alter_topic, "orders.dlq"), (mq.create_topic, "parcels.dlq")):
        with pytest.raises(quivermq.InvalidSettings, match="each of them is kept, whatever its key"):
            change(name, cleanup="compact")
    frame = bytes(encode([b"x"], timestamp=1))
    with pytest.raises(
        quivermq.InvalidRequest, match=r"orders\.dlq holds dead letters: each of them is kept"
    ):
        mq.replace_segment("orders.dlq", 0, 0, frame, expected="1-00000000")


def test_dead_letters_of_another_queue_are_adopted(mq: Any) -> None:
    mq.create_topic("orders", partitions=2)
    told = {"quiver-dlq-topic": b"secret", "quiver-dlq-reason": b"broken", "quiver-dlq-group": b"billing"}
    frame = bytes(encode([b"a", b"b"], headers=[told] * 2, timestamp=1))
    for name, offset in (("orders", 0), ("orders.dlq", 2)):
        put = mq.adopt_dead_letters(name, frame, partition=1, priority="high")
        assert (put.topic, put.partition, put.priority, put.offset) == ("orders.dlq", 1, "high", offset)
    letters = mq.queue("orders").dead_letters()
    # Which topic they are dead letters of follows from where they are.
    assert [(each.value, each.topic, each.reason, each.by_hand) for each in letters] == [
        (value, "orders", "broken", False) for value in (b"a", b"b", b"a", b"b")
    ]
    with pytest.raises(quivermq.InvalidRequest):
        mq.adopt_dead_letters("orders", frame, partition=7)
    with pytest.raises(quivermq.InvalidRequest):
        mq.adopt_dead_letters("orders", frame, priority="urgent")
    with pytest.raises(quivermq.InvalidFrame):
        mq.adopt_dead_letters("orders", b"nonsense" * 20)
    with pytest.raises(quivermq.InvalidName):
        mq.adopt_dead_letters("a/b", frame)
    assert mq.queue("orders").redrive() == 4
