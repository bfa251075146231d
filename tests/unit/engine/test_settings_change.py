"""Settings of a topic, each changed while it is in use, and what that changes."""

from typing import Any

import pytest
from support.faulty_disk import FaultyDisk
from support.threads import start
from unit.engine.store import DATA, Store, drain

import quivermq
from quivermq.settings import CodecName


def get(queue: quivermq.Queue) -> quivermq.Delivery:
    message = queue.get()
    assert message is not None
    return message


def test_lease(store: Store) -> None:
    queue = store.queue(lease_ms=10_000)
    queue.put_many([b"before", b"after"])
    get(queue)
    store.engine.alter_topic("orders", lease_ms=1000)
    get(queue)
    store.clock.advance(1)
    assert get(queue).value == b"after"
    store.clock.advance(9)
    assert {m.value for m in queue.get_many(5)} == {b"before", b"after"}


def test_attempts(store: Store) -> None:
    queue = store.queue(attempts_max=5)
    queue.put(b"x")
    get(queue).nack(delay=0)
    message = get(queue)
    store.engine.alter_topic("orders", attempts_max=2)
    message.nack(delay=0)
    assert len(queue.dead_letters()) == 1


def test_backoff(store: Store) -> None:
    queue = store.queue(backoff_ms=0, backoff_ms_max=0)
    queue.put(b"x")
    get(queue).nack()
    message = get(queue)
    store.engine.alter_topic("orders", backoff_ms_max=4000, backoff_ms=2000)
    message.nack()
    store.clock.advance(1.9)
    assert queue.get() is None
    store.clock.advance(2.1)
    assert get(queue).attempt == 3


def test_durability(store: Store) -> None:
    queue = store.queue(durability="buffered")
    queue.put(b"lost")
    store.engine.alter_topic("orders", durability="fsync")
    queue.put(b"kept")
    store.disk.stop()
    engine = store.open_again(store.disk.after_power_loss(keep="nothing"))
    assert b"kept" in drain(engine.queue("orders"))


@pytest.mark.parametrize("settings", [{"durability": "fsync"}, {"durability": "os"}])
def test_durability_of_acks(store: Store, settings: dict[str, Any]) -> None:
    queue = store.queue(**settings)
    queue.put_many([b"acked", b"leased"])
    get(queue).ack()
    leased = get(queue)
    engine = store.kill()
    queue = engine.queue("orders")
    assert queue.get() is None
    queue.ack(leased.receipt)
    assert queue.stats().backlog == 0


def test_message_size(store: Store) -> None:
    queue = store.queue()
    queue.put(bytes(1000))
    store.engine.alter_topic("orders", message_bytes_max=100)
    for put in (
        lambda: queue.put(bytes(101)),
        lambda: queue.put(bytes(50), key=bytes(51)),
        lambda: queue.put_many([b"", bytes(101)]),
        lambda: queue.put(bytes(101), delay=5),
    ):
        with pytest.raises(quivermq.MessageTooLarge) as caught:
            put()
        assert (caught.value.limit_bytes, caught.value.setting) == (100, "message_bytes_max")
    queue.put(bytes(100))
    assert [len(value) for value in drain(queue)] == [1000, 100]
    assert caught.value.size_bytes == 101


def test_what_was_let_in_before_a_lower_limit_still_comes(store: Store) -> None:
    """Whether it waits to be due or to be sent back: it must not hold up everybody else for ever."""
    queue = store.queue()
    queue.put(b"dead" + bytes(1000))
    queue.get_many(1)[0].reject()
    queue.put(b"late" + bytes(1000), delay=5)
    queue.put(b"later", delay=6)
    store.engine.alter_topic("orders", message_bytes_max=100)
    store.pass_time(6)
    assert [value[:5] for value in drain(queue)] == [b"late\0", b"later"]
    assert queue.redrive() == 1
    [message] = queue.get_many(1)
    assert message.value.startswith(b"dead")
    message.reject()
    assert queue.stats().dead_letters == 1


def test_many_small_headers_do_not_keep_a_message_from_its_lane(faulty_disk: FaultyDisk) -> None:
    """Its frame is larger than a batch from outside may be, though the message is not."""
    narrow = quivermq.StorageSettings(message_bytes_max=20_000, frame_bytes_max=24_096, batch_bytes=1000)
    store = Store(faulty_disk, quivermq.Settings(storage=narrow))
    queue = store.queue()
    headers = {f"{number:04x}": b"" for number in range(4900)}
    queue.put(b"now", headers=headers)
    queue.put(b"late", headers=headers, delay=5)
    store.pass_time(5)
    for message in queue.get_many(2):
        message.reject()
    assert queue.redrive() == 2
    assert sorted(drain(queue)) == [b"late", b"now"]
    store.close()


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip", "none"])
def test_codec(store: Store, codec: CodecName) -> None:
    queue = store.queue()
    value = b"again and " * 1000
    queue.put(value)
    plain = _size(store)
    store.engine.alter_topic("orders", codec=codec)
    queue.put(value)
    queue.put_many([value, quivermq.Message(value, key=b"k")])
    queue.put(value, delay=5)
    store.pass_time(5)
    assert (_size(store) < 2 * plain) == (codec != "none")
    assert drain(queue) == [value] * 5


def _size(store: Store) -> int:
    root = DATA / "topics/orders/p0/normal"
    return sum(len(data) for path, data in store.files().items() if path.is_relative_to(root))


def test_dead_letter_expired(store: Store) -> None:
    queue = store.queue()
    queue.put_many([quivermq.Message(b"x", ttl=1)] * 2)
    store.clock.advance(1)
    assert queue.get() is None
    queue.put_many([quivermq.Message(b"x", ttl=1)] * 2)
    store.engine.alter_topic("orders", dead_letter_expired=True)
    store.clock.advance(1)
    assert queue.get() is None
    assert len(queue.dead_letters()) == 2


def test_delete_finished_and_force(store: Store) -> None:
    queue = store.queue(segment_messages=1)
    for n in range(5):
        queue.put(b"%d" % n)
    queue.ack(queue.get_many(2))
    assert store.engine.compact().messages == 0
    store.engine.alter_topic("orders", delete_finished=True)
    assert store.engine.compact().messages == 2
    store.engine.alter_topic("orders", delete_finished=False, retention_messages=1)
    assert store.engine.compact().messages == 0
    store.engine.alter_topic("orders", retention_force=True)
    assert store.engine.compact().messages == 2


def test_settings_written_as_text(store: Store) -> None:
    store.engine.create_topic(
        "t",
        partitions="2",
        segment_bytes="1MiB",
        ttl_ms="none",
        retention_force="true",  # type: ignore[arg-type]  # As text it comes from a file.
        attempts_max="none",
    )
    settings = store.engine.topic("t").settings
    assert (settings.partitions, settings.segment_bytes, settings.ttl_ms) == (2, 1024 * 1024, None)
    assert (settings.retention_force, settings.attempts_max) == (True, None)


def test_no_change_is_allowed(store: Store) -> None:
    store.engine.create_topic("t")
    before = store.engine.topic("t")
    store.engine.alter_topic("t")
    store.engine.alter_topic("t", partitions=1)
    assert store.engine.topic("t") == before


def test_a_change_that_cannot_be_stored_changes_nothing(store: Store) -> None:
    queue = store.queue(lease_ms=1000)
    queue.put(b"x")
    before = store.engine.topic("orders")
    store.disk.fill_after(0)
    with pytest.raises(quivermq.DiskFull):
        store.engine.alter_topic("orders", lease_ms=5000, partitions=3)
    assert store.engine.topic("orders") == before
    store.disk.fill_after(None)
    assert drain(queue) == [b"x"]
    assert store.reopen().topic("orders") == before


def test_the_defaults_of_new_topics_come_from_the_settings_of_the_queue(store: Store) -> None:
    store.engine.close()
    storage = quivermq.StorageSettings(durability="os", codec="zstd", retention_ms=5000)
    store._settings = quivermq.Settings(storage=storage)
    engine = store.open_again(store.disk)
    engine.queue("t").put(b"x")
    settings = engine.topic("t").settings
    assert (settings.durability, settings.codec, settings.retention_ms) == ("os", "zstd", 5000)


def test_settings_change_while_others_put_and_get(mq: quivermq.Connection) -> None:
    # Neither the end of a lease nor that of its patience shall save the consumer.
    mq.create_topic("orders", durability="os", lease_ms=1_000_000)
    queue = mq.queue("orders")
    count = 200

    def produce() -> None:
        for n in range(count):
            queue.put(b"%d" % n, key=b"%d" % n)

    def consume() -> list[bytes]:
        seen: list[bytes] = []
        while len(seen) < count:
            message = queue.get(timeout=600)
            assert message is not None
            seen.append(message.value)
            message.ack()
        return seen

    producer, consumer = start(produce), start(consume)
    for n in range(2, 8):
        mq.alter_topic("orders", partitions=n, ordering=("key", "none")[n % 2], lease_ms=n * 1_000_000)
    producer.result(60)
    assert sorted(consumer.result(20)) == sorted(b"%d" % n for n in range(count))


def test_partitions_that_are_added_have_the_settings_that_come_with_them(store: Store) -> None:
    queue = store.queue("orders", attempts_max=1, lease_ms=10_000)
    assert queue.get() is None
    store.engine.alter_topic("orders", partitions=2, attempts_max=3, lease_ms=60_000)
    queue.put(b"x", partition=1)
    message = queue.get()
    assert message is not None
    message.nack(delay=0)
    assert queue.stats().dead_letters == 0
    again = queue.get()
    assert again is not None
    assert again.attempt == 2
