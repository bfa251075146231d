"""Dead letters: how they come to be, what they tell, and how they go back."""

import logging

import pytest
from unit.engine.store import DATA, Store, drain, values

import quivermq
from quivermq.engine import engine_of

HEADERS = (
    "topic",
    "partition",
    "priority",
    "offset",
    "timestamp",
    "attempts",
    "reason",
    "error",
    "group",
    "time",
)


def get(queue: quivermq.Queue) -> quivermq.Delivery:
    message = queue.get()
    assert message is not None
    return message


def kill_all(queue: quivermq.Queue, reason: str | None = None) -> None:
    while messages := queue.get_many(1000):
        queue.reject(messages, reason)


def test_a_dead_letter_tells_its_story(store: Store) -> None:
    queue = store.queue(partitions=3, group="billing")
    queue.put(b"v", key=b"k", headers={"h": b"1"}, priority="high", partition=2, timestamp=12_345_678)
    store.pass_time(5)
    get(queue).reject("bad address", error="ValueError: ö")
    [letter] = queue.dead_letters()
    assert (letter.value, letter.key, letter.original_headers) == (b"v", b"k", {"h": b"1"})
    assert (letter.topic, letter.partition, letter.priority, letter.offset) == ("orders", 2, "high", 0)
    assert (letter.timestamp, letter.attempts, letter.group) == (12_345_678, 1, "billing")
    assert (letter.reason, letter.error) == ("bad address", "ValueError: ö")
    assert letter.time == store.clock.now_us()
    record = get(store.queue("orders.dlq"))
    assert (record.value, record.key, record.priority) == (b"v", b"k", "normal")
    assert record.headers == {
        "h": b"1",
        "quiver-dlq-topic": b"orders",
        "quiver-dlq-partition": b"2",
        "quiver-dlq-priority": b"high",
        "quiver-dlq-offset": b"0",
        "quiver-dlq-timestamp": b"12345678",
        "quiver-dlq-attempts": b"1",
        "quiver-dlq-reason": b"bad address",
        "quiver-dlq-error": "ValueError: ö".encode(),
        "quiver-dlq-group": b"billing",
        "quiver-dlq-time": b"%d" % store.clock.now_us(),
    }


@pytest.mark.parametrize(
    ("way", "reason", "attempts"),
    [
        ("reject", "rejected", 1),
        ("nack", "attempts", 3),
        ("lease", "lease_expired", 3),
        ("ttl", "expired", 0),
    ],
)
def test_reasons_that_nobody_gave(store: Store, way: str, reason: str, attempts: int) -> None:
    queue = store.queue(lease_ms=1000, dead_letter_expired=True)
    queue.put(b"x", ttl=1 if way == "ttl" else None)
    if way == "ttl":
        store.pass_time(1)
    while (message := queue.get()) is not None:
        if way == "reject":
            message.reject()
        elif way == "nack":
            message.nack(delay=0)
        else:
            store.pass_time(1)
    [letter] = queue.dead_letters()
    assert (letter.reason, letter.attempts, letter.error) == (reason, attempts, "")


def test_the_reason_of_the_last_nack_counts(store: Store) -> None:
    queue = store.queue(attempts_max=2)
    queue.put(b"x")
    get(queue).nack(delay=0, reason="first", error="1")
    get(queue).nack(delay=0, reason="second", error="2")
    [letter] = queue.dead_letters()
    assert (letter.reason, letter.error) == ("second", "2")


@pytest.mark.parametrize("text", ["\ud800", "x" * 1_000_000, "a\nb\0c", ""])
def test_any_text_may_be_a_reason(store: Store, text: str) -> None:
    queue = store.queue()
    queue.put(b"x")
    get(queue).reject(text, error=text)
    [letter] = queue.dead_letters()
    assert len(letter.headers["quiver-dlq-error"]) < 100_000
    assert values(store.reopen().queue("orders").dead_letters()) == [b"x"]


def test_a_message_of_the_greatest_size_can_die(store: Store) -> None:
    queue = store.queue()
    value = bytes(2 * 1024 * 1024)
    queue.put(value)
    get(queue).reject("x" * 1000, error="y" * 10_000)
    assert queue.dead_letters()[0].value == value
    assert queue.redrive() == 1
    assert drain(queue) == [value]


def test_dead_letters_of_each_group(store: Store) -> None:
    store.queue().put(b"x")
    for group in ("a", "b"):
        get(store.queue(group=group)).reject()
    assert sorted(letter.group for letter in store.queue().dead_letters()) == ["a", "b"]


def test_messages_of_a_dead_letter_topic_do_not_die(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    get(queue).reject()
    graves = store.queue("orders.dlq")
    for attempt in range(1, 8):
        message = get(graves)
        assert message.attempt == attempt
        message.nack(delay=0)
    message = get(graves)
    with pytest.raises(quivermq.InvalidRequest):
        message.reject()
    with pytest.raises(quivermq.InvalidRequest):
        graves.reject([message])
    for _ in range(5):
        store.pass_time(31)
        message = get(graves)
    message.ack()
    assert store.engine.topics() == ["orders", "orders.dlq"]
    assert values(queue.dead_letters()) == [b"x"]


def test_dead_letters_are_found_through_either_topic(store: Store) -> None:
    queue, graves = store.queue(), store.queue("orders.dlq")
    queue.put_many([b"1", b"2", b"3"])
    kill_all(queue)
    assert queue.dead_letters() == graves.dead_letters()
    assert values(queue.dead_letters(limit=2)) == [b"1", b"2"]
    assert queue.dead_letters(limit=0) == []
    assert graves.redrive(limit=1) == 1
    assert queue.redrive() == 2


def test_redriven_messages_go_where_they_came_from(store: Store) -> None:
    queue = store.queue(partitions=2)
    queue.put(b"v", key=b"k", headers={"h": b"1"}, priority="low", partition=1, timestamp=12_345_678)
    get(queue).reject("why")
    assert queue.redrive() == 1
    assert queue.dead_letters() == []
    assert queue.redrive() == 0
    message = get(queue)
    assert (message.value, message.key, message.headers) == (b"v", b"k", {"h": b"1"})
    assert (message.partition, message.priority, message.attempt) == (1, "low", 1)
    assert (message.offset, message.timestamp) == (1, 12_345_678)
    message.ack()


def test_redriven_messages_vanish_for_everybody(store: Store) -> None:
    queue, graves = store.queue(), store.queue("orders.dlq")
    early = store.queue("orders.dlq", group="early")
    queue.put_many([b"1", b"2", b"3"])
    kill_all(queue)
    held = early.get()
    assert held is not None
    assert queue.redrive(lambda letter: letter.value != b"2") == 2
    assert values(graves.read()) == [b"2"]
    assert values(graves.peek(5)) == [b"2"]
    assert graves.stats().pending == 1
    assert values(graves.get_many(5)) == [b"2"]
    store.pass_time(31)
    assert values(early.get_many(5)) == [b"2"]
    store.kill()
    assert values(store.queue("orders.dlq", group="new").get_many(5)) == [b"2"]
    assert values(store.queue().dead_letters()) == [b"2"]
    assert store.queue("orders.dlq", group="other").stats().pending == 1
    assert store.queue().stats().dead_letters == 1


def test_filter_and_limit(store: Store) -> None:
    queue = store.queue(partitions=2)
    queue.put_many([b"%d" % n for n in range(10)])
    kill_all(queue)
    assert queue.redrive(limit=0) == 0
    assert queue.redrive(lambda letter: int(letter.value) % 2 == 0, limit=3) == 3
    assert queue.redrive(lambda letter: int(letter.value) % 2 == 0) == 2
    assert queue.redrive(filter=lambda letter: letter.reason == "else") == 0
    assert sorted(values(queue.dead_letters())) == [b"1", b"3", b"5", b"7", b"9"]
    assert sorted(drain(queue)) == [b"0", b"2", b"4", b"6", b"8"]


def test_every_group_sees_a_redriven_message(store: Store) -> None:
    a, b = store.queue(group="a"), store.queue(group="b")
    a.put(b"x")
    drain(b)
    get(a).reject()
    a.redrive()
    assert drain(a) == [b"x"]
    assert drain(b) == [b"x"]


def test_a_redriven_message_may_die_again(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x", headers={"h": b"1"})
    for _ in range(3):
        get(queue).reject()
        assert len(queue.dead_letters()) == 1
        assert queue.redrive() == 1
    assert get(queue).headers == {"h": b"1"}


def test_very_many_dead_letters_go_back(store: Store) -> None:
    queue = store.queue(durability="os")
    queue.put_many([b"%d" % n for n in range(1500)])
    kill_all(queue)
    assert queue.stats().dead_letters == 1500
    assert queue.redrive() == 1500
    assert drain(queue) == [b"%d" % n for n in range(1500)]


def test_large_dead_letters_go_back(store: Store) -> None:
    queue = store.queue(durability="os")
    queue.put_many([bytes([n]) * 700_000 for n in range(6)])
    kill_all(queue)
    assert queue.redrive() == 6
    assert [value[0] for value in drain(queue)] == list(range(6))


def test_dead_letters_are_discarded(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2", b"3"])
    kill_all(queue)
    assert queue.discard(lambda letter: letter.value == b"2") == 1
    assert values(queue.dead_letters()) == [b"1", b"3"]
    assert queue.discard(limit=1) == 1
    store.kill()
    assert values(store.queue().dead_letters()) == [b"3"]


def test_a_letter_that_somebody_put_there_by_hand(store: Store) -> None:
    store.engine.create_topic("orders")
    graves = store.queue("orders.dlq")
    graves.put(
        b"hand", headers={"quiver-dlq-partition": b"x", "quiver-dlq-priority": b"urgent", "own": b"1"}
    )
    [letter] = store.queue().dead_letters()
    assert (letter.topic, letter.partition, letter.priority) == ("orders", 0, "normal")
    assert store.queue().redrive() == 1
    message = get(store.queue())
    assert (message.value, message.headers["own"]) == (b"hand", b"1")


@pytest.mark.parametrize("topic", [b"../../etc", b"nowhere", b"secret"])
def test_a_letter_that_claims_to_be_from_elsewhere_goes_to_the_topic_of_the_others(
    store: Store, topic: bytes
) -> None:
    store.engine.create_topic("secret")
    queue, graves = store.queue(), store.queue("orders.dlq")
    graves.put(b"bad", headers={"quiver-dlq-topic": topic})
    queue.put(b"good")
    get(queue).reject()
    assert queue.redrive() == 2
    assert sorted(drain(queue)) == [b"bad", b"good"]
    assert store.queue("secret").get() is None


def test_without_its_topic_a_dead_letter_stays(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    kill_all(queue)
    store.engine.delete_topic("orders")
    with pytest.raises(quivermq.TopicNotFound):
        queue.redrive()
    assert values(queue.dead_letters()) == [b"x"]


def test_a_dead_letter_topic_that_was_made_before_has_enough_partitions(store: Store) -> None:
    store.engine.create_topic("orders.dlq", partitions=2)
    queue = store.queue(partitions=5)
    for partition in range(5):
        queue.put(b"%d" % partition, partition=partition)
    kill_all(queue)
    graves = store.queue("orders.dlq")
    assert [values(graves.read(partition=number)) for number in range(5)] == [[b"%d" % n] for n in range(5)]
    assert queue.redrive() == 5
    assert {m.partition: m.value for m in queue.get_many(10)} == {n: b"%d" % n for n in range(5)}


def test_an_alteration_that_was_cut_short_is_finished_by_the_next_opening(store: Store) -> None:
    queue = store.queue(partitions=2)
    queue.put(b"x", partition=1)
    kill_all(queue)
    hosted = engine_of(store.engine).catalog.get("orders")
    altered = hosted.settings.changed({"partitions": 3, "dead_letter_retention_ms": 5})
    engine_of(store.engine).catalog.directories.store("orders", altered, origin=None)
    store.kill()
    assert store.engine.topic("orders.dlq").partitions == 3
    assert store.engine.topic("orders.dlq").settings.retention_ms == 5
    store.kill()
    assert values(store.queue().dead_letters()) == [b"x"]


def test_what_a_topic_is_survives_its_file(store: Store) -> None:
    queue = store.queue(partitions=2, dead_letter_suffix="-failed")
    queue.put(b"x", partition=1)
    kill_all(queue)
    store.engine.close()
    store.disk.remove(DATA / "topics/orders-failed/topic.json")
    store.open_again(store.disk)
    assert store.engine.topic("orders-failed").dead_letters_of == "orders"
    assert values(store.queue().dead_letters()) == [b"x"]


def test_what_is_dropped_instead_of_a_dead_letter_is_counted_and_told(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    queue = store.queue(dead_letters=False, lease_ms=1000, attempts_max=1)
    queue.put_many([b"a", b"b"])
    get(queue).reject()
    get(queue)
    store.pass_time(2)
    told = {sample["name"]: sample.get("value") for sample in engine_of(store.engine).collect_metrics()}
    assert told["quiver_messages_given_up_total"] == 2
    assert caplog.text.count("1 messages of orders were given up and dropped") == 2
    store.kill()
    assert (store.queue().get(), store.engine.topics()) == (None, ["orders"])


def test_a_full_disk_keeps_the_message_where_it_is(store: Store) -> None:
    queue = store.queue(lease_ms=1000)
    queue.put(bytes(3000))
    message = get(queue)
    store.disk.fill_after(100)
    with pytest.raises(quivermq.DiskFull):
        message.reject()
    store.disk.fill_after(None)
    assert queue.dead_letters() == []
    assert queue.stats().backlog == 1
    store.pass_time(1)
    get(queue).reject()
    assert len(queue.dead_letters()) == 1
    assert queue.stats().backlog == 0


def test_dead_letters_count_in_the_story_headers(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    get(queue).reject()
    assert {f"quiver-dlq-{name}" for name in HEADERS} == set(queue.dead_letters()[0].headers)


def test_many_dead_letters_are_told_in_one_line(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    queue = store.queue()
    queue.put_many([b"x"] * 300)
    with caplog.at_level(logging.WARNING):
        for message in queue.get_many(200):
            message.reject("no")
        assert caplog.messages == ["dead letters of orders: 1 more"]
        store.pass_time(1)
        assert caplog.messages[1:] == [
            "dead letters of orders: 199 more, such as offsets 1, 2, 3 of partition 0"
        ]
        for message in queue.get_many(10):
            message.reject("no")
        store.close()
    assert caplog.messages[2:] == [
        "dead letters of orders: 10 more, such as offsets 200, 201, 202 of partition 0"
    ]
