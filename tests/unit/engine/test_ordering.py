"""Order inside a key: across nack, delay, expiry, priorities, settings and reopening."""

from unit.engine.store import Store, drain

import quivermq
from quivermq.model.lanes import priority_of


def put(queue: quivermq.Queue, *texts: str, priority: str = "normal") -> None:
    """`a1` is the first message of the key `a`; without a letter there is no key."""
    for text in texts:
        key = text[0].encode() if text[0].isalpha() else None
        queue.put(text.encode(), key=key, priority=priority_of(priority))


def take(queue: quivermq.Queue, count: int = 100) -> dict[str, quivermq.Delivery]:
    return {message.value.decode(): message for message in queue.get_many(count)}


def test_only_the_oldest_of_a_key_is_in_flight(store: Store) -> None:
    queue = store.queue(ordering="key")
    put(queue, "a1", "a2", "b1", "a3", "1", "b2", "2")
    first = take(queue)
    assert list(first) == ["a1", "b1", "1", "2"]
    assert take(queue) == {}
    first["b1"].ack()
    assert list(take(queue)) == ["b2"]
    first["a1"].ack()
    second = take(queue)
    assert list(second) == ["a2"]
    second["a2"].ack()
    assert list(take(queue)) == ["a3"]


def test_without_ordering_keys_do_not_wait(store: Store) -> None:
    queue = store.queue()
    put(queue, "a1", "a2")
    assert list(take(queue)) == ["a1", "a2"]


def test_a_key_waits_for_its_retry(store: Store) -> None:
    queue = store.queue(ordering="key")
    put(queue, "a1", "a2", "b1")
    take(queue)["a1"].nack(delay=5)
    assert take(queue) == {}
    store.pass_time(5)
    again = take(queue)
    assert list(again) == ["a1"]
    assert again["a1"].attempt == 2
    again["a1"].ack()
    assert list(take(queue)) == ["a2"]


def test_a_key_waits_for_an_expired_lease(store: Store) -> None:
    queue = store.queue(ordering="key", lease_ms=1000)
    put(queue, "a1", "a2")
    take(queue)
    store.pass_time(1)
    again = take(queue)
    assert list(again) == ["a1"]
    assert again["a1"].attempt == 2


def test_a_dead_letter_lets_the_next_go(store: Store) -> None:
    queue = store.queue(ordering="key")
    put(queue, "a1", "a2", "a3")
    take(queue)["a1"].reject()
    taken = take(queue)
    assert list(taken) == ["a2"]
    for _ in range(2):
        taken["a2"].nack(delay=0)
        taken = take(queue)
    taken["a2"].nack()
    assert list(take(queue)) == ["a3"]


def test_an_expired_message_lets_the_next_go(store: Store) -> None:
    queue = store.queue(ordering="key")
    queue.put(b"a1", key=b"a")
    queue.put(b"a2", key=b"a", ttl=5)
    put(queue, "a3")
    first = take(queue)
    store.pass_time(6)
    first["a1"].ack()
    assert list(take(queue)) == ["a3"]


def test_a_key_waits_across_priorities(store: Store) -> None:
    queue = store.queue(ordering="key")
    put(queue, "a1", priority="low")
    assert list(take(queue)) == ["a1"]
    put(queue, "a2", priority="high")
    assert take(queue) == {}


def test_a_pop_lets_the_next_go(store: Store) -> None:
    queue = store.queue(ordering="key")
    put(queue, "a1", "a2", "a3")
    assert [message.value for _ in range(4) if (message := queue.pop())] == [b"a1", b"a2", b"a3"]


def test_a_delayed_message_waits_for_its_key_once_it_is_due(store: Store) -> None:
    queue = store.queue(ordering="key")
    queue.put(b"a1", key=b"a", delay=5)
    put(queue, "a2")
    first = take(queue)
    assert list(first) == ["a2"]
    store.pass_time(5)
    assert take(queue) == {}
    first["a2"].ack()
    assert list(take(queue)) == ["a1"]


def test_groups_wait_for_themselves_alone(store: Store) -> None:
    queue = store.queue(ordering="key")
    put(queue, "a1", "a2")
    take(queue)
    assert list(take(store.queue(group="other"))) == ["a1"]


def test_order_holds_after_reopening(store: Store) -> None:
    queue = store.queue(ordering="key")
    put(queue, "a1", "a2", "b1", "b2", "c1", "c2")
    first = take(queue)
    first["b1"].nack(delay=5)
    first["c1"].ack()
    queue = store.kill().queue("orders")
    assert list(take(queue)) == ["c2"]
    queue.ack(first["a1"].receipt)
    assert list(take(queue)) == ["a2"]
    store.pass_time(5)
    assert list(take(queue)) == ["b1"]


def test_ordering_is_switched_on_and_off_while_running(store: Store) -> None:
    queue = store.queue()
    put(queue, "a1", "a2", "a3", "a4")
    first = take(queue, 1)
    store.engine.alter_topic("orders", ordering="key")
    assert take(queue) == {}
    first["a1"].ack()
    assert list(take(queue)) == ["a2"]
    store.engine.alter_topic("orders", ordering="none")
    assert list(take(queue)) == ["a3", "a4"]


def test_ordering_switched_on_with_many_of_a_key_in_flight(store: Store) -> None:
    queue = store.queue()
    put(queue, "a1", "a2", "a3")
    first = take(queue, 2)
    store.engine.alter_topic("orders", ordering="key")
    first["a2"].nack(delay=0)
    assert take(queue) == {}
    first["a1"].ack()
    second = take(queue)
    assert list(second) == ["a2"]
    second["a2"].ack()
    assert list(take(queue)) == ["a3"]


def test_a_seek_begins_the_key_anew(store: Store) -> None:
    queue = store.queue(ordering="key")
    put(queue, "a1", "a2")
    take(queue)
    queue.seek("earliest")
    again = take(queue)
    assert list(again) == ["a1"]
    again["a1"].ack()
    assert list(take(queue)) == ["a2"]


def test_many_messages_of_one_key_keep_no_other_waiting(store: Store) -> None:
    queue = store.queue(ordering="key", durability="os")
    queue.put_many([quivermq.Message(b"a%d" % n, key=b"a") for n in range(3000)])
    put(queue, "b1")
    assert list(take(queue, 2)) == ["a0", "b1"]


def test_everything_of_many_keys_comes_in_order(store: Store) -> None:
    queue = store.queue(ordering="key", partitions=2, durability="os")
    queue.put_many([quivermq.Message(b"%d" % n, key=b"%d" % (n % 5)) for n in range(200)])
    seen: dict[bytes | None, list[int]] = {}
    round_ = 0
    while messages := queue.get_many(3):
        for number, message in enumerate(messages):
            if message.attempt == 1 and (round_ + number) % 3 == 0:
                message.nack(delay=0)
            else:
                message.ack()
                seen.setdefault(message.key, []).append(int(message.value))
        round_ += 1
    assert sum(map(len, seen.values())) == 200
    for numbers in seen.values():
        assert numbers == sorted(numbers)
    assert drain(queue) == []
